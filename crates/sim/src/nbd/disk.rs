//! The device: a medium, a volatile cache before it, and a power supply that fails.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baio_engine::sim::Random;

use super::cache::{Cache, Manner};
use super::faults::{Fault, What};

/// What the device keeps before it writes to the medium by itself.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// When the power fails, and what that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// At the write after so many; it is under way.
    pub after_writes: u64,
    /// What survives.
    pub manner: Manner,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Reads answered.
    pub reads: u64,
    /// Writes, trims and zeroes answered.
    pub writes: u64,
    /// Flushes answered, and writes with FUA.
    pub flushes: u64,
    /// Requests that failed as asked.
    pub failed: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Writes that a cut took, or parts of them.
    pub lost: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The device has an error, or no power.
    Io,
    /// It goes past the end.
    Outside,
}

#[derive(Debug)]
struct State {
    medium: Vec<u8>,
    /// What reads see: the medium, with the cache over it.
    seen: Vec<u8>,
    cache: Cache,
    has_power: bool,
    cut: Option<Cut>,
    faults: Vec<Fault>,
    lies: bool,
    random: Random,
    counts: Counts,
}

/// A block device in memory. Any number of threads may ask it.
#[derive(Debug)]
pub struct Disk {
    state: Mutex<State>,
    has_lost_power: Condvar,
    size: u64,
}

impl Disk {
    /// One full of zeros, with power.
    #[must_use]
    pub fn new(size: u64, seed: u64) -> Disk {
        Disk {
            state: Mutex::new(State {
                medium: vec![0; size as usize],
                seen: vec![0; size as usize],
                cache: Cache::default(),
                has_power: true,
                cut: None,
                faults: Vec::new(),
                lies: false,
                random: Random::from(&[seed, 0x6e62_6400]),
                counts: Counts::default(),
            }),
            has_lost_power: Condvar::new(),
            size,
        }
    }

    /// In bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, offset: u64, len: u64) -> Result<Range<usize>, Refusal> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        end.map(|end| offset as usize..end as usize).ok_or(Refusal::Outside)
    }

    /// Reads so many bytes.
    ///
    /// # Errors
    ///
    /// No power, a fault, or past the end.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, Refusal> {
        let range = self.range(offset, len)?;
        let mut state = self.state();
        state.pass(What::Read, offset..offset + len)?;
        state.counts.reads += 1;
        Ok(state.seen[range].to_vec())
    }

    /// Writes these bytes; with FUA they are on the medium afterwards.
    ///
    /// # Errors
    ///
    /// No power, a fault, or past the end. What then is there is not known.
    pub fn write(&self, offset: u64, bytes: Vec<u8>, fua: bool) -> Result<(), Refusal> {
        let range = self.range(offset, bytes.len() as u64)?;
        let id = self.begin(range, bytes)?;
        // Here others may come between, also a flush: it need not know of this write.
        std::thread::yield_now();
        let mut state = self.state();
        state.power()?;
        state.cache.answered(id);
        if fua {
            state.put(|known| known == id);
            state.counts.flushes += 1;
        }
        state.counts.writes += 1;
        Ok(())
    }

    /// A write comes. The power may fail at it.
    fn begin(&self, range: Range<usize>, bytes: Vec<u8>) -> Result<u64, Refusal> {
        let mut state = self.state();
        let state = &mut *state;
        let passes = state.pass(What::Write, range.start as u64..range.end as u64);
        state.power()?;
        if passes.is_err() && state.random.percent(50) {
            return Err(Refusal::Io);
        }
        state.seen[range.clone()].copy_from_slice(&bytes);
        let id = state.cache.take(range.start, bytes);
        if let Some(cut) = &mut state.cut {
            if cut.after_writes == 0 {
                let manner = cut.manner;
                state.lose(manner);
                self.has_lost_power.notify_all();
                return Err(Refusal::Io);
            }
            cut.after_writes -= 1;
        }
        if let Err(refusal) = passes {
            // It failed, and is there all the same.
            state.cache.answered(id);
            return Err(refusal);
        }
        state.cache.make_room(&mut state.medium, CACHE_BYTES_MAX);
        Ok(id)
    }

    /// Puts zeros there, as a write would.
    ///
    /// # Errors
    ///
    /// As those of a write.
    pub fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<(), Refusal> {
        self.range(offset, len)?;
        self.write(offset, vec![0; len as usize], fua)
    }

    /// Makes sure of every write that was answered before.
    ///
    /// # Errors
    ///
    /// No power, or a fault: then some are safe, and others not.
    pub fn flush(&self) -> Result<(), Refusal> {
        let answered = {
            let mut state = self.state();
            if let Err(refusal) = state.pass(What::Flush, 0..self.size) {
                if state.has_power {
                    let chosen = state.random.bits();
                    state.put(|id| (chosen >> (id % 64)) & 1 == 1);
                }
                return Err(refusal);
            }
            state.cache.answered_so_far()
        };
        std::thread::yield_now();
        let mut state = self.state();
        state.power()?;
        state.put(|id| answered.binary_search(&id).is_ok());
        state.counts.flushes += 1;
        Ok(())
    }

    /// The power fails then, and not at another time.
    pub fn cut_at(&self, cut: Option<Cut>) {
        self.state().cut = cut;
    }

    /// The power fails now, if there is any.
    pub fn cut(&self, manner: Manner) {
        let mut state = self.state();
        if state.has_power {
            state.lose(manner);
        }
        self.has_lost_power.notify_all();
    }

    /// Waits until the power has failed, or so long; tells whether it has.
    #[must_use]
    pub fn wait_for_cut(&self, patience: Duration) -> bool {
        let waited = self
            .has_lost_power
            .wait_timeout_while(self.state(), patience, |state| state.has_power);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.has_power
    }

    /// The power is back. What survived is there.
    pub fn power_on(&self) {
        let mut state = self.state();
        state.has_power = true;
        state.cut = None;
    }

    /// These fail from now on, beside those before.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Flushes and FUA are answered, and nothing is done, as long as this holds: what a cut then takes must be noticed.
    pub fn lie(&self, lies: bool) {
        self.state().lies = lies;
    }

    /// Puts zeros everywhere, safely.
    pub fn blank(&self) {
        let mut state = self.state();
        state.cache = Cache::default();
        state.medium.fill(0);
        state.seen.fill(0);
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }
}

