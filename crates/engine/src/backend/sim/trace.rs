//! One number for everything that happened on a machine: two runs that differ in anything differ in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::Time;

/// What happened.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Start = 1,
    End,
    Fault,
    Store,
    Flush,
    Timer,
    Cancel,
    Delay,
}

/// Written by the machine's thread alone; whoever else has a handle reads what was there a moment ago.
#[derive(Debug)]
struct Word(AtomicU64);

impl Word {
    fn new(value: u64) -> Word {
        Word(AtomicU64::new(value))
    }

    // Relaxed: a word stands for itself, and no other memory is told of by it.
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inner {
    hash: Word,
    events: Word,
    now: Word,
}

/// A view on a machine that its engine owns: its event hash and its clock.
#[derive(Clone, Debug)]
pub struct SimHandle(Arc<Inner>);

impl SimHandle {
    pub(crate) fn new() -> SimHandle {
        SimHandle(Arc::new(Inner {
            hash: Word::new(0xcbf2_9ce4_8422_2325),
            events: Word::new(0),
            now: Word::new(0),
        }))
    }

    /// A number that follows from every start, end, fault, stored write and flush so far, with its virtual time. Equal for
    /// equal seeds and equal requests.
    #[must_use]
    pub fn event_hash(&self) -> u64 {
        self.0.hash.get()
    }

    /// How many events that were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(self.0.now.get())
    }

    pub(crate) fn set_now(&self, now: Time) {
        self.0.now.set(now.0);
    }

    pub(crate) fn note(&self, event: Event, words: [u64; 4]) {
        let mut hash = self.0.hash.get();
        for word in [event as u64, self.0.now.get()].into_iter().chain(words) {
            hash = mix(hash, word);
        }
        self.0.hash.set(hash);
        self.0.events.set(self.0.events.get() + 1);
    }

    pub(crate) fn note_bytes(&self, bytes: &[u8]) {
        self.0.hash.set(mix(self.0.hash.get(), digest(bytes)));
    }
}

/// FNV-1a on words instead of bytes; the rotation carries high bits down.
fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
}

/// The same over bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    mix(hash, bytes.len() as u64)
}
