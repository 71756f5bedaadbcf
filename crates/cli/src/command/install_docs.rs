//! `baio install-docs`: man pages and shell completions, laid out as distributions lay them out.
//!
//! They are made from the very definition that parses the command line, when this runs: a page cannot be older than its program.

mod completions;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use baio_console::date::date_time;
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::Answer;
use baio_console::printable::{Printable, readable};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use serde::Serialize;
use serde_json::Value;

use crate::args::{InstallDocsArgs, definition};

const PROGRAM: &str = "baio";

/// What was written.
#[derive(Serialize)]
pub(crate) struct Installed {
    files: Vec<String>,
    /// Why it ended there, if not all are; as an error object.
    first_error: Option<Value>,
}

/// Writes them all, or as far as it goes: what is there is told then, too.
pub(crate) fn run(args: InstallDocsArgs) -> Result<Installed, Failure> {
    let mut files = Vec::new();
    for (name, bytes) in pages()?.into_iter().chain(completions::scripts()) {
        let path = args.directory.join(name);
        let shown = readable(&path);
        if let Err(error) = write(&path, &bytes) {
            let failure = Failure::from_io("install-docs", &error)
                .on(shown)
                .needing("a directory in which files can be made")
                .cured_by("name another DIR, such as ~/.local, or install as root");
            if files.is_empty() {
                return Err(failure);
            }
            failure.tell();
            return Ok(Installed {
                files,
                first_error: Some(failure.to_json()["error"].take()),
            });
        }
        files.push(shown);
    }
    Ok(Installed {
        files,
        first_error: None,
    })
}

/// Writes beside it and renames: a reader sees the old page or the new one, and what a link of this name points to stays as it is.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let done = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // The failure to be told is the one that came first.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// A page of the program and one of each command.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut program = definition().disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let pages = commands.map(|command| (format!("{PROGRAM}-{}", command.get_name()), command.clone()));
    [(PROGRAM.to_owned(), program.clone())]
        .into_iter()
        .chain(pages)
        .map(|(name, command)| {
            // Writing into memory fails only if a renderer is wrong.
            let page = page(&name, command).map_err(|error| Failure::from_io("install-docs", &error))?;
            Ok((format!("share/man/man1/{name}.1"), page))
        })
        .collect()
}

fn page(name: &str, command: Command) -> io::Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string);
    let is_program = name == PROGRAM;
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if is_program {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(after) = after {
        notes(&after).to_writer(&mut page)?;
    }
    let mut others = Roff::new();
    others.control("SH", ["SEE ALSO"]);
    others.text([if is_program {
        roman("The page of each command: baio-COMMAND(1)")
    } else {
        roman("baio(1)")
    }]);
    others.to_writer(&mut page)?;
    Ok(format!("{}\n{}", title(name), tidied(&String::from_utf8_lossy(&page))).into_bytes())
}

/// The head of a page: its name, its section, its date, who is its source, and the manual.
fn title(name: &str) -> String {
    format!(
        ".TH \"{name}\" \"1\" \"{}\" \"{PROGRAM} {}\" \"{PROGRAM}\"",
        today(),
        env!("CARGO_PKG_VERSION")
    )
}

/// The day on which the pages are made; a package that is to be the same wherever it is built says it (SOURCE_DATE_EPOCH).
fn today() -> String {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = told.and_then(|told| told.parse().ok()).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    });
    let mut day = date_time(seconds);
    day.truncate("1970-01-01".len());
    day
}

/// Without breaks beside vertical space and paragraphs with nothing in them, of which `mandoc -T lint` rightly says that they do nothing.
fn tidied(page: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in page.lines() {
        // An empty line is vertical space too.
        let line = if line.is_empty() { ".sp" } else { line };
        let last = lines.last().copied().unwrap_or(".SH");
        match line {
            ".br" | ".sp" if last == ".sp" => {}
            ".PP" if last == ".PP" || last.starts_with(".SH") => {}
            ".sp" if last == ".br" => {
                lines.pop();
                lines.push(line);
            }
            line => {
                if last == ".PP" && (line.starts_with(".SH") || line == ".nf") {
                    lines.pop();
                }
                lines.push(line);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// The text below the options: sentences are filled to the width of the page, and what is indented (examples, tables) stays as it is.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_kept = false;
    roff.control("SH", ["NOTES"]);
    for line in text.lines() {
        let is_indented = line.starts_with(' ');
        if is_indented != is_kept {
            roff.control(if is_indented { "nf" } else { "fi" }, []);
            is_kept = is_indented;
        }
        match line.trim_end() {
            "" => {
                roff.control("PP", []);
            }
            // `Examples:` begins a paragraph of its own.
            heading if !is_indented && heading.ends_with(':') => {
                roff.control("PP", []);
                roff.text([bold(heading)]);
            }
            line => {
                roff.text([Inline::from(line)]);
            }
        }
    }
    if is_kept {
        roff.control("fi", []);
    }
    roff
}

impl Answer for Installed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for file in &self.files {
            writeln!(out, "{}", Printable(file))?;
        }
        Ok(())
    }

    fn exit_status(&self) -> ExitStatus {
        match self.first_error {
            None => ExitStatus::Success,
            Some(_) => ExitStatus::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_is_left_out() {
        let page = ".SH NAME\n.PP\na\n.br\n.sp\n.br\nb\n.PP\n.PP\n.nf\nc\n.fi\n.PP\n.SH NOTES\n";
        assert_eq!(tidied(page), ".SH NAME\na\n.sp\nb\n.nf\nc\n.fi\n.SH NOTES\n");
    }
}
