//! The budget: a fixed number of frames of one page each, their memory and their state.
//!
//! ```text
//!            fill asked            fill ended           written to
//!   Free ---------------> Filling -----------> Clean ---------------> Dirty <---- Failed: dirty too, and its last write
//!    ^                       |                  ^  ^                   |           |        or flush went wrong
//!    |   nobody waits        v fill failed      |  | durable write     v started   v started
//!    +------------------- Broken                |  +------------- WriteBack <------+
//!    |                                    flush |                      | plain write ended
//!    |   memory never came back                 +------------- Unflushed, until then: on the device, perhaps not safe
//!   Lost <- Filling                                        Gated: dirty, and waits for the log (see `gate`)
//! ```
//!
//! Only a clean page leaves: clean means that a durable write, or a flush that began after its write had ended, covered it.
//! A page under write-back lends its bytes to the device as shared memory, so nobody can change them, and they stay readable.

use std::ops::Range;
use std::sync::Arc;

use baio_engine::{Arena, Buffer, Errno, Frozen};

use super::pooled::Pooled;
use super::wait::List;

/// Bytes of a page, and of the frame that holds it.
pub const PAGE_BYTES: usize = 4096;
pub(super) const PAGE: u64 = PAGE_BYTES as u64;

/// What a frame holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FrameState {
    /// No page.
    #[default]
    Free,
    /// A page whose bytes are being read.
    Filling,
    /// What the device holds safely.
    Clean,
    /// Changed, and not yet being written.
    Dirty,
    /// Dirty, and its last write or flush failed.
    Failed,
    /// Dirty, and not to be written before the log is durable as far as its last change.
    Gated,
    /// Being written.
    WriteBack,
    /// Written, and no flush has covered it yet.
    Unflushed,
    /// A page whose fill failed, for those who hold on to it; the last of them frees the frame.
    Broken(Errno),
    /// No page and no memory: the device never gave it back.
    Lost,
    /// No page; its memory is what somebody borrowed of a page that has other memory now, or has left (see `lend`).
    Lent,
}

impl FrameState {
    /// Is this a legal move?
    fn may_become(self, next: FrameState) -> bool {
        use FrameState::{Broken, Clean, Dirty, Failed, Filling, Free, Gated, Lent, Lost, Unflushed, WriteBack};
        match (self, next) {
            // Handed to somebody who did not use it; a page comes in; one that could not be read was waited for by nobody.
            (Free, Free | Filling | Dirty)
            | (Filling, Clean | Broken(_))
            | (Broken(_), Free | Lost | Dirty)
            | (Lost, Free)
            // A clean page is written along with its neighbours on both sides.
            | (Clean, Free | Dirty | WriteBack)
            | (Dirty | Failed, WriteBack | Gated)
            | (Gated, Dirty)
            // Pages that were refused together are written one by one, and are on their way all the time.
            | (WriteBack, WriteBack | Clean | Unflushed | Failed)
            | (Unflushed, Clean | Dirty | WriteBack | Failed)
            // Its object has gone.
            | (Dirty | Failed | Gated | Unflushed, Free)
            // It gave its memory for that of a lent page, or its page left while that was lent.
            | (Free | Clean | Dirty | Failed | Gated | Unflushed, Lent)
            | (Lent, Free) => true,
            (Free | Filling | Broken(_) | Lost | Lent | Clean | Dirty | Failed | Gated | WriteBack | Unflushed, _) => false,
        }
    }

    /// Can its bytes be read?
    pub(super) fn is_readable(self) -> bool {
        use FrameState::{Clean, Dirty, Failed, Gated, Unflushed, WriteBack};
        matches!(self, Clean | Dirty | Failed | Gated | WriteBack | Unflushed)
    }

    /// Does it count against the dirty limit?
    pub(super) fn is_unsafe(self) -> bool {
        use FrameState::{Dirty, Failed, Gated, Unflushed, WriteBack};
        matches!(self, Dirty | Failed | Gated | WriteBack | Unflushed)
    }

    /// Must it still be written?
    pub(super) fn is_dirty(self) -> bool {
        matches!(self, FrameState::Dirty | FrameState::Failed | FrameState::Gated)
    }

