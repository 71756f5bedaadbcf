//! The promise: a service that says what no service of ours says ends its session. However much it says, no thread of its client stays in
//! one look, which keeps all others from the link.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baio_client::{Between, Carrier, Client};
use baio_ring::ring::Cursor;
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_words::entry::{Completion, Place, Tag};
use baio_words::{Caching, Failure, Handle, IoError, Payload, RequestFault, SegmentOp, SegmentRequest};

const PLACES: u32 = 2;
const ARENA: u64 = 4096;
const CORE: u32 = 3;
/// More than any ring here has cells.
const MANY: u32 = 10_000;

/// Memory in the arena.
#[derive(Debug, Default)]
struct Run;

impl Payload for Run {
    fn payload_bytes(&self) -> usize {
        8
    }
}

/// To a service that lives in the calls of its client, so that it is never late.
struct Floods {
    memory: Mutex<SessionMemory>,
    said: AtomicU32,
    again: Mutex<Option<Tag>>,
}

impl Floods {
    /// Says that a request was cancelled. Whether its client has given the cell back is nothing to it.
    fn says(&self, tag: Tag) {
        let mut at = Cursor::starting_at(self.said.fetch_add(1, Ordering::Relaxed));
        let completion = Completion {
            tag,
            result: Err(Failure::Io(IoError::Cancelled)),
            bytes_done: 0,
            took: Caching::Direct,
            iterations: 1,
        };
        let memory = self.memory.lock().unwrap();
        memory.completions().push(&mut at, &completion.encode()).unwrap();
        let _ = memory.completions().publish(&at);
    }
}

impl Carrier for Floods {
    type Memory = Run;
    type Command = ();
    type Reply = ();
    type Kept = ();

    fn place(&self, (): &(), _: &Run) -> Place {
        Place::Arena { at: 0, len: 8 }
    }

    fn ring(&self) {}

    fn opened((): &()) -> Option<Handle> {
        None
    }

    fn is_far(&self) -> bool {
        true
    }

    fn keeps_commands(&self) -> bool {
        true
    }

    /// Asked for each request that was cancelled: the next word comes while this one is looked at.
    fn has_just_ended(&self) -> bool {
        let again = *self.again.lock().unwrap();
        if let Some(tag) = again.filter(|_| self.said.load(Ordering::Relaxed) < MANY) {
            self.says(tag);
        }
        true
    }
}

struct Quiet;

impl FarBell for Quiet {
    fn ring(&self) {}

    fn sleep(&self, _: Option<Duration>) {}
}

/// A client with a read that its service has, and the read's tag.
fn reading() -> (Client<Floods>, Tag) {
    let memory = SessionMemory::create(PLACES, ARENA).unwrap();
    let shared: Between<Floods> = Shared::far(&memory, PLACES, Bell::far(Arc::new(Quiet))).unwrap();
    let floods = Floods {
        memory: Mutex::new(memory),
        said: AtomicU32::new(0),
        again: Mutex::new(None),
    };
    let client = Client::new(floods, (), Arc::new(shared), CORE, "a peer".into());
    let handle = Handle::from_parts(CORE, 1, 1);
    let read = SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, Run);
    let (index, generation) = client.start(read).unwrap().parts();
    client.look_once();
    (client, Tag { index, generation })
}

fn ends(client: &Client<Floods>) {
    client.look_once();
    assert_eq!(client.refusal(), Some(RequestFault::ServiceEnded));
    let outcome = client.next_outcome().expect("its caller is told");
    assert_eq!(outcome.result.unwrap_err().fault, RequestFault::ServiceEnded);
}

#[test]
fn the_end_of_what_is_not_under_way_ends_the_session() {
    let (client, tag) = reading();
    client.carrier().says(Tag {
        generation: tag.generation.wrapping_add(1),
        ..tag
    });
    ends(&client);
}

#[test]
fn a_ring_that_is_never_empty_ends_the_session() {
    let (client, tag) = reading();
    *client.carrier().again.lock().unwrap() = Some(tag);
    client.carrier().says(tag);
    ends(&client);
    let said = client.carrier().said.load(Ordering::Relaxed);
    assert!(said < MANY, "{said} words were looked at");
}
