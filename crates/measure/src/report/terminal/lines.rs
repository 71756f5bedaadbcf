//! What of an experiment's rows stands on the terminal: with `--quick` one line a comparison, with its most telling figure; else each row
//! that has a mark.

use crate::report::record::{Experiment, Row};
use crate::report::run::is_end;
use crate::report::terminal::cut;

/// One line of the table, as text.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) figure: String,
    pub(super) ours: String,
    pub(super) peer: String,
    pub(super) ratio: String,
    pub(super) mark: String,
    pub(super) verdict: String,
    /// Why there is nothing else to show.
    pub(super) skipped: Option<String>,
    /// How many rows of the report it tells of.
    pub(super) stands_for: usize,
}

impl Line {
    pub(super) fn of(row: &Row) -> Line {
        let theirs = row
            .theirs
            .map_or_else(String::new, |value| format!(" {}", short(value, "")));
        // The name gives way: the figure is read.
        let name = cut(&spoken(&row.peer), 20_usize.saturating_sub(theirs.chars().count()));
        let verdict = match (row.holds, &row.skipped) {
            (_, Some(_)) => "skipped",
            (Some(true), _) => "holds",
            (Some(false), _) => "MISSED",
            (None, None) => "",
        };
        Line {
            what: row.what.clone(),
            figure: spoken(&row.figure),
            ours: row.ours.map_or_else(String::new, |value| short(value, &row.unit)),
            peer: format!("{name}{theirs}"),
            ratio: row.ratio.map_or_else(String::new, |ratio| short(ratio, "")),
            mark: row.mark.clone().unwrap_or_default(),
            verdict: verdict.into(),
            skipped: None,
            stands_for: 1,
        }
    }
}

