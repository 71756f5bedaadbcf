//! Operations on the volume's metadata, as state machines.
//!
//! An operation never waits: [`Operation::step`] is given what has happened and does all it can, as a request's iterations
//! do. What it waits for next is either a completion of the engine, the table token, or that the requests on a segment have
//! ended.
//!
//! The token lets one operation at a time read and change the inode table. It is held for look-ups and record writes, not
//! while blocks are zeroed. So at most one update of a bucket is in flight, and no probe passes over a slot that another
//! operation is about to take.

use std::ops::Range;

use baio_engine::{Completion, Durability, Engine, Memory, Op, Request};

use crate::core::holds::{HoldId, Holds, Place as HeldPlace};
use crate::error::{Error, Fault, Result};
use crate::identity::Identity;
use crate::object::{Objects, State};
use crate::request::{Handle, Requests};
use crate::segment::probe::SlotAddress;
use crate::volume::Volume;
use crate::volume::inspect::SegmentInfo;

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod lookup;
pub(crate) mod open;
pub(crate) mod update;

/// What has happened.
pub(crate) enum Event {
    /// The operation begins.
    Begin,
    /// It has the token now.
    Token,
    /// One of its requests has ended.
    Completed(Completion),
    /// The requests on the segment that it wants to change, or in the range that it holds, have ended.
    Drained,
}

/// What the operation waits for now.
pub(crate) enum Step {
    /// Its requests.
    Requests,
    /// The token.
    Token,
    /// The end of the requests on the handles of a segment.
    Drain(SlotAddress),
    /// The end of the requests that touch a range which it holds; none waits for it, then it goes on at once.
    Quiet(HoldId),
    /// Nothing: it has ended.
    Done(Result<Answer>),
}

/// What an operation gives.
#[derive(Debug)]
pub enum Answer {
    /// The segment as it is now.
    Segment(SegmentInfo),
    /// A handle on it.
    Opened(Handle, SegmentInfo),
}

impl Answer {
    pub(crate) fn into_info(self) -> SegmentInfo {
        match self {
            Answer::Segment(info) | Answer::Opened(_, info) => info,
        }
    }
}

/// What a step may use.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) volume: &'a mut Volume,
    pub(crate) objects: &'a mut Objects,
    pub(crate) requests: &'a Requests,
    pub(crate) holds: &'a mut Holds,
    /// Which operation it is.
    pub(crate) index: u32,
    /// The tag of this operation's requests.
    pub(crate) tag: u64,
    /// Does this operation have the token? A step that is done with it clears it.
    pub(crate) has_token: &'a mut bool,
}

impl Context<'_> {
    pub(crate) fn release_token(&mut self) {
        *self.has_token = false;
    }

    /// Parks new requests in a range of a segment, in bytes of the segment, until the hold is released or the operation
    /// ends. Those in flight there end: [`Step::Quiet`] waits for that.
    pub(crate) fn hold(&mut self, address: SlotAddress, range: Range<u64>) -> HoldId {
        let place = HeldPlace { address, range };
        self.holds.hold(self.index, place, self.objects, self.requests)
    }

    /// Holds another range of the same segment instead.
    pub(crate) fn move_hold(&mut self, hold: HoldId, range: Range<u64>) {
        self.holds
            .move_to(hold, range, self.engine, self.objects, self.requests);
    }

    /// Lets the parked requests go on, as the segment is now.
    pub(crate) fn release_hold(&mut self, hold: HoldId) {
        self.holds.release(hold, self.engine, self.objects);
    }

    /// Refuses new requests on a segment, and those that are parked; says how many are under way.
    pub(crate) fn drain(&mut self, address: SlotAddress) -> u32 {
        let in_flight = self.objects.move_segment(address, State::Draining);
        self.holds.wake_all_on(address, self.engine, self.objects);
        in_flight
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> std::result::Result<(), Fault> {
        let buffer = self.engine.buffer(len).ok_or(Fault::NoMemory { asked: len as u64 })?;
        let policy = self.volume.device.policy(Durability::None);
        self.submit(Request::read(&self.volume.device.file, offset, buffer, policy))
    }

    pub(crate) fn write(
        &mut self,
        offset: u64,
        memory: Memory,
        durability: Durability,
    ) -> std::result::Result<(), Fault> {
        let policy = self.volume.device.policy(durability);
        self.submit(Request::write(&self.volume.device.file, offset, memory, policy))
    }

    pub(crate) fn sync(&mut self) -> std::result::Result<(), Fault> {
        let policy = self.volume.device.policy(Durability::Data);
        self.submit(Request::bare(Op::Sync, Some(&self.volume.device.file), policy))
    }

    fn submit(&mut self, request: Request) -> std::result::Result<(), Fault> {
        self.engine
            .submit_reserved(request.tagged(self.tag))
            .map(drop)
            .map_err(|_| Fault::Io(baio_engine::Error::Full))
    }
}

/// One operation under way.
pub(crate) enum Operation {
    Create(create::Create),
    Delete(delete::Delete),
    Open(open::OpenSegment),
}

impl Operation {
    /// Moves the operation on. Whatever fails ends it, and gives the token back.
    pub(crate) fn step(&mut self, cx: &mut Context<'_>, event: Event) -> Step {
        let (advanced, subject) = match self {
            Operation::Create(create) => (create.advance(cx, event), &create.subject),
            Operation::Delete(delete) => (delete.advance(cx, event), &delete.subject),
            Operation::Open(open) => (open.advance(cx, event), &open.subject),
        };
        advanced.unwrap_or_else(|fault| {
            cx.release_token();
            Step::Done(Err(subject.error(fault)))
        })
    }
}

/// Whose segment, by which name, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) operation: &'static str,
    pub(crate) key: crate::segment::name::Key,
    pub(crate) who: Identity,
    /// `PATH#UID/NAME`, for messages.
    pub(crate) object: String,
}

impl Subject {
    pub(crate) fn error(&self, fault: impl Into<Fault>) -> Error {
        Error::new(self.operation, &self.object, fault)
    }

    /// May it change what this is about, and can anything be changed at all?
    pub(crate) fn may_change(&self, volume: &Volume) -> std::result::Result<(), Fault> {
        if !self.who.acts_for(self.key.owner_uid) {
            return Err(Fault::Access { uid: self.who.uid });
        }
        if volume.is_latched() {
            return Err(Fault::Latched);
        }
        Ok(())
    }
}
