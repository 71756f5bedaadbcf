//! What a held range does to requests: on the simulated machine, and on a real file.

use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use baio_engine::sim::{Disk, Flash, Profile, Sim};
use baio_engine::{Choice, Durability, Engine, EngineOptions, File, Memory, Wait};

use super::*;
use crate::holds::{HoldId, Touched};
use crate::operation::create::CreateOptions;
use crate::request::{Outcome, SegmentOp, Status, StatusWord};
use crate::request::{SegmentRequest, Ticket};
use crate::segment::probe::SlotAddress;
use crate::volume::format::{FormatOptions, format_on};
use crate::{Access, Fault, Identity};

const ME: Identity = Identity::new(7, 7);
const BLOCK: u64 = 4096;

struct World {
    core: Core,
    handle: Handle,
    address: SlotAddress,
    _dir: Option<tempfile::TempDir>,
}

fn config(backend: Choice) -> EngineOptions {
    EngineOptions {
        backend,
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

fn world(mut core: Core, dir: Option<tempfile::TempDir>) -> World {
    let options = CreateOptions::of_size(16 * BLOCK);
    core.create(ME, ME.uid, "data", &options).unwrap();
    let (handle, _) = core.open_segment(ME, ME.uid, "data", Access::Write).unwrap();
    let address = core.lane.objects.address(handle).unwrap();
    World {
        core,
        handle,
        address,
        _dir: dir,
    }
}

fn simulated() -> World {
    let disk = Disk::new(8 << 20);
    disk.set_profile(Profile::Flash(Flash::default()));
    let file = File::simulated(&disk, "disk");
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config(Choice::Auto)).unwrap();
    let options = FormatOptions {
        size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    };
    format_on(&mut engine, &file, &options).unwrap();
    let core = Core::open_on(engine, &file, &config(Choice::Auto)).unwrap();
    world(core, None)
}

fn real(backend: Choice) -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let options = FormatOptions {
        size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    };
    Core::format(&path, &options).unwrap();
    world(Core::open(&path, &config(backend)).unwrap(), Some(dir))
}

/// Every test runs on the simulation, on a blocking backend, on threads, and on the best that works here.
fn everywhere(test: fn(World)) {
    test(simulated());
    for backend in [Choice::Sync, Choice::Threads, Choice::Auto] {
        test(real(backend));
    }
}

impl World {
    /// As if operation 99 held these blocks.
    fn hold(&mut self, blocks: Range<u64>) -> HoldId {
        let World { core, address, .. } = self;
        let place = Touched {
            address: *address,
            range: blocks.start * BLOCK..blocks.end * BLOCK,
        };
        core.table.holds_made += 1;
        let id = HoldId::new(core.table.holds_made);
        let Lane {
            holds,
            objects,
            requests,
            ..
        } = &mut core.lane;
        holds.hold((id, 99), place, objects, requests);
        id
    }

    fn move_to(&mut self, id: HoldId, blocks: Range<u64>) {
        let core = &mut self.core;
        let range = blocks.start * BLOCK..blocks.end * BLOCK;
        core.lane
            .holds
            .move_to(id, range, &core.lane.objects, &mut core.lane.requests);
    }

    fn release(&mut self, id: HoldId) {
        let core = &mut self.core;
        core.lane.holds.release(id, &core.lane.objects, &mut core.lane.requests);
    }

    fn request(&self, op: SegmentOp, blocks: u64, fill: u8) -> SegmentRequest {
        let mut buffer = self.core.buffer((blocks * BLOCK) as usize).unwrap();
        buffer.fill(fill);
        SegmentRequest::new(self.handle, op, buffer)
    }

    fn write(&mut self, block: u64, fill: u8) -> Ticket {
        let offset = block * BLOCK;
        let mut request = self.request(SegmentOp::Write { offset }, 1, fill);
        request.tag = u64::from(fill);
        self.core.start(request).unwrap()
    }

    fn read(&mut self, block: u64) -> Ticket {
        let offset = block * BLOCK;
        let request = self.request(SegmentOp::Read { offset }, 1, 0);
        self.core.start(request).unwrap()
    }

    /// Turns until nothing but what is parked is in flight.
    fn settle(&mut self) {
        while self.core.in_flight() > self.core.lane.holds.waiting() {
            self.core.turn(Wait::one()).unwrap();
        }
    }

    fn is_pending(&mut self, ticket: Ticket) -> bool {
        self.settle();
        self.core.poll(ticket, None).is_pending()
    }

    fn end(&mut self, ticket: Ticket) -> Outcome {
        self.core.wait(ticket).unwrap().unwrap()
    }

