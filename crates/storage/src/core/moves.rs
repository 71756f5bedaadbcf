//! Moving segments: asked for by a caller, or begun again after an open for those that were left half-moved.

use super::table::Table;
use super::{Core, OperationId};
use crate::crossing::LaneDoor;
use crate::error::Result;
use crate::identity::Identity;
use crate::operation::Subject;
use crate::operation::moving::{Which, move_segment};
use crate::segment::name::Key;
use crate::segment::probe::SlotAddress;
use crate::volume::inspect::SegmentInfo;

impl Core {
    /// Begins to move a segment. Turn the core, and look for the answer.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_move(&mut self, who: Identity, owner_uid: u32, name: &str, to: Option<u64>) -> Result<OperationId> {
        let subject = self.subject("move", who, owner_uid, name)?;
        Ok(self.begin(move_segment(subject, Which::Named(to))))
    }

    /// Moves a segment to the run of free blocks that begins with block `to`; without one, to the lowest run below it that
    /// is long enough, else to the one above that fits best. It is served meanwhile: requests on the part that is just
    /// being copied wait. One that was left half-moved is moved on to where it was going.
    ///
    /// # Errors
    /// `NotFound`, `Access`, `NoSpace`; `MoveStopped` when the volume is closed or the segment deleted meanwhile; or what the
    /// system said: then the move stands where it stopped, and another one goes on from there.
    pub fn move_segment(&mut self, who: Identity, owner_uid: u32, name: &str, to: Option<u64>) -> Result<SegmentInfo> {
        let subject = self.subject("move", who, owner_uid, name)?;
        self.run_on_segment(move_segment(subject, Which::Named(to)))
    }

    /// Goes on with the moves that a crash or a close left unfinished, while the core is turned for others.
    pub(super) fn resume_moves(&mut self) {
        let volume = self.table.volume.as_ref();
        for at in volume.map_or(Vec::new(), |volume| volume.unfinished_moves.clone()) {
            self.table.resume_move(&mut self.lane, at);
        }
    }

    /// The volume is about to be closed: it thaws; operations are called off; moves stop at their next mark, and go on after the next open.
    /// Turn the core until [`Core::in_flight`] is 0; [`Core::close`] does both.
    pub fn wind_down(&mut self) {
        self.table.claims.ask_all_to_end();
        self.table.call_off_all(&mut self.lane);
        self.table.end_freezes(&mut self.lane);
        // A log's last batches still move its gate.
        self.lane.end_logs();
        self.lane.shut_gates();
    }
}

impl Table {
    /// Goes on with a move that stands half-way; nobody waits for its answer.
    pub(super) fn resume_move(&mut self, lane: &mut dyn LaneDoor, at: SlotAddress) {
        let Some(volume) = self.volume.as_ref().filter(|_| !self.claims.is_closing()) else {
            return;
        };
        let key = Key {
            owner_uid: 0,
            name: None,
        };
        let subject = Subject {
            operation: "move",
            key,
            who: Identity::new(0, 0),
            object: format!("{}, slot {} of bucket {}", volume.device.name(), at.slot, at.bucket),
        };
        self.begin_alone(lane, move_segment(subject, Which::Unfinished(at)));
    }
}
