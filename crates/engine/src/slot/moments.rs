//! The order of timers that have ended together.

use super::Slots;
use crate::policy::Time;
use crate::request::{Op, RequestId};

/// A timer that has ended: its moment, when it was submitted, and its raw result.
pub(crate) type Ended = (Time, u64, (RequestId, i32));

impl Slots {
    /// Puts the timers among what has ended together in the order of their moments, of one moment in the order of submission; the kernel
    /// tells those that have passed already in the order in which it got them. All else stays where it is.
    pub(crate) fn in_the_order_of_time(&self, ended: &mut [(RequestId, i32)], timers: &mut Vec<Ended>) {
        timers.clear();
        timers.extend(ended.iter().filter_map(|&entry| self.timer(entry)));
        let key = |&(at, sequence, _): &Ended| (at, sequence);
        if timers.is_sorted_by_key(key) {
            return;
        }
        timers.sort_unstable_by_key(key);
        let places = ended.iter_mut().filter(|entry| self.timer(**entry).is_some());
        for (place, &(.., timer)) in places.zip(timers.iter()) {
            *place = timer;
        }
    }

    fn timer(&self, entry: (RequestId, i32)) -> Option<Ended> {
        let (id, raw) = entry;
        let slot = self.get(id).filter(|_| raw == -libc::ETIME)?;
        match slot.op {
            Op::Timer { at } => Some((at, slot.sequence, entry)),
            _ => None,
        }
    }
}
