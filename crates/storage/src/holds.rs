//! Ranges that an operation holds: requests that would touch one are held back, not submitted.
//!
//! An operation that changes where the bytes of a range live (a chunk in copy, the tail of a shrinking segment) holds the range,
//! waits until no request in flight touches it ([`Awaited::Quiet`](crate::crossing::Awaited::Quiet)), does its work, and moves or
//! releases the hold. A hold ends with its operation at the latest.
//!
//! ```text
//!            start                      the hold moves, is released,
//!   request -------> touches a hold? --> or the segment goes away
//!                     | no      | yes           |
//!                     v         v               v
//!                  submitted   held ------> woken: checked again, as if it had just come
//!                               | cancel, deadline, abandon
//!                               v
//!                              ended
//! ```
//!
//! A held request stays in the table of requests, with its memory and its deadline ([`State::Held`]); here is only in which order
//! they came. It has no slot of the engine, so a device that hangs keeps nobody from calling it off.
//!
//! They are woken in the order in which they came. Syncs are never held: they cover what has completed, wherever it lies.

use std::ops::Range;

use crate::object::Objects;
use crate::request::{Asked, Handle, Requests, SegmentRequest, Ticket};
use crate::segment::probe::SlotAddress;

/// Names a hold until it is released. A stale one does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId(u64);

impl HoldId {
    /// Of holds that are counted from 1 on.
    pub(crate) fn new(number: u64) -> HoldId {
        HoldId(number)
    }
}

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

    /// The same for one that is in the table; none on a plain file.
    pub(crate) fn by(asked: &Asked, objects: &Objects) -> Option<Touched> {
        let address = objects.address(asked.handle)?;
        let range = asked.range();
        Some(Touched { address, range })
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
    /// Requests in flight that touch it; new ones are held back, so it only falls.
    touching: u32,
}

/// All that is held, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Vec<Hold>,
    /// Who waits, in the order of coming.
    waiting: Vec<Ticket>,
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
    pub(crate) fn hold(
        &mut self,
        (id, operation): (HoldId, u32),
        place: Touched,
        objects: &Objects,
        requests: &Requests,
    ) {
        let touching = in_flight(&place, objects, requests);
        self.held.push(Hold {
            id,
            operation,
            place,
            touching,
        });
    }

    /// Holds another range of the same segment instead; who was held back there only goes on.
    pub(crate) fn move_to(&mut self, id: HoldId, range: Range<u64>, objects: &Objects, requests: &mut Requests) {
        if let Some(hold) = self.held.iter_mut().find(|hold| hold.id == id) {
            hold.place.range = range;
            hold.touching = in_flight(&hold.place, objects, requests);
        }
        self.wake(objects, requests);
    }

    pub(crate) fn release(&mut self, id: HoldId, objects: &Objects, requests: &mut Requests) {
        self.held.retain(|hold| hold.id != id);
        self.wake(objects, requests);
    }

    /// The end of an operation ends what it holds.
    pub(crate) fn release_of(&mut self, operation: u32, objects: &Objects, requests: &mut Requests) {
        if self.held.iter().any(|hold| hold.operation == operation) {
            self.held.retain(|hold| hold.operation != operation);
            self.wake(objects, requests);
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

    /// How many are held back.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A request is held back, as the last.
    pub(crate) fn wait(&mut self, ticket: Ticket) {
        self.waiting.push(ticket);
    }

    /// It was called off.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiting| *waiting != ticket);
    }

    /// Wakes everybody who waits on a segment: it is going away, and they are to be told so.
    pub(crate) fn wake_all_on(&mut self, address: SlotAddress, objects: &Objects, requests: &mut Requests) {
        self.wake_those(requests, |_, asked| objects.address(asked.handle) == Some(address));
    }

    /// Wakes everybody who waits for no hold.
    pub(crate) fn wake_free(&mut self, objects: &Objects, requests: &mut Requests) {
        self.wake(objects, requests);
    }

    fn wake(&mut self, objects: &Objects, requests: &mut Requests) {
        self.wake_those(requests, |held, asked| {
            let place = Touched::by(asked, objects);
            place.is_none_or(|place| !held.iter().any(|hold| hold.place.touches(&place)))
        });
    }

    fn wake_those(&mut self, requests: &mut Requests, which: impl Fn(&[Hold], &Asked) -> bool) {
        let Holds { held, waiting, .. } = self;
        waiting.retain(|&ticket| {
            let wakes = requests.asked(ticket).is_some_and(|asked| which(held, &asked));
            if wakes {
                requests.wake(ticket);
            }
            !wakes
        });
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
