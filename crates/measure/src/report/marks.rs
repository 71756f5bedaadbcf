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

    pub(super) fn shortfall(self, ratio: f64) -> Option<f64> {
        self.bound.shortfall(ratio)
    }

    pub(super) fn verdict(self, ratio: f64) -> String {
        self.bound.verdict(ratio)
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
        let by = match self {
            Bound::AtLeast(least) => (least - value) / least,
            // Of a bound of 0 any value is a miss without a measure.
            Bound::AtMost(most) if most > 0.0 => (value - most) / most,
            Bound::AtMost(most) => value - most,
        };
        (by.is_nan() || by > 0.0).then_some(by * 100.0)
    }

    pub(super) fn verdict(self, value: f64) -> String {
        match self.shortfall(value) {
            None => format!("mark {self}: holds"),
            // There is no part of nothing.
            Some(_) if self == Bound::AtMost(0.0) => format!("mark {self}: falls short"),
            // So little that it would be rounded to nothing is still a miss.
            Some(by) if by < 1.0 => format!("mark {self}: falls short by {by:.1} %"),
            Some(by) => format!("mark {self}: falls short by {by:.0} %"),
        }
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

impl Figure {
    pub(super) fn of(self, measured: &Measurement) -> f64 {
        match self {
            Figure::Requests => measured.iops,
            Figure::Cpu => measured.cpu_us_per_request,
            Figure::CpuLessStart => measured
                .cpu_less_start_us_per_request
                .unwrap_or(measured.cpu_us_per_request),
            Figure::ContextSwitches => measured.context_switches_per_request,
            Figure::P50 => measured.latency_us.p50.unwrap_or(f64::NAN),
            Figure::P99 => measured.latency_us.p99.unwrap_or(f64::NAN),
            Figure::SubmitP999 => measured.submit_latency_us.and_then(|at| at.p999).unwrap_or(f64::NAN),
        }
    }

    pub(super) fn said(self) -> &'static str {
        match self {
            Figure::Requests => "requests/s",
            Figure::Cpu => "CPU a request",
            Figure::CpuLessStart => "CPU a request less both starts",
            Figure::ContextSwitches => "context switches a request",
            Figure::P50 => "p50 latency",
            Figure::P99 => "p99 latency",
            Figure::SubmitP999 => "p99.9 submit latency",
        }
    }

    pub(super) fn key(self) -> &'static str {
        match self {
            Figure::Requests => "iops_ratio",
            Figure::Cpu => "cpu_ratio",
            Figure::CpuLessStart => "cpu_less_start_ratio",
            Figure::ContextSwitches => "context_switches_ratio",
            Figure::P50 => "p50_ratio",
            Figure::P99 => "p99_ratio",
            Figure::SubmitP999 => "submit_p999_ratio",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_or_says_by_how_much_it_does_not() {
        let (least, most) = (rate(0.97), cpu(0.75));
        assert_eq!(least.verdict(0.97), "mark >= 0.97: holds");
        assert_eq!(least.verdict(0.485), "mark >= 0.97: falls short by 50 %");
        assert_eq!(least.verdict(0.966), "mark >= 0.97: falls short by 0.4 %");
        assert_eq!(most.verdict(0.75), "mark <= 0.75: holds");
        assert_eq!(most.verdict(1.5), "mark <= 0.75: falls short by 100 %");
        assert!(least.shortfall(f64::NAN).is_some(), "nothing measured is nothing met");
    }
}
