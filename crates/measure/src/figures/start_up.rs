//! What a command costs before and after its work: the processor time of the same command with next to no runtime.
//!
//! Figures come from runs of seconds or less, and a program may take a tenth of a second of processor time to read its job
//! and to end (fio does). Left in, that counts against whoever made fewer requests. So beside the whole processor time, by which a
//! mark is judged, stands the same without the start; it is measured once for each kind of command.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::figures::command_line::Finished;

/// A runtime that is hardly any.
pub(crate) const RUNTIME: Duration = Duration::from_millis(1);

/// The least of a few runs: whatever disturbed the others was not the start.
const RUNS: usize = 2;

static KNOWN: Mutex<BTreeMap<String, Duration>> = Mutex::new(BTreeMap::new());

/// The processor time of starting and ending a command of this kind. `run` is such a command with a runtime of [`RUNTIME`].
pub(crate) fn cost(kind: &str, run: impl Fn() -> std::io::Result<Finished>) -> Duration {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&cost) = known().get(kind) {
        return cost;
    }
    let finished = (0..RUNS)
        .filter_map(|_| run().ok())
        .filter(|finished| finished.ended.success);
    // One that does not even start will say why when it is measured.
    let cost = finished.map(|finished| finished.ended.cpu).min().unwrap_or_default();
    known().insert(kind.to_owned(), cost);
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runner::Ended;
    use baio_stress::Measurement;
    use std::cell::Cell;

    fn finished(cpu_ms: u64) -> Finished {
        let ended = Ended {
            success: true,
            cpu: Duration::from_millis(cpu_ms),
            ..Ended::default()
        };
        Finished {
            ended,
            ..Finished::default()
        }
    }

    #[test]
    fn the_start_is_measured_once_and_taken_off() {
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            Ok(finished(10 * runs.get()))
        };
        assert_eq!(cost("of this test", run), Duration::from_millis(10));
        assert_eq!(cost("of this test", run), Duration::from_millis(10));
        assert_eq!(runs.get(), RUNS as u64);
        let mut measured = Measurement {
            requests: 1000,
            ..Measurement::default()
        };
        let mut less = |cpu_ms| {
            finished(cpu_ms).charge(&mut measured, Some(Duration::from_millis(10)));
            measured.cpu_less_start_us_per_request
        };
        assert_eq!((less(30), less(5)), (Some(20.0), Some(0.0)));
    }

    #[test]
    fn a_command_that_does_not_start_costs_nothing() {
        let none = || Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert_eq!(cost("of nothing", none), Duration::ZERO);
    }
}
