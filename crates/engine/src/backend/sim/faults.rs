//! What goes wrong with a disk, and when: plain data, given to a disk with [`Disk::set_faults`].
//!
//! ```
//! use baio_engine::sim::{Disk, Fault, Faults, Trigger};
//! let disk = Disk::new(1 << 20);
//! disk.set_faults(
//!     Faults::none()
//!         .chance(Fault::ShortRead, 0.05) // one read in twenty
//!         .when(Trigger::nth(Fault::WriteError, 3)) // the third write
//!         .when(Trigger::nth(Fault::Rot, 1).within(4096..8192)) // the first read of this page
//!         .real_bytes(256 << 10), // thin: it says 1 MiB and has a quarter of that
//! );
//! assert_eq!(disk.faults_injected().total(), 0);
//! ```
//!
//! At most one fault strikes an iteration, beside a delay; which follows from the machine's seed.
//!
//! [`Disk::set_faults`]: super::Disk::set_faults

use std::ops::Range;
use std::time::Duration;

use crate::backend::sim::random::Random;
use crate::policy::Time;

/// One way in which an iteration goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A read moves some of its bytes only: any number of a cached one, whole sectors of a direct one.
    ShortRead,
    /// The same with a write.
    ShortWrite,
    /// A read ends as `EIO`.
    ReadError,
    /// A write, or an allocation, ends as `EIO`, and nothing of it is stored.
    WriteError,
    /// The same as `ENOSPC`. ([`Faults::real_bytes`] makes a disk that really is full.)
    NoSpace,
    /// `EINTR`; nothing has happened.
    Interrupted,
    /// `EAGAIN`; nothing has happened.
    TryAgain,
    /// It takes longer to reach the device.
    Delay,
    /// A write is acknowledged and never stored.
    LostWrite,
    /// A write stores its first sectors (of 512 bytes; perhaps none, perhaps all) and ends as `EIO`.
    TornWrite,
    /// A write is acknowledged and stored elsewhere.
    Misdirected,
    /// A bit of what is read has turned over, on the medium, and stays so.
    Rot,
    /// A flush ends as `EIO`, once; what it would have covered is gone, for readers too. (A real cache may show it until the power fails.)
    FailedFlush,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 13] = [
        Fault::ShortRead,
        Fault::ShortWrite,
        Fault::ReadError,
        Fault::WriteError,
        Fault::NoSpace,
        Fault::Interrupted,
        Fault::TryAgain,
        Fault::Delay,
        Fault::LostWrite,
        Fault::TornWrite,
        Fault::Misdirected,
        Fault::Rot,
        Fault::FailedFlush,
    ];

    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::ShortRead => "short_read",
            Fault::ShortWrite => "short_write",
            Fault::ReadError => "read_error",
            Fault::WriteError => "write_error",
            Fault::NoSpace => "no_space",
            Fault::Interrupted => "interrupted",
            Fault::TryAgain => "try_again",
            Fault::Delay => "delay",
            Fault::LostWrite => "lost_write",
            Fault::TornWrite => "torn_write",
            Fault::Misdirected => "misdirected",
            Fault::Rot => "rot",
            Fault::FailedFlush => "failed_flush",
        }
    }

    /// Can it strike this kind of iteration?
    fn strikes(self, kind: Kind) -> bool {
        match self {
            Fault::Interrupted | Fault::TryAgain | Fault::Delay => kind != Kind::Other,
            Fault::ShortRead | Fault::ReadError | Fault::Rot => kind == Kind::Read,
            Fault::ShortWrite | Fault::LostWrite | Fault::TornWrite | Fault::Misdirected => kind == Kind::Write,
            Fault::WriteError | Fault::NoSpace => matches!(kind, Kind::Write | Kind::Allocate | Kind::Truncate),
            Fault::FailedFlush => kind == Kind::Flush,
        }
    }
}

/// What an iteration does to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Allocate,
    Truncate,
    Other,
}

/// A fault at a chosen place. Counted are the iterations that it can strike and that touch its range; it strikes the
/// `nth` of them and, unless told otherwise, no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    fault: Fault,
    nth: u64,
    times: u64,
    within: Option<Range<u64>>,
}

impl Trigger {
    /// Strikes the `nth` iteration, counted from 1.
    #[must_use]
    pub fn nth(fault: Fault, nth: u64) -> Trigger {
        Trigger {
            fault,
            nth,
            times: 1,
            within: None,
        }
    }

    /// Strikes every one.
    #[must_use]
    pub fn always(fault: Fault) -> Trigger {
        Trigger::nth(fault, 1).times(u64::MAX)
    }

