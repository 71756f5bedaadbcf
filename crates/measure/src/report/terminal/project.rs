//! For the project, on the terminal: each figure that has a mark, and what the documents ask for. The page and `report.json` have the others.

use std::io::{self, Write};

use baio_console::output::Align;
use unicode_width::UnicodeWidthStr;

use super::{cut, line, put};
use crate::report::record::{Experiment, Record, Row};
use crate::report::tally::Tally;

pub(super) const HEADING: &str = "For the project:";

/// Widths of the columns; between two stands a blank.
const EXPERIMENT: [(usize, Align); 3] = [(51, Align::Left), (15, Align::Right), (12, Align::Right)];
const FIGURE: [(usize, Align); 6] = [
    (28, Align::Left),
    (10, Align::Right),
    (18, Align::Left),
    (6, Align::Right),
    (7, Align::Right),
    (6, Align::Left),
];
const ASKED: [(usize, Align); 5] = [
    (3, Align::Left),
    (33, Align::Left),
    (15, Align::Left),
    (17, Align::Left),
    (8, Align::Left),
];

pub(super) fn write(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING} what it has set itself, and what the documents ask for")?;
    row(out, &FIGURE, ["", "ours", "peer", "ratio", "mark", ""])?;
    let mut left_out = 0;
    for told in &record.experiments {
        left_out += experiment(told, out)?;
    }
    put(out, &format!("In report.json: {left_out} figures more."))?;
    promises(record, out)?;
    writeln!(out)
}

/// A heading, and its figures: how many are not shown.
fn experiment(told: &Experiment, out: &mut dyn Write) -> io::Result<usize> {
    let marks = Tally::of_one(told);
    let state = match told {
        told if told.has_failed() => "FAILED".to_owned(),
        told if told.has_stopped() => "interrupted".to_owned(),
        told if !told.verified => "WRONG".to_owned(),
        _ if marks.judged() > 0 => format!("{} of {}", marks.held, marks.judged()),
        _ => String::new(),
    };
    row(
        out,
        &EXPERIMENT,
        [&told.name, &format!("{:.1} s", told.seconds), &state],
    )?;
    let shown = shown_of(told);
    let mut what = "";
    for row in &shown {
        if row.what != what {
            what = &row.what;
            writeln!(out, "{}", cut(&format!("  {what}"), super::WIDTH))?;
        }
        figure(row, out)?;
    }
    Ok(told.rows.len() - shown.len())
}

fn figure(told: &Row, out: &mut dyn Write) -> io::Result<()> {
    if let Some(reason) = &told.skipped {
        return put(out, &format!("    skipped: {reason}"));
    }
    row(out, &FIGURE, line::cells(told).each_ref().map(String::as_str))
}

/// What stands on the terminal: each figure that has a mark; where none has one, the first of each comparison.
fn shown_of(told: &Experiment) -> Vec<&Row> {
    let rows = || told.rows.iter().filter(|row| !row.is_end());
    let marked: Vec<&Row> = rows().filter(|row| row.mark.is_some()).collect();
    if !marked.is_empty() {
        return marked;
    }
    let mut shown: Vec<&Row> = rows().collect();
    shown.dedup_by(|one, before| one.what == before.what);
    shown
}

fn promises(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let headings = ["", "what the documents ask for", "document", "shown by", "here"];
    row(out, &ASKED, headings)?;
    for promise in &record.promises {
        let by = match &promise.shown_by[..] {
            [] => "-".to_owned(),
            [one] => one.clone(),
            [first, more @ ..] => format!("{first} +{}", more.len()),
        };
        let cells = [&promise.id, &promise.title, &promise.document, &by, &promise.state];
        row(out, &ASKED, cells.map(String::as_str))?;
    }
    Ok(())
}

/// Each cell is exactly as wide as its column, whatever stands in it: so is the table.
fn row<const N: usize>(out: &mut dyn Write, columns: &[(usize, Align); N], cells: [&str; N]) -> io::Result<()> {
    let mut line = String::new();
    for (&(width, align), text) in columns.iter().zip(cells) {
        let text = cut(text, width);
        // Padding by `{:<width$}` would count characters, and some are two columns wide or none.
        let blanks = " ".repeat(width.saturating_sub(text.width()));
        line += &match align {
            Align::Left => format!("{text}{blanks} "),
            Align::Right => format!("{blanks}{text} "),
        };
    }
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_with_wide_characters_and_those_without_width() {
        let mut out = Vec::new();
        let columns = [(6, Align::Left), (4, Align::Right)];
        for cell in ["plain", "日本語", "日本語本", "e\u{301}e\u{301}", "longer text"] {
            row(&mut out, &columns, [cell, "x"]).unwrap();
        }
        let shown = String::from_utf8(out).unwrap();
        let widths: Vec<usize> = shown.lines().map(UnicodeWidthStr::width).collect();
        assert_eq!(widths, [11; 5], "{shown}");
        assert!(shown.contains("日本…") && shown.contains("longe…"), "{shown}");
    }

    #[test]
    fn of_each_experiment_its_marks_are_shown_or_the_first_of_each_comparison() {
        let row = |what: &str, holds: Option<bool>| Row {
            what: what.into(),
            mark: holds.map(|_| ">= 1".into()),
            holds,
            ..Row::default()
        };
        let names = |rows: Vec<Row>| -> Vec<String> {
            let told = Experiment {
                rows,
                ..Experiment::default()
            };
            shown_of(&told).iter().map(|row| row.what.clone()).collect()
        };
        let marked = vec![
            row("no mark", None),
            row("holds", Some(true)),
            row("missed", Some(false)),
        ];
        assert_eq!(names(marked), ["holds", "missed"]);
        assert_eq!(
            names(vec![row("one", None), row("one", None), row("two", None)]),
            ["one", "two"]
        );
    }
}
