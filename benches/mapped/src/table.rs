//! Which page lies in which frame, as a client would read it without a lock: a seqlock per entry.
//!
//! ```text
//!   entry of frame f: word 0  version: odd while the broker changes entry or frame
//!                     word 1  key: segment and page, 0 for none
//!   slots:            word 0  frame + 1, 0 for an empty one; open addressing by a hash of the key
//! ```
//!
//! The broker, before it changes what a frame holds or what it is: version odd, then a fence; then it changes; then version
//! even, with release. A reader: version (acquire), must be even; key; copy; a fence; version once more, must be the same. If
//! so, the bytes were the page's at every moment between its two looks. So a direct write whose pages are taken out *before*
//! it goes to the device is seen by every read that begins after its end; a read beside it may see either.
//!
//! Nothing of that keeps a client from the bytes of a frame: it keeps an honest one from believing them.

use std::io;
use std::sync::atomic::{Ordering, fence};

use crate::{Map, PAGE, reads_are_over};

/// Bytes of the frames and the table of one cache, each in a mapping: the client's can only be read.
pub struct Table {
    pub frames: Map,
    pub words: Map,
    count: usize,
}

/// Pages of the table of so many frames.
#[must_use]
pub fn table_pages(frames: usize) -> usize {
    (frames * 2 + slots(frames)) * 8 / PAGE + 1
}

/// Twice as many as there are frames, rounded up: a chain is short.
fn slots(frames: usize) -> usize {
    (frames * 2).next_power_of_two()
}

fn hash(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

/// Why a read by the map has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The page is not there.
    Absent,
    /// It was changed or taken away meanwhile.
    Changed,
}

impl Table {
    pub fn new(frames: Map, words: Map, count: usize) -> Table {
        Table { frames, words, count }
    }

    fn find(&self, key: u64) -> Option<usize> {
        let (mask, first) = (slots(self.count) - 1, hash(key));
        for step in 0..=mask {
            let slot = self.count * 2 + ((first + step) & mask);
            let frame = self.words.word(slot).load(Ordering::Acquire) as usize;
            if frame == 0 || frame > self.count {
                return None;
            }
            if self.words.word((frame - 1) * 2 + 1).load(Ordering::Relaxed) == key {
                return Some(frame - 1);
            }
        }
        None
    }

    /// A client's read of a whole page.
    pub fn read(&self, key: u64, to: &mut [u8; PAGE]) -> Result<(), Missed> {
        self.read_while(key, to, || ())
    }

    /// The same, with something that happens after the first look at the version.
    pub fn read_while(&self, key: u64, to: &mut [u8; PAGE], happens: impl FnOnce()) -> Result<(), Missed> {
        let frame = self.find(key).ok_or(Missed::Absent)?;
        let version = self.words.word(frame * 2);
        let before = version.load(Ordering::Acquire);
        if before % 2 == 1 || self.words.word(frame * 2 + 1).load(Ordering::Relaxed) != key {
            return Err(Missed::Changed);
        }
        happens();
        self.frames.read(frame, to);
        reads_are_over();
        if version.load(Ordering::Relaxed) == before {
            Ok(())
        } else {
            Err(Missed::Changed)
        }
    }

    /// The broker's: from now on until [`Table::publish`] no read of this frame is valid.
    pub fn take_back(&self, frame: usize) {
        let version = self.words.word(frame * 2);
        let even = version.load(Ordering::Relaxed) & !1;
        version.store(even + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The broker's: the frame holds this page now.
    pub fn publish(&self, frame: usize) {
        let version = self.words.word(frame * 2);
        let odd = version.load(Ordering::Relaxed) | 1;
        version.store(odd + 1, Ordering::Release);
    }

    /// Puts a page's name to a frame that was taken back. Names are not taken out again: the experiment fills the table once,
    /// and changes what frames hold.
    ///
    /// # Errors
    /// The table is full.
    pub fn name(&self, frame: usize, key: u64) -> io::Result<()> {
        self.words.word(frame * 2 + 1).store(key, Ordering::Relaxed);
        let (mask, first) = (slots(self.count) - 1, hash(key));
        let free = (0..=mask)
            .map(|step| self.words.word(self.count * 2 + ((first + step) & mask)))
            .find(|slot| slot.load(Ordering::Relaxed) == 0)
            .ok_or(io::ErrorKind::StorageFull)?;
        free.store(frame as u64 + 1, Ordering::Release);
        Ok(())
    }
}
