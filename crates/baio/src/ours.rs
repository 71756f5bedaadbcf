//! What the driver of a core has under way at its engine besides: sockets, pipes and timers (`local_io.rs`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::task::Waker;

use baio_engine::{Completion, Engine, Notice, RequestId};
use baio_storage::Core;

/// What of this is under way on a link, by its tag.
#[derive(Default)]
pub(crate) struct Ours {
    pub(crate) entries: RefCell<HashMap<u64, Entry>>,
    last_tag: Cell<u64>,
    /// The link is being closed: nothing begins any more.
    pub(crate) closed: Cell<bool>,
    /// What was called off while the core was borrowed.
    pub(crate) called_off: RefCell<Vec<CalledOff>>,
}

pub(crate) enum Entry {
    UnderWay(RequestId, Option<Waker>),
    Ended(Completion),
}

/// What the engine is to end early.
#[derive(Clone, Copy)]
pub(crate) enum CalledOff {
    /// Somebody still wants its end.
    Cancelled(RequestId),
    /// Nobody does. Its memory stays until the kernel has let go of it.
    Abandoned(RequestId),
}

impl CalledOff {
    pub(crate) fn tell(self, engine: &mut Engine) {
        match self {
            CalledOff::Cancelled(id) => engine.cancel(id),
            CalledOff::Abandoned(id) => engine.abandon(id),
        }
    }
}

impl Ours {
    pub(crate) fn next_tag(&self) -> u64 {
        let next = self.last_tag.get().wrapping_add(1);
        // 0 is no tag.
        let tag = if Core::FOREIGN_TAGS.contains(&next) { next } else { 1 };
        self.last_tag.set(tag);
        tag
    }

    /// Those that have ended; whoever waits for one is to be woken. What nobody waits for is left in `ended`, to be dropped when
    /// nothing is borrowed.
    pub(crate) fn note(&self, ended: &mut Vec<Completion>, fired: &mut Vec<Waker>) {
        let mut entries = self.entries.borrow_mut();
        let mut left = Vec::new();
        for completion in ended.drain(..) {
            match entries.get_mut(&completion.tag) {
                Some(entry) if completion.notice == Notice::Completed => {
                    let tag_ended = Entry::Ended(completion);
                    if let Entry::UnderWay(_, waker) = std::mem::replace(entry, tag_ended) {
                        fired.extend(waker);
                    }
                }
                _ => left.push(completion),
            }
        }
        drop(entries);
        *ended = left;
    }

    /// Those of whoever waits: nobody reaps any more.
    pub(crate) fn take_wakers(&self, into: &mut Vec<Waker>) {
        for entry in self.entries.borrow_mut().values_mut() {
            if let Entry::UnderWay(_, waker) = entry {
                into.extend(waker.take());
            }
        }
    }

    /// All that is under way, when the link is being closed.
    pub(crate) fn close(&self) -> Vec<RequestId> {
        self.closed.set(true);
        let entries = self.entries.borrow();
        let under_way = entries.values().filter_map(|entry| match entry {
            Entry::UnderWay(id, _) => Some(*id),
            Entry::Ended(_) => None,
        });
        under_way.collect()
    }
}
