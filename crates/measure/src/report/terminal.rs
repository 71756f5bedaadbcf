//! A report on the terminal: the machine and its disk in figures with advice, how often ours was faster or slower than the others, and what
//! failed. At most 80 columns and 60 lines, so that it is read and not scrolled. `--marks` adds what is for the project (`project.rs`).

use std::collections::BTreeSet;
use std::io::{self, Write};

use baio_console::interrupt::Interrupt;
use baio_console::output::{Align, Table, Tone, wrapped};
use baio_console::printable::Printable;
use unicode_width::UnicodeWidthStr;

use crate::disk;
use crate::report::beside::{Beside, how_slow, losses};
use crate::report::machine::rotational;
use crate::report::numbers::duration;
use crate::report::record::{Experiment, Machine, Program, Record};
use crate::report::run::Taken;

mod line;
mod project;

const WIDTH: usize = 80;

/// Comparisons that we lose, and experiments that came to no end, which are shown at most.
const WORST: usize = 6;

/// Headings, which are loud.
const DISK: &str = "This disk:";
const ADVICE: &str = "What follows:";
const BESIDE: &str = "baio beside";
const SLOWER: &str = "Where baio is slower:";

/// How a report is shown.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    /// The marks of the project, and what the documents ask for.
    pub(super) marks: bool,
    /// The command of each side too.
    pub(super) commands: bool,
}

pub(super) fn write(taken: &Taken, shown: Shown, out: &mut dyn Write) -> io::Result<()> {
    let record = &taken.record;
    tables(record, shown, taken.kept.is_some(), out)?;
    worst(record, taken.interrupted(), out)?;
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

/// A report that was kept.
pub(super) fn write_kept(record: &Record, shown: Shown, out: &mut dyn Write) -> io::Result<()> {
    tables(record, shown, false, out)?;
    worst(record, None, out)
}

fn tables(record: &Record, shown: Shown, kept: bool, out: &mut dyn Write) -> io::Result<()> {
    if shown.commands {
        commands(record, kept, out)?;
    }
    if shown.marks {
        project::write(record, out)?;
    }
    head(record, out)?;
    this_disk(record, out)?;
    beside(record, out)
}

/// How loud a line of it is.
pub(super) fn tone(line: &str) -> Tone {
    let is = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let is_heading = [DISK, ADVICE, BESIDE, SLOWER, project::HEADING];
    match line {
        _ if is_heading.iter().any(|heading| line.starts_with(heading)) => Tone::Heading,
        _ if is(&["FAILED", "NOT KEPT", "NOT FINISH", "NOT VERIFY"]) => Tone::Bad,
        _ if line.ends_with(line::MISSED) => Tone::Bad,
        _ => Tone::Plain,
    }
}

fn head(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let quick = if record.quick { "quick report" } else { "report" };
    let (version, began) = (&record.version, &record.began);
    let took = duration(record.seconds);
    put(out, &format!("baio {version}, {quick} of {began}, {took}"))?;
    for line in box_of(&record.machine) {
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
        rotational(machine).map(str::to_owned),
        named("scheduler", &machine.scheduler),
        machine
            .nr_requests
            .map(|number| format!("a queue of {number} requests")),
        machine.read_ahead_kb.map(|kib| format!("read-ahead of {kib} KiB")),
        machine.write_cache.as_ref().map(|cache| format!("{cache} cache")),
    ]);
    let backend = format!("backend {}: {}", machine.backend, machine.backend_why);
    let target = machine.target.as_ref().map(|target| format!("target {target}"));
    target
        .into_iter()
        .chain([first, second, backend, peers(machine)])
        .filter(|line| !line.is_empty())
        .collect()
}

fn peers(machine: &Machine) -> String {
    let (there, missing): (Vec<_>, Vec<_>) = machine.peers.iter().partition(|peer| peer.version.is_some());
    let version = |peer: &&Program| match &peer.version {
        Some(version) if version.starts_with(&peer.name) => version.clone(),
        Some(version) => format!("{} {version}", peer.name),
        None => peer.name.clone(),
    };
    let list = |peers: &[&Program]| peers.iter().map(version).collect::<Vec<_>>().join(", ");
    match &missing[..] {
        [] => format!("peers: {}", list(&there)),
        missing => format!("peers: {}; missing, so left out: {}", list(&there), list(missing)),
    }
}

fn this_disk(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let figures = record.disk();
    if figures.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{DISK}")?;
    disk::table(figures).write(out)?;
    let advice = disk::advice(figures);
    if !advice.is_empty() {
        writeln!(out, "\n{ADVICE}")?;
    }
    advice
        .iter()
        .try_for_each(|sentence| put(out, &format!("- {sentence}")))
}

