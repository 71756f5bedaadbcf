//! All logs of a link, as the thread has them that drives them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use baio_broker::control::Reply;
use baio_client::Places;
use baio_engine::Time;
use baio_storage::log::{Fired, LogOptions, LogPart, LogRequest, LogStart, Salt};
use baio_storage::{Answer, Command, Error, Fault, LogId, log_request_name};
use baio_words::{Errno, LogClaim};

use super::super::carried::{Client, arena_of};
use super::call::{Answerer, Call};
use super::desk::{Desk, Ends, Order};
use super::kept::Kept;

/// The arena of a session is small, and not the log's alone: so many of the longest batches of a new log would fill it.
const ARENA_BATCHES: usize = 8;

/// All logs of a link.
pub(super) struct House {
    desk: Arc<Desk>,
    client: Arc<Client>,
    claims: Vec<Claiming>,
    logs: Vec<Kept>,
    /// Numbers of logs.
    last: u32,
    fired: Vec<Fired>,
}

/// A log that begins when its segment is for it.
struct Claiming {
    call: Call,
    start: LogStart,
    options: LogOptions,
    answer: Answerer,
}

impl House {
    pub(super) fn new(desk: Arc<Desk>, client: Arc<Client>) -> House {
        House {
            desk,
            client,
            claims: Vec::new(),
            logs: Vec::new(),
            last: 0,
            fired: Vec::new(),
        }
    }