impl State {
    fn power(&self) -> Result<(), Refusal> {
        self.has_power.then_some(()).ok_or(Refusal::Io)
    }

    /// Whether a request passes: there is power, and no fault strikes.
    fn pass(&mut self, what: What, place: Range<u64>) -> Result<(), Refusal> {
        self.power()?;
        let random = &mut self.random;
        if self.faults.iter_mut().any(|fault| fault.strikes(what, &place, random)) {
            self.counts.failed += 1;
            return Err(Refusal::Io);
        }
        Ok(())
    }

    fn put(&mut self, wanted: impl Fn(u64) -> bool) {
        if !self.lies {
            self.cache.put(&mut self.medium, wanted);
        }
    }

    fn lose(&mut self, manner: Manner) {
        self.has_power = false;
        self.cut = None;
        let (ranges, lost) = self.cache.lose(&mut self.medium, manner, &mut self.random);
        for range in ranges {
            self.seen[range.clone()].copy_from_slice(&self.medium[range]);
        }
        self.counts.cuts += 1;
        self.counts.lost += lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn bytes(disk: &Disk) -> Vec<u8> {
        disk.read(0, disk.size()).unwrap().into_iter().step_by(BLOCK).collect()
    }

    #[test]
    fn a_cut_takes_what_was_not_flushed_and_nothing_else() {
        let disk = Disk::new(4 * BLOCK as u64, 1);
        disk.write(0, vec![1; BLOCK], false).unwrap();
        disk.flush().unwrap();
        disk.write(0, vec![2; BLOCK], false).unwrap();
        disk.write(BLOCK as u64, vec![3; BLOCK], true).unwrap();
        disk.zero(2 * BLOCK as u64, BLOCK as u64, false).unwrap();
        assert_eq!(bytes(&disk), [2, 3, 0, 0], "reads see the cache");
        disk.cut(Manner::Whole);
        assert_eq!(disk.read(0, 1), Err(Refusal::Io));
        assert_eq!(disk.flush(), Err(Refusal::Io));
        disk.power_on();
        assert_eq!(bytes(&disk), [1, 3, 0, 0]);
        assert_eq!(
            disk.write(4 * BLOCK as u64 - 1, vec![1, 2], false),
            Err(Refusal::Outside)
        );
    }

    #[test]
    fn a_cut_comes_at_the_write_that_was_named() {
        let disk = Disk::new(4 * BLOCK as u64, 1);
        disk.cut_at(Some(Cut {
            after_writes: 1,
            manner: Manner::Nothing,
        }));
        assert!(!disk.wait_for_cut(Duration::ZERO));
        disk.write(0, vec![1; BLOCK], false).unwrap();
        assert_eq!(disk.write(0, vec![2; BLOCK], true), Err(Refusal::Io));
        assert!(disk.wait_for_cut(Duration::ZERO));
        disk.power_on();
        assert_eq!(bytes(&disk), [2, 0, 0, 0], "the one under way may have landed");
    }

    #[test]
    fn a_device_that_lies_loses_what_it_said_was_safe() {
        let disk = Disk::new(4 * BLOCK as u64, 1);
        disk.lie(true);
        disk.write(0, vec![1; BLOCK], true).unwrap();
        disk.flush().unwrap();
        disk.cut(Manner::Whole);
        disk.power_on();
        assert_eq!(bytes(&disk), [0; 4]);
    }

    #[test]
    fn what_fails_has_changed_something_or_not() {
        let disk = Disk::new(64 * BLOCK as u64, 1);
        disk.fail(Fault::all(What::Write));
        for block in 0..64 {
            let refused = disk.write(block * BLOCK as u64, vec![1; BLOCK], false);
            assert_eq!(refused, Err(Refusal::Io));
        }
        disk.heal();
        let there = bytes(&disk).iter().filter(|byte| **byte == 1).count();
        assert!(there > 0 && there < 64, "{there}");
        disk.fail(Fault::all(What::Read));
        assert_eq!(disk.read(0, 1), Err(Refusal::Io));
        assert_eq!(disk.counts().failed, 65);
    }
}
