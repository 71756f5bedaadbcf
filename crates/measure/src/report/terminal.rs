//! A report on the terminal: on what it was taken, a table, the marks that were missed, what of the documents is shown, the verdict.
//! At most 100 columns; when a quick one has been taken at most 120 lines, so that it is read and not scrolled: an experiment has two.

use std::collections::BTreeSet;
use std::io::{self, Write};

use baio_console::output::Align;
use baio_console::printable::Printable;
use unicode_width::UnicodeWidthStr;

use crate::figures::interrupt::Interrupted;
use crate::report::record::{Experiment, Machine, Record, Row};
use crate::report::run::Taken;
use crate::report::tally::Tally;
use line::Line;

mod line;

const WIDTH: usize = 100;

/// Missed marks that are shown at most, in short.
const MISSED: usize = 16;

/// Widths of the columns; between two stands a blank.
const MAIN: [(usize, Align); 7] = [
    (30, Align::Left),
    (14, Align::Left),
    (9, Align::Right),
    (20, Align::Left),
    (6, Align::Right),
    (7, Align::Right),
    (8, Align::Left),
];
/// Of what was not compared, the reason.
const SKIPPED: [(usize, Align); 2] = [(30, Align::Left), (69, Align::Left)];
const MISSES: [(usize, Align); 6] = [
    (17, Align::Left),
    (33, Align::Left),
    (20, Align::Left),
    (6, Align::Right),
    (8, Align::Right),
    (11, Align::Left),
];
const ASKED: [(usize, Align); 5] = [
    (3, Align::Left),
    (41, Align::Left),
    (17, Align::Left),
    (20, Align::Left),
    (13, Align::Left),
];

/// How a report is shown.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    /// The command of each side too.
    pub(super) commands: bool,
}

pub(super) fn write(taken: &Taken, shown: Shown, out: &mut dyn Write) -> io::Result<()> {
    let record = &taken.record;
    tables(record, record.quick, out)?;
    if shown.commands {
        commands(record, taken.kept.is_some(), out)?;
    }
    writeln!(out)?;
    put(out, &verdict(record, taken.interrupted()))?;
    let page = taken.html.as_ref();
    let page = page.map_or_else(String::new, |path| format!(", the page in {}", path.display()));
    match &taken.unsaved {
        None => put(out, &format!("Everything is in {}{page}.", taken.json.display()))?,
        Some(failure) => put(out, &format!("NOT KEPT: {}", failure.to_string().replace('\n', " ")))?,
    }
    match &taken.kept {
        Some(dir) => put(out, &format!("The working files are in {}.", dir.display())),
        None if shown.commands => put(
            out,
            "The files that the commands name are gone: --keep leaves them, and the commands can be run again.",
        ),
        None => Ok(()),
    }
}

/// A report that was kept, in full.
pub(super) fn write_kept(record: &Record, shown: Shown, out: &mut dyn Write) -> io::Result<()> {
    tables(record, false, out)?;
    if shown.commands {
        commands(record, false, out)?;
    }
    writeln!(out)?;
    put(out, &verdict(record, None))
}

fn tables(record: &Record, in_short: bool, out: &mut dyn Write) -> io::Result<()> {
    head(record, out)?;
    body(record, in_short, out)?;
    missed(record, in_short, out)?;
    promises(record, out)
}

fn head(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let machine = &record.machine;
    let quick = if record.quick { ", quick" } else { "" };
    put(
        out,
        &format!(
            "baio {} report{quick}, {}, {:.0} s",
            record.version, record.began, record.seconds
        ),
    )?;
    for line in box_of(machine) {
        put(out, &line)?;
    }
    if !record.left_out.is_empty() {
        put(out, &record.left_out)?;
    }
    Ok(())
}

/// The machine, in a few lines; what is not known is left out.
fn box_of(machine: &Machine) -> Vec<String> {
    let some = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let named = |what: &str, value: &Option<String>| value.as_ref().map(|value| format!("{what} {value}"));
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let plural = if machine.processors == 1 { "" } else { "s" };
    let first = some(vec![
        Some(format!("Linux {}", machine.kernel)),
        Some(format!("{} processor{plural}", machine.processors)),
        (!machine.processor.is_empty()).then(|| machine.processor.clone()),
        (machine.memory_bytes > 0).then(|| format!("{gib:.1} GiB")),
        named("governor", &machine.governor),
    ]);
    let second = some(vec![
        (!machine.file_system.is_empty()).then(|| machine.file_system.clone()),
        machine.atime.clone(),
        named("on", &machine.device),
        named("scheduler", &machine.scheduler),
        machine.nr_requests.map(|number| format!("{number} requests")),
        machine.read_ahead_kb.map(|kib| format!("reads {kib} KiB ahead")),
        machine
            .rotational
            .map(|yes| if yes { "rotating" } else { "not rotating" }.to_owned()),
        machine.write_cache.clone(),
    ]);
    let (there, missing): (Vec<_>, Vec<_>) = machine.peers.iter().partition(|peer| peer.version.is_some());
    let version = |peer: &crate::report::record::Program| match &peer.version {
        Some(version) if version.starts_with(&peer.name) => version.clone(),
        Some(version) => format!("{} {version}", peer.name),
        None => peer.name.clone(),
    };
    let list = |peers: &[&crate::report::record::Program]| {
        peers.iter().map(|peer| version(peer)).collect::<Vec<_>>().join(", ")
    };
    let mut peers = format!("peers: {}", list(&there));
    if !missing.is_empty() {
        peers += &format!("; missing, so left out: {}", list(&missing));
    }
    let backend = format!("backend {}: {}", machine.backend, machine.backend_why);
    let target = machine.target.as_ref().map(|target| format!("target {target}"));
    target
        .into_iter()
        .chain([first, second, backend, peers])
        .filter(|line| !line.is_empty())
        .collect()
}

