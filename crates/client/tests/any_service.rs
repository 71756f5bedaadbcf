//! The promise: a client speaks to any service that takes entries: here to one of forty lines that has a few bytes and no
//! engine, whose requests carry vectors.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{JoinHandle, Thread};

use baio_client::{Between, Carrier, Client, Ended};
use baio_ring::Shared;
use baio_ring::exchange::Parcel;
use baio_ring::ring::Cursor;
use baio_words::entry::{Completion, Limits, Op, Place, Submission};
use baio_words::{
    Caching, Failure, Handle, IoError, Payload, RequestFault, SegmentOp, SegmentRequest, Status, StatusWord, Ticket,
    Time,
};

const PLACES: u32 = 8;
const SIZE: usize = 1 << 16;
const CORE: u32 = 3;

#[derive(Debug, Default)]
struct Bytes(Option<Vec<u8>>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(Some(bytes))
    }
}

impl Payload for Bytes {
    fn payload_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::len)
    }
}

#[derive(Debug)]
enum Ask {
    Open,
    Close,
}

struct ToThread(Thread);

impl Carrier for ToThread {
    type Memory = Bytes;
    type Command = Ask;
    type Reply = Option<Handle>;
    type Kept = ();

    fn place(&self, (): &(), memory: &Bytes) -> Place {
        match &memory.0 {
            Some(bytes) => Place::Exchange {
                len: bytes.len() as u32,
            },
            None => Place::Nowhere,
        }
    }

    fn ring(&self) {
        self.0.unpark();
    }

    fn opened(reply: &Option<Handle>) -> Option<Handle> {
        *reply
    }
}

/// What comes of a request that is neither a cancel nor a close.
fn answer(shared: &Between<ToThread>, held: &mut [u8], asked: &Submission) -> Result<u32, Failure> {
    let index = asked.tag.index;
    match (asked.op, shared.exchange.take(index)) {
        (Op::Control, Some(Parcel::Command(ask))) => {
            let handle = matches!(*ask, Ask::Open).then(|| Handle::from_parts(CORE, 1, 1));
            assert!(shared.exchange.put(index, Parcel::Reply(Box::new(handle))));
            Ok(0)
        }
        (Op::Read | Op::Write, Some(Parcel::Memory(Bytes(Some(mut bytes))))) => {
            let at = asked.offset as usize;
            let result = match held.get_mut(at..at + bytes.len()) {
                None => Err(Failure::Beyond { size: SIZE as u64 }),
                Some(range) if asked.op == Op::Read => {
                    bytes.copy_from_slice(range);
                    Ok(bytes.len() as u32)
                }
                Some(range) => {
                    range.copy_from_slice(&bytes);
                    Ok(bytes.len() as u32)
                }
            };
            assert!(shared.exchange.put(index, Parcel::Memory(bytes.into())));
            result
        }
        (Op::Discard | Op::Zero, parcel) => {
            if let Some(parcel) = parcel {
                assert!(shared.exchange.put(index, parcel));
            }
            let (at, len) = (asked.offset as usize, usize::try_from(asked.len).unwrap());
            match held.get_mut(at..at.saturating_add(len)) {
                None => Err(Failure::Beyond { size: SIZE as u64 }),
                Some(range) => {
                    range.fill(0);
                    Ok(0)
                }
            }
        }
        (Op::Truncate | Op::Allocate, _) => Err(Failure::NotAFile),
        _ => Err(Failure::Io(IoError::Cancelled)),
    }
}

