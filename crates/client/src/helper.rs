//! The thread that reaps for futures polled where nobody else does: in another runtime's tasks. Started at the first such
//! await; parked whenever it is not needed, so that a thread that waits for itself need not share the bell with it.

use std::sync::Arc;

use crate::carrier::{Between, Carrier};
use crate::client::Client;
use crate::parker::Parker;

pub(crate) struct Helper<K: Carrier> {
    parker: Arc<Parker<K>>,
    pub(crate) started: bool,
    pub(crate) dismissed: bool,
}

impl<K: Carrier> Helper<K> {
    pub(crate) fn new(shared: &Arc<Between<K>>) -> Helper<K> {
        Helper {
            parker: Parker::new(shared),
            started: false,
            dismissed: false,
        }
    }

    /// Has it look again, if there is one.
    pub(crate) fn call(&self) {
        if self.started {
            self.parker.ring();
        }
    }
}

/// False: the thread cannot be had.
pub(crate) fn start<K: Carrier>(client: &Arc<Client<K>>) -> bool {
    let client = Arc::clone(client);
    let thread = std::thread::Builder::new().name("baio-helper".into());
    thread.spawn(move || run(&client)).is_ok()
}

/// A waker that panics takes the helper with it, but others wait: another one comes.
struct Gone<'a, K: Carrier>(&'a Arc<Client<K>>);

impl<K: Carrier> Drop for Gone<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.helper_is_gone();
            self.0.start_helper();
        }
    }
}

fn run<K: Carrier>(client: &Arc<Client<K>>) {
    let _gone = Gone(client);
    let mut state = client.lock();
    let me = Arc::clone(&state.helper.parker);
    loop {
        state = client.look(state);
        // Whoever rang has changed the state before, and that is looked at now.
        me.take();
        let over = state.table.closed.is_some() && state.table.in_flight() == 0 && client.shared.has_ended();
        if state.helper.dismissed || over {
            return client.finish_up(state, false);
        }
        if state.table.needs_helper() && !state.has_sleeper() {
            state = client.sleep(state, &me, false, None);
        } else {
            client.finish_up(state, false);
            me.park(None);
            state = client.lock();
        }
    }
}
