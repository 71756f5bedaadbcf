//! The service against a client that speaks to the rings directly: what a correct one sends is served; whatever a wrong
//! one sends ends its connection, touches nothing, and gives the volume back.

use std::time::{Duration, Instant};

use baio_broker::control::{Command, Parcel, Reply};
use baio_broker::protocol::{Completion, Failure, HandleWords, Op, Place, RawSubmission, Submission, Tag};
use baio_broker::ring::Cursor;
use baio_broker::{Connection, Setup, start};
use baio_engine::{Config, Memory};
use baio_storage::{Access, Core, CreateOptions, Format, Identity};

const PLACES: u32 = 3;

struct Client {
    connection: Connection<Parcel>,
    submissions: Cursor,
    completions: Cursor,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

fn config() -> Config {
    Config {
        slots: 16,
        arena_bytes: 1 << 20,
        ..Config::default()
    }
}

fn setup() -> Setup {
    Setup {
        identity: Identity::effective(),
        places: PLACES,
    }
}

impl Client {
    fn new() -> Client {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        let format = Format {
            size_bytes: Some(4 << 20),
            ..Format::default()
        };
        Core::format(&path, &format).unwrap();
        let theirs = path.clone();
        Client {
            connection: start(setup(), move || Core::open(&theirs, &config())).unwrap(),
            submissions: Cursor::default(),
            completions: Cursor::default(),
            path,
            _dir: dir,
        }
    }

    fn push(&mut self, raw: &RawSubmission) {
        let ring = self.connection.shared.submissions.ring();
        ring.push(&mut self.submissions, raw).unwrap();
    }

    fn send(&mut self, raw: &RawSubmission) {
        self.push(raw);
        self.publish();
    }

    fn publish(&mut self) {
        if self.connection.shared.submissions.ring().publish(&self.submissions) {
            self.connection.doorbell.ring();
        }
    }

    /// The next completion; `None` when the service has ended.
    fn next(&mut self) -> Option<Completion> {
        let shared = &self.connection.shared;
        let ring = shared.completions.ring();
        let guard = Instant::now();
        loop {
            assert!(
                guard.elapsed() < Duration::from_secs(20),
                "neither a completion nor the end"
            );
            let ended = shared.has_ended();
            if let Some(raw) = ring.pop(&mut self.completions).unwrap() {
                ring.release(&self.completions);
                return Some(Completion::decode(&raw).unwrap());
            }
            if ended {
                return None;
            }
            if ring.fall_asleep(&self.completions) {
                shared.bell.sleep(Some(Duration::from_secs(1)));
                ring.wake_up();
            }
        }
    }

    fn ask(&mut self, command: Command) -> Reply {
        let tag = tag(0);
        assert!(
            self.connection
                .shared
                .exchange
                .put(0, Parcel::Command(Box::new(command)))
        );
        self.send(&Submission::new(Op::Control, tag).encode());
        assert_eq!(self.next().unwrap().tag, tag);
        let Some(Parcel::Reply(reply)) = self.connection.shared.exchange.take(0) else {
            panic!("no reply")
        };
        reply.unwrap()
    }

    fn open(&mut self) -> HandleWords {
        let identity = Identity::effective();
        let (owner_uid, name) = (identity.uid, "one".to_owned());
        self.ask(Command::Create {
            owner_uid,
            name: name.clone(),
            options: CreateOptions::of_size(64 << 10),
        });
        let access = Access::Write;
        let Reply::Opened(handle, _) = self.ask(Command::Open {
            owner_uid,
            name,
            access,
        }) else {
            panic!("not opened")
        };
        let (_, index, generation) = handle.parts();
        HandleWords { index, generation }
    }

    /// A correct read of the first block, with its memory in the exchange.
    fn read(&mut self, index: u32, handle: HandleWords) -> Submission {
        let buffer = self.connection.arena.buffer(4096).unwrap();
        let at = buffer.place();
        let parcel = Parcel::Memory(Memory::Own(buffer));
        assert!(self.connection.shared.exchange.put(index, parcel));
        Submission {
            handle,
            place: Place::Arena { at, len: 4096 },
            ..Submission::new(Op::Read, tag(index))
        }
    }

