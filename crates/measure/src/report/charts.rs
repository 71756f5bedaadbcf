//! Drawings of what was swept: a value on the x axis for each setting, a line for each side.

use baio_stress::Measurement;

use crate::figures::middle;
use crate::report::findings::finite;
use crate::report::record::{Axis, Chart, Line};

pub(super) const OURS: &str = "ours";
pub(super) const PEER: &str = "peer";
pub(super) const DOCUMENT: &str = "document";

/// A chart while its points come in.
pub(super) struct Sweep {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<(String, &'static str)>,
    /// Of a line by its number: where, and what.
    points: Vec<(usize, f64, f64)>,
}

/// An axis of even steps.
pub(super) fn linear(title: &str, unit: &str) -> Axis {
    Axis {
        title: title.into(),
        unit: unit.into(),
        logarithmic: false,
    }
}

/// An axis of even factors.
pub(super) fn logarithmic(title: &str, unit: &str) -> Axis {
    Axis {
        logarithmic: true,
        ..linear(title, unit)
    }
}

impl Sweep {
    pub(super) fn new(title: impl Into<String>, x: Axis, y: Axis) -> Sweep {
        Sweep {
            title: title.into(),
            x,
            y,
            lines: Vec::new(),
            points: Vec::new(),
        }
    }

    /// What is no number is not drawn.
    pub(super) fn point(&mut self, name: &str, whose: &'static str, at: f64, value: f64) {
        let line = self.lines.iter().position(|(known, _)| known == name);
        let line = line.unwrap_or_else(|| {
            self.lines.push((name.to_owned(), whose));
            self.lines.len() - 1
        });
        self.points
            .extend(finite(value).filter(|_| at.is_finite()).map(|value| (line, at, value)));
    }

    /// The median of the rounds, if there were any.
    pub(super) fn runs(
        &mut self,
        name: &str,
        whose: &'static str,
        at: f64,
        runs: &[Measurement],
        of: impl Fn(&Measurement) -> f64,
    ) {
        if !runs.is_empty() {
            self.point(name, whose, at, middle(runs, of));
        }
    }

    /// With what the document showed (empty where it has no figure), and what is shown here. None where nothing was measured.
    pub(super) fn chart(self, document: &str, here: &str) -> Option<Chart> {
        let mut at: Vec<f64> = self.points.iter().map(|&(_, at, _)| at).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let value = |line: usize, place: f64| {
            let of_it = self
                .points
                .iter()
                .rev()
                .find(|point| point.0 == line && point.1 == place);
            of_it.map(|point| point.2)
        };
        let lines = self.lines.iter().enumerate().map(|(number, (name, whose))| Line {
            name: name.clone(),
            whose: (*whose).to_owned(),
            values: at.iter().map(|&place| value(number, place)).collect(),
        });
        let lines: Vec<Line> = lines.filter(|line| line.values.iter().any(Option::is_some)).collect();
        (!lines.is_empty()).then(|| Chart {
            title: self.title,
            x: self.x,
            y: self.y,
            at,
            lines,
            document: document.into(),
            here: here.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_value_or_none_for_each_place() {
        let mut sweep = Sweep::new("title", logarithmic("depth", ""), linear("rate", "1/s"));
        sweep.point("ours", OURS, 16.0, 2.0);
        sweep.point("ours", OURS, 1.0, 1.0);
        sweep.point("theirs", PEER, 16.0, 3.0);
        sweep.point("nothing", PEER, 1.0, f64::NAN);
        sweep.runs("nobody", PEER, 1.0, &[], |run| run.iops);
        let chart = sweep.chart("", "what").unwrap();
        assert_eq!(chart.at, [1.0, 16.0]);
        let lines: Vec<_> = chart
            .lines
            .iter()
            .map(|line| (&line.name[..], &line.values[..]))
            .collect();
        assert_eq!(
            lines,
            [
                ("ours", &[Some(1.0), Some(2.0)][..]),
                ("theirs", &[None, Some(3.0)][..])
            ]
        );
        assert!(Sweep::new("", linear("", ""), linear("", "")).chart("", "").is_none());
    }
}