    /// Until the link ends. What is left is dropped then: whoever waits is told.
    pub(super) fn run(mut self) {
        let client = Arc::clone(&self.client);
        let tick = Cell::new(None);
        // Who reaps wakes whoever waits for anything of the link. A waker that panics is not the logs': they go on. An error: the broker
        // has gone, or the link was closed.
        while catch_unwind(AssertUnwindSafe(|| {
            let future = std::future::poll_fn(|context: &mut Context<'_>| {
                // In the middle of it something may be lost: the logs end then, as in a crash.
                let polled = catch_unwind(AssertUnwindSafe(|| self.poll(context.waker())));
                tick.set(self.next_tick());
                polled.unwrap_or(Poll::Ready(()))
            });
            let _ = client.block_on_ticking(future, || tick.get());
        }))
        .is_err()
        {}
        let left = {
            let mut inbox = self.desk.inbox();
            inbox.ends = inbox.ends.max(Some(Ends::AtOnce));
            inbox.waker = None;
            std::mem::take(&mut inbox.orders)
        };
        drop(left); // Who has asked is told so.
        for claiming in self.claims.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| claiming.call.leave(&client)));
        }
        for log in &mut self.logs {
            let _ = catch_unwind(AssertUnwindSafe(|| log.leave(&client)));
        }
    }

    fn next_tick(&self) -> Option<Time> {
        self.logs.iter().filter_map(Kept::next_tick).min()
    }

    /// By this the thread is woken from now on.
    fn set_bell(&mut self, waker: &Waker) {
        let mut inbox = self.desk.inbox();
        if !inbox.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            inbox.waker = Some(waker.clone());
            drop(inbox);
            self.logs.iter().for_each(|log| log.set_bell(waker));
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        self.set_bell(waker);
        self.logs.iter_mut().for_each(|log| log.set_driver_awake(true));
        loop {
            let (orders, ends) = {
                let mut inbox = self.desk.inbox();
                (std::mem::take(&mut inbox.orders), inbox.ends)
            };
            let has_more = !orders.is_empty();
            for order in orders {
                self.take(order);
            }
            match ends {
                Some(Ends::AtOnce) => return Poll::Ready(()),
                Some(Ends::Properly) => self.logs.iter_mut().for_each(Kept::wind_down),
                None => {}
            }
            // The broker needs no place to be left: the one that is kept for the end is the logs', where nobody takes outcomes.
            let places = match ends {
                Some(_) => Places::Last,
                None => Places::Usual,
            };
            let claimed = self.open_claimed(places, waker);
            for log in &mut self.logs {
                log.turn(&self.client, places, waker, &mut self.fired);
            }
            let held = self.logs.len();
            self.logs.retain(|log| !log.is_over());
            self.fire();
            if ends.is_some() && self.logs.is_empty() && self.claims.is_empty() {
                return Poll::Ready(());
            }
            self.logs.iter_mut().for_each(|log| log.set_driver_awake(false));
            // Who has had the last place and needs no more leaves it to the others, also to those that were looked at before. Nobody else tells
            // of it (`wake_if_room`): only something of this thread ever holds it, and the end of that comes here.
            let has_left = ends.is_some() && (claimed > 0 || self.logs.len() < held);
            // What was appended meanwhile did not ring.
            if !has_more && !has_left && !self.logs.iter().any(Kept::wants_io) {
                return Poll::Pending;
            }
            self.logs.iter_mut().for_each(|log| log.set_driver_awake(true));
        }
    }

    /// Whoever waited hears it. A waker is anybody's code: its panic is not the log's.
    fn fire(&mut self) {
        for fired in self.fired.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(|| fired.fire()));
        }
    }

    fn find(&mut self, id: LogId) -> Option<&mut Kept> {
        self.logs.iter_mut().find(|log| log.id == id)
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Open {
                handle,
                start,
                options,
                answer,
            } => self.claims.push(Claiming {
                call: Call::new(Command::ClaimLog { handle }),
                start,
                options,
                answer,
            }),
            Order::On { log, request, answer } => match self.find(log).filter(|log| !log.is_closing()) {
                Some(log) => log.ask(request, answer),
                None => answer.give(Err(closed(&request))),
            },
            Order::Usage { log, answer } => match self.find(log).and_then(|log| log.usage()) {
                Some(usage) => answer.give(Ok(Reply::LogUsage(Box::new(usage)))),
                None => answer.give(Err(Error::new("look at", "a closed log", Fault::Stale))),
            },
            Order::LetGo(log) => {
                if let Some(log) = self.find(log) {
                    log.wind_down();
                }
            }
        }
    }

    /// Begins logs whose segments are for them now. How many were answered.
    fn open_claimed(&mut self, places: Places, waker: &Waker) -> usize {
        let (mut at, before) = (0, self.claims.len());
        while let Some(claiming) = self.claims.get_mut(at) {
            match claiming.call.poll(&self.client, places, waker) {
                Poll::Pending => at = at.saturating_add(1),
                Poll::Ready(reply) => {
                    let Claiming {
                        start, options, answer, ..
                    } = self.claims.swap_remove(at);
                    match reply {
                        Ok(Reply::Answer(Answer::LogClaimed(claim))) => {
                            self.begin(&claim, start, &options, answer, waker);
                        }
                        Ok(_) => answer.fail(Fault::ServiceEnded),
                        Err(error) => answer.fail(error.into_fault()),
                    }
                }
            }
        }
        before.saturating_sub(self.claims.len())
    }

    /// A log that could not begin is one that ends at once, so that its segment is free again before that is told.
    fn begin(&mut self, claim: &LogClaim, start: LogStart, options: &LogOptions, answer: Answerer, waker: &Waker) {
        self.last = self.last.wrapping_add(1);
        let id = LogId::elsewhere(claim.handle.parts().0, self.last);
        let part = self.part(claim, start, options, &answer);
        let log = Kept::new(id, claim.handle, part, answer, &self.desk, waker);
        self.logs.push(log);
    }

    fn part(
        &self,
        claim: &LogClaim,
        start: LogStart,
        options: &LogOptions,
        answer: &Answerer,
    ) -> baio_storage::Result<LogPart> {
        let failed = |fault: Fault| Error::new(answer.what, answer.name.clone(), fault);
        // A segment has its size.
        let mut options = LogOptions {
            file_bytes: 0,
            ..*options
        };
        if options.block_bytes == 0 {
            options.block_bytes = claim.block_bytes;
        }
        if options.window_short == 0 && claim.flushes {
            options.window_short = 1;
        }
        if options.block_bytes < claim.block_bytes {
            let why = format!(
                "blocks of {} bytes, the device has sectors of {}",
                options.block_bytes, claim.block_bytes
            );
            return Err(failed(Fault::BadSize(why)));
        }
        let arena = arena_of(&self.client).ok_or_else(|| failed(Fault::Stale))?;
        let free = arena.free_bytes();
        let (mut uuid, mut salt) = ([0; 16], Salt([0; 16]));
        if start != LogStart::Open {
            for bytes in [&mut uuid, &mut salt.0] {
                fill_random(bytes).map_err(|errno| failed(errno.into()))?;
            }
            let most = u32::try_from(arena.size() / ARENA_BATCHES).unwrap_or(u32::MAX);
            options = options.with_batches_up_to(most, claim.size_bytes);
        }
        let part = LogPart::begin_as(&arena, start, claim.size_bytes, (uuid, salt), &options);
        // The arena is the whole session's: others have the other half of what is free.
        let fitted = part.and_then(|mut part| part.take_at_most(free / 2).map(|()| part));
        fitted.map_err(|error| Error::of_log(answer.what, answer.name.clone(), error))
    }
}

fn fill_random(mut bytes: &mut [u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
        let got = got.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        bytes = &mut bytes[got..];
    }
    Ok(())
}

/// What is asked of a log that is not open.
fn closed(request: &LogRequest) -> Error {
    Error::new(log_request_name(request), "a closed log", Fault::Stale)
}