/// Serves a few bytes until it is asked to close; what it closed is told.
fn serve(shared: &Between<ToThread>, closed: &Mutex<Vec<u32>>) {
    let limits = Limits {
        places: PLACES,
        arena_bytes: 0,
    };
    let (submissions, completions) = (shared.submissions.ring(), shared.completions.ring());
    let (mut taken, mut posted) = (Cursor::default(), Cursor::default());
    let mut held = vec![0; SIZE];
    loop {
        let Some(raw) = submissions.pop(&mut taken).unwrap() else {
            submissions.release(&taken);
            if completions.publish(&posted) {
                shared.bell.ring();
            }
            if shared.is_stopping() {
                return shared.end();
            }
            if submissions.fall_asleep(&taken) {
                std::thread::park();
                submissions.wake_up();
            }
            continue;
        };
        let asked = Submission::decode(&raw, &limits).unwrap();
        let tag = asked.tag;
        match asked.op {
            Op::Cancel => continue,
            Op::CloseHandle => {
                closed.lock().unwrap().push(asked.handle.index);
                continue;
            }
            _ => {}
        }
        let result = answer(shared, &mut held, &asked);
        let completion = Completion {
            tag,
            result,
            bytes_done: result.unwrap_or(0),
            took: Caching::Direct,
            iterations: 1,
        };
        completions.push(&mut posted, &completion.encode()).unwrap();
    }
}

struct Served {
    client: Arc<Client<ToThread>>,
    closed: Arc<Mutex<Vec<u32>>>,
    thread: JoinHandle<()>,
}

fn served() -> Served {
    let shared = Arc::new(Shared::new(PLACES));
    let closed = Arc::default();
    let (theirs, told) = (Arc::clone(&shared), Arc::clone(&closed));
    let thread = std::thread::spawn(move || serve(&theirs, &told));
    let carrier = ToThread(thread.thread().clone());
    let client = Arc::new(Client::new(carrier, (), shared, CORE, "a few bytes".into()));
    Served { client, closed, thread }
}

impl Served {
    fn open(&self) -> Handle {
        let handle = self.client.ask(Box::new(Ask::Open)).unwrap().unwrap();
        self.client.remember(handle, "a few bytes#0/all".into());
        handle
    }

    fn start(&self, op: SegmentOp, handle: Handle, memory: Vec<u8>) -> Ticket {
        self.client.start(SegmentRequest::new(handle, op, memory)).unwrap()
    }

    fn end(&self, ticket: Ticket) -> baio_words::Outcome<Bytes> {
        match self.client.wait(ticket) {
            Some(Ended::Request(outcome)) => outcome,
            _ => panic!("no outcome"),
        }
    }

    fn close(self) {
        let ticket = self.client.begin_close(Box::new(Ask::Close)).unwrap();
        assert!(matches!(self.client.wait(ticket), Some(Ended::Command(Ok(None)))));
        self.client.stop();
        self.thread.join().unwrap();
    }
}

#[test]
fn what_was_written_is_read() {
    let served = served();
    let handle = served.open();
    let write = served.start(SegmentOp::Write { offset: 4096 }, handle, vec![7; 512]);
    assert_eq!(served.end(write).result, Ok(512));
    let status = StatusWord::new();
    let mut request = SegmentRequest::new(handle, SegmentOp::Read { offset: 4000 }, vec![1; 200]);
    (request.status, request.tag) = (Some(status.clone()), 5);
    let read = served.client.start(request).unwrap();
    let read = served.end(read);
    assert_eq!((read.result, read.tag, status.get()), (Ok(200), 5, Status::Done(200)));
    let bytes = read.memory.0.unwrap();
    assert!(bytes[..96].iter().all(|byte| *byte == 0) && bytes[96..].iter().all(|byte| *byte == 7));
    served.close();
}

/// Everything that a link to a volume would tell.
#[test]
fn a_range_crosses_the_ring_with_its_length() {
    let served = served();
    let handle = served.open();
    let write = served.start(SegmentOp::Write { offset: 0 }, handle, vec![7; 16]);
    served.end(write).result.unwrap();
    let zero = served.start(SegmentOp::Zero { offset: 4, len: 8 }, handle, Vec::new());
    assert_eq!(served.end(zero).result.unwrap(), 0);
    let read = served.start(SegmentOp::Read { offset: 0 }, handle, vec![1; 16]);
    let read = served.end(read).memory.0.unwrap();
    assert_eq!(*read, [[7; 4], [0; 4], [0; 4], [7; 4]].concat());
    // A length of more than 32 bits is told as it was asked for.
    let len = 3 << 40;
    let discard = served.start(SegmentOp::Discard { offset: 1, len }, handle, Vec::new());
    let error = served.end(discard).result.unwrap_err();
    assert_eq!((error.operation, error.offset), ("discard", Some(1)));
    let size = SIZE as u64;
    assert_eq!(error.fault, RequestFault::Beyond { len, size, write: true });
    // What has no size of its own says so, of no byte.
    let truncate = served.start(SegmentOp::Truncate { len: 5 }, handle, Vec::new());
    let error = served.end(truncate).result.unwrap_err();
    assert_eq!((error.offset, error.fault), (None, RequestFault::NotAFile));
    assert!(error.to_string().starts_with("truncate a few bytes#0/all: "), "{error}");
    served.close();
}

