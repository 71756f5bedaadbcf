//! Hints: what a caller knows about its future requests. No hint changes the result of a request, so a hint that fails says nothing.
//!
//! | hint | effect |
//! |---|---|
//! | [`Cache::hint`] | it says how reads will come: readahead is wide at once, or there is none |
//! | [`Cache::prefetch`] | blocks that will be read, wherever they lie, are brought in |
//! | [`Cache::drop_pages`] | pages that will not be read again leave, or leave first |
//! | [`Cache::keep`] | pages of a range stay once they are in |
//!
//! Each is bounded, so that no user takes the cache from the others. A prefetch stops at the frames that can be had at once, and when enough is
//! under way. One user may keep a quarter of the frames, all together half. Kept pages are let go when their keeper goes
//! ([`Cache::keeper_gone`]).

use std::ops::Range;

use super::Cache;
use super::eviction::Hint;
use super::kept::{Keeper, Kept};
use super::object::ObjectId;
use super::pages::Why;
use super::read::room_ahead;
use super::request::CacheError;
use super::window::Pattern;

/// Reads and writes under way above which nothing is prefetched.
const FLIGHTS_MAX: u32 = 48;

/// Pages that a prefetch goes over at most, however large the cache is: a few milliseconds.
const OVER_MAX: u64 = 1 << 16;

/// Keepers of one object and user: each is asked of each page whose keeping ends.
const KEEPERS_MAX: usize = 64;

