//! Two reports side by side: the ratios of both, the spread of each over its rounds, and which differences lie beyond both. It says of a
//! difference that lies within them that it may be chance.

use std::io::{self, Write};

use baio_console::output::{Align, Table};
use serde::Serialize;

use crate::report::record::{Record, Row};
use crate::report::terminal::line::short;
use crate::report::terminal::{WIDTH, cut, put};

/// The figures of two reports, as many as both have.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    other: Head,
    this: Head,
    rows: Vec<Pair>,
    /// Figures that only one of the two has.
    only_other: usize,
    only_this: usize,
}

/// When and where.
#[derive(Debug, Serialize)]
struct Head {
    began: String,
    version: String,
    quick: bool,
    kernel: String,
    processor: String,
}

#[derive(Debug, Serialize)]
struct Pair {
    experiment: String,
    what: String,
    figure: String,
    peer: String,
    other: f64,
    other_spread: Option<[f64; 2]>,
    this: f64,
    this_spread: Option<[f64; 2]>,
    /// `beyond both spreads`, `within`, or `no spread` where one of them has a single round.
    difference: &'static str,
}

/// Figure, the other's ratio, this one's, the difference.
const COLUMNS: [Align; 4] = [Align::Left, Align::Right, Align::Right, Align::Left];

const BEYOND: &str = "beyond both spreads";
const WITHIN: &str = "within";
const UNKNOWN: &str = "no spread";

impl Head {
    fn of(record: &Record) -> Head {
        Head {
            began: record.began.clone(),
            version: record.version.clone(),
            quick: record.quick,
            kernel: record.machine.kernel.clone(),
            processor: record.machine.processor.clone(),
        }
    }

    fn line(&self) -> String {
        let quick = if self.quick { ", quick" } else { "" };
        format!(
            "baio {}{quick}, {}, Linux {}, {}",
            self.version, self.began, self.kernel, self.processor
        )
    }
}

/// Every ratio, by what it is of.
fn ratios(record: &Record) -> impl Iterator<Item = ([&str; 4], &Row)> {
    record.experiments.iter().flat_map(|told| {
        let rows = told.rows.iter().filter(|row| row.ratio.is_some());
        rows.map(|row| ([&told.name[..], &row.what, &row.figure, &row.peer], row))
    })
}

fn difference(other: Option<[f64; 2]>, this: Option<[f64; 2]>) -> &'static str {
    match (other, this) {
        (Some(other), Some(this)) if other[1] < this[0] || this[1] < other[0] => BEYOND,
        (Some(_), Some(_)) => WITHIN,
        _ => UNKNOWN,
    }
}

impl Beside {
    pub(super) fn of(other: &Record, this: &Record) -> Beside {
        let mut rows = Vec::new();
        let mut only_other = 0;
        for (key, before) in ratios(other) {
            let Some((_, now)) = ratios(this).find(|(found, _)| *found == key) else {
                only_other += 1;
                continue;
            };
            let [experiment, what, figure, peer] = key.map(str::to_owned);
            rows.push(Pair {
                experiment,
                what,
                figure,
                peer,
                other: before.ratio.unwrap_or(f64::NAN),
                other_spread: before.spread,
                this: now.ratio.unwrap_or(f64::NAN),
                this_spread: now.spread,
                difference: difference(before.spread, now.spread),
            });
        }
        Beside {
            other: Head::of(other),
            this: Head::of(this),
            only_this: ratios(this).count().saturating_sub(rows.len()),
            only_other,
            rows,
        }
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        put(out, &format!("other: {}", self.other.line()))?;
        put(out, &format!("this:  {}", self.this.line()))?;
        writeln!(out)?;
        let mut before = None;
        let mut table = None;
        for pair in &self.rows {
            let about = format!("{}: {}, against {}", pair.experiment, pair.what, pair.peer);
            if before.as_ref() != Some(&about) {
                flush(&mut table, out)?;
                writeln!(out, "{}", cut(&about, WIDTH))?;
                before = Some(about);
            }
            let table = table.get_or_insert_with(|| Table::without_headings(&COLUMNS));
            let ratio = |ratio: f64, spread: Option<[f64; 2]>| match spread {
                Some([least, most]) => format!("{} ({} to {})", short(ratio, ""), short(least, ""), short(most, "")),
                None => short(ratio, ""),
            };
            table.row([
                format!("  {:30}", cut(&pair.figure, 30)),
                format!("{:>21}", ratio(pair.other, pair.other_spread)),
                format!("{:>21}", ratio(pair.this, pair.this_spread)),
                pair.difference.to_owned(),
            ]);
        }
        flush(&mut table, out)?;
        let count = |of: &str| self.rows.iter().filter(|pair| pair.difference == of).count();
        writeln!(out)?;
        put(
            out,
            &format!(
                "{} of {} ratios differ by more than both spreads, {} do not, {} have no spread (one round); {} are only in the \
                 other report, {} only in this one.",
                count(BEYOND),
                self.rows.len(),
                count(WITHIN),
                count(UNKNOWN),
                self.only_other,
                self.only_this
            ),
        )
    }
}

fn flush(table: &mut Option<Table>, out: &mut dyn Write) -> io::Result<()> {
    table.take().map_or(Ok(()), |table| table.write(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Experiment;

    fn record(rows: &[(&str, f64, Option<[f64; 2]>)]) -> Record {
        let rows = rows.iter().map(|&(figure, ratio, spread)| Row {
            what: "what".into(),
            figure: figure.into(),
            peer: "peer".into(),
            ratio: Some(ratio),
            spread,
            ..Row::default()
        });
        Record {
            experiments: vec![Experiment {
                name: "one".into(),
                rows: rows.collect(),
                ..Experiment::default()
            }],
            ..Record::default()
        }
    }

    #[test]
    fn only_what_lies_beyond_both_spreads_is_a_difference() {
        let other = record(&[
            ("a", 1.0, Some([0.9, 1.1])),
            ("b", 1.0, Some([0.9, 1.1])),
            ("c", 1.0, None),
            ("d", 1.0, None),
        ]);
        let this = record(&[
            ("a", 1.5, Some([1.2, 1.6])),
            ("b", 1.2, Some([1.05, 1.6])),
            ("c", 9.0, Some([8.0, 10.0])),
            ("e", 1.0, None),
        ]);
        let beside = Beside::of(&other, &this);
        let told: Vec<_> = beside.rows.iter().map(|pair| pair.difference).collect();
        assert_eq!(told, [BEYOND, WITHIN, UNKNOWN]);
        assert_eq!((beside.only_other, beside.only_this), (1, 1));
        let back = Beside::of(&this, &other);
        assert_eq!(back.rows[0].difference, BEYOND);
        let mut out = Vec::new();
        beside.write_text(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(
            text.contains("1.50 (1.20 to 1.60)") && text.contains("1 of 3 ratios differ"),
            "{text}"
        );
    }
}