    fn holds(&mut self, block: u64) -> u8 {
        let ticket = self.read(block);
        let outcome = self.end(ticket);
        outcome.result.unwrap();
        let bytes = outcome.memory.into_buffer().unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }
}

/// The engine has never seen what is held back, so only the core can wait for it.
#[test]
fn a_fence_waits_for_what_is_held_back_and_a_discard_is_held_like_a_write() {
    everywhere(|mut w| {
        let before = w.write(4, 7);
        assert!(w.end(before).result.is_ok());
        let hold = w.hold(4..6);
        let (offset, len) = (3 * BLOCK, 2 * BLOCK);
        let discard = SegmentRequest::new(w.handle, SegmentOp::Discard { offset, len }, Memory::None);
        let discard = w.core.start(discard).unwrap();
        let fence = SegmentRequest::new(w.handle, SegmentOp::Fence, Memory::None);
        let fence = w.core.start(fence).unwrap();
        let later = w.write(8, 1);
        assert!(w.end(later).result.is_ok());
        for waits in [discard, fence] {
            assert!(w.core.poll(waits, None).is_pending());
        }
        assert_eq!((w.core.in_flight(), w.holds(8)), (2, 1));
        w.release(hold);
        assert!(w.end(fence).result.is_ok());
        assert!(w.core.poll(discard, None).is_ready());
        assert_eq!((w.core.in_flight(), w.holds(4)), (0, 0));
    });
}

#[test]
fn what_touches_a_held_range_waits_and_all_else_goes_on() {
    everywhere(|mut w| {
        let hold = w.hold(4..6);
        let (inside, read) = (w.write(4, 1), w.read(5));
        let across = {
            let request = w.request(SegmentOp::Write { offset: 3 * BLOCK }, 2, 2);
            w.core.start(request).unwrap()
        };
        let (below, above) = (w.write(3, 3), w.write(6, 4));
        let sync = SegmentRequest {
            durability: Durability::Data,
            ..SegmentRequest::new(w.handle, SegmentOp::Sync, Memory::None)
        };
        let sync = w.core.start(sync).unwrap();
        for free in [below, above, sync] {
            assert!(w.end(free).result.is_ok());
        }
        for waits in [inside, read, across] {
            assert!(w.is_pending(waits));
        }
        assert_eq!(w.core.in_flight(), 3, "parked requests are in flight");
        assert_eq!(w.core.lane.objects.in_flight_on(w.address), 3);
        // Another segment, or nothing at all, is not touched.
        let empty = SegmentRequest::new(w.handle, SegmentOp::Write { offset: 4 * BLOCK }, Memory::None);
        let empty = w.core.start(empty).unwrap();
        assert!(w.end(empty).result.is_ok());
        w.release(hold);
        for goes in [inside, read, across] {
            assert!(w.end(goes).result.is_ok());
        }
        assert_eq!(
            (w.core.in_flight(), w.core.lane.objects.in_flight_on(w.address)),
            (0, 0)
        );
        assert_eq!([w.holds(3), w.holds(6)], [2, 4]);
    });
}

#[test]
fn they_go_on_in_the_order_in_which_they_came() {
    // The blocking backend ends requests in the order in which they are submitted.
    let mut w = real(Choice::Sync);
    let hold = w.hold(0..16);
    for fill in 1..=9 {
        w.write(u64::from(fill) % 3, fill);
    }
    w.settle();
    w.release(hold);
    w.settle();
    let order: Vec<u64> = std::iter::from_fn(|| w.core.next_outcome()).map(|o| o.tag).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!([w.holds(0), w.holds(1), w.holds(2)], [9, 7, 8]);
}

#[test]
fn a_hold_that_moves_lets_go_of_what_it_leaves() {
    everywhere(|mut w| {
        let hold = w.hold(0..4);
        let (left, kept) = (w.write(1, 1), w.write(3, 2));
        w.settle();
        w.move_to(hold, 2..8);
        assert!(w.end(left).result.is_ok());
        assert!(w.is_pending(kept));
        let new = w.write(7, 3);
        assert!(w.is_pending(new));
        // A second hold keeps what the first gives up.
        let second = w.hold(7..8);
        w.release(hold);
        assert!(w.end(kept).result.is_ok());
        assert!(w.is_pending(new));
        w.release(second);
        assert!(w.end(new).result.is_ok());
    });
}

