//! Which marks hold, which are missed, and which were not measured.

use crate::report::marks::Figure;
use crate::report::numbers::{NONE, exact, figure, plain, ratio, unit};
use crate::report::record::{Experiment, Found, Record, Row};

/// What became of a row's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Missed,
    /// Missed, and no loss: we are ahead of the peer, or the rounds do not tell.
    Short,
    /// There is a mark, and no figure to judge.
    NotMeasured,
    NoMark,
}

impl Outcome {
    pub(super) fn of(row: &Row) -> Outcome {
        match (&row.mark, row.holds) {
            (None, _) => Outcome::NoMark,
            (Some(_), None) => Outcome::NotMeasured,
            (Some(_), Some(true)) => Outcome::Holds,
            (Some(_), Some(false)) if no_loss(row).is_some() => Outcome::Short,
            (Some(_), Some(false)) => Outcome::Missed,
        }
    }

    /// Of the element: the style has a sign for each, since colour must not tell it alone.
    pub(super) fn class(self) -> &'static str {
        match self {
            Outcome::NotMeasured => "open",
            Outcome::NoMark => "soft",
            other => other.word(),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Outcome::Holds => "holds",
            Outcome::Missed => "missed",
            Outcome::Short => "short",
            Outcome::NotMeasured => "not measured",
            Outcome::NoMark => "",
        }
    }
}

#[derive(Default)]
pub(super) struct Tally<'a> {
    pub(super) held: usize,
    /// The largest first.
    pub(super) missed: Vec<Found<'a>>,
    pub(super) not_measured: usize,
}

impl<'a> Tally<'a> {
    pub(super) fn of(record: &'a Record) -> Tally<'a> {
        let mut all = Tally::of_rows(record.rows());
        // What has no measure of its shortfall, such as a mark of nothing, is the worst.
        let by = |miss: &Found<'_>| miss.row.short_by.unwrap_or(f64::INFINITY);
        all.missed.sort_by(|a, b| by(b).total_cmp(&by(a)));
        all
    }

    pub(super) fn of_one(experiment: &'a Experiment) -> Tally<'a> {
        Tally::of_rows(experiment.found(0))
    }

    fn of_rows(rows: impl Iterator<Item = Found<'a>>) -> Tally<'a> {
        let mut tally = Tally::default();
        for found in rows {
            match Outcome::of(found.row) {
                Outcome::Holds => tally.held += 1,
                Outcome::Missed | Outcome::Short => tally.missed.push(found),
                Outcome::NotMeasured => tally.not_measured += 1,
                Outcome::NoMark => {}
            }
        }
        tally
    }

    /// Those that could be judged.
    pub(super) fn judged(&self) -> usize {
        self.held + self.missed.len()
    }

    /// Of all of them together, where any was judged.
    pub(super) fn outcome(&self) -> Outcome {
        match self.missed.is_empty() {
            true => Outcome::Holds,
            false => Outcome::Missed,
        }
    }

    /// `41 of 45 marks hold`
    pub(super) fn said(&self) -> String {
        match (self.held, self.judged()) {
            (_, 0) => "No mark was measured".to_owned(),
            (1, 1) => "The one mark holds".to_owned(),
            (held, all) if held == all => format!("All {all} marks hold"),
            (held, 1) => format!("{held} of 1 mark holds"),
            (held, all) => format!("{held} of {all} marks hold"),
        }
    }
}

/// Why a mark that is missed is no loss.
pub(super) fn no_loss(row: &Row) -> Option<&'static str> {
    let ratio = row.ratio?;
    let bound = || row.mark.as_deref()?.split(' ').nth(1)?.parse::<f64>().ok();
    let is_ahead = if Figure::more_is_better(&row.figure) {
        ratio > 1.0
    } else {
        ratio < 1.0
    };
    match row.spread {
        _ if is_ahead => Some("ahead of the peer"),
        None => Some("one round"),
        Some([least, most]) if bound().is_some_and(|bound| (least..=most).contains(&bound)) => {
            Some("within the spread")
        }
        Some(_) => None,
    }
}

/// By how much a mark is missed, with a digit more where it would be nothing without. A mark of nought is missed by no part of it.
pub(super) fn missed_by(row: &Row) -> String {
    match row.short_by {
        Some(by) if by < 9.95 => format!("missed by {:.1} %", by.max(0.1)),
        Some(by) if by.is_finite() => format!("missed by {} %", exact(by.round())),
        _ => "missed".to_owned(),
    }
}

/// What the mark judges: the ratio, or our own figure.
pub(super) fn measured(row: &Row) -> String {
    match (row.ratio, row.ours) {
        (Some(of), _) => ratio(of),
        (None, Some(ours)) => match unit(&row.figure, &row.unit) {
            unit if unit.is_empty() => plain(ours),
            unit => format!("{} {unit}", figure(ours)),
        },
        (None, None) => NONE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_loss_is_not_loud() {
        let row = |figure: &str, ratio, spread, mark: &str| Row {
            figure: figure.into(),
            ratio: Some(ratio),
            spread,
            mark: Some(mark.into()),
            holds: Some(false),
            ..Row::default()
        };
        let told = |row: Row| (Outcome::of(&row), no_loss(&row));
        let some = Some([0.90, 0.96]);
        assert_eq!(told(row("requests/s", 0.94, some, ">= 0.97")), (Outcome::Missed, None));
        let near = told(row("requests/s", 0.94, Some([0.90, 0.99]), ">= 0.97"));
        assert_eq!(near, (Outcome::Short, Some("within the spread")));
        assert_eq!(told(row("requests/s", 0.94, None, ">= 0.97")).1, Some("one round"));
        let wins = told(row("p99.9 submit latency", 0.67, Some([0.6, 0.7]), "<= 0.1"));
        assert_eq!(wins, (Outcome::Short, Some("ahead of the peer")));
        assert_eq!(
            told(row("CPU a request", 1.1, Some([1.05, 1.2]), "<= 1")).0,
            Outcome::Missed
        );
    }

    #[test]
    fn a_narrow_miss_is_still_one() {
        let row = |by| Row {
            short_by: by,
            ..Row::default()
        };
        assert_eq!(missed_by(&row(Some(0.01))), "missed by 0.1 %");
        assert_eq!(missed_by(&row(Some(50.2))), "missed by 50 %");
        assert_eq!(missed_by(&row(None)), "missed");
    }
}
