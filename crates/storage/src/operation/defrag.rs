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
//! told with the reason. Each pass begins with a walk through the table ([`super::walk`]); each move is an operation of its own
//! ([`super::moving`]): the volume serves meanwhile, and a crash leaves it as good as before.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Fault, Result as CoreResult};
use crate::operation::list::seen;
use crate::operation::moving::Move;
use crate::operation::walk::{Walk, Walked};
use crate::operation::{Answer, Context, Event, Operation, Step, Subject};
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
    /// How many more there are that are not listed: a broker tells the first 64.
    pub untold: u64,
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

/// What comes after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It was where it was going before; now to where it belongs.
    Place,
    /// It has hopped.
    Down(u64),
    /// It is where it belongs.
    Next,
}

/// Where the operation stands.
enum Phase {
    Begin,
    /// Gathering the segments of a pass.
    Walking(Box<Walk>),
    /// Looking at one after the other.
    Packing,
    /// Moving one.
    Moving(SlotAddress, Box<SegmentInfo>, Then),
}

/// A defragmentation under way.
pub(crate) struct Defrag {
    pub(super) subject: Subject,
    phase: Phase,
    progress: DefragProgress,
    report: DefragReport,
    /// Who was moved so far; a move leaves the inode where it is.
    moved: BTreeSet<SlotAddress>,
    /// What this pass has not looked at, from low to high.
    waiting: BTreeMap<(u64, SlotAddress), SegmentInfo>,
    /// Below, no gap is left that anything may go to.
    from: u64,
    /// Moves made before this pass.
    moves_before: u64,
}

impl Defrag {
    pub(crate) fn new(subject: Subject) -> Defrag {
        Defrag {
            subject,
            phase: Phase::Begin,
            progress: DefragProgress::default(),
            report: DefragReport::default(),
            moved: BTreeSet::new(),
            waiting: BTreeMap::new(),
            from: 0,
            moves_before: 0,
        }
    }

    pub(super) fn progress(&self) -> DefragProgress {
        self.progress
    }

    pub(super) fn advance(&mut self, cx: &mut Context<'_>, event: Event) -> Result<Step, Fault> {
        match (std::mem::replace(&mut self.phase, Phase::Begin), event) {
            (Phase::Begin, Event::Begin) => {
                self.report.largest_free_before_bytes = bytes(cx, cx.volume.free.largest_free_run().1);
                Ok(self.begin_pass())
            }
            (Phase::Begin, Event::Token) => {
                let walked = Walk::begin(cx);
                Ok(self.walked(cx, walked))
            }
            (Phase::Walking(walk), Event::Completed(completion)) => {
                let (who, waiting) = (self.subject.who, &mut self.waiting);
                let walked = walk.advance(cx, completion, &mut |volume, at, inode| {
                    if let Some(info) = seen(volume, who, at, inode) {
                        waiting.insert((info.start_block, at), info);
                    }
                });
                Ok(self.walked(cx, walked))
            }
            (Phase::Packing, Event::Turn) => Ok(self.pack_on(cx)),
            (Phase::Moving(at, segment, then), Event::Answered(answer)) => {
                Ok(self.answered(cx, (at, *segment), then, answer))
            }
            (_, event) => Err(cx.unexpected(&event)),
        }
    }

    fn begin_pass(&mut self) -> Step {
        self.report.unmoved.clear();
        self.waiting.clear();
        self.moves_before = self.report.moves;
        self.from = 0;
        Step::Token
    }