impl Cache {
    /// Takes a reader's word for how it will read the object.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn hint(&mut self, id: ObjectId, pattern: Pattern) -> Result<(), CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        self.objects[slot as usize].streams.hint(pattern);
        Ok(())
    }

    /// Begins to read pages that will be asked for, in the order given: each run of missing pages with one read. Stops at a
    /// quarter of the frames, where a frame cannot be had at once, behind four times as many pages as there are frames and behind
    /// 65,536 pages, and while many I/Os are under way or so many pages were read ahead and not used that more would drive them out. Gives the number of pages
    /// that it went over: those are here, on their way, reserved by a direct write, or past the end. Ask again for the rest
    /// later. The error of a read goes to whoever waits for its pages by then.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn prefetch(&mut self, id: ObjectId, ranges: &[Range<u64>]) -> Result<u64, CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        let room = room_ahead(&self.frames, &*self.eviction);
        let mut left = u64::from(self.frames.total() / 4).max(1).min(room);
        let over_max = OVER_MAX.min(4 * u64::from(self.frames.total()));
        let mut over = 0;
        for range in ranges {
            let end = range.end.min(self.objects[slot as usize].pages());
            let mut page = range.start.min(end);
            while page < end {
                // What is here already is gone over as well, and costs time.
                if left == 0 || over > over_max || self.flights.live >= FLIGHTS_MAX {
                    return Ok(over);
                }
                let run = end.min(page + left.min(self.window));
                let (passed, begun) = self.prefetch_run(slot, page..run);
                over += passed;
                self.hinted += passed;
                left -= begun;
                page += passed;
                if page < run && begun == 0 {
                    return Ok(over);
                }
            }
            over = over.saturating_add(range.end.saturating_sub(range.start.max(end)));
        }
        Ok(over)
    }

    /// How many pages, kept ranges and keepers hints have gone over so far, by which whoever serves several users can tell what one of theirs has cost.
    #[must_use]
    pub fn pages_hinted(&self) -> u64 {
        self.hinted
    }

    /// Goes over pages up to the end of the first run that is missing, and starts to read that. How many pages it went over,
    /// and how many are read.
    fn prefetch_run(&mut self, slot: u32, pages: Range<u64>) -> (u64, u64) {
        let is_missing = |cache: &Cache, page: u64| {
            let object = &cache.objects[slot as usize];
            object.tree.get(page).is_none() && object.is_open(page, u64::MAX)
        };
        let there = pages.clone().take_while(|&page| !is_missing(self, page)).count() as u64;
        let first = pages.start + there;
        let mut frames = self.flights.frames();
        for page in first..pages.end {
            if !is_missing(self, page) || !self.frame_waiters.is_empty() {
                break;
            }
            let Some(frame) = self.obtain() else { break };
            if self.put_in_with(slot, page, frame, Hint::Normal, Why::Ahead).is_err() {
                break;
            }
            self.transition(frame, super::frames::FrameState::Filling);
            frames.push(frame);
        }
        let begun = frames.len() as u64;
        self.stats.pages_prefetched += begun;
        if frames.is_empty() {
            self.flights.put_away(frames);
        } else {
            self.start_fill(slot, first, frames);
        }
        (there + begun, begun)
    }

    /// Drops pages that will not be used again soon. Those that are clean and that nobody holds leave at once, the others as
    /// soon as they can, before any other page. Gives the number of those that left.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn drop_pages(&mut self, id: ObjectId, pages: Range<u64>) -> Result<u64, CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        let mut left = 0;
        let mut at = pages.start;
        while let Some((page, frame)) = self.objects[slot as usize].tree.next(at, None) {
            if page >= pages.end {
                break;
            }
            at = page + 1;
            self.hinted += 1;
            if self.frames.may_go(frame) {
                self.drop_page(frame);
                left += 1;
            } else {
                self.eviction.removed(frame);
                self.eviction.inserted(frame, super::pages::key(slot, page), Hint::Once);
            }
        }
        self.stats.pages_dropped += left;
        self.settle();
        Ok(left)
    }

    /// From now on pages of this range are not evicted once they are in; they are written back like any others. To bring them in
    /// is left to whoever reads or prefetches them. Pages that several keep count for each.
    ///
    /// # Errors
    /// `KeptFull`, when more than a quarter of the frames would be kept for this user, or more than half in all; or when 64 others keep pages of
    /// this object for him. Nothing was done then.
    /// `NoObject`.
    pub fn keep(&mut self, id: ObjectId, keeper: Keeper, pages: Range<u64>) -> Result<(), CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        let object = &self.objects[slot as usize];
        let pages = pages.start..pages.end.min(object.pages());
        if pages.is_empty() {
            return Ok(());
        }
        let own = object.kept.iter().position(|kept| kept.keeper.id == keeper.id);
        let before: &[Range<u64>] = own.map_or(&[], |own| &object.kept[own].ranges);
        let ranges = joined(before, &pages);
        let pages_kept = count(&ranges);
        let more = pages_kept - own.map_or(0, |own| object.kept[own].pages);
        self.hinted += ranges.len() as u64;
        if more == 0 {
            return Ok(()); // All of them are kept by this one already.
        }
        let (of_one, in_all, keepers) = self.kept_by(keeper.uid);
        self.hinted += keepers;
        let total = u64::from(self.frames.total());
        if of_one + more > total / 4 || in_all + more > total / 2 {
            return Err(CacheError::KeptFull);
        }
        let of_user = |kept: &&Kept| kept.keeper.uid == keeper.uid;
        if own.is_none() && object.kept.iter().filter(of_user).count() >= KEEPERS_MAX {
            return Err(CacheError::KeptFull);
        }
        let kept = &mut self.objects[slot as usize].kept;
        match own {
            Some(own) => (kept[own].ranges, kept[own].pages) = (ranges, pages_kept),
            None => kept.push(Kept {
                keeper,
                ranges,
                pages: pages_kept,
            }),
        }
        self.keep_frames(slot, pages, true);
        Ok(())
    }

    /// Pages that this user keeps, and that everybody does; and how many keepers were asked, at each object.
    fn kept_by(&self, uid: u32) -> (u64, u64, u64) {
        let all = self.objects.iter().flat_map(|object| &object.kept);
        all.fold((0, 0, 0), |(of_one, in_all, keepers), kept| {
            let own = if kept.keeper.uid == uid { kept.pages } else { 0 };
            (of_one + own, in_all + kept.pages, keepers + 1)
        })
    }

    /// Ends [`Cache::keep`] of the same keeper for these pages.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn keep_no_more(&mut self, id: ObjectId, keeper: Keeper, pages: Range<u64>) -> Result<(), CacheError> {
        let slot = self.object(id).ok_or(CacheError::NoObject)?;
        if !pages.is_empty() {
            self.unkeep(slot, keeper.id, &pages);
            self.settle();
        }
        Ok(())
    }

    /// Nothing is kept by this one any more.
    pub fn keeper_gone(&mut self, id: u64) {
        for slot in 0..self.objects.len() as u32 {
            if self.objects[slot as usize].kept.iter().any(|kept| kept.keeper.id == id) {
                self.unkeep(slot, id, &(0..u64::MAX));
                self.settle();
            }
        }
    }

    fn unkeep(&mut self, slot: u32, keeper: u64, pages: &Range<u64>) {
        let around = |range: &Range<u64>| {
            [
                range.start..range.end.min(pages.start),
                range.start.max(pages.end)..range.end,
            ]
        };
        let mut ended = Vec::new();
        let object = &mut self.objects[slot as usize];
        for kept in object.kept.iter_mut().filter(|kept| kept.keeper.id == keeper) {
            self.hinted += kept.ranges.len() as u64;
            let within = |range: &Range<u64>| range.start.max(pages.start)..range.end.min(pages.end);
            ended.extend(kept.ranges.iter().map(within).filter(|range| !range.is_empty()));
            let left = kept.ranges.iter().flat_map(around).filter(|range| !range.is_empty());
            kept.ranges = left.collect();
            kept.pages = count(&kept.ranges);
        }
        object.kept.retain(|kept| !kept.ranges.is_empty());
        // Other pages are kept, or not, as before.
        for range in ended {
            self.keep_frames(slot, range, false);
        }
    }

    /// Pages of a range that somebody keeps now, or that one keeper keeps no more.
    fn keep_frames(&mut self, slot: u32, range: Range<u64>, begins: bool) {
        let mut at = range.start;
        while let Some((page, frame)) = self.objects[slot as usize].tree.next(at, None) {
            if page >= range.end {
                break;
            }
            at = page + 1;
            self.hinted += 1;
            let is_kept = begins || self.objects[slot as usize].keeps(page);
            self.frames.set_kept(frame, is_kept);
        }
    }

    /// A frame to be given up, whatever the policy says: one that it names and that may go, else any that may. A policy of the
    /// caller's own may be wrong, and is counted then.
    pub(super) fn victim(&mut self) -> Option<u32> {
        while let Some(frame) = self.frames.eased.pop() {
            self.eviction.eased(frame);
        }
        let frames = &mut self.frames;
        let named = self.eviction.victim(&mut |frame| frames.may_go_or_wait(frame));
        let frames = &self.frames;
        let may_go = &mut |frame| frame < frames.total() && frames.may_go(frame);
        if let Some(frame) = named.filter(|frame| may_go(*frame)) {
            return Some(frame);
        }
        self.stats.victims_refused += 1;
        let total = frames.total();
        let found = (0..total)
            .map(|step| (self.hand + step) % total)
            .find(|frame| may_go(*frame));
        if let Some(frame) = found {
            self.hand = (frame + 1) % total;
            self.eviction.removed(frame);
        }
        found
    }
}

/// Sorted ranges that do not touch, and one more.
fn joined(ranges: &[Range<u64>], one: &Range<u64>) -> Vec<Range<u64>> {
    let (apart, touching): (Vec<_>, Vec<_>) = ranges
        .iter()
        .cloned()
        .partition(|range| range.end < one.start || one.end < range.start);
    let whole = touching.iter().fold(one.clone(), |whole, range| {
        whole.start.min(range.start)..whole.end.max(range.end)
    });
    let mut all = apart;
    all.push(whole);
    all.sort_unstable_by_key(|range| range.start);
    all
}

fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
