//! Hits: reads of pages that are all there.
//!
//! Most reads of a warm cache find everything they ask for, wait for nothing and start nothing. For those a request's record,
//! its iteration and the waking behind it would cost more than the copy; here such a read is counted, copied and done. Nothing
//! is reordered by it: between calls nothing is ready to run, so it would have been the next, and alone.

use std::ops::Range;

use baio_engine::Memory;

use super::frames::PAGE;
use super::ranges::pages_of;
use super::{Cache, CacheOp, CacheRequest, RequestId};

/// Pages of the longest read that is looked at: what is not a hit is looked at twice.
const PAGES_MAX: usize = 16;

/// What became of a request that was started.
#[derive(Debug)]
pub(crate) enum Started {
    /// A read that found everything: its bytes, and its memory.
    Hit(u32, Memory),
    /// Its end is told by [`Cache::next_done`].
    UnderWay(RequestId),
}

/// What became of a read.
pub(super) enum Looked {
    /// It is done: so many bytes.
    Hit(u32),
    /// It takes the long way. What its object's streams want read ahead has been asked for already, if it says so.
    Not(Option<Range<u64>>),
}

impl Cache {
    /// Does a read at once if it asks for few pages, into one buffer, which are all there.
    pub(super) fn read_hit(&mut self, request: &mut CacheRequest) -> Looked {
        let (CacheOp::Read { offset }, Memory::Own(buffer)) = (request.op, &mut request.memory) else {
            return Looked::Not(None);
        };
        let len = buffer.len();
        let Some(slot) = self.object(request.object) else {
            return Looked::Not(None);
        };
        let object = &self.objects[slot as usize];
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= object.size);
        let pages = pages_of(offset, len as u64);
        let count = pages.end - pages.start;
        if !is_inside || count == 0 || count > PAGES_MAX as u64 {
            return Looked::Not(None);
        }
        let mut frames = [0; PAGES_MAX];
        for (page, place) in pages.clone().zip(&mut frames) {
            match object.tree.get(page) {
                Some(frame) if self.frames.get(frame).state.is_readable() => *place = frame,
                _ => return Looked::Not(None),
            }
        }
        let ahead = self.asked(slot, &pages);
        if !ahead.is_empty() {
            return Looked::Not(Some(ahead));
        }
        let mut from = (offset % PAGE) as usize;
        let mut rest = &mut buffer[..];
        for &frame in &frames[..count as usize] {
            let bytes = self.frames.bytes(frame).get(from..).unwrap_or(&[]);
            let (now, later) = rest.split_at_mut(bytes.len().min(rest.len()));
            now.copy_from_slice(&bytes[..now.len()]);
            (rest, from) = (later, 0);
        }
        let (mut from, mut left) = ((offset % PAGE) as usize, len);
        for &frame in &frames[..count as usize] {
            let part = left.min(PAGE as usize - from);
            self.used_again(frame, from..from + part);
            (from, left) = (0, left - part);
        }
        self.arrivals += 1;
        self.progress += 1;
        self.stats.requests += 1;
        self.stats.iterations += 1;
        Looked::Hit(len as u32)
    }
}