    fn walked(&mut self, cx: &mut Context<'_>, walked: CoreResult<Walked>) -> Step {
        match walked {
            Ok(Walked::Reading(walk)) => {
                self.phase = Phase::Walking(walk);
                Step::Requests
            }
            Ok(Walked::Ended) => {
                cx.release_token();
                self.progress.pass += 1;
                self.progress.segments_done = 0;
                self.progress.segments = self.waiting.len() as u64;
                self.pack_on(cx)
            }
            Err(_) if cx.is_called_off => {
                cx.release_token();
                self.end(cx)
            }
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// Looks at segments until one is to be moved, or enough was done for this turn.
    fn pack_on(&mut self, cx: &mut Context<'_>) -> Step {
        for _ in 0..TURN_SEGMENTS {
            // A move that is asked to end leaves its segment half-moved: no other is begun.
            if cx.is_abandoned || cx.claims.is_asked_to_end(cx.index) {
                return self.end(cx);
            }
            let Some(((_, at), segment)) = self.waiting.pop_first() else {
                return self.end_pass(cx);
            };
            let next = match segment.state {
                "live" => self.place(cx, at, segment),
                // First to where it was going.
                "moving" => self.begin_move(cx, (at, segment), None, Then::Place),
                state => {
                    let why = format!("it is {state}");
                    self.stays(&segment, why)
                }
            };
            if let Some(step) = next {
                return step;
            }
        }
        self.phase = Phase::Packing;
        Step::Turn
    }

    /// Begins the move of a whole segment to where it belongs, if it is not there.
    fn place(&mut self, cx: &mut Context<'_>, at: SlotAddress, segment: SegmentInfo) -> Option<Step> {
        let blocks = segment.reserve_bytes / bytes(cx, 1);
        let free = &cx.volume.free;
        self.from = free.free_runs_from(self.from).next().map_or(u64::MAX, |run| run.0);
        match way_of(free, self.from, segment.start_block, blocks) {
            Way::Stays => {
                self.progress.segments_done += 1;
                None
            }
            Way::Down(to) => self.begin_move(cx, (at, segment), Some(to), Then::Next),
            Way::Over { hop, down } => self.begin_move(cx, (at, segment), Some(hop), Then::Down(down)),
            Way::NoRoom { gap } => {
                let why = format!(
                    "{} bytes are free before it, and there is no free run of {} bytes elsewhere, over which it could move there",
                    bytes(cx, gap),
                    segment.reserve_bytes
                );
                self.stays(&segment, why)
            }
        }
    }

    fn stays(&mut self, segment: &SegmentInfo, why: String) -> Option<Step> {
        self.progress.segments_done += 1;
        self.report.unmoved.push(Unmoved {
            name: segment.name.clone(),
            owner_uid: segment.owner_uid,
            why,
        });
        None
    }

    fn begin_move(
        &mut self,
        cx: &Context<'_>,
        (at, segment): (SlotAddress, SegmentInfo),
        to: Option<u64>,
        then: Then,
    ) -> Option<Step> {
        let owner_uid = segment.owner_uid;
        let name = match SegmentName::new(&segment.name) {
            Ok(name) => name,
            Err(error) => return self.stays(&segment, error.to_string()),
        };
        let subject = Subject {
            operation: "move",
            object: format!("{}#{owner_uid}/{}", cx.volume.device.name(), segment.name),
            key: Key::segment(owner_uid, name),
            who: self.subject.who,
        };
        self.phase = Phase::Moving(at, Box::new(segment), then);
        let moving = Operation::Move(Box::new(Move::placed(subject, at, to)));
        Some(Step::Begin(Box::new(moving)))
    }

    fn answered(
        &mut self,
        cx: &mut Context<'_>,
        (at, segment): (SlotAddress, SegmentInfo),
        then: Then,
        answer: CoreResult<Answer>,
    ) -> Step {
        let next = match answer {
            Ok(Answer::Segment(moved)) => {
                self.report.moves += 1;
                self.report.moved_bytes += moved.size_bytes;
                self.progress.moved_bytes = self.report.moved_bytes;
                self.moved.insert(at);
                match then {
                    Then::Place => self.place(cx, at, moved),
                    Then::Down(to) => self.begin_move(cx, (at, moved), Some(to), Then::Next),
                    Then::Next => {
                        self.progress.segments_done += 1;
                        None
                    }
                }
            }
            // What holds is in doubt, so nothing more is moved.
            Err(error) if cx.volume.is_latched() => return Step::Done(Err(error)),
            Err(error) => self.stays(&segment, error.to_string()),
            Ok(_) => return Step::Done(Err(self.subject.error(Fault::NotFound))), // A move answers with its segment.
        };
        next.unwrap_or_else(|| self.pack_on(cx))
    }

    fn end_pass(&mut self, cx: &mut Context<'_>) -> Step {
        if self.report.moves == self.moves_before || self.report.unmoved.is_empty() {
            return self.end(cx);
        }
        self.begin_pass()
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Step {
        let mut report = std::mem::take(&mut self.report);
        report.moved_segments = self.moved.len() as u64;
        report.largest_free_bytes = bytes(cx, cx.volume.free.largest_free_run().1);
        report.free_bytes = bytes(cx, cx.volume.free.free_blocks());
        Step::Done(Ok(Answer::Defragged(report)))
    }
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
