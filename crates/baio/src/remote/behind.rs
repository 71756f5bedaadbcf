//! Requests by ticket whose memory a broker cannot be shown: a buffer of the arena goes in its place, and the caller's own comes back with
//! the outcome. Futures keep it themselves (`request.rs`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use baio_engine::Memory;
use baio_storage::{Outcome, SegmentOp, SegmentRequest, Ticket};

use crate::request::unbounce;

/// The upper half of the tags under which such requests go. Others whose tag looks so go under another too.
const MARK: u64 = 0xba10_c0b1 << 32;

/// What waits at home.
#[derive(Default)]
pub(super) struct Behind(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    next: u32,
    of: HashMap<u64, Waits>,
}

struct Waits {
    tag: u64,
    op: SegmentOp,
    memory: Option<Memory>,
    ticket: Option<Ticket>,
}

impl Behind {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        baio_client::locked(&self.0)
    }

    /// Must this request go under another tag?
    pub(super) fn wants(&self, tag: u64) -> bool {
        tag & (u64::MAX << 32) == MARK
    }

    /// Keeps the request's own memory, if another went in its place, and gives it a tag.
    pub(super) fn keep(&self, request: &mut SegmentRequest, memory: Option<Memory>) {
        let mut kept = self.kept();
        let tag = loop {
            kept.next = kept.next.wrapping_add(1);
            let tag = MARK | u64::from(kept.next);
            if !kept.of.contains_key(&tag) {
                break tag;
            }
        };
        let waits = Waits {
            tag: std::mem::replace(&mut request.tag, tag),
            op: request.op,
            memory,
            ticket: None,
        };
        kept.of.insert(tag, waits);
    }

    /// It was started under this ticket, if it has not ended already.
    pub(super) fn started(&self, tag: u64, ticket: Ticket) {
        if let Some(waits) = self.kept().of.get_mut(&tag) {
            waits.ticket = Some(ticket);
        }
    }

    /// It was not started: it is as it was.
    pub(super) fn undo(&self, request: &mut SegmentRequest) {
        let waits = self.kept().of.remove(&request.tag);
        if let Some(waits) = waits {
            request.tag = waits.tag;
            if let Some(memory) = waits.memory {
                request.memory = memory;
            }
        }
    }

    /// The outcome as its caller knows the request.
    pub(super) fn restore(&self, mut outcome: Outcome) -> Outcome {
        if !self.wants(outcome.tag) {
            return outcome;
        }
        let waits = self.kept().of.remove(&outcome.tag);
        if let Some(waits) = waits {
            outcome.tag = waits.tag;
            if let Some(memory) = waits.memory {
                outcome.memory = unbounce(waits.op, memory, &outcome);
            }
        }
        outcome
    }

    /// Nobody will take the outcome.
    pub(super) fn forget(&self, ticket: Ticket) {
        let mut kept = self.kept();
        let found = kept.of.iter().find(|(_, waits)| waits.ticket == Some(ticket));
        let gone = found.map(|(tag, _)| *tag).and_then(|tag| kept.of.remove(&tag));
        drop(kept);
        drop(gone); // It may run anybody's code.
    }
}
