//! Promise: what a client keeps for the case that its service ends is right. Memory that waits at home, while other went in its place to
//! the service of now, comes back with its own request, and with no other one. Bytes that a service has in its cache are known, also
//! where the write of them ended as an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baio_client::{Between, Carrier, Client, Ended, Unsynced};
use baio_ring::ring::Cursor;
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_words::entry::{Completion, Limits, Place, Submission};
use baio_words::{
    Caching, Durability, Errno, Failure, Handle, IoError, Mode, Outcome, Payload, SegmentOp, SegmentRequest, Ticket,
};

const PLACES: u32 = 2;
const ARENA: u64 = 4096;
const CORE: u32 = 3;
/// From here on memory is of an earlier service.
const OLD: u64 = 1 << 20;

/// A run of the arena; counts itself while it is there.
#[derive(Debug, Default)]
struct Run {
    at: u64,
    held: Option<Arc<AtomicUsize>>,
}

impl Run {
    fn at(at: u64, held: &Arc<AtomicUsize>) -> Run {
        held.fetch_add(1, Ordering::Relaxed);
        Run {
            at,
            held: Some(Arc::clone(held)),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Payload for Run {
    fn payload_bytes(&self) -> usize {
        8
    }
}

/// To the service of now.
struct Next(Arc<Unsynced>);

impl Carrier for Next {
    type Memory = Run;
    type Command = ();
    type Reply = ();
    type Kept = ();

    fn place(&self, (): &(), memory: &Run) -> Place {
        Place::Arena { at: memory.at, len: 8 }
    }

    fn ring(&self) {}

    fn opened((): &()) -> Option<Handle> {
        None
    }

    fn in_place_of(&self, (): &(), memory: &Run, _: SegmentOp) -> Result<Option<Run>, Errno> {
        Ok((memory.at >= OLD).then(Run::default))
    }

    fn unsynced(&self, (): &(), _: Handle) -> Option<Arc<Unsynced>> {
        Some(Arc::clone(&self.0))
    }
}

struct Quiet;

impl FarBell for Quiet {
    fn ring(&self) {}

    fn sleep(&self, _: Option<Duration>) {}
}

struct Service {
    memory: SessionMemory,
    client: Client<Next>,
    unsynced: Arc<Unsynced>,
    taken: Cursor,
    posted: Cursor,
}

fn service() -> Service {
    let memory = SessionMemory::create(PLACES, ARENA).unwrap();
    let shared: Between<Next> = Shared::far(&memory, PLACES, Bell::far(Arc::new(Quiet))).unwrap();
    let unsynced = Arc::new(Unsynced::default());
    let client = Client::new(Next(Arc::clone(&unsynced)), (), Arc::new(shared), CORE, "a peer".into());
    Service {
        memory,
        client,
        unsynced,
        taken: Cursor::default(),
        posted: Cursor::default(),
    }
}

impl Service {
    /// Takes the request, and ends it so.
    fn end(&mut self, ticket: Ticket, result: Result<u32, Failure>, bytes_done: u32) -> Outcome<Run> {
        self.client.look_once();
        let limits = Limits {
            places: PLACES,
            arena_bytes: ARENA,
        };
        let submissions = self.memory.submissions();
        let raw = submissions.pop(&mut self.taken).unwrap().unwrap();
        submissions.release(&self.taken);
        let completion = Completion {
            tag: Submission::decode(&raw, &limits).unwrap().tag,
            result,
            bytes_done,
            took: Caching::Direct,
            iterations: 1,
        };
        let completions = self.memory.completions();
        completions.push(&mut self.posted, &completion.encode()).unwrap();
        let _ = completions.publish(&self.posted);
        match self.client.wait(ticket) {
            Some(Ended::Request(outcome)) => outcome,
            _ => panic!("no outcome"),
        }
    }
}

fn handle() -> Handle {
    Handle::from_parts(CORE, 1, 1)
}

#[test]
fn a_request_that_is_given_up_leaves_nothing_to_the_next_one() {
    let mut service = service();
    let op = SegmentOp::Read { offset: 0 };
    let held = Arc::new(AtomicUsize::new(0));
    let first = SegmentRequest::new(handle(), op, Run::at(OLD, &held));
    let first = service.client.start(first).unwrap();
    service.client.abandon(first);
    assert_eq!(held.load(Ordering::Relaxed), 0, "nobody wants it");
    let next = SegmentRequest::new(handle(), op, Run::at(64, &held));
    let next = service.client.start(next).unwrap();
    let outcome = service.end(next, Ok(8), 8);
    assert_eq!((outcome.result, outcome.memory.at), (Ok(8), 64));
}

#[test]
fn what_a_failed_write_left_in_the_cache_is_in_no_sync() {
    let mut service = service();
    let begin = |client: &Client<Next>, op, durability| {
        let mut request = SegmentRequest::new(handle(), op, Run::default());
        request.mode = Mode::Cached;
        request.durability = durability;
        client.start(request).unwrap()
    };
    let (write, zero) = (SegmentOp::Write { offset: 0 }, SegmentOp::Zero { offset: 0, len: 8 });
    let (cancelled, nobody_knows) = (Failure::Io(IoError::Cancelled), Failure::Io(IoError::Indeterminate));
    let refused = Failure::Io(IoError::System(Errno::EIO));
    for (op, failure, bytes_done, leaves) in [
        (write, cancelled, 0, false),
        (write, cancelled, 4, true),
        (write, refused, 4, true),
        (write, nobody_knows, 0, true),
        (zero, refused, 0, true),
    ] {
        for durability in [Durability::None, Durability::Data] {
            let ticket = begin(&service.client, op, durability);
            assert!(service.end(ticket, Err(failure), bytes_done).result.is_err());
            assert_eq!(
                service.unsynced.is_any(),
                leaves,
                "{op:?} {durability:?} {failure:?} {bytes_done}"
            );
            let sync = begin(&service.client, SegmentOp::Sync, Durability::Data);
            service.end(sync, Err(refused), 0).result.unwrap_err();
            assert_eq!(service.unsynced.is_any(), leaves, "a sync that failed covers nothing");
            let sync = begin(&service.client, SegmentOp::Sync, Durability::Data);
            service.end(sync, Ok(0), 0).result.unwrap();
            assert!(!service.unsynced.is_any());
        }
    }
    let durable = begin(&service.client, write, Durability::Data);
    service.end(durable, Ok(8), 8).result.unwrap();
    assert!(!service.unsynced.is_any());
}