/// The table: of each experiment a heading and its figures.
fn body(record: &Record, in_short: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    row(out, &MAIN, ["", "figure", "ours", "peer", "ratio", "mark", "verdict"])?;
    let mut left_out = 0;
    for told in &record.experiments {
        let marks = Tally::of_one(told);
        let state = match told {
            told if told.has_failed() => "FAILED".to_owned(),
            told if told.has_stopped() => "interrupted".to_owned(),
            told if !told.verified => "WRONG".to_owned(),
            _ if marks.judged() > 0 => format!("{} of {}", marks.held, marks.judged()),
            _ => String::new(),
        };
        let seconds = format!("{:.1} s", told.seconds);
        row(out, &MAIN, [&told.name, "", "", &seconds, "", "", &state])?;
        let shown = shown_of(told, in_short);
        left_out += told.rows.len() - shown.len();
        for told in shown {
            let what = format!("  {}", told.what);
            if let Some(reason) = &told.skipped {
                row(out, &SKIPPED, [&what, &format!("skipped: {reason}")])?;
                continue;
            }
            let line = Line::of(told);
            let Line {
                figure,
                ours,
                peer,
                ratio,
                mark,
                verdict,
            } = &line;
            row(out, &MAIN, [&what, figure, ours, peer, ratio, mark, verdict])?;
        }
    }
    put(out, &format!("In report.json: {left_out} figures more."))
}

/// What stands on the terminal: each figure that has a mark; where none has one, the first of each comparison. In short one: a mark
/// that is missed, if any is.
fn shown_of(told: &Experiment, in_short: bool) -> Vec<&Row> {
    let rows: Vec<&Row> = told.rows.iter().filter(|row| !row.is_end()).collect();
    let marked = rows.iter().copied().filter(|row| row.mark.is_some());
    let mut shown: Vec<&Row> = marked.collect();
    if shown.is_empty() {
        shown = rows;
        shown.dedup_by(|one, before| one.what == before.what);
    }
    if in_short {
        let tells = |row: &&Row| match row.holds {
            Some(false) => 0,
            _ if row.skipped.is_none() => 1,
            _ => 2,
        };
        shown.sort_by_key(tells);
        shown.truncate(1);
    }
    shown
}

fn missed(record: &Record, in_short: bool, out: &mut dyn Write) -> io::Result<()> {
    let all = record.experiments.iter();
    let mut misses: Vec<(&Experiment, &Row)> = all
        .flat_map(|told| told.rows.iter().map(move |row| (told, row)))
        .filter(|(_, row)| row.holds == Some(false) || row.is_end())
        .collect();
    if misses.is_empty() {
        return Ok(());
    }
    // What came to no end, then what is missed by most.
    misses.sort_by(|(_, one), (_, other)| {
        let by = |row: &Row| {
            if row.is_end() {
                f64::INFINITY
            } else {
                row.short_by.unwrap_or(f64::MAX)
            }
        };
        by(other).total_cmp(&by(one))
    });
    writeln!(out, "\nMissed:")?;
    if misses.iter().any(|(_, row)| !row.is_end()) {
        row(out, &MISSES, ["experiment", "", "figure", "is", "mark", ""])?;
    }
    let most = if in_short { MISSED } else { usize::MAX };
    for (experiment, missed) in misses.iter().take(most) {
        let name = &experiment.name[..];
        if missed.is_end() {
            let why = missed.skipped.as_deref().unwrap_or_default();
            put(out, &cut(&format!("{name} {}: {why}", missed.figure), 3 * WIDTH))?;
            continue;
        }
        let line = Line::of(missed);
        let is = if missed.ratio.is_some() {
            &line.ratio
        } else {
            &line.ours
        };
        let short = missed
            .short_by
            .map_or_else(String::new, |by| format!("short {by:.0} %"));
        row(out, &MISSES, [name, &missed.what, &line.figure, is, &line.mark, &short])?;
    }
    match misses.len().saturating_sub(most) {
        0 => Ok(()),
        more => put(out, &format!("and {more} more, in report.json")),
    }
}