    /// Is an I/O on its way?
    pub(super) fn is_busy(self) -> bool {
        matches!(self, FrameState::Filling | FrameState::WriteBack)
    }
}

/// Where a frame's bytes are.
#[derive(Debug, Default)]
pub(super) enum Bytes {
    /// With the device, for a fill.
    #[default]
    Away,
    /// Here.
    Here(Buffer),
    /// Shared with the device, for a write.
    Shared(Frozen),
}

/// One frame.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) state: FrameState,
    pub(super) object: u32,
    pub(super) page: u64,
    pub(super) bytes: Bytes,
    /// Requests that will use this page: it may not leave.
    pub(super) pins: u32,
    pub(super) waiters: List,
    /// Version of its first change that no ended write covers.
    pub(super) since: u64,
    /// All changes up to this version are in the write on its way.
    pub(super) writing: u64,
    /// All changes up to this version are safe.
    pub(super) stable: u64,
    /// Unflushed: how many flushes had begun when its write ended.
    pub(super) flushes: u64,
    /// Its bytes are shared with who borrowed them, or were: it may not leave, and they are not changed.
    pub(super) lent: bool,
    /// It stands on the list of those.
    listed_lent: bool,
    /// Where the run is kept that begins with this page and was lent; no place if there is none.
    pub(super) loan: u32,
    /// The device has been given up on (its memory is not back): nothing can be done with this page but read it.
    pub(super) stuck: bool,
    /// Read ahead, and not asked for so far.
    ahead: bool,
    /// Bytes that its last use and those which it went on from touched: what adds to them is no further use.
    seen: Range<u16>,
    /// What the buffer pool knows of it.
    pub(super) pool: Pooled,
    /// The eviction policy wanted it, and it could not go.
    pub(super) refused: bool,
}

/// All frames.
#[derive(Debug)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Frames per kind of state, by [`kind`].
    counts: [u32; 11],
    /// Frames whose state is unsafe: asked for with every page that is written, so it is kept and not added up.
    not_safe: u32,
    /// Clean pages that nobody holds on to or waits for.
    evictable: u32,
    /// Pages that were read ahead and not asked for so far.
    ahead: u32,
    /// Frames that were refused to the eviction policy and that it may have now.
    pub(super) eased: Vec<u32>,
    /// Frames whose bytes are lent, and some whose were; which was looked at last.
    lent: Vec<u32>,
    lent_hand: usize,
}

fn kind(state: FrameState) -> usize {
    match state {
        FrameState::Free => 0,
        FrameState::Filling => 1,
        FrameState::Clean => 2,
        FrameState::Dirty => 3,
        FrameState::Failed => 4,
        FrameState::WriteBack => 5,
        FrameState::Unflushed => 6,
        FrameState::Broken(_) => 7,
        FrameState::Lost => 8,
        FrameState::Gated => 9,
        FrameState::Lent => 10,
    }
}

impl Frames {
    /// Takes `count` frames from the arena; `None` when it has not so much, or the bookkeeping finds no memory.
    pub(super) fn new(arena: &Arc<Arena>, count: u32) -> Option<Frames> {
        let mut frames = Vec::new();
        let (mut free, mut eased) = (Vec::new(), Vec::new());
        frames.try_reserve_exact(count as usize).ok()?;
        free.try_reserve_exact(count as usize).ok()?;
        eased.try_reserve_exact(count as usize).ok()?;
        for _ in 0..count {
            frames.push(Frame {
                bytes: Bytes::Here(arena.buffer(PAGE_BYTES)?),
                loan: u32::MAX,
                ..Frame::default()
            });
        }
        free.extend((0..count).rev());
        let mut counts = [0; 11];
        counts[kind(FrameState::Free)] = count;
        Some(Frames {
            frames,
            free,
            counts,
            not_safe: 0,
            evictable: 0,
            ahead: 0,
            eased,
            lent: Vec::new(),
            lent_hand: 0,
        })
    }

