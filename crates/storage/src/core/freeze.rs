//! Keeping the device still for a copy of the volume's file ([`crate::operation::freeze`]): who waits meanwhile, and how it ends.

use super::requests::Way;
use super::{Core, OperationId};
use crate::error::Result;
use crate::identity::Identity;
use crate::operation::freeze::{Stillness, freeze};
use crate::operation::{Event, Kind};
use crate::request::{Owner, SegmentOp, SegmentRequest};
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
        if self.freeze.let_go(freeze) {
            self.end_freeze();
        }
    }

    /// Everybody may write again, whoever wanted it otherwise.
    pub(super) fn end_freeze(&mut self) {
        self.freeze.end();
        self.holds.wake_free(&self.objects, &mut self.requests);
        for (key, event) in std::mem::take(&mut self.freeze.put_off) {
            if self.running.get(key).is_some() {
                self.step(key.index, event);
            }
        }
        if let Some(index) = self.grant_token() {
            self.step(index, Event::Token);
        }
    }

    /// The volume is about to be closed: freezes end, those on their way too, and so do checks.
    pub(super) fn end_freezes(&mut self) {
        for index in self.running.indices() {
            let is_one = |running: &super::Running| running.kind().is_turned();
            let key = self.running.key_at(index);
            if key.and_then(|key| self.running.get(key)).is_some_and(is_one) {
                self.step(index, Event::Turn);
            }
        }
        self.end_freeze();
    }

    /// A freeze has ended; without an answer nobody wanted it. Those that came meanwhile look again.
    pub(super) fn freeze_ended(&mut self, index: u32) {
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
            self.end_freeze();
        }
    }

    /// Does everybody wait who would change the device? The cleaner of the page cache sleeps then.
    pub(super) fn is_frozen(&self) -> bool {
        self.freeze.stillness() == Stillness::Frozen
    }

    /// Is this to be told to an operation only when everybody may write again?
    pub(super) fn is_put_off(&self, key: SlotKey, event: &Event) -> bool {
        let reads = |key| self.running.get(key).is_some_and(|running| running.kind().only_reads());
        self.is_frozen() && !matches!(event, Event::Begin | Event::CalledOff) && !reads(key)
    }

    /// Where a checked request goes while the volume is being frozen.
    pub(super) fn way_while_frozen(&mut self, owner: Owner, request: &SegmentRequest, way: Way) -> Way {
        let stillness = self.freeze.stillness();
        let is_free = stillness == Stillness::None || matches!(way, Way::Nothing | Way::Hold);
        if is_free || self.objects.address(request.handle).is_none() {
            return way;
        }
        let waits = match (owner, request.op) {
            (Owner::Cache(_) | Owner::Log(_), op) => op.changes_bytes() && stillness == Stillness::Frozen,
            // What was changed through pins would have to be written.
            (Owner::Caller, SegmentOp::Sync | SegmentOp::Fence) => self.object_known(request.handle).is_some(),
            (Owner::Caller, op) => op.changes_bytes(),
        };
        if waits { Way::Hold } else { way }
    }

    /// Does a freeze wait for the end of what changes the device?
    pub(super) fn awaits_stillness(&self) -> bool {
        self.freeze.is_wanted() && self.running.iter().any(|(_, running)| running.waits_for_stillness())
    }

    /// Looks whether what a freeze waits for has come about. Says whether it has.
    pub(super) fn step_freeze(&mut self) -> bool {
        if !self.freeze.is_wanted() {
            return false;
        }
        self.call_off_syncs();
        let is_it = |running: &super::Running| running.waits_for_stillness();
        let Some(index) = self
            .running
            .iter()
            .find(|(_, running)| is_it(running))
            .map(|(index, _)| index)
        else {
            return false;
        };
        if !self.has_come_still() {
            return false;
        }
        if let Some(running) = self.running.at_mut(index) {
            running.found_still();
        }
        self.step(index, Event::Still);
        true
    }

    fn has_come_still(&self) -> bool {
        match self.freeze.stillness() {
            Stillness::Frozen => self.device_is_still(),
            _ => self.cache_is_still(),
        }
    }

    /// Has what a freeze waits for come about, so that a turn would go on with it?
    pub(super) fn is_still_at_last(&self) -> bool {
        self.awaits_stillness() && self.has_come_still()
    }

    /// Has the cache none of callers' writes, but those that wait for a log?
    fn cache_is_still(&self) -> bool {
        let awaits_log = |cached: &super::cached::PageCache| cached.cache.lsns_awaited().next().is_some();
        self.requests.cached_writes() == 0 || self.cached.as_deref().is_some_and(awaits_log)
    }

    /// Has everything ended that may change the device?
    fn device_is_still(&self) -> bool {
        let writes = |(_, running): (u32, &super::Running)| running.is_at_device() && !running.kind().only_reads();
        let mut requests = self.requests.writes_under_way();
        !self.running.iter().any(writes) && !requests.any(|(_, handle, _)| self.objects.address(handle).is_some())
    }

    /// What waits for a log may wait for a write that waits for the end of the freeze: so it is not waited for.
    fn call_off_syncs(&mut self) {
        let cached = self.cached.as_mut().filter(|_| !self.freeze.syncs.is_empty());
        if let Some(cached) = cached.filter(|cached| cached.cache.lsns_awaited().next().is_some()) {
            for id in std::mem::take(&mut self.freeze.syncs) {
                cached.cache_mut().cancel(id);
            }
            self.take_done();
        }
    }
}
