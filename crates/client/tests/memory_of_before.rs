//! Promise: memory that waits at home, while other went in its place to the service of now, comes back with its own request, and with no
//! other one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baio_client::{Between, Carrier, Client, Ended};
use baio_ring::ring::Cursor;
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_words::entry::{Completion, Limits, Place, Submission};
use baio_words::{Caching, Errno, Handle, Payload, SegmentOp, SegmentRequest};

const PLACES: u32 = 2;
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

struct Next;

impl Carrier for Next {
    type Memory = Run;
    type Command = ();
    type Reply = ();

    fn place(&self, memory: &Run) -> Place {
        Place::Arena { at: memory.at, len: 8 }
    }

    fn ring(&self) {}

    fn opened((): &()) -> Option<Handle> {
        None
    }

    fn in_place_of(&self, memory: &Run, _: SegmentOp) -> Result<Option<Run>, Errno> {
        Ok((memory.at >= OLD).then(Run::default))
    }
}

struct Quiet;

impl FarBell for Quiet {
    fn ring(&self) {}

    fn sleep(&self, _: Option<Duration>) {}
}

#[test]
fn a_request_that_is_given_up_leaves_nothing_to_the_next_one() {
    let memory = SessionMemory::create(PLACES, 4096).unwrap();
    let shared: Between<Next> = Shared::far(&memory, PLACES, Bell::far(Arc::new(Quiet))).unwrap();
    let client = Client::new(Next, Arc::new(shared), CORE, "a peer".into());
    let handle = Handle::from_parts(CORE, 1, 1);
    let op = SegmentOp::Read { offset: 0 };
    let held = Arc::new(AtomicUsize::new(0));

    let first = SegmentRequest::new(handle, op, Run::at(OLD, &held));
    client.abandon(client.start(first).unwrap());
    assert_eq!(held.load(Ordering::Relaxed), 0, "nobody wants it");

    let ticket = client
        .start(SegmentRequest::new(handle, op, Run::at(64, &held)))
        .unwrap();
    client.look_once();
    let limits = Limits {
        places: PLACES,
        arena_bytes: 4096,
    };
    let raw = memory.submissions().pop(&mut Cursor::default()).unwrap().unwrap();
    let completion = Completion {
        tag: Submission::decode(&raw, &limits).unwrap().tag,
        result: Ok(8),
        bytes_done: 8,
        took: Caching::Direct,
        iterations: 1,
    };
    let mut posted = Cursor::default();
    memory.completions().push(&mut posted, &completion.encode()).unwrap();
    let _ = memory.completions().publish(&posted);
    match client.wait(ticket) {
        Some(Ended::Request(outcome)) => assert_eq!((outcome.result, outcome.memory.at), (Ok(8), 64)),
        _ => panic!("no outcome"),
    }
}
