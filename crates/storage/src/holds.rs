//! Ranges that an operation holds: requests that would touch one are parked, not submitted.
//!
//! An operation that changes where the bytes of a range live (a chunk in copy, the tail of a shrinking segment) holds the range,
//! waits until no request in flight touches it ([`Step::Quiet`](crate::operation::Step::Quiet)), does its work, and moves or
//! releases the hold. A hold ends with its operation at the latest.
//!
//! ```text
//!            start                      the hold moves, is released,
//!   request -------> touches a hold? --> or the segment goes away
//!                     | no      | yes           |
//!                     v         v               v
//!                  submitted   parked -----> woken: checked again, as if it had just come
//!                               | cancel, deadline, abandon
//!                               v
//!                              ended
//! ```
//!
//! A parked request is an event of the engine ([`baio_engine::Op::Event`]) that carries its memory, its deadline and its tag,
//! so the engine cancels it, gives it up at its deadline, sleeps no longer than to the earliest one, counts it as in flight,
//! and gives its memory back, as with any other request. Waking it is a signal to that event.
//!
//! They are woken in the order in which they came. Syncs are never held: they cover what has completed, wherever it lies.

use std::collections::VecDeque;
use std::ops::Range;

use baio_engine::{Durability, Engine, RequestId, Time};

use crate::object::Objects;
use crate::request::{Handle, Mode, Requests, SegmentRequest, Ticket};
use crate::segment::probe::SlotAddress;

/// Names a hold until it is released. A stale one does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId(u64);

/// A range of one segment, in bytes of the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) address: SlotAddress,
    pub(crate) range: Range<u64>,
}

impl Touched {
    /// Where a request touches its segment.
    pub(crate) fn of(address: SlotAddress, request: &SegmentRequest) -> Touched {
        let range = request.range();
        Touched { address, range }
    }

    fn touches(&self, other: &Touched) -> bool {
        // An empty range touches nothing, wherever it lies.
        let start = self.range.start.max(other.range.start);
        let end = self.range.end.min(other.range.end);
        self.address == other.address && start < end
    }
}

#[derive(Debug)]
struct Hold {
    id: HoldId,
    /// The operation that ends it when it ends.
    operation: u32,
    place: Touched,
    /// Requests in flight that touch it; new ones are parked, so it only falls.
    touching: u32,
}

/// What is not kept in the table of requests, and is needed to start one again.
#[derive(Debug)]
pub(crate) struct Parked {
    ticket: Ticket,
    event: RequestId,
    handle: Handle,
    range: Range<u64>,
    pub(crate) mode: Mode,
    pub(crate) durability: Durability,
    pub(crate) deadline: Option<Time>,
    /// Its event was signalled; the completion is on its way.
    woken: bool,
    /// Somebody asked for its end after that.
    pub(crate) cancelled: bool,
}

impl Parked {
    /// The request's memory is in the event already, so its range is told apart.
    pub(crate) fn new(ticket: Ticket, event: RequestId, request: &SegmentRequest, range: Range<u64>) -> Parked {
        Parked {
            ticket,
            event,
            handle: request.handle,
            range,
            mode: request.mode,
            durability: request.durability,
            deadline: request.deadline,
            woken: false,
            cancelled: false,
        }
    }
}

/// All that is held, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Vec<Hold>,
    parked: VecDeque<Parked>,
    next: u64,
}

impl Holds {
    /// Is anything held at all? The one question that requests are asked when nothing is.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Would a request there have to wait?
    pub(crate) fn touch(&self, place: &Touched) -> bool {
        self.held.iter().any(|hold| hold.place.touches(place)) && !crate::seeded_bug("nobody-is-held")
    }

    /// Holds a range; requests in flight there are counted.
    pub(crate) fn hold(&mut self, operation: u32, place: Touched, objects: &Objects, requests: &Requests) -> HoldId {
        self.next += 1;
        let id = HoldId(self.next);
        let touching = in_flight(&place, objects, requests);
        self.held.push(Hold {
            id,
            operation,
            place,
            touching,
        });
        id
    }

    /// Holds another range of the same segment instead; who was parked there only goes on.
    pub(crate) fn move_to(
        &mut self,
        id: HoldId,
        range: Range<u64>,
        engine: &mut Engine,
        objects: &Objects,
        requests: &Requests,
    ) {
        if let Some(hold) = self.held.iter_mut().find(|hold| hold.id == id) {
            hold.place.range = range;
            hold.touching = in_flight(&hold.place, objects, requests);
        }
        self.wake(engine, objects);
    }

    pub(crate) fn release(&mut self, id: HoldId, engine: &mut Engine, objects: &Objects) {
        self.held.retain(|hold| hold.id != id);
        self.wake(engine, objects);
    }

    /// The end of an operation ends what it holds.
    pub(crate) fn release_of(&mut self, operation: u32, engine: &mut Engine, objects: &Objects) {
        if self.held.iter().any(|hold| hold.operation == operation) {
            self.held.retain(|hold| hold.operation != operation);
            self.wake(engine, objects);
        }
    }

    /// Does no request in flight touch it any more?
    pub(crate) fn is_quiet(&self, id: HoldId) -> bool {
        self.held.iter().all(|hold| hold.id != id || hold.touching == 0)
    }

    /// A request that was in flight has ended.
    pub(crate) fn ended(&mut self, place: &Touched) {
        for hold in self.held.iter_mut().filter(|hold| hold.place.touches(place)) {
            hold.touching = hold.touching.saturating_sub(1);
        }
    }

    /// How many are parked, and how many of those have been woken.
    #[cfg(test)]
    pub(crate) fn parked(&self) -> (usize, usize) {
        let woken = self.parked.iter().filter(|parked| parked.woken);
        (self.parked.len(), woken.count())
    }

    pub(crate) fn park(&mut self, parked: Parked) {
        self.parked.push_back(parked);
    }

    /// The event of a parked request has ended, one way or the other.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Parked> {
        let at = self.parked.iter().position(|parked| parked.ticket == ticket)?;
        self.parked.remove(at)
    }

    /// A cancel that comes when the event was signalled already still finds the request.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if let Some(parked) = self.parked.iter_mut().find(|parked| parked.ticket == ticket) {
            parked.cancelled = true;
        }
    }

    /// Wakes everybody who waits on a segment: it is going away, and they are to be told so.
    pub(crate) fn wake_all_on(&mut self, address: SlotAddress, engine: &mut Engine, objects: &Objects) {
        for parked in &mut self.parked {
            if objects.address(parked.handle) == Some(address) {
                parked.wake(engine);
            }
        }
    }

    fn wake(&mut self, engine: &mut Engine, objects: &Objects) {
        let Holds { held, parked, .. } = self;
        for parked in parked {
            let waits = objects.address(parked.handle).is_some_and(|address| {
                let range = parked.range.clone();
                let place = Touched { address, range };
                held.iter().any(|hold| hold.place.touches(&place))
            });
            if !waits {
                parked.wake(engine);
            }
        }
    }
}

impl Parked {
    fn wake(&mut self, engine: &mut Engine) {
        if !self.woken {
            // False when it was cancelled or overdue just now: its completion says so.
            engine.signal(self.event, 0);
            self.woken = true;
        }
    }
}

fn in_flight(place: &Touched, objects: &Objects, requests: &Requests) -> u32 {
    let touches = |(handle, range): &(Handle, Range<u64>)| {
        objects.address(*handle).is_some_and(|address| {
            let range = range.clone();
            place.touches(&Touched { address, range })
        })
    };
    requests.in_flight().filter(touches).count() as u32
}