fn promises(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    row(
        out,
        &ASKED,
        ["", "what the documents ask for", "document", "shown by", "here"],
    )?;
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

/// The command of each side, whole: these lines may be long.
fn commands(record: &Record, kept: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nCommands{}:", if kept { "" } else { ", of files that are gone" })?;
    for experiment in &record.experiments {
        let mut said = Vec::new();
        for row in experiment.rows.iter().filter(|row| !row.command.is_empty()) {
            let peer = (!row.peers_command.is_empty()).then_some((&row.peer, &row.peers_command));
            for (name, command) in [Some((&row.what, &row.command)), peer].into_iter().flatten() {
                if !said.contains(&(&row.what, command)) {
                    said.push((&row.what, command));
                    let [of, name, command] = [&experiment.name, name, command].map(|text| Printable(text));
                    writeln!(out, "# {of}: {name}\n{command}")?;
                }
            }
        }
    }
    Ok(())
}

fn verdict(record: &Record, interrupted: Option<Interrupted>) -> String {
    let all = || record.experiments.iter();
    let count = |of: fn(&Experiment) -> bool| all().filter(|told| of(told)).count();
    let mut said = vec![Tally::of(record).said()];
    match count(Experiment::has_failed) {
        0 => {}
        1 => said.push("an experiment FAILED".into()),
        failed => said.push(format!("{failed} experiments FAILED")),
    }
    let wrong = count(|told| !told.verified && !told.has_failed());
    said.push(match wrong {
        0 => "everything that was verified is right".to_owned(),
        _ => "SOMETHING DID NOT VERIFY".to_owned(),
    });
    let rows = all().flat_map(|told| told.rows.iter().map(move |row| (&told.name, row)));
    let skipped = rows.filter(|(_, row)| row.skipped.is_some() && !row.is_end());
    let skipped: BTreeSet<_> = skipped.map(|(name, row)| (name, &row.what, &row.peer)).collect();
    match skipped.len() {
        0 => {}
        1 => said.push("one comparison could not be made here".into()),
        skipped => said.push(format!("{skipped} comparisons could not be made here")),
    }
    if !record.finished {
        said.push("it did NOT FINISH".into());
    }
    if let Some(came) = interrupted {
        said.push(format!("{came}: --resume goes on from here"));
    }
    format!("{}.", said.join("; "))
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

/// A sentence, broken between words so that it fits.
fn put(out: &mut dyn Write, sentence: &str) -> io::Result<()> {
    let sentence = Printable(sentence).to_string();
    let mut line = String::new();
    for word in sentence.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > WIDTH {
            writeln!(out, "{line}")?;
            line = "  ".into();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    writeln!(out, "{line}")
}

/// At most so many columns; what is cut off is said.
pub(super) fn cut(text: &str, width: usize) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(printable).collect();
    if text.width() <= width {
        return text;
    }
    let room = width.saturating_sub(1);
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        // Of the whole and not of each: some characters change how wide others are.
        if kept.width() > room {
            kept.pop();
            break;
        }
    }
    format!("{}…", kept.trim_end())
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
    fn a_quick_report_shows_of_each_experiment_what_tells_most() {
        let row = |what: &str, holds: Option<bool>, skipped: Option<&str>| Row {
            what: what.into(),
            mark: holds.map(|_| ">= 1".into()),
            holds,
            skipped: skipped.map(Into::into),
            ..Row::default()
        };
        let told = Experiment {
            rows: vec![
                row("no mark", None, None),
                row("holds", Some(true), None),
                row("missed", Some(false), None),
            ],
            ..Experiment::default()
        };
        let names = |told: &Experiment, quick| -> Vec<String> {
            shown_of(told, quick).iter().map(|row| row.what.clone()).collect()
        };
        assert_eq!(names(&told, true), ["missed"]);
        assert_eq!(names(&told, false), ["holds", "missed"]);
        let without = Experiment {
            rows: vec![
                row("skipped", None, Some("why")),
                row("one", None, None),
                row("one", None, None),
            ],
            ..Experiment::default()
        };
        assert_eq!(names(&without, true), ["one"]);
        assert_eq!(names(&without, false), ["skipped", "one"]);
    }

    #[test]
    fn the_page_of_results_has_the_report_beside_it() {
        let json = include_str!("../../../../docs/use/results/report.json");
        let kept: Record = serde_json::from_str(json).unwrap();
        let mut shown = Vec::new();
        write_kept(&kept, Shown { commands: false }, &mut shown).unwrap();
        let page = include_str!("../../../../docs/use/results.md");
        let block = page.split("```").nth(1).and_then(|block| block.strip_prefix("text\n"));
        assert_eq!(block, Some(&String::from_utf8(shown).unwrap()[..]));
    }

    #[test]
    fn a_sentence_of_wide_characters_is_broken_in_time() {
        let mut out = Vec::new();
        put(&mut out, &"日本語 ".repeat(60)).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.lines().all(|line| line.width() <= WIDTH), "{shown}");
    }
}