    /// The service must end by itself, let go of the volume, and wake whoever sleeps.
    fn goes_out(mut self, what: &str) {
        self.publish();
        let guard = Instant::now();
        while self.next().is_some() {
            assert!(guard.elapsed() < Duration::from_secs(60), "{what}: it goes on");
        }
        self.connection.thread.join().unwrap();
        assert_eq!(self.connection.arena.free_bytes(), 1 << 20, "{what}: memory is missing");
        Core::open(&self.path, &config()).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

fn tag(index: u32) -> Tag {
    Tag { index, generation: 7 }
}

#[test]
fn a_correct_client_is_served() {
    let mut client = Client::new();
    let handle = client.open();
    let mut write = client.read(1, handle);
    write.op = Op::Write;
    client.send(&write.encode());
    let written = client.next().unwrap();
    assert_eq!(
        (written.tag, written.result, written.bytes_done),
        (tag(1), Ok(4096), 4096)
    );
    drop(client.connection.shared.exchange.take(1));
    // A stale handle is no violation; neither is a range that cannot be.
    let stale = HandleWords {
        generation: handle.generation + 1,
        ..handle
    };
    let read = client.read(2, stale);
    client.send(&read.encode());
    assert_eq!(client.next().unwrap().result, Err(Failure::Stale));
    drop(client.connection.shared.exchange.take(2));
    let mut far = client.read(2, handle);
    (far.op, far.offset) = (Op::Write, u64::MAX);
    client.send(&far.encode());
    assert_eq!(client.next().unwrap().result, Err(Failure::Beyond { size: 64 << 10 }));
    assert!(matches!(client.ask(Command::Close), Reply::Done));
    assert!(client.next().is_none());
}

#[test]
fn bytes_that_are_no_entry_end_the_connection() {
    let mut client = Client::new();
    client.push(&[u64::MAX; 8]);
    client.goes_out("all ones");
    let mut client = Client::new();
    client.push(&[0; 8]);
    client.goes_out("all zeroes");
    let mut client = Client::new();
    client.push(&Submission::new(Op::Sync, tag(PLACES + 1)).encode());
    client.goes_out("a place that does not exist");
}

#[test]
fn memory_that_is_not_the_entrys_ends_the_connection() {
    let mut client = Client::new();
    let handle = client.open();
    let mut read = client.read(1, handle);
    let Place::Arena { at, .. } = read.place else {
        unreachable!()
    };
    read.place = Place::Arena {
        at: at + 4096,
        len: 4096,
    };
    client.push(&read.encode());
    client.goes_out("another run of the arena");

    let mut client = Client::new();
    let handle = client.open();
    let mut read = client.read(1, handle);
    read.place = Place::Arena { at, len: 8192 };
    client.push(&read.encode());
    client.goes_out("more than its own");

    let mut client = Client::new();
    let handle = client.open();
    let read = client.read(1, handle);
    drop(client.connection.shared.exchange.take(1));
    client.push(&read.encode());
    client.goes_out("nothing in the exchange");

    let mut client = Client::new();
    client.push(&Submission::new(Op::Control, tag(0)).encode());
    client.goes_out("a command that is not there");
}

#[test]
fn a_tag_in_use_ends_the_connection() {
    let mut client = Client::new();
    let handle = client.open();
    let sync = Submission {
        handle,
        ..Submission::new(Op::Sync, tag(1))
    };
    client.push(&sync.encode());
    client.push(&sync.encode());
    client.goes_out("one tag twice");
}

#[test]
fn completions_that_nobody_takes_end_the_connection() {
    let mut client = Client::new();
    let sync = Submission::new(Op::Sync, tag(1)).encode();
    // Each is answered as stale; the ring has room for four.
    for _ in 0..8 {
        client.send(&sync);
        let guard = Instant::now();
        while client.connection.shared.submissions.ring().unread(&client.submissions) > 0
            && !client.connection.shared.has_ended()
        {
            assert!(guard.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        // It is taken; posted before the next one is looked at.
        std::thread::sleep(Duration::from_millis(5));
    }
    client.goes_out("a full ring");
}

#[test]
fn cancelling_what_is_not_there_is_harmless() {
    let mut client = Client::new();
    let handle = client.open();
    for index in 0..PLACES {
        client.send(&Submission::new(Op::Cancel, tag(index)).encode());
    }
    let read = client.read(1, handle);
    client.push(&read.encode());
    client.push(&Submission::new(Op::Cancel, tag(1)).encode());
    client.publish();
    let ended = client.next().unwrap();
    assert_eq!(ended.tag, tag(1), "once, cancelled or not: {:?}", ended.result);
    client.send(
        &Submission {
            handle,
            ..Submission::new(Op::CloseHandle, Tag::default())
        }
        .encode(),
    );
    assert!(matches!(client.ask(Command::Info), Reply::Volume(_)));
    assert!(matches!(client.ask(Command::Close), Reply::Done));
}