/// Three counts for each kind of peers; then where we lose most.
fn beside(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let all = Beside::all(record);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let right = |heading| (heading, Align::Right);
    let mut table = Table::with_headings(&[
        (BESIDE, Align::Left),
        right("faster"),
        right("same"),
        right("slower"),
        right("CPU: less"),
        right("same"),
        right("more"),
    ]);
    for one in all.iter().filter(|one| one.speed.all() > 0) {
        let counts =
            [&one.speed, &one.cpu].map(|of| [of.better.len(), of.same.len(), of.worse.len()].map(|n| n.to_string()));
        let cells = std::iter::once(format!("  {}", one.peers)).chain(counts.into_iter().flatten());
        table.row(cells);
    }
    table.write(out)?;
    let once: usize = all.iter().map(|one| one.speed.once).sum();
    if once > 0 {
        put(
            out,
            &format!("  {once} more comparisons ran once, too little to judge: run without --quick."),
        )?;
    }
    let worst = losses(&all);
    if worst.is_empty() {
        return Ok(());
    }
    writeln!(out, "{SLOWER}")?;
    for one in worst.iter().take(WORST) {
        let line = format!("  {}: {}, {}", how_slow(one.row), one.name, one.row.what);
        writeln!(out, "{}", cut(&line, WIDTH))?;
    }
    match worst.len().saturating_sub(WORST) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more, on the page"),
    }
}

/// What did not end well, and the verdict.
fn worst(record: &Record, interrupted: Option<Interrupt>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    for end in record.rows().filter(|found| found.row.is_end()).take(WORST) {
        let state = match record.experiments[end.experiment].has_failed() {
            true => "FAILED",
            false => "was interrupted",
        };
        let why = end.row.skipped.as_deref().unwrap_or_default();
        // Two lines of whole words: all of this must leave room on the first screen.
        put(out, &cut(&format!("{} {state}: {why}", end.name), 2 * WIDTH - 20))?;
    }
    put(out, &verdict(record, interrupted))
}

/// The command of each side, whole: these lines may be long.
fn commands(record: &Record, kept: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Commands{}:", if kept { "" } else { ", of files that are gone" })?;
    for experiment in &record.experiments {
        let mut said = Vec::new();
        let rows = experiment
            .rows
            .iter()
            .flat_map(|row| [(&row.what, &row.command), (&row.peer, &row.peers_command)]);
        let disk = experiment.disk.iter().map(|figure| (&figure.what, &figure.command));
        for (name, command) in rows.chain(disk).filter(|(_, command)| !command.is_empty()) {
            if !said.contains(&command) {
                said.push(command);
                let [of, name, command] = [&experiment.name, name, command].map(|text| Printable(text));
                writeln!(out, "# {of}: {name}\n{command}")?;
            }
        }
    }
    writeln!(out)
}

fn verdict(record: &Record, interrupted: Option<Interrupt>) -> String {
    let all = || record.experiments.iter();
    let count = |of: fn(&Experiment) -> bool| all().filter(|told| of(told)).count();
    let mut said = Vec::new();
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
    let skipped = record
        .rows()
        .filter(|one| one.row.skipped.is_some() && !one.row.is_end());
    let skipped: BTreeSet<_> = skipped.map(|one| (one.name, &one.row.what, &one.row.peer)).collect();
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
    let said = said.join("; ");
    let mut letters = said.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let said: String = first.into_iter().chain(letters).collect();
    format!("{said}. --marks shows what the project asks of itself.")
}

fn put(out: &mut dyn Write, sentence: &str) -> io::Result<()> {
    writeln!(out, "{}", wrapped(&Printable(sentence).to_string()))
}

/// At most so many columns; what is cut off is said.
fn cut(text: &str, width: usize) -> String {
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
    use crate::report::record::Row;

    fn shown(record: &Record, marks: bool) -> String {
        let mut shown = Vec::new();
        let how = Shown { marks, commands: false };
        write_kept(record, how, &mut shown).unwrap();
        String::from_utf8(shown).unwrap()
    }

    fn results() -> Record {
        serde_json::from_str(include_str!("../../../../docs/use/results/report.json")).unwrap()
    }

    #[test]
    fn the_page_of_results_has_the_report_beside_it() {
        let page = include_str!("../../../../docs/use/results.md");
        let block = page.split("```").nth(1).and_then(|block| block.strip_prefix("text\n"));
        assert_eq!(block, Some(&shown(&results(), false)[..]));
    }

    /// Whatever names and reasons there are.
    #[test]
    fn a_first_screen_has_sixty_lines_of_eighty_columns() {
        let mut record = results();
        record.left_out = "left out, because they write: ".to_owned() + &"one-of-them, ".repeat(20);
        for told in &mut record.experiments {
            for row in &mut told.rows {
                (row.spread, row.ratio) = (Some([0.4, 0.41]), row.ratio.map(|_| 0.4));
                row.what = "日本語 ".repeat(60);
            }
            told.rows.push(Row {
                figure: crate::report::record::FAILED.into(),
                skipped: Some("no luck, as it goes, ".repeat(30)),
                ..Row::default()
            });
        }
        let told = shown(&record, false);
        assert!(told.lines().all(|line| line.width() <= WIDTH), "{told}");
        assert!(told.lines().count() <= 60, "{told}");
        let first = told.lines().next().unwrap();
        assert!(
            first.starts_with("baio ") && told.contains("\nLinux "),
            "the machine stands first: {told}"
        );
        let loud: Vec<&str> = told.lines().filter(|line| tone(line) == Tone::Bad).collect();
        assert!(
            loud.len() > WORST && loud.iter().all(|line| line.contains("FAILED")),
            "{loud:?}"
        );
        assert!(told.find(SLOWER) < told.find("FAILED"), "what is wrong stands last");
    }

    #[test]
    fn all_of_a_report_fits_eighty_columns() {
        let told = shown(&results(), true);
        assert!(told.lines().all(|line| line.width() <= WIDTH), "{told}");
    }
}