    /// Strikes so many in a row.
    #[must_use]
    pub fn times(mut self, times: u64) -> Trigger {
        self.times = times;
        self
    }

    /// Counts only iterations that touch these bytes. A flush touches none.
    #[must_use]
    pub fn within(mut self, bytes: Range<u64>) -> Trigger {
        self.within = Some(bytes);
        self
    }
}

/// A plan of faults. An iteration is interrupted (`EINTR`, `EAGAIN`) at most 16 times in its request's life, so that
/// everything ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// In parts of 2^32, by fault.
    chances: [u32; Fault::ALL.len()],
    triggers: Vec<Trigger>,
    delay: Range<Duration>,
    real_bytes: Option<u64>,
    listed: bool,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::none()
    }
}

impl Faults {
    /// A healthy disk.
    #[must_use]
    pub fn none() -> Faults {
        Faults {
            chances: [0; Fault::ALL.len()],
            triggers: Vec::new(),
            delay: Duration::from_micros(100)..Duration::from_millis(10),
            real_bytes: None,
            listed: false,
        }
    }

    /// Strikes an iteration with this probability, from 0 to 1.
    #[must_use]
    pub fn chance(mut self, fault: Fault, probability: f64) -> Faults {
        // Saturates, and takes what is no number for 0.
        self.chances[fault as usize] = (probability * f64::from(u32::MAX)) as u32;
        self
    }

    /// Adds a fault at a chosen place.
    #[must_use]
    pub fn when(mut self, trigger: Trigger) -> Faults {
        self.triggers.push(trigger);
        self
    }

    /// How long a [`Fault::Delay`] takes; 0.1 to 10 ms unless told.
    #[must_use]
    pub fn delays(mut self, range: Range<Duration>) -> Faults {
        self.delay = range;
        self
    }

    /// The disk has room for so many bytes only (rounded down to 4096), whatever its size says: a write that needs more
    /// is short, then `ENOSPC`. Discarded pages come back.
    #[must_use]
    pub fn real_bytes(mut self, bytes: u64) -> Faults {
        self.real_bytes = Some(bytes);
        self
    }

    /// Keeps a list of what was injected, for [`Disk::take_injected`]. It grows until it is taken.
    ///
    /// [`Disk::take_injected`]: super::Disk::take_injected
    #[must_use]
    pub fn listed(mut self) -> Faults {
        self.listed = true;
        self
    }
}

/// How often each fault was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl FaultCounts {
    /// How often this one.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Which.
    pub fault: Fault,
    /// When.
    pub at: Time,
    /// First byte of the iteration; of a byte that rots, its offset; of a failed flush, one entry per write that it lost.
    pub offset: u64,
    /// Bytes that the iteration asked for.
    pub len: u64,
    /// A misdirected write: where it went. Rot: the bit. A short or torn transfer: how many bytes it moved. Else 0.
    pub what: u64,
}

/// A plan, and how far it has come.
#[derive(Debug)]
pub(crate) struct Plan {
    faults: Faults,
    seen: Vec<u64>,
    counts: FaultCounts,
    injected: Vec<Injected>,
}

/// The fault of one iteration, with a number from which its details follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    pub(crate) detail: u64,
}

/// An iteration may be interrupted so often in its request's life.
const INTERRUPTIONS_MAX: u16 = 16;

impl Plan {
    pub(crate) fn new(faults: Faults) -> Plan {
        Plan {
            seen: vec![0; faults.triggers.len()],
            faults,
            counts: FaultCounts::default(),
            injected: Vec::new(),
        }
    }

    /// The same counts under another plan.
    pub(crate) fn replace(&mut self, faults: Faults) {
        self.seen = vec![0; faults.triggers.len()];
        self.faults = faults;
    }

    pub(crate) fn counts(&self) -> FaultCounts {
        self.counts
    }

    pub(crate) fn take_injected(&mut self) -> Vec<Injected> {
        std::mem::take(&mut self.injected)
    }

    pub(crate) fn real_bytes(&self) -> Option<u64> {
        self.faults.real_bytes
    }

    pub(crate) fn note(&mut self, injected: Injected) {
        if self.faults.listed {
            self.injected.push(injected);
        }
    }

    pub(crate) fn count(&mut self, fault: Fault) {
        self.counts.0[fault as usize] += 1;
    }

