//! Packing a volume: segments move towards block 0 until what is free is one run at the end, as far as that can be.
//!
//! From low to high, each segment goes to the lowest free run that is long enough for it. Where none is, but the blocks just
//! before it are free, it has to slide by less than its length: source and target of a move never overlap, so it hops to a
//! run elsewhere first, the last that is long enough, and then down to its place.
//!
//! ```text
//!   before   A A A . B B B B B . . C C . . . . . . .
//!   hop      A A A . . . . . . . . C C . . B B B B B
//!   slide    A A A B B B B B . . . C C . . . . . . .
//!   C fits   A A A B B B B B C C . . . . . . . . . .
//! ```
//!
//! Where there is no room to hop, those behind may fill the gap, or make room by their own moves, so the passes are repeated
//! until one moves nothing. Every move lowers the segment that it is about (by its slot: a name may be there twice), so that ends. What cannot be moved stays, and is
//! told with the reason. Each move is one of `operation/moving.rs`: the volume serves meanwhile, and a crash leaves it as
//! good as before.

use super::Core;
use crate::error::Result;
use crate::identity::Identity;
use crate::segment::free_set::FreeSet;
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragProgress {
    /// Which pass over the segments, from 1 on.
    pub pass: u32,
    /// Segments looked at in this pass.
    pub segments_done: u64,
    /// Segments that this pass looks at.
    pub segments: u64,
    /// Bytes copied so far, in all passes.
    pub moved_bytes: u64,
}

/// A segment that is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmoved {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_uid: u32,
    /// Why it was not moved.
    pub why: String,
}

/// What has come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// Moves made; a segment that had to hop made two.
    pub moves: u64,
    /// Segments that were moved.
    pub moved_segments: u64,
    /// Bytes copied.
    pub moved_bytes: u64,
    /// Bytes of the longest free run before.
    pub largest_free_before_bytes: u64,
    /// Bytes of the longest free run now.
    pub largest_free_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Segments that could not be moved down although there is a gap below them.
    pub unmoved: Vec<Unmoved>,
}

/// Where a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It lies as low as it can.
    Stays,
    /// To this block.
    Down(u64),
    /// To this block, over that one.
    Over { hop: u64, down: u64 },
    /// It would have to hop, and there is nowhere to go.
    NoRoom { gap: u64 },
}

impl Core {
    /// Moves the segments that `who` may change towards the beginning of the volume; `progress` is told after each. The
    /// volume serves meanwhile. Segments of others stay where they are.
    ///
    /// # Errors
    /// When the core has no volume or the table cannot be read, or a record failed, so that the volume is latched. What
    /// keeps a single segment from being moved is told by the report.
    pub fn defrag(&mut self, who: Identity, progress: &mut dyn FnMut(DefragProgress)) -> Result<DefragReport> {
        let before = self.volume_info()?;
        let mut report = DefragReport {
            largest_free_before_bytes: before.largest_free_bytes,
            ..DefragReport::default()
        };
        let mut moved = std::collections::BTreeSet::new();
        for pass in 1.. {
            report.unmoved.clear();
            let mut segments = self.list_placed(who)?;
            segments.retain(|(_, segment)| who.acts_for(segment.owner_uid));
            segments.sort_unstable_by_key(|(_, segment)| segment.start_block);
            let moves = report.moves;
            // Below, no gap is left that anything may go to.
            let mut from = 0;
            for (index, (at, segment)) in segments.iter().enumerate() {
                let made = report.moves;
                self.pack(who, (*at, segment), &mut from, &mut report)?;
                if report.moves > made {
                    moved.insert((segment.owner_uid, segment.name.clone()));
                }
                progress(DefragProgress {
                    pass,
                    segments_done: index as u64 + 1,
                    segments: segments.len() as u64,
                    moved_bytes: report.moved_bytes,
                });
            }
            if report.moves == moves || report.unmoved.is_empty() {
                break;
            }
        }
        let after = self.volume_info()?;
        report.moved_segments = moved.len() as u64;
        report.largest_free_bytes = after.largest_free_bytes;
        report.free_bytes = after.free_bytes;
        Ok(report)
    }

