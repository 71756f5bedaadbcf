//! Keeping the device still for a copy of the volume's file ([`crate::operation::freeze`]): who waits meanwhile, and how it ends.

use crate::core::table::Table;
use crate::core::table::operations::Running;
use crate::core::{Core, OperationId};
use crate::crossing::{LaneDoor, Stillness, ToLane};
use crate::error::Result;
use crate::identity::Identity;
use crate::operation::freeze::freeze;
use crate::operation::{Event, Kind};
use crate::slot_map::SlotKey;

impl Core {
    /// Begins to freeze the volume, for a copy of its file that is of one moment: writes, discards and zeros of segments wait from now on, and
    /// so do operations that change anything; those under way end, what the page cache has is written back, the device is synced. Then the
    /// answer is [`Answer::Frozen`](crate::Answer::Frozen), and nothing changes on the device until [`Core::thaw`]. A copy of the file
    /// made meanwhile opens as after a crash, with everything that was completed.
    ///
    /// Meanwhile reads, opens and lists go on. What waits can be cancelled and be overdue, as behind a hold. Cached segments are not
    /// synced. Pages that are changed through pins stay in memory, and so do those that wait for their log; a cache that is full of them
    /// serves nobody before the end. Moves and zeroes stand still; a read of the very part that is just being moved waits.
    ///
    /// Uid 0 may, and the user that the volume's file belongs to. Whoever freezes a frozen volume waits for nothing, and it stays so until
    /// all have thawed it. Closing the volume thaws it, and so does giving the answer up.
    ///
    /// # Errors
    /// No volume; everything else is told by the answer: `Access`; or what the system said, and then nothing is frozen.
    pub fn begin_freeze(&mut self, who: Identity) -> Result<OperationId> {
        let subject = self.whole_subject("freeze", who)?;
        Ok(self.begin(freeze(subject)))
    }

    /// One who froze the volume needs that no more. With the last of them, what waited goes on. An old number does nothing.
    pub fn thaw(&mut self, freeze: u64) {
        self.table.thaw(&mut self.lane, freeze);
    }

    /// Looks whether what a freeze waits for has come about. Says whether it has.
    pub(in crate::core) fn step_freeze(&mut self) -> bool {
        if !self.table.freeze.is_wanted() {
            return false;
        }
        self.lane.call_off_syncs();
        self.lane.tell_stillness();
        self.pass_on() | self.table.step_freeze(&mut self.lane)
    }
}

impl Table {
    pub(in crate::core) fn thaw(&mut self, lane: &mut dyn LaneDoor, freeze: u64) {
        if self.freeze.let_go(freeze) {
            self.end_freeze(lane);
        }
    }

    /// Everybody may write again, whoever wanted it otherwise.
    fn end_freeze(&mut self, lane: &mut dyn LaneDoor) {
        self.freeze.end();
        lane.obey(ToLane::Thawed);
        for (key, event) in std::mem::take(&mut self.freeze.put_off) {
            if self.running.get(key).is_some() {
                self.step(lane, key.index, event);
            }
        }
        if let Some(index) = self.grant_token() {
            self.step(lane, index, Event::Token);
        }
    }

    /// The volume is about to be closed: freezes end, those on their way too, and so do checks.
    pub(in crate::core) fn end_freezes(&mut self, lane: &mut dyn LaneDoor) {
        for index in self.running.indices() {
            let is_one = |running: &Running| running.kind().is_turned();
            let key = self.running.key_at(index);
            if key.and_then(|key| self.running.get(key)).is_some_and(is_one) {
                self.step(lane, index, Event::Turn);
            }
        }
        self.end_freeze(lane);
    }

    /// A freeze has ended; without an answer nobody wanted it. Those that came meanwhile look again.
    pub(in crate::core) fn freeze_ended(&mut self, lane: &mut dyn LaneDoor, index: u32) {
        let freezes = self.running.indices().filter_map(|index| self.running.key_at(index));
        let is_freeze = |key: &SlotKey| {
            let running = self.running.get(*key);
            running.is_some_and(|running| running.kind() == Kind::Freezes && !running.has_ended())
        };
        self.next_turn.extend(freezes.filter(is_freeze));
        if self.freeze.on_its_way == Some(index) {
            self.freeze.on_its_way = None;
        }
        if self.freeze.on_its_way.is_none() && self.freeze.is_wanted() && !self.freeze.has_holders() {
            self.end_freeze(lane);
        }
    }

    /// Does everybody wait who would change the device? The cleaner of the page cache sleeps then.
    pub(in crate::core) fn is_frozen(&self) -> bool {
        self.freeze.stillness() == Stillness::Frozen
    }

    /// Is this to be told to an operation only when everybody may write again?
    pub(in crate::core) fn is_put_off(&self, key: SlotKey, event: &Event) -> bool {
        let reads = |key| self.running.get(key).is_some_and(|running| running.kind().only_reads());
        self.is_frozen() && !matches!(event, Event::Begin | Event::CalledOff) && !reads(key)
    }

    /// Does a freeze wait for the end of what changes the device?
    pub(in crate::core) fn awaits_stillness(&self) -> bool {
        self.freeze.is_wanted() && self.running.iter().any(|(_, running)| running.waits_for_stillness())
    }

    /// Has what a freeze waits for come about, so that a turn would go on with it?
    pub(in crate::core) fn is_still_at_last(&self) -> bool {
        self.freeze.is_wanted() && self.waits_for_operations().is_some() && self.is_still()
    }

    fn waits_for_operations(&self) -> Option<u32> {
        let mut waits = self
            .running
            .iter()
            .filter(|(_, running)| running.waits_for_operations());
        waits.next().map(|(index, _)| index)
    }

    fn step_freeze(&mut self, lane: &mut dyn LaneDoor) -> bool {
        let Some(index) = self.waits_for_operations().filter(|_| self.is_still()) else {
            return false;
        };
        if let Some(running) = self.running.at_mut(index) {
            running.found_still();
        }
        self.step(lane, index, Event::Still);
        true
    }

    /// Has everything ended by which operations may change the device? Only when they wait as well.
    fn is_still(&self) -> bool {
        let writes = |(_, running): (u32, &Running)| running.is_at_device() && !running.kind().only_reads();
        !self.is_frozen() || !self.running.iter().any(writes)
    }
}
