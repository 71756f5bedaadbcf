//! Moving a segment to another run of blocks, in service: finds it, chooses the target, and has it copied ([`super::mover`]).
//! A move that an open finds half-done is gone on with in the background, by the place of its inode.

use crate::error::Fault;
use crate::operation::claims::Claim;
use crate::operation::lookup::{Found, lookup, read_bucket};
use crate::operation::mover::{Mover, Patience};
use crate::operation::waits::{token, unclaimed, with};
use crate::operation::{Answer, Context, Failed, Kind, Operation, Subject, Taking, quarantined};
use crate::segment::free_set::FreeSet;
use crate::segment::inode::{Inode, InodeState};
use crate::segment::probe::SlotAddress;

/// Which segment is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The one of that name, to this block; or down to the lowest run that is long enough, else to the one that fits best.
    Named(Option<u64>),
    /// The same for the one of that name in this slot: of two inodes of one name a look-up knows one.
    Placed(SlotAddress, Option<u64>),
    /// The one whose inode is here, which was found half-moved, to where it is on the way.
    Unfinished(SlotAddress),
}

/// A segment is moved.
pub(crate) fn move_segment(subject: Subject, which: Which) -> Operation {
    Operation::new(subject, Kind::Moves, Taking::Alone, run(which))
}

async fn run(which: Which) -> Result<Answer, Failed> {
    with(|cx| cx.subject.may_change(cx.volume))?;
    token().await?;
    let found = loop {
        let found = which.find().await?;
        let at = found.at;
        if with(|cx| cx.claims.claim(at, cx.index, Claim::Shared)) {
            break found;
        }
        drop(found);
        unclaimed(at).await?;
    };
    let inode = match with(|cx| which.begin(cx, found))? {
        Begun::Moves(mut mover) => mover.run().await?,
        Begun::Stays(inode) => inode,
    };
    with(|cx| {
        cx.release_token();
        Ok(cx.segment(&inode)?)
    })
}

/// What comes of a segment that was found.
enum Begun {
    Moves(Mover),
    /// It is where it was to go.
    Stays(Box<Inode>),
}

impl Which {
    async fn find(self) -> Result<Found, Fault> {
        match self {
            Which::Named(_) => {
                let key = with(|cx| cx.subject.key.clone());
                lookup(key).await?.found().ok_or(Fault::NotFound)
            }
            Which::Unfinished(at) | Which::Placed(at, _) => {
                let bucket = read_bucket(at.bucket, []).await?;
                with(|cx| {
                    let inode = bucket.image()?.slot(at.slot, cx.volume.superblock.geometry());
                    let inode = inode.and_then(Result::ok).filter(|inode| self.is_it(cx, inode));
                    // Deleted, or another one, before its turn came.
                    let inode = Box::new(inode.ok_or(Fault::NotFound)?);
                    Ok(Found { at, inode, bucket })
                })
            }
        }
    }

    fn is_it(self, cx: &Context<'_>, inode: &Inode) -> bool {
        match self {
            Which::Placed(..) => inode.key().as_ref() == Some(&cx.subject.key),
            Which::Named(_) | Which::Unfinished(_) => inode.state == InodeState::Moving,
        }
    }

    /// Begins to move what was found and claimed.
    fn begin(self, cx: &mut Context<'_>, found: Found) -> Result<Begun, Fault> {
        let Found { at, inode, bucket } = found;
        if inode.state == InodeState::Quarantined || cx.volume.quarantined.contains(&at) {
            return Err(quarantined());
        }
        if inode.state == InodeState::Moving {
            drop(bucket); // The copy may need its memory.
            let patience = match self {
                Which::Named(_) | Which::Placed(..) => Patience::Caller,
                Which::Unfinished(_) => Patience::Background,
            };
            return Mover::resume(cx, at, inode, patience).map(Begun::Moves);
        }
        cx.must_be_whole(at, &inode)?;
        let to = match self {
            Which::Named(Some(start)) | Which::Placed(_, Some(start)) if start == inode.start_block => {
                return Ok(Begun::Stays(inode));
            }
            Which::Named(to) | Which::Placed(_, to) => to,
            Which::Unfinished(_) => return Ok(Begun::Stays(inode)),
        };
        let blocks = inode.blocks;
        let run = (
            take_target(cx, to, inode.start_block, inode.reserve_blocks)?,
            inode.reserve_blocks,
        );
        Mover::begin(cx, Found { at, inode, bucket }, run, blocks).map(Begun::Moves)
    }
}

/// Takes a run of free blocks: the one asked for, or the best.
pub(crate) fn take_target(cx: &mut Context<'_>, to: Option<u64>, from: u64, blocks: u64) -> Result<u64, Fault> {
    let free = &mut cx.volume.free;
    let start = to.or_else(|| best_target(free, from, blocks));
    let occupy =
        |free: &mut FreeSet, start| crate::seeded_bug("a-target-is-not-taken") || free.occupy(start, blocks).is_ok();
    let taken = start.filter(|&start| free.is_free(start, blocks) && occupy(free, start));
    taken.ok_or_else(|| cx.no_space(blocks))
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
