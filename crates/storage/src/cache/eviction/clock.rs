//! CLOCK: a hand goes round the frames; who was used since it last came by is passed over once, who was not is the victim.
//!
//! It approximates least-recently-used with one bit per frame. A page comes in with its bit clear and earns its second
//! chance by a second use. What CLOCK cannot do is to tell a scan from a working set: a scan longer than two rounds of the
//! hand drives out everything that is not used meanwhile (`s3_fifo` is for that).
//!
//! Pages of [`Hint::Once`] are not on the dial: they wait in a queue of their own, which is emptied first. One that may not go is put
//! on the dial until the cache says that it may ([`Eviction::eased`]), so that it is not asked about for each victim. A page that was
//! read ahead waits for its first use on the dial, whatever its hint, and is passed over once.

use std::collections::TryReserveError;

use super::queue::{Links, Queue};
use super::{Eviction, Hint, filled};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Holds no page.
    Empty,
    /// In the queue of pages that are used once.
    Once,
    /// Of those, on the dial because it could not go.
    OnceAside,
    /// On the dial, not used since the hand came by.
    Idle,
    /// On the dial, used since.
    Used,
    /// On the dial, read ahead and not used so far; of the second kind with [`Hint::Once`].
    Ahead,
    AheadOnce,
}

/// The CLOCK policy.
#[derive(Debug)]
pub struct Clock {
    states: Box<[Mark]>,
    /// Where the hand looks next, below the number of frames.
    hand: usize,
    once: Queue,
    links: Links,
    /// Frames on the dial that were used since the hand came by.
    used: usize,
}

impl Clock {
    /// For so many frames, all without a page.
    pub fn new(frames: u32) -> Result<Self, TryReserveError> {
        let frames = frames as usize;
        Ok(Self {
            states: filled(frames, Mark::Empty)?,
            hand: 0,
            once: Queue::new(),
            links: Links::new(frames)?,
            used: 0,
        })
    }

    fn turn(&mut self, frame: usize, state: Mark) {
        self.used -= usize::from(self.states[frame] == Mark::Used);
        self.used += usize::from(state == Mark::Used);
        self.states[frame] = state;
    }

    /// A victim of the pages that are used once. Who refuses goes on the dial.
    fn among_once(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        while let Some(frame) = self.once.oldest() {
            self.once.remove(&mut self.links, frame);
            if may_go(frame) {
                self.turn(frame as usize, Mark::Empty);
                return Some(frame);
            }
            self.turn(frame as usize, Mark::OnceAside);
        }
        None
    }
}

impl Eviction for Clock {
    fn inserted(&mut self, frame: u32, _key: u64, hint: Hint) {
        self.removed(frame);
        let state = match hint {
            Hint::Normal => Mark::Idle,
            Hint::Once => {
                self.once.push(&mut self.links, frame);
                Mark::Once
            }
        };
        self.turn(frame as usize, state);
    }

    fn inserted_ahead(&mut self, frame: u32, _key: u64, hint: Hint) {
        self.removed(frame);
        let state = match hint {
            Hint::Normal => Mark::Ahead,
            Hint::Once => Mark::AheadOnce,
        };
        self.turn(frame as usize, state);
    }

    fn hit(&mut self, frame: u32) {
        match self.states[frame as usize] {
            Mark::Idle => self.turn(frame as usize, Mark::Used),
            Mark::Ahead => self.turn(frame as usize, Mark::Idle),
            Mark::AheadOnce => self.inserted(frame, 0, Hint::Once),
            Mark::Empty | Mark::Once | Mark::OnceAside | Mark::Used => {}
        }
    }

    fn removed(&mut self, frame: u32) {
        if self.states[frame as usize] == Mark::Once {
            self.once.remove(&mut self.links, frame);
        }
        self.turn(frame as usize, Mark::Empty);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if let Some(frame) = self.among_once(may_go) {
            return Some(frame);
        }
        // Frames in a row with which nothing could be done; a whole round of them is the end. The first round clears the
        // bits, the second finds what it cleared.
        let mut passed = 0;
        while passed < self.states.len() {
            let frame = self.hand;
            self.hand = (self.hand + 1) % self.states.len();
            match self.states[frame] {
                Mark::Idle | Mark::OnceAside if may_go(frame as u32) => {
                    self.turn(frame, Mark::Empty);
                    return Some(frame as u32);
                }
                Mark::Used | Mark::Ahead | Mark::AheadOnce if may_go(frame as u32) => {
                    self.turn(frame, Mark::Idle);
                    passed = 0;
                }
                _ => passed += 1,
            }
        }
        None
    }

    fn eased(&mut self, frame: u32) {
        if self.states[frame as usize] == Mark::OnceAside {
            self.once.push(&mut self.links, frame);
            self.turn(frame as usize, Mark::Once);
        }
    }

    fn room(&self) -> usize {
        self.states.len() - self.used
    }

    fn name(&self) -> &'static str {
        "clock"
    }
}