    fn pack(
        &mut self,
        who: Identity,
        (at, segment): (SlotAddress, &SegmentInfo),
        from: &mut u64,
        report: &mut DefragReport,
    ) -> Result<()> {
        let mut segment = segment.clone();
        match segment.state {
            "live" => {}
            // First to where it was going.
            "moving" => match self.step_of(who, (at, &segment), None, report)? {
                Some(ended) => segment = ended,
                None => return Ok(()),
            },
            state => {
                let why = format!("it is {state}");
                report.unmoved.push(unmoved(&segment, why));
                return Ok(());
            }
        }
        let volume = self.volume_or("defragment")?;
        let block_size = u64::from(volume.block_size());
        let blocks = segment.reserve_bytes / block_size;
        *from = volume.free.free_runs_from(*from).next().map_or(u64::MAX, |run| run.0);
        let way = way_of(&volume.free, *from, segment.start_block, blocks);
        match way {
            Way::Stays => {}
            Way::Down(to) => {
                self.step_of(who, (at, &segment), Some(to), report)?;
            }
            Way::Over { hop, down } => {
                if self.step_of(who, (at, &segment), Some(hop), report)?.is_some() {
                    self.step_of(who, (at, &segment), Some(down), report)?;
                }
            }
            Way::NoRoom { gap } => {
                let why = format!(
                    "{} bytes are free before it, and there is no free run of {} bytes elsewhere, over which it could move there",
                    gap * block_size,
                    segment.reserve_bytes
                );
                report.unmoved.push(unmoved(&segment, why));
            }
        }
        Ok(())
    }

    /// One move; none if it failed, which the report then says.
    fn step_of(
        &mut self,
        who: Identity,
        (at, segment): (SlotAddress, &SegmentInfo),
        to: Option<u64>,
        report: &mut DefragReport,
    ) -> Result<Option<SegmentInfo>> {
        match self.move_placed(who, segment, at, to) {
            Ok(moved) => {
                report.moves += 1;
                report.moved_bytes += moved.size_bytes;
                Ok(Some(moved))
            }
            Err(error) if self.volume_or("defragment")?.is_latched() => Err(error),
            Err(error) => {
                report.unmoved.push(unmoved(segment, error.to_string()));
                Ok(None)
            }
        }
    }
}

fn unmoved(segment: &SegmentInfo, why: String) -> Unmoved {
    Unmoved {
        name: segment.name.clone(),
        owner_uid: segment.owner_uid,
        why,
    }
}

/// Where a run of blocks that begins at `start` goes, if everything below `from` is in use.
fn way_of(free: &FreeSet, from: u64, start: u64, blocks: u64) -> Way {
    let mut gap = None;
    for (at, len) in free.free_runs_from(from).take_while(|(at, _)| *at < start) {
        if len >= blocks {
            return Way::Down(at);
        }
        gap = (at + len == start).then_some((at, len));
    }
    let Some((down, gap)) = gap else {
        return Way::Stays;
    };
    let fits = free.free_runs_from(start).filter(|(_, len)| *len >= blocks).last();
    match fits {
        Some((at, len)) => Way::Over {
            hop: at + len - blocks,
            down,
        },
        None => Way::NoRoom { gap },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_down_or_over() {
        let mut free = FreeSet::new(100, 0).unwrap();
        for (start, blocks) in [(0, 10), (12, 8), (30, 20), (55, 5)] {
            free.occupy(start, blocks).unwrap();
        }
        // Free: 10..12, 20..30, 50..55, 60..100.
        assert_eq!(way_of(&free, 0, 0, 10), Way::Stays);
        assert_eq!(way_of(&free, 0, 12, 8), Way::Over { hop: 92, down: 10 });
        assert_eq!(way_of(&free, 0, 30, 10), Way::Down(20));
        assert_eq!(way_of(&free, 0, 30, 20), Way::Over { hop: 80, down: 20 });
        assert_eq!(way_of(&free, 0, 55, 5), Way::Down(20));
        free.occupy(60, 35).unwrap();
        assert_eq!(way_of(&free, 0, 30, 20), Way::NoRoom { gap: 10 });
        assert_eq!(way_of(&free, 0, 95, 5), Way::Down(20));
        free.occupy(95, 5).unwrap();
        free.occupy(20, 10).unwrap();
        free.occupy(10, 2).unwrap();
        assert_eq!(way_of(&free, 0, 60, 35), Way::Stays, "no gap just before it");
    }
}
