//! One number for everything that happened on a machine: two runs that differ in anything differ in it.

use std::cell::Cell;
use std::rc::Rc;

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

#[derive(Debug)]
struct Inner {
    hash: Cell<u64>,
    events: Cell<u64>,
    now: Cell<u64>,
}

/// A view on a machine that its engine owns: its event hash and its clock.
#[derive(Clone, Debug)]
pub struct SimHandle(Rc<Inner>);

impl SimHandle {
    pub(crate) fn new() -> SimHandle {
        SimHandle(Rc::new(Inner {
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            now: Cell::new(0),
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