#[test]
fn a_failure_names_the_object_the_offset_and_the_cure() {
    let served = served();
    let handle = served.open();
    let ticket = served.start(SegmentOp::Write { offset: 65000 }, handle, vec![0; 4096]);
    let error = served.end(ticket).result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "write a few bytes#0/all at 65000: a write of 4096 bytes goes beyond its end at 65536; needed: offset plus length of at \
         most 65536 bytes; cure: write less, or make a larger segment"
    );
    assert_eq!(error.fault.errno().name(), "ENOSPC");
    let stranger = Handle::from_parts(CORE + 1, 1, 1);
    let ticket = served.start(SegmentOp::Sync, stranger, Vec::new());
    assert_eq!(served.end(ticket).result.unwrap_err().fault, RequestFault::Stale);
    served.close();
}

#[test]
fn futures_and_turns_share_a_client() {
    let served = served();
    let handle = served.open();
    let write = served.start(SegmentOp::Write { offset: 0 }, handle, vec![9; 16]);
    let client = Arc::clone(&served.client);
    let awaited = served
        .client
        .block_on(std::future::poll_fn(|context: &mut Context<'_>| {
            client.poll(write, context.waker())
        }));
    assert!(matches!(awaited, Ok(Some(Ended::Request(outcome))) if outcome.result == Ok(16)));
    for offset in 0..4 {
        served.start(SegmentOp::Read { offset }, handle, vec![0; 4]);
    }
    let mut seen = 0;
    while seen < 4 {
        let until = Some(Time::monotonic().after(std::time::Duration::from_secs(20)));
        served.client.turn(4 - seen, std::time::Duration::ZERO, until).unwrap();
        while let Some(outcome) = served.client.next_outcome() {
            assert_eq!(outcome.memory.0.unwrap(), [9; 4]);
            seen += 1;
        }
    }
    served.close();
}

/// Whoever asks and leaves has opened nothing, whether or not the answer was there before.
#[test]
fn what_nobody_takes_is_closed() {
    let served = served();
    let under_way = served.client.command(Box::new(Ask::Open)).unwrap();
    served.client.look_once();
    served.client.abandon(under_way);
    let answered = served.client.command(Box::new(Ask::Open)).unwrap();
    served.client.wait_for_all();
    served.client.abandon(answered);
    // They are closed with the client's next activity.
    for _ in 0..3 {
        served.open();
    }
    assert_eq!(*served.closed.lock().unwrap(), [1, 1]);
    served.close();
}

#[test]
fn nobody_waits_for_a_service_that_has_ended() {
    let served = served();
    let handle = served.open();
    let read = served.start(SegmentOp::Read { offset: 0 }, handle, vec![0; 4]);
    assert_eq!(served.end(read).result, Ok(4));
    served.client.stop();
    served.thread.join().unwrap();
    let refused = served
        .client
        .start(SegmentRequest::new(handle, SegmentOp::Sync, Vec::new()));
    let lost = match refused {
        Ok(ticket) => match served.client.wait(ticket) {
            Some(Ended::Request(outcome)) => outcome.result.unwrap_err().fault,
            _ => panic!("no outcome"),
        },
        Err(_) => served.client.refusal().unwrap(),
    };
    assert_eq!(lost, RequestFault::ServiceEnded);
    assert!(matches!(
        served.client.poll(Ticket::default(), std::task::Waker::noop()),
        Poll::Ready(None)
    ));
}
