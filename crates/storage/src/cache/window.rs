//! Readahead: which pages to read before anyone asks (seed 001 §3).
//!
//! An object keeps a few [`Streams`], each the place where some reader is. A request that goes on where a stream ends is
//! that stream's next step, and a stream that has made a few steps in a row is read ahead of by a window, which doubles up
//! to its maximum. The request is judged as a whole, before any of its pages is read: so sixteen pages at random places
//! remain sixteen reads of what was asked, and do not each look like the start of a stream (seed 001 §3.3, §3.4).
//!
//! ```text
//!   asked    0..4   4..8         8..12          12..16   16..20          20..24 ..
//!   ahead           8..16  (8)   16..28 (16)      -      28..36 (16)       -
//!                   └ window: twice the request, then doubled whenever half of it or less is left
//! ```
//!
//! The next pages are only named when half of the window or less is left (of a window of 128 pages and more, three quarters, so
//! that several reads are under way at once), so that they are few large reads and not one page behind every page; and
//! each page of a stream is named once.
//!
//! - **Overlap is progress.** `0..32`, `2..34`, `4..36`: each step begins where the last did or behind, and ends behind its
//!   end. It is one stream, as a reader that asks for much and takes little makes it (seed 001 §3.5).
//! - **A repeat is no progress.** What lies within a stream's last request, as a retry of it or the next piece of a page,
//!   changes nothing and names nothing.
//! - **Randomness is remembered.** How many steps make a stream depends on how many of the last requests led nowhere: one
//!   step on a quiet object, up to nine among random reads, which now and then lie side by side by chance. A request that
//!   overlaps a stream backwards takes its steps from it. A stream read ahead of outlives the random reads between its steps.

#[cfg(test)]
mod tests;

use std::ops::Range;

pub use baio_words::Pattern;

/// Streams of one object at a time.
const STREAMS: usize = 8;
/// The first window, in pages, if the request was smaller than half of it.
const WINDOW_MIN: u64 = 4;
/// Pages of a window of which a quarter is a read worth while.
const LARGE: u64 = 128;
/// A stream that is read ahead of counts as younger by so many requests when a place for a new one is sought.
const GRACE: u64 = 64;

/// Where one reader is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Stream {
    /// The request that made its last step, counted from 1; 0 for a place never used.
    used: u64,
    /// The last request.
    first: u64,
    end: u64,
    /// The end of what was named to be read ahead; not below `end`.
    ahead: u64,
    /// Pages; 0 while it is no stream yet.
    window: u64,
    /// Steps in a row.
    steps: u32,
}

/// So much of a window is enough to be under way: half of a small one, so that its reads are not too short; three quarters of a
/// large one, so that several reads are under way at once and the device never waits for the next.
fn enough(window: u64) -> u64 {
    if window < LARGE {
        window / 2
    } else {
        window - window / 4
    }
}

/// The readers of one object, as far as their requests tell them apart: at most eight. What there is of the first stands in the first
/// line of memory; most objects have no other, and take no memory for more.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Streams {
    /// Requests so far.
    now: u64,
    /// The last sixteen requests that said anything, newest lowest: set if it led nowhere, clear if a stream made a step.
    nowhere: u16,
    /// The last request was no step of a stream that is read ahead of.
    alone: bool,
    pattern: Pattern,
    first: Stream,
    /// As many as were needed so far.
    others: Vec<Stream>,
}

impl Streams {
    /// No reader yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the reader's word for what follows, until it says otherwise.
    pub fn hint(&mut self, pattern: Pattern) {
        self.pattern = pattern;
    }

    /// A reader asks for `count` pages from `first` on. Gives the pages to read ahead now: they lie behind the request, are
    /// `max` at most and end at most `max` behind it; empty for a random reader, for a repeat, and while enough is under way.
    ///
    /// Call it once per request and not once per retry, also while `max` is 0 for want of room: the reader goes on meanwhile. The object's end is the caller's to know: the range may lie behind
    /// it. Pages of the range that are cached need no read; nobody asks for the range again if its reads come to nothing.
    pub fn asked(&mut self, first: u64, count: u64, max: u64) -> Range<u64> {
        self.asked_with(first, count, || max)
    }

