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
//! told with the reason. One defragmentation runs at a time: what one has moved up, to hop, another would begin with from there. Each pass begins with a walk through the table ([`super::walk`]); each move is an operation of its own
//! ([`super::moving`]): the volume serves meanwhile, and a crash leaves it as good as before.

use std::collections::{BTreeMap, BTreeSet};

pub use baio_words::{DefragReport, Unmoved};

use crate::error::Fault;
use crate::operation::claims::{ALL_PLACES, Claim};
use crate::operation::list::seen;
use crate::operation::moving::{Which, move_segment};
use crate::operation::waits::{answered, next_turn, token, unclaimed, with};
use crate::operation::walk::Walk;
use crate::operation::{Answer, Context, Failed, Kind, Operation, Progress, Subject, Taking};
use crate::segment::free_set::FreeSet;
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;

/// Segments that are looked at in a turn, if none of them is to be moved.
const TURN_SEGMENTS: u32 = 64;

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

/// Why a segment was not moved.
enum NotMoved {
    /// It stays where it is; the others are looked at.
    Stays(String),
    /// The whole operation ends.
    Failed(Failed),
}

/// The volume is packed.
pub(crate) fn defrag(subject: Subject) -> Operation {
    Operation::new(subject, Kind::Moves, Taking::Alone, Defrag::default().run())
}

/// A defragmentation under way.
#[derive(Default)]
struct Defrag {
    progress: DefragProgress,
    report: DefragReport,
    /// Who was moved so far; a move leaves the inode where it is.
    moved: BTreeSet<SlotAddress>,
    /// What this pass has not looked at, from low to high.
    waiting: BTreeMap<(u64, SlotAddress), SegmentInfo>,
    /// Below, no gap is left that anything may go to.
    from: u64,
}

impl Defrag {
    async fn run(mut self) -> Result<Answer, Failed> {
        with(|cx| self.tell(cx));
        wait_for_others().await?;
        with(|cx| self.report.largest_free_before_bytes = bytes(cx, cx.volume.free.largest_free_run().1));
        loop {
            let moves_before = self.report.moves;
            let is_wanted = self.gather().await? && self.pack().await?;
            let is_packed = self.report.moves == moves_before || self.report.unmoved.is_empty();
            if !is_wanted || is_packed {
                return Ok(with(|cx| self.end(cx)));
            }
        }
    }

    /// Begins a pass: gathers its segments. False when it was called off.
    async fn gather(&mut self) -> Result<bool, Failed> {
        self.report.unmoved.clear();
        self.waiting.clear();
        self.from = 0;
        token().await?;
        let walked = self.walk().await;
        with(|cx| match walked {
            Err(_) if cx.is_called_off => {
                cx.release_token();
                Ok(false)
            }
            Err(failed) => Err(failed),
            Ok(()) => {
                cx.release_token();
                self.progress.pass += 1;
                self.progress.segments_done = 0;
                self.progress.segments = self.waiting.len() as u64;
                self.tell(cx);
                Ok(true)
            }
        })
    }