/// The lines of an experiment, the most telling first if there may be no room for all.
pub(super) fn lines(experiment: &Experiment, quick: bool) -> Vec<Line> {
    let rows = || experiment.rows.iter().filter(|row| !is_end(row));
    let mut told: Vec<&str> = Vec::new();
    rows().for_each(|row| {
        if !told.contains(&&row.what[..]) {
            told.push(&row.what);
        }
    });
    let has_marks = rows().any(|row| row.mark.is_some());
    let mut lines: Vec<(f64, Line)> = Vec::new();
    for what in told {
        let of_it = || rows().filter(|row| row.what == what);
        let marked: Vec<&Row> = of_it().filter(|row| row.mark.is_some()).collect();
        let plain = of_it()
            .next()
            .filter(|_| !has_marks || of_it().all(|row| row.skipped.is_some()));
        match (&marked[..], plain) {
            ([], None) => {}
            (marked, _) if marked.iter().all(|row| row.skipped.is_some()) && !marked.is_empty() => {
                lines.push((f64::INFINITY, Line::of(marked[0])));
            }
            ([], Some(row)) => lines.push((f64::INFINITY, first(row, &of_it().collect::<Vec<_>>()))),
            (marked, _) if quick => lines.push(merged(marked)),
            (marked, _) => lines.extend(marked.iter().map(|row| (margin(row), Line::of(row)))),
        }
    }
    if quick {
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Of a comparison without a mark, or of one that was skipped.
fn first(row: &Row, all: &[&Row]) -> Line {
    let ours = all.iter().find(|row| row.skipped.is_none()).unwrap_or(&row);
    let mut line = Line::of(ours);
    line.skipped.clone_from(&ours.skipped);
    line
}

/// One line of a comparison with several marks: the one with the least room.
fn merged(marked: &[&Row]) -> (f64, Line) {
    let worst = marked
        .iter()
        .min_by(|one, other| margin(one).total_cmp(&margin(other)))
        .unwrap_or(&marked[0]);
    let mut line = Line::of(worst);
    let held = marked.iter().filter(|row| row.holds == Some(true)).count();
    line.verdict = match (held, marked.len()) {
        (1, 1) => "holds".into(),
        (0, 1) => "MISSED".into(),
        (held, all) if held == all => format!("{all} hold"),
        (held, all) => format!("{} of {all}", held),
    };
    line.stands_for = marked.len();
    (margin(worst), line)
}

/// How far from its mark a row is, in parts of it; below 0 where it misses it. Missed without a measure is worst.
fn margin(row: &Row) -> f64 {
    let Some((sign, bound)) = row.mark.as_deref().and_then(parted) else {
        return f64::INFINITY;
    };
    let room = row
        .ratio
        .or(row.ours)
        .map(|value| sign * (value - bound) / bound.max(0.01));
    match (row.holds, room) {
        (Some(false), None) => f64::NEG_INFINITY,
        (Some(false), Some(room)) => room.min(0.0),
        // What is to be nothing, and is nothing, tells the least.
        (_, Some(_)) if bound == 0.0 => 1.0,
        (_, Some(room)) => room.max(0.0),
        (_, None) => f64::INFINITY,
    }
}

/// Of `>= 0.97` the direction and the number.
fn parted(mark: &str) -> Option<(f64, f64)> {
    let (word, number) = mark.split_once(' ')?;
    let sign = if word == ">=" { 1.0 } else { -1.0 };
    Some((sign, number.parse().ok()?))
}

/// How many lines each gets of `room`: one at least, and in turn one more, as long as there is room.
pub(super) fn share(wanted: &[usize], room: usize) -> Vec<usize> {
    let mut given = vec![0; wanted.len()];
    let mut left = room;
    while left > 0 {
        let before = left;
        for (given, &wanted) in given.iter_mut().zip(wanted) {
            if *given < wanted && left > 0 {
                *given += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    given
}

/// A number of three digits, with its unit.
pub(in crate::report) fn short(value: f64, unit: &str) -> String {
    let size = value.abs();
    let said = match size {
        _ if !value.is_finite() => return "-".into(),
        1e9.. => format!("{:.3e}", value),
        1e8.. => format!("{:.0}M", value / 1e6),
        1e7.. => format!("{:.1}M", value / 1e6),
        1e6.. => format!("{:.2}M", value / 1e6),
        1e5.. => format!("{:.0}k", value / 1e3),
        1e4.. => format!("{:.1}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        0.001.. => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    };
    match unit {
        "" | "1/s" => said,
        unit => format!("{said} {unit}"),
    }
}

/// Fewer words, where there is a column for them.
fn spoken(said: &str) -> String {
    let said = said.replace(", the kernel's cache", ", kernel");
    let said = said.strip_prefix("fio ").unwrap_or(&said);
    said.strip_suffix(" a request").unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, figure: &str, ratio: f64, mark: Option<(&str, bool)>) -> Row {
        Row {
            what: what.into(),
            figure: figure.into(),
            ours: Some(123_456.0),
            peer: "fio io_uring".into(),
            theirs: Some(100.0),
            ratio: Some(ratio),
            mark: mark.map(|(mark, _)| mark.into()),
            holds: mark.map(|(_, holds)| holds),
            ..Row::default()
        }
    }

    fn experiment(rows: Vec<Row>) -> Experiment {
        Experiment {
            rows,
            ..Experiment::default()
        }
    }

    #[test]
    fn a_quick_line_shows_the_figure_with_the_least_room() {
        let told = experiment(vec![
            row("one", "requests/s", 1.5, Some((">= 0.97", true))),
            row("one", "CPU a request", 0.74, Some(("<= 0.75", true))),
            row("one", "p50 latency", 3.0, None),
            row("two", "requests/s", 0.5, Some((">= 0.97", false))),
            row("two", "CPU a request", 0.1, Some(("<= 0.75", true))),
        ]);
        let quick = lines(&told, true);
        let shown: Vec<_> = quick
            .iter()
            .map(|line| (&line.what[..], &line.figure[..], &line.verdict[..]))
            .collect();
        assert_eq!(shown, [("two", "requests/s", "1 of 2"), ("one", "CPU", "2 hold")]);
        assert_eq!(lines(&told, false).len(), 4, "each mark a line");
        assert_eq!(quick[1].ours, "123k");
        assert_eq!(quick[1].peer, "io_uring 100");
    }

    #[test]
    fn what_was_skipped_says_why() {
        let mut skipped = row("three", "", 1.0, None);
        skipped.skipped = Some("needs root".into());
        let told = experiment(vec![skipped, row("one", "requests/s", 1.5, Some((">= 1", true)))]);
        let quick = lines(&told, true);
        assert_eq!(quick.last().unwrap().skipped.as_deref(), Some("needs root"));
    }

    #[test]
    fn room_is_shared_so_that_nobody_is_without() {
        assert_eq!(share(&[5, 1, 3], 100), [5, 1, 3]);
        assert_eq!(share(&[5, 1, 3], 5), [2, 1, 2]);
        assert_eq!(share(&[5, 0, 3], 1), [1, 0, 0]);
        assert_eq!(share(&[], 3), [0; 0]);
    }

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        let said = [0.0, 0.5, 9.876, 12.34, 999.4, 12_345.0, 234_567.0, 1_234_567.0].map(|value| short(value, ""));
        assert_eq!(said, ["0", "0.50", "9.88", "12.3", "999", "12.3k", "235k", "1.23M"]);
        assert_eq!((short(5.0, "us"), short(5.0, "1/s")), ("5 us".into(), "5".into()));
        assert_eq!(short(f64::NAN, "us"), "-");
    }
}
