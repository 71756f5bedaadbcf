//! The thread that an engine belongs to, if it belongs to one.
//!
//! An engine is `Send` whatever it was started with, because all it is made of is: so a program that wants it moves it, or puts
//! it under a lock. What then may not be used elsewhere is one ring of the kernel's (SINGLE_ISSUER, DEFER_TASKRUN), which
//! refuses other threads by itself. The engine refuses them first, on every backend alike and with the cure.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Engine;
use crate::affinity::Affinity;
use crate::completion::Completion;
use crate::file::File;
use crate::request::Request;

const _: () = {
    const fn may_move<T: Send>() {}
    const fn may_be_shared<T: Send + Sync>() {}
    may_move::<(Engine, Request, Completion)>();
    may_be_shared::<File>();
};

thread_local! {
    /// The number of this thread, which no other ever has.
    static HERE: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

pub(super) struct Home(Option<u64>);

impl Home {
    pub(super) fn of(affinity: Affinity) -> Home {
        Home(match affinity {
            Affinity::OneThread => Some(HERE.with(|here| *here)),
            Affinity::AnyThread => None,
        })
    }

    /// Is this another thread than the one it belongs to?
    pub(super) fn is_elsewhere(&self) -> bool {
        self.0.is_some_and(|home| HERE.with(|here| *here != home))
    }
}
