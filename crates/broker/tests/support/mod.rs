//! A client that speaks to the rings directly, entry by entry.

#![allow(dead_code)] // Every test file uses its own part of this.

pub(crate) mod device;
pub(crate) mod machine;
pub(crate) mod tested;

use std::time::{Duration, Instant};

use baio_broker::control::{Call, Reply};
use baio_broker::{Connection, Setup, start};
use baio_engine::{EngineOptions, Memory};
use baio_ring::exchange::Parcel;
use baio_ring::ring::Cursor;
use baio_storage::{Answer, Command, Core, Identity, Result};
use baio_words::entry::{Completion, HandleWords, Op, Place, RawSubmission, Submission, Tag};

use tested::Tested;

pub(crate) const PLACES: u32 = 3;

pub(crate) struct Client {
    pub(crate) connection: Connection,
    /// What [`Client::open`] opens.
    pub(crate) tested: Tested,
    pub(crate) is_simulated: bool,
    pub(crate) submissions: Cursor,
    pub(crate) completions: Cursor,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

pub(crate) fn config() -> EngineOptions {
    EngineOptions {
        slots: 16,
        arena_bytes: 1 << 20,
        ..EngineOptions::default()
    }
}

impl Client {
    pub(crate) fn new() -> Client {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        Client::of(PLACES, dir, move || Ok(Tested::at(&path, &config())))
    }

    /// The client of a service around what `make` makes.
    pub(crate) fn of(
        places: u32,
        dir: tempfile::TempDir,
        make: impl FnOnce() -> Result<Core> + Send + 'static,
    ) -> Client {
        let setup = Setup {
            identity: Identity::effective(),
            places,
        };
        Client {
            connection: start(setup, make).unwrap_or_else(|error| panic!("{error}")),
            tested: Tested::Segment,
            is_simulated: false,
            submissions: Cursor::default(),
            completions: Cursor::default(),
            path: dir.path().join("volume.img"),
            _dir: dir,
        }
    }

    pub(crate) fn push(&mut self, raw: &RawSubmission) {
        let ring = self.connection.shared.submissions.ring();
        ring.push(&mut self.submissions, raw).unwrap();
    }

    pub(crate) fn send(&mut self, raw: &RawSubmission) {
        self.push(raw);
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        if self.connection.shared.submissions.ring().publish(&self.submissions) {
            self.connection.doorbell.ring();
        }
    }

    /// The next completion; `None` when the service has ended.
    pub(crate) fn next(&mut self) -> Option<Completion> {
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

    pub(crate) fn answer(&mut self, call: impl Into<Call>) -> Result<Reply> {
        let tag = tag(0);
        let parcel = Parcel::Command(Box::new(call.into()));
        assert!(self.connection.shared.exchange.put(0, parcel));
        self.send(&Submission::new(Op::Control, tag).encode());
        assert_eq!(self.next().unwrap().tag, tag);
        let Some(Parcel::Reply(answer)) = self.connection.shared.exchange.take(0) else {
            panic!("no answer")
        };
        *answer
    }

    /// What was sent before has been taken when this is answered.
    pub(crate) fn settle(&mut self) {
        assert!(matches!(self.ask(Command::Info), Reply::Answer(Answer::Volume(_))));
    }

    /// Opens something of 64 KiB that can be written.
    pub(crate) fn open(&mut self) -> HandleWords {
        self.tested.open(self)
    }

    /// Closes what is served: the service must end.
    pub(crate) fn close(mut self) {
        assert!(self.ask(Call::Close).is_done());
        assert!(self.next().is_none());
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// A correct read of the first block, with its memory in the exchange.
    pub(crate) fn read(&mut self, index: u32, handle: HandleWords) -> Submission {
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

    pub(crate) fn ask(&mut self, call: impl Into<Call>) -> Reply {
        self.answer(call).unwrap()
    }

    /// The service must end by itself, let go of the volume, and wake whoever sleeps.
    pub(crate) fn goes_out(mut self, what: &str) {
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

pub(crate) fn tag(index: u32) -> Tag {
    Tag { index, generation: 7 }
}