    /// The same; how much room there is is asked only if something may be read ahead.
    pub(super) fn asked_with(&mut self, first: u64, count: u64, max: impl FnOnce() -> u64) -> Range<u64> {
        let end = first.saturating_add(count);
        let nothing = end..end;
        self.alone = true;
        if first == end || self.pattern == Pattern::Random {
            return nothing;
        }
        self.now += 1;
        let mut found = Found::default();
        if let Some(holder) = found.look_at(0, &self.first, first, end) {
            self.alone = holder.window == 0; // It is within the last request.
            return nothing;
        }
        for (stream, at) in self.others.iter().zip(1..) {
            if let Some(holder) = found.look_at(at, stream, first, end) {
                self.alone = holder.window == 0;
                return nothing;
            }
        }
        let steps_needed = self.steps_needed();
        let at = match found.step {
            Some((at, _)) => {
                let steps = &mut nth(&mut self.first, &mut self.others, at).steps;
                *steps = steps.saturating_add(1);
                at
            }
            None => self.begin(&found),
        };
        let stream = nth(&mut self.first, &mut self.others, at);
        stream.used = self.now;
        stream.first = first;
        stream.end = end;
        stream.ahead = stream.ahead.max(end);
        if stream.window == 0 && stream.steps < steps_needed {
            return nothing;
        }
        self.alone = false;
        self.nowhere <<= 1;
        let (left, max) = (stream.ahead - end, max());
        stream.window = match (stream.window, self.pattern) {
            (_, Pattern::Sequential) => max,
            (0, _) => count.saturating_mul(2).max(WINDOW_MIN),
            (window, _) if left <= enough(window) => window.saturating_mul(2),
            (window, _) => window,
        }
        .min(max);
        if left > enough(stream.window) {
            return nothing;
        }
        let ahead = stream.ahead;
        stream.ahead = end.saturating_add(stream.window).max(ahead);
        ahead..stream.ahead
    }

    /// Was the last request none of a stream that is read ahead of? So it is where nobody was told of requests.
    pub fn is_alone(&self) -> bool {
        self.alone || self.now == 0
    }

    /// The steps that make a stream now.
    fn steps_needed(&self) -> u32 {
        match self.pattern {
            Pattern::Sequential => 0,
            _ => 1 + self.nowhere.count_ones() / 2,
        }
    }

    /// A new stream in the place that is worth least, for a request that is no step of any.
    fn begin(&mut self, found: &Found) -> usize {
        self.nowhere = self.nowhere << 1 | 1;
        let mut backwards = found.backwards;
        while backwards != 0 {
            let stream = nth(&mut self.first, &mut self.others, backwards.trailing_zeros() as usize);
            (stream.steps, stream.window) = (0, 0);
            backwards &= backwards - 1;
        }
        if self.first.is_used() && self.others.len() < STREAMS - 1 {
            if self.others.is_empty() {
                self.others.reserve_exact(STREAMS - 1);
            }
            self.others.push(Stream::default());
            return self.others.len();
        }
        *nth(&mut self.first, &mut self.others, found.place) = Stream::default();
        found.place
    }
}

/// What one look at all streams finds for a request.
struct Found {
    /// The stream of which it is the next step, and how far from its end: of several, the nearest.
    step: Option<(usize, u64)>,
    /// Streams that it overlaps backwards, a bit each.
    backwards: u32,
    /// The place that is worth least, for a new one.
    place: usize,
    worth: u64,
}

impl Default for Found {
    fn default() -> Found {
        Found {
            step: None,
            backwards: 0,
            place: 0,
            worth: u64::MAX,
        }
    }
}

impl Found {
    /// Looks at one stream, for all of this; gives it if the request lies within its last one.
    fn look_at<'a>(&mut self, at: usize, stream: &'a Stream, first: u64, end: u64) -> Option<&'a Stream> {
        let mut worth = stream.used + if stream.window > 0 { GRACE } else { 0 };
        // A random read is near none, as a processor foresees; on which side of each it lies nobody does.
        let is_near = (first <= stream.ahead) & (end > stream.first);
        if is_near && stream.first <= first {
            if end <= stream.end {
                return Some(stream); // A place that was never used ends before any request.
            }
            // The reader may go on within the last request or within what was read ahead.
            let distance = stream.end.abs_diff(first);
            if stream.is_used() && self.step.is_none_or(|(_, nearest)| distance < nearest) {
                self.step = Some((at, distance));
            }
        } else if is_near {
            self.backwards |= 1 << at;
            worth = stream.used;
        }
        if worth < self.worth {
            (self.place, self.worth) = (at, worth);
        }
        None
    }
}

/// One of the streams: the first, or one of the others.
fn nth<'a>(first: &'a mut Stream, others: &'a mut [Stream], at: usize) -> &'a mut Stream {
    match at {
        0 => first,
        at => &mut others[at - 1],
    }
}

impl Stream {
    fn is_used(&self) -> bool {
        self.used > 0
    }
}
