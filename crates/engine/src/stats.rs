//! Counters and latency histograms that are always on.

use crate::histogram::Histogram;
use crate::policy::Caching;
use crate::request::Op;

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests accepted.
    pub requests: u64,
    /// Completions delivered, `Released` notices not counted.
    pub completions: u64,
    /// Completions that were errors.
    pub errors: u64,
    /// Iterations run by the backend.
    pub iterations: u64,
    /// Cached reads tried at once, before any backend (`RWF_NOWAIT`).
    pub trials: u64,
    /// Of these, ended there: whatever else was asked of a backend continued on a worker or in the kernel.
    pub trial_hits: u64,
    /// Of these, reads of files that are nothing but memory (tmpfs, ramfs, hugetlbfs): copied at once, whatever the kernel has
    /// done with that memory meanwhile.
    pub memory_reads: u64,
    /// Batches handed to the backend: a batch is one call into the kernel where the backend can.
    pub batches: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Durable writes and allocations that no flag makes durable, so that a sync followed; those that ended together
    /// shared one.
    pub durable_by_sync: u64,
    /// Most requests in flight at a time.
    pub in_flight_max: u64,
    /// Requests given up on while they ran.
    pub abandoned: u64,
    /// System calls made by the backend.
    pub system_calls: u64,
}

/// What was measured of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Completions, errors among them.
    pub completions: u64,
    /// Completions that were errors.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// From the first iteration's start to the completion. Reads that were tried at once are sampled, one turn in sixteen:
    /// a clock reading costs a tenth of such a read.
    pub latency: Histogram,
}

/// What was measured, for each operation and caching mode that was used.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Made at first use, so that an engine that never polls has no histogram of polls.
    table: Vec<Option<Box<Measured>>>,
    /// How long handing a batch over took where nothing else was done in the same call; sampled, one in eight.
    pub submit: Histogram,
}

const MODES: [Caching; 3] = [Caching::Kernel, Caching::Uncached, Caching::Direct];

impl Measures {
    pub(crate) fn new() -> Measures {
        Measures {
            table: vec![None; Op::KINDS.len() * MODES.len()],
            submit: Histogram::default(),
        }
    }

    /// What was measured of an operation, by its name ([`Op::name`]), in a caching mode.
    #[must_use]
    pub fn of(&self, operation: &str, caching: Caching) -> Option<&Measured> {
        self.iter()
            .find(|(name, mode, _)| (*name, *mode) == (operation, caching))
            .map(|(_, _, measured)| measured)
    }

    /// Every operation and mode that was used.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Caching, &Measured)> {
        self.table.iter().enumerate().filter_map(|(at, measured)| {
            let (kind, mode) = (at / MODES.len(), at % MODES.len());
            let measured = measured.as_deref()?;
            Some((Op::KINDS[kind], MODES[mode], measured))
        })
    }

    #[inline(always)]
    pub(crate) fn entry(&mut self, op: Op, caching: Caching) -> &mut Measured {
        let at = op.kind() * MODES.len() + caching as usize;
        self.table[at].get_or_insert_default()
    }
}

impl Measured {
    pub(crate) fn count(&mut self, failed: bool, bytes: u32) {
        self.completions += 1;
        self.errors += u64::from(failed);
        self.bytes += u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_mode_has_its_place() {
        let mut measures = Measures::new();
        for (at, mode) in MODES.into_iter().enumerate() {
            assert_eq!(mode as usize, at);
        }
        measures.entry(Op::Sync, Caching::Direct).count(true, 3);
        measures.entry(Op::Event, Caching::Kernel).count(false, 0);
        let seen: Vec<_> = measures.iter().map(|(name, mode, _)| (name, mode)).collect();
        assert_eq!(seen, [("sync", Caching::Direct), ("event", Caching::Kernel)]);
        assert_eq!(measures.of("sync", Caching::Direct).unwrap().errors, 1);
    }
}
