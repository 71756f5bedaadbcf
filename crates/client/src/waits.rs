//! What blocks: each sends what is queued, reaps, and sleeps in between, on the bell or behind whoever is there.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baio_words::{RequestError, RequestFault, Ticket, Time};

use crate::carrier::Carrier;
use crate::client::{Client, instant_of};
use crate::inside::{Inside, next_reaper};
use crate::sync::{self, Ordering};
use crate::table::{Ended, earlier};

/// Why a question got no answer.
#[derive(Clone, Debug)]
pub enum Unasked {
    /// Nothing is taken any more, or the service has ended.
    Refused(RequestFault),
    /// Every place is taken, by outcomes that nobody else would take.
    Full,
    /// The service has ended meanwhile.
    Lost(RequestError),
}

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unasked::Refused(fault) => write!(f, "{fault}"),
            Unasked::Full => write!(f, "every place is taken by an outcome that nobody has taken"),
            Unasked::Lost(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Unasked {}

impl<K: Carrier> Client<K> {
    /// Waits for the end of a request or command, reaping meanwhile. `None` for a ticket that is not valid any more.
    pub fn wait(&self, ticket: Ticket) -> Option<Ended<K>> {
        let reaper = next_reaper();
        // Wakers that ours displaces: who else wants this outcome looks again when we have it, or it has gone.
        let mut displaced: Vec<Waker> = Vec::new();
        let ended = self.wait_until(false, None, |state, me| {
            let mut waker = Some(Waker::from(Arc::clone(me)));
            let polled = state.table.poll(ticket, &mut waker, reaper);
            displaced.extend(waker.filter(|waker| !waker.will_wake(&Waker::from(Arc::clone(me)))));
            match polled {
                Poll::Ready(ended) => Some(ended),
                Poll::Pending => None,
            }
        });
        displaced.into_iter().for_each(Waker::wake);
        ended.flatten()
    }

    /// Waits until nothing is under way.
    pub fn wait_for_all(&self) {
        self.wait_until(true, None, |state, _| (state.table.in_flight() == 0).then_some(()));
    }

    /// Is anything under way, or an outcome about to be taken by who awaits it? Then what these hold comes back.
    pub fn will_give_back(&self) -> bool {
        self.lock().table.is_any_awaited()
    }

    /// Does an outcome lie there that nobody awaits? What it holds comes back when it is taken.
    pub fn has_untaken(&self) -> bool {
        self.lock().table.finished() > 0
    }

    /// Asks the service, and waits for its answer in this thread.
    ///
    /// # Errors
    /// It is not taken, or the service has ended.
    pub fn ask(&self, mut command: Box<K::Command>) -> Result<K::Reply, Unasked> {
        let ticket = loop {
            match self.command(command) {
                Ok(ticket) => break ticket,
                Err(back) => command = back,
            }
            if let Some(fault) = self.refusal() {
                return Err(Unasked::Refused(fault));
            }
            // Every place is taken, perhaps by outcomes that only this thread would take.
            let mut place = None;
            let room = self.wait_until(true, None, |state, me| {
                let (table, waker) = (&mut state.table, Waker::from(Arc::clone(me)));
                let room = table.has_room() || table.closed.is_some();
                if room || table.is_full_of_untaken() {
                    // The wakers are this thread's own.
                    drop(place.take().and_then(|place| table.leave_room(place)));
                    return Some(room);
                }
                // Others free places also by taking outcomes, which ends nothing.
                drop(table.wait_for_room(&mut place, waker, None));
                None
            });
            if room == Some(false) {
                return Err(Unasked::Full);
            }
        };
        match self.wait(ticket) {
            Some(Ended::Command(answer)) => answer.map_err(Unasked::Lost),
            _ => Err(Unasked::Refused(RequestFault::Stale)),
        }
    }

    /// Sends what is queued, sleeps until `count` requests have ended or lie untaken, or `deadline` is over, and reaps. With a
    /// `min_wait` that is not zero, one is enough after that long. With nothing in flight it does not sleep; a count of 0
    /// sleeps until there is any news. Returns how many requests ended meanwhile, whoever started them.
    ///
    /// # Errors
    /// Nothing is taken any more, and nothing is left to be taken.
    pub fn turn(&self, count: u32, min_wait: Duration, deadline: Option<Time>) -> Result<usize, RequestFault> {
        let before = self.lock().table.reaped;
        let now = sync::now;
        // Beyond the clock's end is never.
        let deadline = deadline.and_then(instant_of);
        let mut first = now().checked_add(min_wait).filter(|_| !min_wait.is_zero());
        if let (Some(at), Some(end)) = (first, deadline) {
            first = Some(at.min(end));
        }
        let enough = |count: u64, until| {
            let mut slept = false;
            self.wait_until(true, until, |state, _| {
                let table = &state.table;
                let fresh = table.reaped - before;
                let have = fresh.max(table.finished() as u64);
                let news = if count == 0 { slept } else { have >= count };
                slept = true;
                (news || (count > 0 && table.in_flight() == 0)).then_some(())
            })
        };
        let count = u64::from(count);
        if first.is_none() || enough(count, first).is_none() {
            let count = if first.is_some() { count.min(1) } else { count };
            enough(count, deadline);
        }
        self.reaped_since(before)
    }

    /// The same without sleeping.
    ///
    /// # Errors
    /// As [`Client::turn`].
    pub fn turn_once(&self) -> Result<usize, RequestFault> {
        let before = self.lock().table.reaped;
        self.look_once();
        self.reaped_since(before)
    }

    fn reaped_since(&self, before: u64) -> Result<usize, RequestFault> {
        let state = self.lock();
        let ended = (state.table.reaped - before) as usize;
        match state.table.closed {
            Some(fault) if ended + state.table.finished() + state.table.in_flight() == 0 => Err(fault),
            _ => Ok(ended),
        }
    }

    /// Has everybody been woken for whom something came? Says yes too when it was asked too often.
    fn all_told(&self, patience: &mut u32) -> bool {
        *patience = patience.saturating_sub(1);
        // Other side: the drop of `Fired`.
        self.telling.load(Ordering::Acquire) == 0 || *patience == 0
    }

    /// Runs a future to its end in this thread, which sends and reaps meanwhile. Any thread may do so, also many at a time.
    ///
    /// # Errors
    /// Nothing is taken any more, and the future waits for something else.
    pub fn block_on<F: Future>(self: &Arc<Self>, future: F) -> Result<F::Output, RequestFault> {
        self.block_on_ticking(future, || None)
    }

    /// The same, and the future is polled at these moments too: each time before a sleep it is asked for the next.
    ///
    /// # Errors
    /// As [`Client::block_on`].
    pub fn block_on_ticking<F: Future>(
        self: &Arc<Self>,
        future: F,
        next_tick: impl Fn() -> Option<Time>,
    ) -> Result<F::Output, RequestFault> {
        // However this ends, what it leaves behind is the helper's.
        let _role = Reaping {
            client: self,
            inside: Inside::enter(self),
        };
        let me = self.lock().take_parker(&self.shared);
        me.ring();
        let waker = Waker::from(Arc::clone(&me));
        let mut context = Context::from_waker(&waker);
        let mut future = std::pin::pin!(future);
        let mut patience = PATIENCE;
        let result = loop {
            if me.take() {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    break Ok(output);
                }
            }
            // Beyond the clock's end is never.
            let tick = next_tick().and_then(instant_of);
            let mut state = self.lock();
            loop {
                state = self.look(state);
                if me.is_rung() {
                    break;
                }
                if tick.is_some_and(|at| sync::now() >= at) {
                    me.ring();
                    break;
                }
                let over = state.table.closed.is_some() && state.table.in_flight() == 0;
                if over && self.all_told(&mut patience) {
                    break;
                }
                let step = over.then(|| sync::now() + STEP);
                state = self.sleep(state, &me, false, earlier(step, tick));
            }
            let closed = state.table.closed;
            self.finish_up(state, false);
            if let Some(fault) = closed {
                if !me.is_rung() {
                    break Err(fault);
                }
            }
        };
        self.lock().give_parker(me);
        result
    }
}

/// How often, and for how many times, a thread looks whether others have woken everybody when all is over. Who wakes others does
/// so at once, but a waker may be anybody's, and may itself wait.
const STEP: Duration = Duration::from_millis(1);
const PATIENCE: u32 = 1000;

/// This thread reaps for what it polls, for the length of one `block_on`.
struct Reaping<'a, K: Carrier> {
    client: &'a Arc<Client<K>>,
    inside: Inside,
}

impl<K: Carrier> Drop for Reaping<'_, K> {
    fn drop(&mut self) {
        // First: what a waker polls from here on is the helper's.
        self.inside.leave();
        self.client.leave(self.inside.reaper);
    }
}