    pub(super) fn get(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    /// The frame of this number, if there is one.
    pub(super) fn find(&self, frame: u32) -> Option<&Frame> {
        self.frames.get(frame as usize)
    }

    /// A frame for changing what no count depends on: not its state, pins or waiters.
    pub(super) fn get_mut(&mut self, frame: u32) -> &mut Frame {
        &mut self.frames[frame as usize]
    }

    pub(super) fn total(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Frames in this state; whatever the error, for broken ones.
    pub(super) fn count(&self, state: FrameState) -> u32 {
        self.counts[kind(state)]
    }

    /// Frames that count against the dirty limit.
    pub(super) fn count_unsafe(&self) -> u32 {
        self.not_safe
    }

    pub(super) fn evictable(&self) -> u32 {
        self.evictable
    }

    /// Pages that were read ahead and not asked for so far.
    pub(super) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// A page has come in that nobody has asked for yet.
    pub(super) fn set_ahead(&mut self, frame: u32) {
        self.ahead += u32::from(!std::mem::replace(&mut self.get_mut(frame).ahead, true));
    }

    /// It has been asked for now, or leaves; says whether it was such a page.
    pub(super) fn take_ahead(&mut self, frame: u32) -> bool {
        let was = std::mem::take(&mut self.get_mut(frame).ahead);
        self.ahead -= u32::from(was);
        was
    }

    /// A page has come in of which nobody has seen anything.
    pub(super) fn set_unseen(&mut self, frame: u32) {
        self.get_mut(frame).seen = 0..0;
    }

    /// These bytes of a page are used. Is that a use of its own? One that only goes on where others ended, as the next piece of
    /// a page that is read piece by piece, is not.
    pub(super) fn see(&mut self, frame: u32, bytes: Range<usize>) -> bool {
        let bytes = bytes.start as u16..bytes.end as u16;
        let seen = &mut self.get_mut(frame).seen;
        let goes_on = bytes.end <= seen.start || seen.end <= bytes.start;
        if goes_on && seen.start < seen.end {
            *seen = seen.start.min(bytes.start)..seen.end.max(bytes.end);
        } else {
            *seen = bytes;
        }
        !goes_on
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Frames that are free or can be evicted.
    pub(super) fn to_be_had(&self) -> u32 {
        self.free.len() as u32 + self.evictable
    }

    pub(super) fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A frame whose page has left, or that was never used, is free again.
    pub(super) fn give_free(&mut self, frame: u32) {
        let came_back = matches!(self.get(frame).bytes, Bytes::Here(_)) || self.take_back_lent(frame);
        let gone = match self.get(frame).lent {
            true => FrameState::Lent,
            false => FrameState::Lost,
        };
        self.transition(frame, if came_back { FrameState::Free } else { gone });
        if came_back {
            self.free.push(frame);
        }
    }

    /// Moves a frame to another state: the one place where that changes. An illegal move is a bug of the cache, so it is asserted.
    pub(super) fn transition(&mut self, frame: u32, state: FrameState) {
        let before = self.get(frame).state;
        assert!(
            before.may_become(state),
            "frame {frame} cannot go from {before:?} to {state:?}"
        );
        self.counts[kind(before)] -= 1;
        self.counts[kind(state)] += 1;
        self.not_safe -= u32::from(before.is_unsafe());
        self.not_safe += u32::from(state.is_unsafe());
        self.changing(frame, |frame| frame.state = state);
    }

    pub(super) fn pin(&mut self, frame: u32) {
        self.changing(frame, |frame| frame.pins += 1);
    }

    pub(super) fn unpin(&mut self, frame: u32) {
        self.changing(frame, |frame| frame.pins -= 1);
    }

    /// It is not evicted from now on, or may be again.
    pub(super) fn set_kept(&mut self, frame: u32, kept: bool) {
        self.changing(frame, |frame| frame.pool.kept = kept);
    }

    pub(super) fn set_waiters(&mut self, frame: u32, waiters: List) {
        self.changing(frame, |frame| frame.waiters = waiters);
    }

    /// May this page be evicted?
    pub(super) fn may_go(&self, frame: u32) -> bool {
        may_go(self.get(frame))
    }

    /// The same for the eviction policy, which is told later when one that was refused may go.
    pub(super) fn may_go_or_wait(&mut self, frame: u32) -> bool {
        let Some(entry) = self.frames.get_mut(frame as usize) else {
            return false; // A policy of the caller's own may be wrong.
        };
        entry.refused = !may_go(entry);
        !entry.refused
    }

    /// The one place where a page may become one that can be evicted, or cease to be.
    fn changing(&mut self, at: u32, change: impl FnOnce(&mut Frame)) {
        let frame = &mut self.frames[at as usize];
        let could_go = may_go(frame);
        change(frame);
        match (could_go, may_go(frame)) {
            (true, false) => self.evictable -= 1,
            (false, true) => {
                self.evictable += 1;
                if std::mem::take(&mut frame.refused) {
                    self.eased.push(at); // Each frame once at most, until it is refused again.
                }
            }
            _ => {}
        }
    }

    /// The bytes of a page; none while they are away.
    pub(super) fn bytes(&self, frame: u32) -> &[u8] {
        match &self.get(frame).bytes {
            Bytes::Away => &[],
            Bytes::Here(buffer) => buffer,
            Bytes::Shared(frozen) => frozen,
        }
    }

    /// The bytes of a page for changing; none while the device has them.
    pub(super) fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        match &mut self.get_mut(frame).bytes {
            Bytes::Here(buffer) => buffer,
            Bytes::Away | Bytes::Shared(_) => &mut [],
        }
    }

    /// Takes the buffer out for a fill of `len` bytes.
    pub(super) fn lend(&mut self, frame: u32, len: usize) -> Option<Buffer> {
        match std::mem::take(&mut self.get_mut(frame).bytes) {
            Bytes::Here(mut buffer) => {
                buffer.set_len(len);
                Some(buffer)
            }
            other => {
                self.get_mut(frame).bytes = other;
                None
            }
        }
    }

    /// The buffer of a fill is back.
    pub(super) fn take_back(&mut self, frame: u32, mut buffer: Buffer) {
        buffer.set_len(PAGE_BYTES);
        self.get_mut(frame).bytes = Bytes::Here(buffer);
    }

    /// Shares the first `len` bytes with the device, for a write.
    pub(super) fn share(&mut self, frame: u32, len: usize) -> Option<Frozen> {
        if let Bytes::Shared(lent) = &self.get(frame).bytes {
            return Some(lent.first(len));
        }
        // The frame keeps all of it: what it is a page of may grow meanwhile, and its readers want what lies behind then.
        let frozen = self.lend(frame, PAGE_BYTES)?.freeze();
        let first = frozen.first(len);
        self.get_mut(frame).bytes = Bytes::Shared(frozen);
        Some(first)
    }

    /// Ends the sharing with the device; false when that still holds the bytes. Those of a lent page who borrowed them may hold:
    /// then it counts whether the write's memory has come back.
    pub(super) fn unshare(&mut self, frame: u32, is_back: bool) -> bool {
        if self.get(frame).lent {
            return is_back;
        }
        match std::mem::take(&mut self.get_mut(frame).bytes) {
            Bytes::Shared(frozen) => match frozen.thaw() {
                Ok(buffer) => {
                    self.take_back(frame, buffer);
                    true
                }
                Err(frozen) => {
                    self.get_mut(frame).bytes = Bytes::Shared(frozen);
                    false
                }
            },
            other => {
                self.get_mut(frame).bytes = other;
                true
            }
        }
    }
}

/// Lent bytes (see `lend`).
impl Frames {
    /// Frames whose bytes are lent, with some that have come back since.
    pub(super) fn lent(&self) -> u32 {
        self.lent.len() as u32
    }

    /// The bytes of a whole page, to be read by somebody else; none while they are away.
    pub(super) fn lend_out(&mut self, frame: u32) -> Option<Frozen> {
        let entry = self.get_mut(frame);
        let frozen = match std::mem::take(&mut entry.bytes) {
            Bytes::Here(buffer) => buffer.freeze(),
            Bytes::Shared(frozen) => frozen,
            Bytes::Away => return None,
        };
        entry.bytes = Bytes::Shared(frozen.clone());
        if !entry.lent {
            self.changing(frame, |frame| frame.lent = true);
            self.list_lent(frame);
        }
        Some(frozen)
    }

    fn list_lent(&mut self, frame: u32) {
        if !std::mem::replace(&mut self.get_mut(frame).listed_lent, true) {
            self.lent.push(frame);
        }
    }

    /// May the bytes of this page be changed: does nobody share them?
    pub(super) fn is_own(&mut self, frame: u32) -> bool {
        !self.get(frame).lent || self.take_back_lent(frame)
    }

    /// Takes the bytes of a lent page back, if nobody holds them any more.
    fn take_back_lent(&mut self, frame: u32) -> bool {
        let entry = self.get_mut(frame);
        if !entry.lent {
            return false;
        }
        match std::mem::take(&mut entry.bytes) {
            Bytes::Shared(frozen) => match frozen.thaw() {
                Ok(buffer) => {
                    entry.bytes = Bytes::Here(buffer);
                    self.changing(frame, |frame| frame.lent = false);
                    return true;
                }
                Err(frozen) => entry.bytes = Bytes::Shared(frozen),
            },
            other => entry.bytes = other,
        }
        false
    }

    /// Looks at all that is lent: what has come back is its frame's own again, and a frame that waited for it is free.
    pub(super) fn sweep_lent(&mut self) {
        self.lent_hand = 0; // From the last on down: what takes the place of one that goes has been looked at.
        for _ in 0..self.lent.len() {
            self.look_at_lent();
        }
    }

    /// Looks at one frame of them, in turn.
    pub(super) fn look_at_lent(&mut self) {
        let Some(last) = self.lent.len().checked_sub(1) else {
            return;
        };
        self.lent_hand = match self.lent_hand {
            0 => last,
            hand => last.min(hand - 1),
        };
        let frame = self.lent[self.lent_hand];
        if !self.is_own(frame) {
            return;
        }
        self.lent.swap_remove(self.lent_hand);
        self.get_mut(frame).listed_lent = false;
        if self.get(frame).state == FrameState::Lent {
            self.transition(frame, FrameState::Free);
            self.free.push(frame);
        }
    }

    /// Gives a page whose bytes are lent the memory of a free frame, with a copy of them; that frame waits for the lent memory.
    pub(super) fn copy_lent(&mut self, frame: u32, spare: u32) {
        let lent = std::mem::take(&mut self.get_mut(frame).bytes);
        let mut own = std::mem::take(&mut self.get_mut(spare).bytes);
        if let (Bytes::Shared(lent), Bytes::Here(own)) = (&lent, &mut own) {
            own.copy_from_slice(lent);
        }
        self.get_mut(frame).bytes = own;
        self.get_mut(spare).bytes = lent;
        self.changing(frame, |frame| frame.lent = false);
        self.changing(spare, |frame| frame.lent = true);
        self.list_lent(spare);
        self.transition(spare, FrameState::Lent);
    }
}

fn may_go(frame: &Frame) -> bool {
    frame.state == FrameState::Clean && !frame.lent && frame.pins == 0 && !frame.pool.kept && frame.waiters.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Frames {
        Frames::new(&Arena::new(2 * PAGE_BYTES).unwrap(), 2).unwrap()
    }

    #[test]
    fn counts_follow_the_states() {
        let mut frames = two();
        let frame = frames.take_free().unwrap();
        for state in [
            FrameState::Filling,
            FrameState::Clean,
            FrameState::Dirty,
            FrameState::WriteBack,
            FrameState::Unflushed,
        ] {
            frames.transition(frame, state);
            assert_eq!((frames.count(state), frames.count(FrameState::Free)), (1, 1));
            assert_eq!(frames.count_unsafe(), u32::from(state.is_unsafe()));
            assert_eq!(frames.evictable(), u32::from(state == FrameState::Clean));
        }
    }

    #[test]
    #[should_panic(expected = "cannot go from Gated to WriteBack")]
    fn what_waits_for_the_log_is_not_written() {
        let mut frames = two();
        let frame = frames.take_free().unwrap();
        for state in [FrameState::Dirty, FrameState::Gated, FrameState::WriteBack] {
            frames.transition(frame, state);
        }
    }

    #[test]
    #[should_panic(expected = "cannot go from WriteBack to Free")]
    fn a_page_on_its_way_to_the_device_does_not_leave() {
        let mut frames = two();
        let frame = frames.take_free().unwrap();
        for state in [FrameState::Dirty, FrameState::WriteBack, FrameState::Free] {
            frames.transition(frame, state);
        }
    }
}