    /// How much longer this iteration takes to reach the device.
    pub(crate) fn delay(&mut self, kind: Kind, range: &Range<u64>, dice: &mut Random) -> Option<Duration> {
        let struck = self.is_triggered(kind, range, Some(Fault::Delay)).is_some()
            || (kind != Kind::Other && self.chance(Fault::Delay) > dice_32(dice, self.chance(Fault::Delay)));
        let Range { start, end } = self.faults.delay;
        struck.then(|| {
            let spread = end.saturating_sub(start).as_nanos();
            start + Duration::from_nanos(dice.below(u64::try_from(spread).unwrap_or(u64::MAX)))
        })
    }

    /// What goes wrong with this iteration, if anything.
    pub(crate) fn strike(&mut self, kind: Kind, range: &Range<u64>, tries: u16, dice: &mut Random) -> Option<Strike> {
        let fault = self.is_triggered(kind, range, None).or_else(|| self.roll(kind, dice))?;
        let interrupts = matches!(fault, Fault::Interrupted | Fault::TryAgain);
        (!interrupts || tries < INTERRUPTIONS_MAX).then(|| Strike {
            fault,
            detail: dice.bits(),
        })
    }

    fn chance(&self, fault: Fault) -> u32 {
        self.faults.chances[fault as usize]
    }

    /// Counts the iteration for every trigger of this fault (`None`: of all but delays); the first that is due strikes.
    fn is_triggered(&mut self, kind: Kind, range: &Range<u64>, only: Option<Fault>) -> Option<Fault> {
        let mut struck = None;
        for (trigger, seen) in self.faults.triggers.iter().zip(&mut self.seen) {
            let asked = only.map_or(trigger.fault != Fault::Delay, |fault| trigger.fault == fault);
            let touches =
                |bytes: &Range<u64>| bytes.start < range.end && range.start < bytes.end && range.start < range.end;
            if !asked || !trigger.fault.strikes(kind) || !trigger.within.as_ref().is_none_or(touches) {
                continue;
            }
            *seen += 1;
            if *seen >= trigger.nth && *seen - trigger.nth < trigger.times && struck.is_none() {
                struck = Some(trigger.fault);
            }
        }
        struck
    }

    fn roll(&self, kind: Kind, dice: &mut Random) -> Option<Fault> {
        let candidates = || {
            Fault::ALL
                .into_iter()
                .filter(|&fault| fault != Fault::Delay && fault.strikes(kind) && self.chance(fault) > 0)
        };
        candidates().next()?;
        let mut roll = dice.bits() >> 32;
        for fault in candidates() {
            let chance = u64::from(self.chance(fault));
            if roll < chance {
                return Some(fault);
            }
            roll -= chance;
        }
        None
    }
}

/// A roll for something with this chance; what cannot happen takes no roll.
fn dice_32(dice: &mut Random, chance: u32) -> u32 {
    if chance == 0 { 0 } else { (dice.bits() >> 32) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(faults: Faults, kind: Kind, count: u64) -> Vec<Option<Fault>> {
        let mut plan = Plan::new(faults);
        let mut dice = Random(1);
        (0..count)
            .map(|nth| plan.strike(kind, &(nth * 10..nth * 10 + 10), 0, &mut dice))
            .map(|strike| strike.map(|strike| strike.fault))
            .collect()
    }

    #[test]
    fn a_trigger_strikes_the_nth_that_touches_its_range() {
        let faults = Faults::none().when(Trigger::nth(Fault::WriteError, 2).within(15..1000).times(2));
        let (hit, miss) = (Some(Fault::WriteError), None);
        // The iterations 10..20 and 20..30 touch the range as the first and the second.
        assert_eq!(
            struck(faults.clone(), Kind::Write, 6),
            [miss, miss, hit, hit, miss, miss]
        );
        assert!(struck(faults, Kind::Read, 6).iter().all(Option::is_none));
    }

    #[test]
    fn chances_are_met_and_add_up() {
        let faults = Faults::none()
            .chance(Fault::ReadError, 0.1)
            .chance(Fault::Rot, 0.3)
            .chance(Fault::LostWrite, 1.0);
        let all = struck(faults, Kind::Read, 100_000);
        let count = |fault| all.iter().filter(|&&f| f == Some(fault)).count();
        assert!((9_000..11_000).contains(&count(Fault::ReadError)));
        assert!((29_000..31_000).contains(&count(Fault::Rot)));
        assert_eq!(count(Fault::LostWrite), 0, "a read cannot be a lost write");
    }

    #[test]
    fn nobody_is_interrupted_for_ever() {
        let mut plan = Plan::new(Faults::none().when(Trigger::always(Fault::Interrupted)));
        let mut dice = Random(1);
        assert!(plan.strike(Kind::Read, &(0..1), 15, &mut dice).is_some());
        assert!(plan.strike(Kind::Read, &(0..1), 16, &mut dice).is_none());
    }
}
