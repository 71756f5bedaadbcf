//! Moving a segment to another run of blocks, in service: finds it, chooses the target, and has it copied ([`super::mover`]).
//! A move that an open finds half-done is gone on with in the background, by the place of its inode.

use baio_engine::Completion;

use crate::error::Fault;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Looked, Lookup, bucket_copy, bytes_of, read_pair};
use crate::operation::mover::{Moved, Mover, Patience};
use crate::operation::{Answer, Context, Event, Step, Subject};
use crate::segment::free_set::{FreeSet, NoSpace};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;
use crate::volume::table::BucketCopy;

/// Which segment is to be moved.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// The one of that name, to this block, or wherever is best.
    Named(Option<u64>),
    /// The one of that name in this slot, to this block, or wherever is best: of two inodes of one name a look-up knows one.
    Placed(SlotAddress, Option<u64>),
    /// The one whose inode is here, to where it is on the way.
    Unfinished(SlotAddress),
}

/// Where the operation stands.
enum Phase {
    Begin,
    /// Looking for the name.
    Looking(Lookup),
    /// Reading the bucket of an unfinished one.
    Reading(Option<BucketCopy>),
    /// Copying.
    Moving(Box<Mover>),
}

/// A move under way.
pub(crate) struct Move {
    pub(super) subject: Subject,
    which: Which,
    phase: Phase,
}

impl Move {
    /// Moves a segment to this block, or down to the lowest run that is long enough, else to the one that fits best.
    pub(crate) fn new(subject: Subject, to: Option<u64>) -> Move {
        Move {
            subject,
            which: Which::Named(to),
            phase: Phase::Begin,
        }
    }

    /// The same for the segment in this slot.
    pub(crate) fn placed(subject: Subject, at: SlotAddress, to: Option<u64>) -> Move {
        Move {
            subject,
            which: Which::Placed(at, to),
            phase: Phase::Begin,
        }
    }

    /// Goes on with a move that was found half-done.
    pub(crate) fn unfinished(subject: Subject, at: SlotAddress) -> Move {
        Move {
            subject,
            which: Which::Unfinished(at),
            phase: Phase::Begin,
        }
    }

