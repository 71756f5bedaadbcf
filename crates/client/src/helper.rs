//! The thread that reaps for futures polled where nobody else does, in another runtime's tasks, and for whoever sleeps on a descriptor. Started at
//! the first such await or descriptor; parked whenever it is not needed, so that a thread that waits for itself need not share the bell with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio_words::{Errno, IoError, RequestFault};

use crate::carrier::Carrier;
use crate::client::Client;
use crate::event::Event;
use crate::inside::reaper_of;
use crate::sync::{self, Ordering};
use crate::table::HELPER;

impl<K: Carrier> Client<K> {
    /// Does anybody reap for a future that this thread polls? Starts the helper if nobody else would.
    pub fn is_driven(self: &Arc<Self>) -> bool {
        !self.is_forked()
            && (reaper_of(self) != HELPER || self.has_helper.load(Ordering::Acquire) || self.start_helper())
    }

    pub(crate) fn start_helper(self: &Arc<Self>) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = self.lock();
        if !self.has_helper.load(Ordering::Acquire) && start(self) {
            state.helper.started = true;
            // Other side: `is_driven`, on any thread.
            self.has_helper.store(true, Ordering::Release);
        }
        self.has_helper.load(Ordering::Acquire)
    }

    /// A thread that reaped for itself stops doing so: the helper takes over what is left.
    pub(crate) fn leave(self: &Arc<Self>, reaper: u64) {
        let mut state = self.lock();
        state.table.leave_to_helper(reaper);
        let needed = state.needs_helper();
        // Who is on the bell by now has sent what there was before, and sleeps on.
        let ring = needed && self.flush(&mut state);
        self.finish_up(state, ring);
        if !needed {
            return;
        }
        if self.start_helper() {
            self.finish_up(self.lock(), false);
        } else {
            // Without a thread for it, whoever awaits must look again to be told.
            self.lock().table.wake_awaited();
            self.look_once();
        }
    }

    /// A descriptor that is readable while an outcome lies there for [`Client::next_outcome`], and once the client has ended; each call gives the
    /// same one. It is to be polled, and neither read nor written. What is queued is sent by whoever turns the client before it sleeps
    /// ([`Client::turn_once`]).
    ///
    /// # Errors
    /// It is the parent's of this process; there is no thread or no descriptor left.
    pub fn event_fd(self: &Arc<Self>) -> Result<Arc<OwnedFd>, RequestFault> {
        if self.is_forked() {
            return Err(RequestFault::Io(IoError::Forked));
        }
        let failed = |errno: Errno| RequestFault::Io(IoError::System(errno));
        if !self.start_helper() {
            return Err(failed(Errno::EAGAIN));
        }
        let mut state = self.lock();
        let event = match state.event.take() {
            Some(event) => event,
            None => Event::new().map_err(|errno| failed(Errno::from_raw(errno.raw_os_error())))?,
        };
        let fd = event.fd();
        state.event = Some(event);
        self.finish_up(state, false);
        Ok(fd)
    }

    pub(crate) fn helper_is_gone(&self) {
        self.lock().helper.started = false;
        self.has_helper.store(false, Ordering::Release);
    }

    /// The helper ends when it has woken whoever waits.
    pub fn dismiss_helper(&self) {
        let mut state = self.lock();
        state.helper.dismissed = true;
        state.helper.call();
    }
}

/// False: the thread cannot be had.
fn start<K: Carrier>(client: &Arc<Client<K>>) -> bool {
    let client = Arc::clone(client);
    sync::start("baio-helper", move || run(&client)).is_ok()
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
        if state.needs_helper() && !state.sleeper {
            state = client.sleep(state, &me, false, None);
        } else {
            client.finish_up(state, false);
            me.park(None);
            state = client.lock();
        }
    }
}
