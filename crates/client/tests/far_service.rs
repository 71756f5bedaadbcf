//! The promise: a client works unchanged over memory that it shares with another process, and sleeps on a bell of another kind.
//! The service here has a mapping of its own, finds all it needs in it, and never sees the client's exchange or its flags.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Thread;
use std::time::Duration;

use baio_client::{Between, Carrier, Client, Ended};
use baio_ring::ring::Cursor;
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_words::entry::{Completion, Limits, Op, Place, Submission};
use baio_words::{Caching, Handle, Payload, RequestFault, SegmentOp, SegmentRequest};

const PLACES: u32 = 4;
const CHUNK: u32 = 4096;
const CORE: u32 = 3;

/// A run of the arena.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    at: u64,
    len: u32,
}

impl Payload for Run {
    fn payload_bytes(&self) -> usize {
        self.len as usize
    }
}

struct ToThread(Thread);

impl Carrier for ToThread {
    type Memory = Run;
    type Command = ();
    type Reply = ();
    type Kept = ();

    fn place(&self, (): &(), memory: &Run) -> Place {
        Place::Arena {
            at: memory.at,
            len: memory.len,
        }
    }

    fn ring(&self) {
        self.0.unpark();
    }

    fn opened((): &()) -> Option<Handle> {
        None
    }
}

/// As a socket would be: a ring is kept until somebody hears it.
#[derive(Default)]
struct Door {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl FarBell for Door {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }

    fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.unwrap_or(Duration::from_secs(20));
        let rung = self.rung.lock().unwrap();
        let (mut rung, _) = self.heard.wait_timeout_while(rung, limit, |rung| !*rung).unwrap();
        *rung = false;
    }
}

/// Adds one to each byte that is read, and takes what is written for itself.
fn serve(memory: &SessionMemory, bell: &Door, is_over: &AtomicBool) -> Vec<u8> {
    let limits = Limits {
        places: PLACES,
        arena_bytes: memory.layout().arena_bytes,
    };
    let (submissions, completions) = (memory.submissions(), memory.completions());
    let (mut taken, mut posted) = (Cursor::default(), Cursor::default());
    let mut written = Vec::new();
    loop {
        let Some(raw) = submissions.pop(&mut taken).unwrap() else {
            submissions.release(&taken);
            if completions.publish(&posted) {
                bell.ring();
            }
            if is_over.load(Ordering::Acquire) {
                return written;
            }
            if submissions.fall_asleep(&taken) {
                std::thread::park();
                submissions.wake_up();
            }
            continue;
        };
        let asked = Submission::decode(&raw, &limits).unwrap();
        let Place::Arena { at, len } = asked.place else {
            panic!("{asked:?}")
        };
        let span = memory.span(at, len).expect("the entry was checked");
        let mut bytes = vec![0; len as usize];
        span.copy_out(&mut bytes);
        match asked.op {
            Op::Read => {
                bytes.iter_mut().for_each(|byte| *byte += 1);
                span.copy_in(&bytes);
            }
            _ => written.append(&mut bytes),
        }
        let completion = Completion {
            tag: asked.tag,
            result: Ok(len),
            bytes_done: len,
            took: Caching::Direct,
            iterations: 1,
        };
        completions.push(&mut posted, &completion.encode()).unwrap();
    }
}

#[test]
fn a_client_works_over_memory_of_two() {
    let theirs = SessionMemory::create(PLACES, u64::from(PLACES * CHUNK)).unwrap();
    let (fd, layout) = (theirs.region().fd().try_clone_to_owned().unwrap(), *theirs.layout());
    let ours = SessionMemory::map(fd, layout).unwrap();
    let (door, is_over) = (Arc::new(Door::default()), Arc::new(AtomicBool::new(false)));
    let (their_door, their_end) = (Arc::clone(&door), Arc::clone(&is_over));
    let service = std::thread::spawn(move || serve(&theirs, &their_door, &their_end));

    let shared: Between<ToThread> = Shared::far(&ours, PLACES, Bell::far(door)).unwrap();
    let shared = Arc::new(shared);
    let carrier = ToThread(service.thread().clone());
    let client = Client::new(carrier, (), Arc::clone(&shared), CORE, "a peer".into());
    let handle = Handle::from_parts(CORE, 1, 1);
    let begin = |op, at: u32, len| {
        let run = Run { at: u64::from(at), len };
        client.start(SegmentRequest::new(handle, op, run)).unwrap()
    };
    let end = |ticket| match client.wait(ticket) {
        Some(Ended::Request(outcome)) => outcome,
        _ => panic!("no outcome"),
    };
    for round in 0..100_u8 {
        let under_way: Vec<_> = (0..3)
            .map(|nth| {
                let at = nth * CHUNK;
                ours.span(u64::from(at), 5).unwrap().copy_in(&[round + nth as u8; 5]);
                (at, begin(SegmentOp::Read { offset: 0 }, at, 5))
            })
            .collect();
        for (at, ticket) in under_way {
            let outcome = end(ticket);
            // Its memory has waited on this side.
            let run = Run {
                at: u64::from(at),
                len: 5,
            };
            assert_eq!((outcome.result, outcome.memory), (Ok(5), run));
            let mut seen = [0; 5];
            ours.span(u64::from(at), 5).unwrap().copy_out(&mut seen);
            assert_eq!(seen, [round + (at / CHUNK) as u8 + 1; 5]);
        }
    }
    ours.span(100, 7).unwrap().copy_in(b"written");
    let write = end(begin(SegmentOp::Write { offset: 0 }, 100, 7));
    assert_eq!(write.result, Ok(7));

    is_over.store(true, Ordering::Release);
    client.stop();
    service.thread().unpark();
    assert_eq!(service.join().unwrap(), b"written");
    // Whoever hears of the service's end tells it on this side.
    let lost = begin(SegmentOp::Read { offset: 0 }, 0, 1);
    shared.end();
    assert_eq!(end(lost).result.unwrap_err().fault, RequestFault::ServiceEnded);
}
