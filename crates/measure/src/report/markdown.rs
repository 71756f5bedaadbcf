//! A report as Markdown. `docs/results.md` is this of the report that is kept beside it, so that no figure there is typed.

use std::fmt::Write;

use crate::report::experiments::EXPERIMENTS;
use crate::report::numbers;
use crate::report::pipelining::OF_THE_BEST;
use crate::report::record::{Experiment, Record, Row};
use crate::report::terminal::{box_of, verdict};

/// What rows of older reports begin with that are of virtual time.
const SIMULATED: &str = "the document's disk, simulated";

/// The whole of it.
pub(super) fn markdown(record: &Record) -> String {
    let mut out = String::new();
    chapter(&mut out, record).map_or_else(|_| String::new(), |()| out)
}

fn chapter(out: &mut String, record: &Record) -> std::fmt::Result {
    let quick = if record.quick {
        "`baio report --quick`"
    } else {
        "`baio report`"
    };
    writeln!(out, "# Results\n")?;
    writeln!(
        out,
        "What {quick} of baio {} measured, begun {}, in {}. `baio report --show REPORT.json --as markdown` has written this page; no figure in it was typed.\n",
        text(&record.version),
        text(&record.began),
        numbers::duration(record.seconds)
    )?;
    for line in box_of(&record.machine) {
        writeln!(out, "- {}", text(&line))?;
    }
    if !record.left_out.is_empty() {
        writeln!(out, "- {}", text(&record.left_out))?;
    }
    writeln!(out, "\n**{}**", text(&verdict(record, None)))?;
    let is_known = |name: &str| EXPERIMENTS.iter().any(|experiment| experiment.name == name);
    let gone = record.experiments.iter().filter(|told| !is_known(&told.name));
    let gone: Vec<String> = gone.map(|told| text(&told.name)).collect();
    if !gone.is_empty() {
        let gone = gone.join(", ");
        let where_told = "[report.md](report.md#what-is-no-experiment-any-more)";
        writeln!(
            out,
            "\nThis version of `baio report` no longer runs {gone}: {where_told}."
        )?;
    }
    let missed: Vec<_> = record
        .experiments
        .iter()
        .flat_map(|told| told.rows.iter().map(move |row| (told, row)))
        .filter(|(_, row)| row.holds == Some(false))
        .collect();
    if !missed.is_empty() {
        writeln!(out, "\n## Missed\n")?;
        writeln!(
            out,
            "| experiment | what | figure | peer | is | mark | short by |\n|---|---|---|---|--:|--:|--:|"
        )?;
    }
    for (told, row) in missed {
        let is = row.ratio.map(numbers::ratio).or_else(|| row.ours.map(numbers::figure));
        let by = row.short_by.map_or_else(String::new, |by| format!("{by:.0} %"));
        cells(
            out,
            &[
                &told.name,
                &row.what,
                &row.figure,
                &row.peer,
                &is.unwrap_or_default(),
                &mark(row),
                &by,
            ],
        )?;
    }
    writeln!(out, "\n## What the documents ask for\n")?;
    writeln!(out, "| | what | document | shown by | here |\n|---|---|---|---|---|")?;
    for promise in &record.promises {
        let by = promise.shown_by.join(", ");
        cells(
            out,
            &[&promise.id, &promise.title, &promise.document, &by, &promise.state],
        )?;
    }
    record.experiments.iter().try_for_each(|told| experiment(out, told))
}

fn experiment(out: &mut String, told: &Experiment) -> std::fmt::Result {
    writeln!(out, "\n## {}\n\n{}.", text(&told.name), text(&told.shows))?;
    for note in &told.notes {
        writeln!(out, "- {}", text(note))?;
    }
    // The others are in the report.
    let rows: Vec<_> = told.rows.iter().filter(|row| is_told(row, told)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n| what | figure | ours | peer | theirs | ratio | least to largest | mark | |\n|---|---|--:|---|--:|--:|--:|--:|---|"
    )?;
    for row in rows {
        let number = |value: Option<f64>| value.map_or_else(String::new, numbers::figure);
        let spread = row
            .spread
            .map(|[least, most]| format!("{} to {}", numbers::ratio(least), numbers::ratio(most)));
        let verdict = match (row.holds, &row.skipped) {
            (_, Some(why)) => format!("skipped: {why}"),
            (Some(true), _) => "holds".to_owned(),
            (Some(false), _) => "**missed**".to_owned(),
            (None, None) => String::new(),
        };
        let unit = numbers::unit(&row.figure, &row.unit);
        let figure = if unit.is_empty() {
            row.figure.clone()
        } else {
            format!("{}, {unit}", row.figure)
        };
        let ratio = row.ratio.map_or_else(String::new, numbers::ratio);
        cells(
            out,
            &[
                &row.what,
                &figure,
                &number(row.ours),
                &row.peer,
                &number(row.theirs),
                &ratio,
                &spread.unwrap_or_default(),
                &mark(row),
                &verdict,
            ],
        )?;
    }
    Ok(())
}

/// What is held to a mark, or was left out; of a comparison without a mark, which belongs to a sweep, its rates and what they cost; and
/// what the document's disk shows.
fn is_told(row: &Row, told: &Experiment) -> bool {
    let is_swept = |row: &Row| row.ratio.is_some() && row.figure == "requests/s" || row.figure.starts_with(OF_THE_BEST);
    let has_mark = |row: &Row| row.mark.is_some();
    let has_none = || !told.rows.iter().any(|other| other.what == row.what && has_mark(other));
    has_mark(row) || row.skipped.is_some() || row.what.starts_with(SIMULATED) || is_swept(row) && has_none()
}

fn mark(row: &Row) -> String {
    row.mark.as_deref().map_or_else(String::new, numbers::mark)
}

fn cells(out: &mut String, cells: &[&str]) -> std::fmt::Result {
    for cell in cells {
        write!(out, "| {} ", text(cell))?;
    }
    writeln!(out, "|")
}

/// Whatever stands in it, it is text, in one line, and ends no cell. What is bold here is ours.
fn text(from: &str) -> String {
    let mut out = String::with_capacity(from.len());
    let bold = from.strip_prefix("**").and_then(|rest| rest.strip_suffix("**"));
    for character in bold.unwrap_or(from).chars() {
        match character {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' => out.extend(['\\', character]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            other if other.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    if bold.is_some() { format!("**{out}**") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_report_is_markup() {
        let row = Row {
            what: "a | b\n# c <script>".into(),
            figure: "requests/s".into(),
            unit: "1/s".into(),
            ours: Some(12_345.6),
            mark: Some(">= 2".into()),
            holds: Some(false),
            ..Row::default()
        };
        let told = Experiment {
            name: "x`\n\n<script>".into(),
            rows: vec![row],
            ..Experiment::default()
        };
        let page = markdown(&Record {
            experiments: vec![told],
            ..Record::default()
        });
        assert!(page.contains("\n## x\\`  &lt;script>\n"), "{page}");
        let line = page.lines().rfind(|line| line.contains("12,350")).unwrap();
        assert!(
            line.starts_with(r"| a \| b \# c &lt;script> | requests/s | 12,350 |"),
            "{line}"
        );
        assert!(line.ends_with("| ≥\u{a0}2 | **missed** |"), "{line}");
    }

    #[test]
    fn the_page_of_results_is_that_of_the_report_beside_it() {
        let json = include_str!("../../../../docs/results/report.json");
        let kept: Record = serde_json::from_str(json).unwrap();
        assert_eq!(markdown(&kept), include_str!("../../../../docs/results.md"));
    }
}