    async fn walk(&mut self) -> Result<(), Failed> {
        let who = with(|cx| cx.subject.who);
        let mut walk = with(Walk::begin)?;
        while walk.goes_on() {
            walk.step(&mut |volume, at, inode| {
                if let Some(info) = seen(volume, who, at, inode) {
                    self.waiting.insert((info.start_block, at), info);
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Looks at one segment after the other, and moves those that are to be moved. False when it is not wanted any more.
    async fn pack(&mut self) -> Result<bool, Failed> {
        let mut looked_at = 0;
        loop {
            if looked_at == TURN_SEGMENTS {
                looked_at = 0;
                next_turn().await?;
            }
            // A move that is asked to end leaves its segment half-moved: no other is begun.
            if with(|cx| cx.is_abandoned || cx.claims.is_asked_to_end(cx.index)) {
                return Ok(false);
            }
            let Some(((_, at), segment)) = self.waiting.pop_first() else {
                return Ok(true);
            };
            looked_at += 1;
            let moves_before = self.report.moves;
            match self.place(at, &segment).await {
                Ok(()) => {}
                Err(NotMoved::Stays(why)) => self.report.unmoved.push(Unmoved {
                    name: segment.name,
                    owner_uid: segment.owner_uid,
                    why,
                }),
                Err(NotMoved::Failed(failed)) => return Err(failed),
            }
            self.progress.segments_done += 1;
            with(|cx| self.tell(cx));
            if self.report.moves > moves_before {
                looked_at = 0;
            }
        }
    }

    /// Moves a segment to where it belongs, if it is not there.
    async fn place(&mut self, at: SlotAddress, segment: &SegmentInfo) -> Result<(), NotMoved> {
        let moved;
        let segment = match segment.state {
            "live" => segment,
            // First to where it was going.
            "moving" => {
                moved = self.move_to(at, segment, None).await?;
                &moved
            }
            state => return Err(NotMoved::Stays(format!("it is {state}"))),
        };
        let way = with(|cx| {
            let free = &cx.volume.free;
            self.from = free.free_runs_from(self.from).next().map_or(u64::MAX, |run| run.0);
            way_of(
                free,
                self.from,
                segment.start_block,
                segment.reserve_bytes / bytes(cx, 1),
            )
        });
        let down = match way {
            Way::Stays => return Ok(()),
            Way::Down(to) => to,
            Way::Over { hop, down } => {
                self.move_to(at, segment, Some(hop)).await?;
                down
            }
            Way::NoRoom { gap } => {
                let why = format!(
                    "{} bytes are free before it, and there is no free run of {} bytes elsewhere, over which it could move there",
                    with(|cx| bytes(cx, gap)),
                    segment.reserve_bytes
                );
                return Err(NotMoved::Stays(why));
            }
        };
        self.move_to(at, segment, Some(down)).await?;
        Ok(())
    }

    /// Makes a move, an operation of its own.
    async fn move_to(
        &mut self,
        at: SlotAddress,
        segment: &SegmentInfo,
        to: Option<u64>,
    ) -> Result<SegmentInfo, NotMoved> {
        let owner_uid = segment.owner_uid;
        let name = SegmentName::new(&segment.name).map_err(|error| NotMoved::Stays(error.to_string()))?;
        let subject = with(|cx| Subject {
            operation: "move",
            object: format!("{}#{owner_uid}/{}", cx.volume.device.name(), segment.name),
            key: Key::segment(owner_uid, name),
            who: cx.subject.who,
        });
        match answered(move_segment(subject, Which::Placed(at, to))).await {
            Ok(Answer::Segment { info: moved }) => {
                self.report.moves += 1;
                self.report.moved_bytes += moved.size_bytes;
                self.progress.moved_bytes = self.report.moved_bytes;
                self.moved.insert(at);
                with(|cx| self.tell(cx));
                Ok(moved)
            }
            Ok(_) => Err(NotMoved::Failed(Fault::NotFound.into())), // A move answers with its segment.
            // Where what holds is in doubt, nothing more is moved.
            Err(Failed::Elsewhere(error)) if with(|cx| !cx.volume.is_latched()) => {
                Err(NotMoved::Stays(error.to_string()))
            }
            Err(failed) => Err(NotMoved::Failed(failed)),
        }
    }

    fn tell(&self, cx: &mut Context<'_>) {
        cx.shown.progress = Some(Progress::Defrag(self.progress));
    }

    fn end(mut self, cx: &mut Context<'_>) -> Answer {
        self.report.moved_segments = self.moved.len() as u64;
        self.report.largest_free_bytes = bytes(cx, cx.volume.free.largest_free_run().1);
        self.report.free_bytes = bytes(cx, cx.volume.free.free_blocks());
        Answer::Defragged(Box::new(self.report))
    }
}

/// Waits for the end of every other defragmentation.
async fn wait_for_others() -> Result<(), Fault> {
    token().await?;
    while !with(|cx| cx.claims.claim(ALL_PLACES, cx.index, Claim::Shared)) {
        unclaimed(ALL_PLACES).await?;
    }
    with(|cx| cx.release_token());
    Ok(())
}

fn bytes(cx: &Context<'_>, blocks: u64) -> u64 {
    blocks.saturating_mul(u64::from(cx.volume.block_size()))
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