#[test]
fn a_hold_is_quiet_when_the_device_is_done_with_the_range() {
    everywhere(|mut w| {
        let (inside, outside) = (w.write(4, 1), w.write(9, 2));
        let hold = w.hold(4..6);
        assert!(!w.core.lane.holds.is_quiet(hold));
        assert!(w.end(inside).result.is_ok());
        assert!(w.core.lane.holds.is_quiet(hold));
        assert!(w.end(outside).result.is_ok());
        // What is parked is not at work, and its end changes nothing.
        let parked = w.write(5, 3);
        let second = w.hold(5..6);
        assert!(w.core.lane.holds.is_quiet(hold) && w.core.lane.holds.is_quiet(second));
        w.core.cancel(parked);
        assert!(w.end(parked).result.is_err());
        assert!(w.core.lane.holds.is_quiet(hold));
    });
}

/// A write that was answered at its deadline may still land.
#[test]
fn an_abandoned_or_overdue_request_still_touches() {
    let mut w = simulated();
    let mut request = w.request(SegmentOp::Write { offset: 4 * BLOCK }, 1, 1);
    request.deadline = Some(w.core.lane.engine.now().after(Duration::from_nanos(1)));
    let overdue = w.core.start(request).unwrap();
    w.core.turn(Wait::one()).unwrap();
    // Answered, but nobody has taken the answer; then somebody has.
    let holds = w.hold(4..5);
    assert!(!w.core.lane.holds.is_quiet(holds));
    let error = w.end(overdue).result.unwrap_err();
    assert_eq!(error.code(), "EINDETERMINATE");
    assert_eq!(w.core.in_flight(), 1, "the device still has it");
    let hold = w.hold(4..5);
    assert!(!w.core.lane.holds.is_quiet(hold) && !w.core.lane.holds.is_quiet(holds));
    w.settle();
    assert!(w.core.lane.holds.is_quiet(hold));
    let given_up = w.write(5, 2);
    w.core.turn(Wait::No).unwrap();
    w.core.abandon(given_up);
    assert_eq!(w.core.in_flight(), 1, "the device still has it");
    let hold = w.hold(5..6);
    assert!(!w.core.lane.holds.is_quiet(hold));
    w.settle();
    assert!(w.core.lane.holds.is_quiet(hold));
}

#[test]
fn a_parked_request_obeys_cancel_and_abandon() {
    everywhere(|mut w| {
        let free = w.core.lane.engine.arena().free_bytes();
        let hold = w.hold(0..16);
        let word = StatusWord::new();
        let mut request = w.request(SegmentOp::Write { offset: 0 }, 1, 1);
        request.status = Some(word.clone());
        let cancelled = w.core.start(request).unwrap();
        let abandoned = w.write(1, 2);
        w.core.turn(Wait::No).unwrap();
        assert_eq!(word.get(), Status::InFlight);
        w.core.cancel(cancelled);
        w.core.abandon(abandoned);
        let outcome = w.end(cancelled);
        assert!(matches!(
            outcome.result.unwrap_err().fault,
            Fault::Io(baio_engine::Error::Cancelled)
        ));
        assert_eq!(outcome.memory.len() as u64, BLOCK, "the memory comes back");
        assert!(matches!(word.get(), Status::Failed(_)));
        assert!(matches!(w.core.poll(abandoned, None), Poll::Ready(None)));
        drop(outcome.memory);
        w.settle();
        assert_eq!(w.core.lane.engine.arena().free_bytes(), free);
        // Both at once with the release: the event is signalled, its completion not yet read.
        let (late_cancel, late_abandon) = (w.write(2, 3), w.write(3, 4));
        w.core.turn(Wait::No).unwrap();
        w.release(hold);
        w.core.cancel(late_cancel);
        w.core.abandon(late_abandon);
        assert!(w.end(late_cancel).result.is_err());
        w.settle();
        assert_eq!((w.core.in_flight(), w.core.lane.holds.waiting()), (0, 0));
        assert_eq!([w.holds(0), w.holds(1), w.holds(2), w.holds(3)], [0; 4]);
    });
}

/// Also when nothing else would end a sleep.
#[test]
fn a_parked_request_ends_at_its_deadline() {
    everywhere(|mut w| {
        w.hold(0..16);
        let mut request = w.request(SegmentOp::Read { offset: 0 }, 1, 1);
        request.deadline = Some(w.core.lane.engine.now().after(Duration::from_millis(20)));
        let ticket = w.core.start(request).unwrap();
        let outcome = w.end(ticket);
        assert!(matches!(
            outcome.result.unwrap_err().fault,
            Fault::Io(baio_engine::Error::Cancelled)
        ));
        assert_eq!(outcome.memory.len() as u64, BLOCK);
        assert_eq!((w.core.in_flight(), w.core.lane.holds.waiting()), (0, 0));
    });
}