    pub(super) fn progress(&self, block_size: u64) -> Option<(u64, u64)> {
        match &self.phase {
            Phase::Moving(mover) => Some(mover.progress(block_size)),
            _ => None,
        }
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        let phase = std::mem::replace(&mut self.phase, Phase::Begin);
        match (phase, event) {
            (Phase::Begin, Event::Begin) => {
                self.subject.may_change(cx.volume)?;
                Ok(Step::Token)
            }
            (Phase::Begin, Event::Token) => self.look(cx),
            (Phase::Looking(lookup), Event::Completed(completion)) => self.looked(cx, lookup, completion),
            (Phase::Reading(copy), Event::Completed(completion)) => self.read(cx, copy, completion),
            (Phase::Moving(mut mover), event) => match mover.advance(cx, event)? {
                Moved::Waits(step) => {
                    self.phase = Phase::Moving(mover);
                    Ok(step)
                }
                Moved::Ended(inode) => answer(cx, &inode),
            },
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn look(&mut self, cx: &mut Context<'_>) -> Result<Step, Fault> {
        self.phase = match self.which {
            Which::Named(_) => Phase::Looking(Lookup::begin(cx, self.subject.key.clone())?),
            Which::Unfinished(at) | Which::Placed(at, _) => {
                read_pair(cx, at.bucket, Place::Table)?;
                Phase::Reading(None)
            }
        };
        Ok(Step::Requests)
    }

    fn read(&mut self, cx: &mut Context<'_>, copy: Option<BucketCopy>, completion: Completion) -> Result<Step, Fault> {
        let (Which::Unfinished(at) | Which::Placed(at, _)) = self.which else {
            return Err(Fault::NotFound); // Only they are read by their place.
        };
        let copy = match copy {
            Some(mut copy) => {
                copy.add_mirror(bytes_of(completion)?);
                copy
            }
            None => bucket_copy(cx, at.bucket, completion)?,
        };
        if copy.needs_mirror() {
            read_pair(cx, at.bucket, Place::Mirror)?;
            self.phase = Phase::Reading(Some(copy));
            return Ok(Step::Requests);
        }
        let geometry = *cx.volume.superblock.geometry();
        let inode = copy.image()?.slot(at.slot, &geometry).and_then(Result::ok);
        // Deleted, or another one, before its turn came.
        let inode = inode.filter(|inode| match self.which {
            Which::Placed(..) => inode.key().as_ref() == Some(&self.subject.key),
            _ => inode.state == InodeState::Moving,
        });
        self.found(cx, at, Box::new(inode.ok_or(Fault::NotFound)?), copy)
    }

    fn looked(&mut self, cx: &mut Context<'_>, mut lookup: Lookup, completion: Completion) -> Result<Step, Fault> {
        match lookup.completed(cx, completion)? {
            Looked::Reading => {
                self.phase = Phase::Looking(lookup);
                Ok(Step::Requests)
            }
            Looked::Absent(_) => Err(Fault::NotFound),
            Looked::Found { address, inode, bucket } => self.found(cx, address, inode, bucket),
        }
    }

    fn found(
        &mut self,
        cx: &mut Context<'_>,
        at: SlotAddress,
        inode: Box<Inode>,
        bucket: BucketCopy,
    ) -> Result<Step, Fault> {
        if !cx.claims.claim(at, cx.index, Claim::Shared) {
            return Ok(cx.wait_for_claim(at));
        }
        if inode.state == InodeState::Quarantined || cx.volume.quarantined.contains(&at) {
            return Err(Fault::Corrupt(
                "its blocks belong to a segment allocated later; it is quarantined, and readable by `check` only"
                    .into(),
            ));
        }
        if inode.state == InodeState::Moving && !cx.volume.quarantined.contains(&at) {
            drop(bucket); // The copy may need its memory.
            let patience = match self.which {
                Which::Named(_) | Which::Placed(..) => Patience::Caller,
                Which::Unfinished(_) => Patience::Background,
            };
            let (mover, step) = Mover::resume(cx, at, inode, patience)?;
            self.phase = Phase::Moving(Box::new(mover));
            return Ok(step);
        }
        cx.must_be_whole(at, &inode)?;
        let to = match self.which {
            Which::Named(Some(start)) | Which::Placed(_, Some(start)) if start == inode.start_block => {
                return answer(cx, &inode);
            }
            Which::Named(to) | Which::Placed(_, to) => to,
            Which::Unfinished(_) => return answer(cx, &inode),
        };
        let (reserve, blocks) = (inode.reserve_blocks, inode.blocks);
        let start = take_target(cx, to, inode.start_block, reserve)?;
        match Mover::begin(cx, (at, bucket), inode, (start, reserve), blocks) {
            Ok(mover) => {
                self.phase = Phase::Moving(Box::new(mover));
                Ok(Step::Requests)
            }
            Err(fault) => {
                // It was taken just now, and nothing was written that names it.
                let _ = cx.volume.free.release(start, reserve);
                Err(fault)
            }
        }
    }
}

fn answer(cx: &mut Context<'_>, inode: &Inode) -> Result<Step, Fault> {
    cx.release_token();
    let name = inode.name.clone().ok_or(Fault::NotFound)?;
    let info = SegmentInfo::of(inode, &name, cx.volume.block_size(), false);
    Ok(Step::Done(Ok(Answer::Segment(info))))
}

/// Takes a run of free blocks: the one asked for, or the best.
pub(crate) fn take_target(cx: &mut Context<'_>, to: Option<u64>, from: u64, blocks: u64) -> Result<u64, Fault> {
    let block_size = cx.volume.block_size();
    let free = &mut cx.volume.free;
    let start = to.or_else(|| best_target(free, from, blocks));
    let occupy =
        |free: &mut FreeSet, start| crate::seeded_bug("a-target-is-not-taken") || free.occupy(start, blocks).is_ok();
    let taken = start.filter(|&start| free.is_free(start, blocks) && occupy(free, start));
    taken.ok_or_else(|| {
        let space = NoSpace {
            asked: blocks,
            free: free.free_blocks(),
            largest_run: free.largest_free_run().1,
        };
        Fault::no_space(&space, block_size)
    })
}

/// The lowest run below `from` that is long enough; else, of those above, the one that leaves the least over.
fn best_target(free: &FreeSet, from: u64, blocks: u64) -> Option<u64> {
    let mut best: Option<(u64, u64)> = None;
    for (start, len) in free.free_runs().filter(|(_, len)| *len >= blocks) {
        if start < from {
            return Some(start);
        }
        if best.is_none_or(|(_, least)| len < least) {
            best = Some((start, len));
        }
    }
    best.map(|(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_lies_low_or_fits_well() {
        let mut free = FreeSet::new(100, 0).unwrap();
        for (start, blocks) in [(0, 10), (14, 6), (40, 10), (80, 5), (90, 2)] {
            free.occupy(start, blocks).unwrap();
        }
        // Free: 10..14, 20..40, 50..80, 85..90, 92..100.
        assert_eq!(best_target(&free, 90, 4), Some(10));
        assert_eq!(best_target(&free, 90, 5), Some(20));
        assert_eq!(best_target(&free, 14, 5), Some(85), "above, the one that fits best");
        assert_eq!(best_target(&free, 14, 6), Some(92));
        assert_eq!(best_target(&free, 14, 31), None);
    }
}
