//! What is compared, as a ratio of ours to a peer's, and the mark that the project has set itself beside it. A mark that is missed
//! fails nothing: figures are no test.

use std::fmt;

use baio_stress::Measurement;

/// What is compared, as a ratio of ours to the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Requests,
    /// Of the whole process.
    Cpu,
    /// The same without what it takes to start and to end.
    CpuLessStart,
    ContextSwitches,
    P50,
    P99,
    SubmitP999,
}

/// What a ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) figure: Figure,
    pub(super) bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// At least so much of the peer's requests a second.
pub(super) fn rate(ratio: f64) -> Mark {
    Mark::at_least(Figure::Requests, ratio)
}

/// At most so much of the peer's processor time a request.
pub(super) fn cpu(ratio: f64) -> Mark {
    Mark::at_most(Figure::Cpu, ratio)
}

impl Mark {
    pub(super) const fn at_least(figure: Figure, ratio: f64) -> Mark {
        Mark {
            figure,
            bound: Bound::AtLeast(ratio),
        }
    }

    pub(super) const fn at_most(figure: Figure, ratio: f64) -> Mark {
        Mark {
            figure,
            bound: Bound::AtMost(ratio),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bound.fmt(f)
    }
}

impl Bound {
    /// By how many percent of the bound `value` misses it; `None` where it holds. No value is a miss.
    pub(super) fn shortfall(self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            // A ratio to nothing: then nothing was measured.
            return Some(f64::NAN);
        }
        let by = match self {
            Bound::AtLeast(least) => (least - value) / least,
            // Of a bound of 0 any value is a miss without a measure.
            Bound::AtMost(most) if most > 0.0 => (value - most) / most,
            Bound::AtMost(most) => value - most,
        };
        (by > 0.0).then_some(by * 100.0)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, ">= {least}"),
            Bound::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// What each is called, its unit, its key in the JSON, and where it is measured.
type Row = (&'static str, &'static str, &'static str, fn(&Measurement) -> f64);

impl Figure {
    fn row(self) -> Row {
        match self {
            Figure::Requests => ("requests/s", "1/s", "iops_ratio", |run| run.iops),
            Figure::Cpu => ("CPU a request", "us", "cpu_ratio", |run| run.cpu_us_per_request),
            Figure::CpuLessStart => ("CPU a request less both starts", "us", "cpu_less_start_ratio", |run| {
                run.cpu_less_start_us_per_request.unwrap_or(run.cpu_us_per_request)
            }),
            Figure::ContextSwitches => ("context switches a request", "", "context_switches_ratio", |run| {
                run.context_switches_per_request
            }),
            Figure::P50 => ("p50 latency", "us", "p50_ratio", |run| {
                run.latency_us.p50.unwrap_or(f64::NAN)
            }),
            Figure::P99 => ("p99 latency", "us", "p99_ratio", |run| {
                run.latency_us.p99.unwrap_or(f64::NAN)
            }),
            Figure::SubmitP999 => ("p99.9 submit latency", "us", "submit_p999_ratio", |run| {
                run.submit_latency_us.and_then(|at| at.p999).unwrap_or(f64::NAN)
            }),
        }
    }

    pub(super) fn of(self, measured: &Measurement) -> f64 {
        self.row().3(measured)
    }

    pub(super) fn said(self) -> &'static str {
        self.row().0
    }

    pub(super) fn unit(self) -> &'static str {
        self.row().1
    }

    pub(super) fn key(self) -> &'static str {
        self.row().2
    }

    /// Of a figure as a row names it: is it a rate, or what something costs?
    pub(super) fn more_is_better(said: &str) -> bool {
        said.ends_with("/s") || said == "throughput"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_or_says_by_how_much_it_does_not() {
        let (least, most) = (Bound::AtLeast(0.97), Bound::AtMost(0.75));
        assert_eq!([least.shortfall(0.97), most.shortfall(0.75)], [None; 2]);
        let rounded = |by: Option<f64>| by.map(|by| (by * 10.0).round() / 10.0);
        assert_eq!(rounded(least.shortfall(0.485)), Some(50.0));
        assert_eq!(rounded(least.shortfall(0.966)), Some(0.4), "so little is still a miss");
        assert_eq!(rounded(most.shortfall(1.5)), Some(100.0));
        assert!(Bound::AtMost(0.0).shortfall(0.1).is_some(), "of nothing anything is");
        assert!(least.shortfall(f64::NAN).is_some(), "nothing measured is nothing met");
        assert!(least.shortfall(f64::INFINITY).is_some(), "nor is a ratio to nothing");
        assert!(least.shortfall(f64::INFINITY).is_some(), "nor a ratio to nothing");
    }
}
