//! Who waits for room: how much there is, and who hears of it.

use std::task::Waker;

use super::error::LogError;
use super::format::record_bytes;
use super::front::{Front, Life};
use super::waits::Fired;

impl Front {
    /// Would so many bytes of one record find room, and memory, now?
    pub(super) fn has_room(&mut self, payload: u64) -> Result<bool, LogError> {
        match self.check_room(payload) {
            Ok(()) => Ok(true),
            Err(LogError::WouldBlock | LogError::Full) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn check_room(&mut self, payload: u64) -> Result<(), LogError> {
        self.check_life()?;
        let max = self.record_max();
        if payload > max {
            return Err(LogError::TooLong { bytes: payload, max });
        }
        let batches = self.plan(record_bytes(payload as usize))?;
        self.take_memory(batches)
    }

    /// There may be more room: wakes those who find it, in their order, and not more of them than it takes.
    pub(super) fn tell_room(&mut self) {
        self.waits.told_have_come();
        self.tell_waiters();
    }

    fn tell_waiters(&mut self) {
        if !self.waits.has_room_waiters() || self.life != Life::Open {
            return;
        }
        let spare = self.spare.len().max(self.kept_buffers());
        // Those who were told already take theirs first.
        let told = self.waits.begin_to_tell();
        let mut is_any = told > 0;
        let Ok(mut plan) = self.add_to(self.no_plan(), told) else {
            return;
        };
        let (mut after, mut too_many) = (0, u64::MAX);
        while let Some((number, bytes)) = self.waits.next_room(after) {
            after = number;
            if bytes >= too_many {
                continue;
            }
            let more = self.add_to(plan, bytes);
            let memory = more.and_then(|more| self.take_memory(more.batches).map(|()| more));
            match memory {
                Ok(more) => plan = more,
                // It hears that waiting is of no use.
                Err(LogError::NoMemory) => {}
                // Who comes later takes no room that this one may find when the others have come; but nobody waits for one who needs more
                // than there is.
                _ if is_any => break,
                _ => {
                    too_many = bytes;
                    continue;
                }
            }
            is_any = true;
            self.waits.tell_room(number);
        }
        self.waits.end_telling();
        self.spare.truncate(spare);
    }

    /// Stops waiting for room. A grant that it had not used passes to the next waiters, who are woken when the lock is free. Also gives
    /// its own waker, as [`Waits::forget_durable`].
    pub(super) fn leave_room(&mut self, number: u64) -> (Option<Waker>, Vec<Fired>) {
        let (waker, was_told) = self.waits.forget_room(number);
        (waker, if was_told { self.pass_room_on() } else { Vec::new() })
    }

    fn pass_room_on(&mut self) -> Vec<Fired> {
        let before = self.waits.fired.len();
        self.tell_waiters();
        self.waits.fired.drain(before..).collect()
    }

    /// Waits for room for so many bytes: in its old place, unless it has had its turn. Also gives the wakers that are not needed.
    pub(super) fn wait_room(
        &mut self,
        old: Option<u64>,
        payload: usize,
        waker: Waker,
    ) -> (u64, [Option<Waker>; 2], Vec<Fired>) {
        let (gone, was_told) = old.map_or((None, false), |old| self.waits.forget_room(old));
        let (number, left) = self
            .waits
            .wait_room(old.filter(|_| !was_told), record_bytes(payload), waker);
        // It wants more than it was told of.
        let fired = if was_told { self.pass_room_on() } else { Vec::new() };
        (number, [gone, left], fired)
    }
}
