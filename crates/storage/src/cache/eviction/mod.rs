//! Eviction policies: which page leaves when a frame is wanted.
//!
//! A policy sees frame numbers only: not the pages, not their state, not the device. The cache tells it which frames were filled,
//! used and emptied. When it needs a frame it asks for a victim, with a closure that says which frames may go (a dirty, filling or
//! pinned frame may not). So a policy is tested alone, and a database brings its own by implementing one trait.
//!
//! | file | policy |
//! |---|---|
//! | `clock` | CLOCK: one bit per frame and a hand; the simple one |
//! | `s3_fifo` | S3-FIFO: three queues; a scan passes through the smallest |
//! | `queue` | the queues that both use |
//!
//! A policy allocates all its memory when it is made, and none while pages come and go.

pub mod clock;
mod queue;
pub mod s3_fifo;
#[cfg(test)]
mod tests;

use std::collections::TryReserveError;
use std::fmt::Debug;

/// What the caller knows about a page that comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    Normal,
    /// It will be used once, as by a scan or a backup: it leaves before any other page, uses do not promote it, and it is
    /// not remembered when it has gone.
    Once,
}

/// Decides which frame gives up its page.
///
/// Frames are numbered densely from 0 to the number that the policy was made with; a call with a larger number may panic. What
/// the cache relies on it checks: a policy that is wrong makes it slow, and nothing else.
/// To tell the policy again what it knows is harmless: a frame that comes in twice is the newer page, and a use or removal
/// of a frame that holds none is nothing.
pub trait Eviction: Debug + Send {
    /// A page has come into this frame. The key is a hash of object and page index, by which a policy may remember pages
    /// that have left; two pages with one key are mistaken for each other in that, and in nothing else. Neighbours have similar
    /// keys ([`run_of`]).
    fn inserted(&mut self, frame: u32, key: u64, hint: Hint);

    /// A page has come into this frame before anybody asked for it: it was read ahead, or prefetched. Its first use is still to
    /// come, and will be told as a hit.
    fn inserted_ahead(&mut self, frame: u32, key: u64, hint: Hint) {
        self.inserted(frame, key, hint);
    }

    /// The page in this frame was used again. To come in was its first use and is not told here, unless it came in ahead.
    fn hit(&mut self, frame: u32);

    /// The page has left this frame otherwise than as a victim: it was dropped, or its fill failed.
    fn removed(&mut self, frame: u32);

    /// The frame that gives up its page, which the policy forgets; `None` if none may go.
    ///
    /// `may_go` is only asked about frames that hold a page, and answers the same throughout one call. A call that finds a
    /// victim is cheap on average; one that finds none has asked about every frame (a small multiple of their number), so
    /// wait for a change before asking again. Frames that may not go keep what they earned.
    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32>;

    /// A frame about which `may_go` said no in an earlier call may go now. Only a help: a policy that set such frames aside
    /// need not ask about them again until then, unless it finds no other. It may come for frames that hold nothing.
    fn eased(&mut self, frame: u32) {
        let _ = frame;
    }

    /// Has the page of this key left, or passed, lately? One that is not remembered may be read past the frames when none is free,
    /// and is told by [`passed`](Eviction::passed) then. A policy that remembers nothing says yes, and gets every page.
    fn remembers(&self, key: u64) -> bool {
        let _ = key;
        true
    }

    /// The same of any of these pages of a run ([`run_of`]).
    fn remembers_any(&self, run: u64, pages: u16) -> bool {
        keys_of(run, pages).any(|key| self.remembers(key))
    }

    /// A page was read past the frames: it is as one that came and left unused.
    fn passed(&mut self, key: u64) {
        let _ = key;
    }

    /// The same for these pages of a run.
    fn passed_all(&mut self, run: u64, pages: u16) {
        keys_of(run, pages).for_each(|key| self.passed(key));
    }

    /// So many frames newcomers pass through: a page that comes in and is not used leaves when about so many others have come.
    /// Half of them may hold pages that were read ahead.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// The policy's name, for statistics.
    fn name(&self) -> &'static str;
}

/// Pages of a run: its keys differ in as many last bits as that takes.
pub(super) const RUN: u64 = 16;

/// What a key says: which run its page is of, a hash, and which page of it, as a bit. A run is 16 pages of one object, of which
/// the first has a multiple of 16 for its index.
#[must_use]
pub fn run_of(key: u64) -> (u64, u16) {
    (key / RUN, 1 << (key % RUN))
}

/// The keys of these pages of a run.
fn keys_of(run: u64, pages: u16) -> impl Iterator<Item = u64> {
    (0..RUN)
        .filter(move |page| pages & 1 << page != 0)
        .map(move |page| run * RUN + page)
}

/// The policies that come with the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// [`clock::Clock`].
    Clock,
    /// [`s3_fifo::S3Fifo`].
    #[default]
    S3Fifo,
}

impl Policy {
    /// Makes the policy for so many frames.
    pub fn build(self, frames: u32) -> Result<Box<dyn Eviction>, TryReserveError> {
        Ok(match self {
            Policy::Clock => Box::new(clock::Clock::new(frames)?),
            Policy::S3Fifo => Box::new(s3_fifo::S3Fifo::new(frames)?),
        })
    }
}

/// So many copies, or an error where `vec!` would abort.
fn filled<T: Clone>(length: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(length)?;
    all.resize(length, value);
    Ok(all.into_boxed_slice())
}