/// A request under way when its handle is closed ends as if it had not been parked.
#[test]
fn closing_a_handle_lets_parked_requests_end() {
    everywhere(|mut w| {
        let hold = w.hold(0..16);
        let ticket = w.write(3, 5);
        let handle = w.handle;
        w.core.close_handle(handle);
        assert!(w.core.lane.objects.get(handle).is_some(), "its place is not given away");
        w.release(hold);
        assert!(w.end(ticket).result.is_ok());
        assert!(w.core.lane.objects.get(handle).is_none());
        w.handle = w.core.open_segment(ME, ME.uid, "data", Access::Write).unwrap().0;
        assert_eq!(w.holds(3), 5);
    });
}

#[test]
fn deleting_the_segment_ends_parked_requests_as_stale() {
    everywhere(|mut w| {
        w.hold(0..16);
        let open = w.write(3, 5);
        let other = w.core.open_segment(ME, ME.uid, "data", Access::Write).unwrap().0;
        let first = std::mem::replace(&mut w.handle, other);
        let closed = w.write(4, 6);
        w.core.close_handle(other);
        w.handle = first;
        w.core.delete(ME, ME.uid, "data").unwrap();
        for ticket in [open, closed] {
            let outcome = w.end(ticket);
            assert!(matches!(outcome.result.unwrap_err().fault, Fault::Stale));
            assert_eq!(outcome.memory.len() as u64, BLOCK);
        }
        assert_eq!(w.core.in_flight(), 0);
    });
}

#[test]
fn a_hold_ends_with_its_operation_and_a_core_with_what_is_parked() {
    everywhere(|mut w| {
        w.hold(0..16);
        let ticket = w.write(3, 5);
        let core = &mut w.core;
        core.lane
            .holds
            .release_of(98, &core.lane.objects, &mut core.lane.requests);
        assert!(w.is_pending(ticket), "another's end is not its own");
        let core = &mut w.core;
        core.lane
            .holds
            .release_of(99, &core.lane.objects, &mut core.lane.requests);
        assert!(w.end(ticket).result.is_ok());
        w.hold(0..16);
        w.write(4, 6);
        drop(w.core); // Does not wait for what nobody will release.
    });
}

/// A read that was to be cut at the end is cut where the end is when it goes on.
#[test]
fn a_parked_request_is_checked_again() {
    everywhere(|mut w| {
        let hold = w.hold(8..16);
        let read = {
            let request = w.request(SegmentOp::Read { offset: 8 * BLOCK }, 8, 0);
            w.core.start(request).unwrap()
        };
        let write = w.write(15, 1);
        w.core.lane.objects.resize(w.address, 12 * BLOCK);
        w.release(hold);
        assert_eq!(w.end(read).result.unwrap(), 4 * BLOCK as u32);
        assert_eq!(w.end(write).result.unwrap_err().code(), "ENOSPC");
    });
}

/// What is held has no slot of the engine: one that every slot is taken of ends it all the same, and it waits for one to begin.
#[test]
fn what_is_held_needs_no_slot_until_it_begins() {
    let mut w = simulated();
    let hold = w.hold(0..16);
    let [begins, cancelled, abandoned] = [1, 2, 3].map(|block| w.write(block, block as u8));
    let mut request = w.request(SegmentOp::Write { offset: 0 }, 1, 1);
    request.deadline = Some(w.core.lane.engine.now().after(Duration::from_millis(20)));
    let overdue = w.core.start(request).unwrap();
    let mut events = Vec::new();
    while let Ok(id) = w.core.lane.engine.submit_reserved(baio_engine::Request::event()) {
        events.push(id);
    }
    assert_eq!(events.len(), 64, "as many as the engine has slots");
    let outcome = w.end(overdue);
    assert_eq!(outcome.result.unwrap_err().code(), "ECANCELED");
    w.core.cancel(cancelled);
    assert_eq!(w.end(cancelled).result.unwrap_err().code(), "ECANCELED");
    w.core.turn(Wait::No).unwrap();
    assert!(!w.core.has_news());
    w.release(hold);
    assert!(
        w.core.has_news(),
        "whoever drives the core sleeps over nothing that can begin"
    );
    w.core.turn(Wait::No).unwrap();
    assert!(!w.core.has_news(), "and spins for nothing that cannot");
    w.core.abandon(abandoned);
    assert!(w.core.poll(begins, None).is_pending(), "there is no slot for it");
    assert_eq!((w.core.lane.holds.waiting(), w.core.lane.requests.waiting()), (0, 1));
    for id in events {
        w.core.lane.engine.cancel(id);
    }
    assert!(w.end(begins).result.is_ok());
    assert_eq!(w.core.in_flight(), 0);
    assert_eq!([w.holds(0), w.holds(1), w.holds(2), w.holds(3)], [0, 1, 0, 0]);
}
