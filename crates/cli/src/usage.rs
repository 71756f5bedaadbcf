//! What the argument parser says about a command line, told as a [`Failure`] like everything else that fails.
//!
//! clap lays its errors out in paragraphs for a terminal. Here they become the fields of a failure, so that people get
//! one sentence and `--json` one object, from the same source:
//!
//! ```text
//! error: the following required arguments were not provided:     said
//!   --size <SIZE>
//!
//!   tip: a similar argument exists: '--size'                     cure
//!
//! Usage: baio create --size <SIZE> <PATH#[UID/]NAME>             need
//! ```

use std::ffi::OsString;

use baio_console::failure::Failure;
use clap::error::{ContextKind, ErrorKind};

use crate::operands;

/// The failure that a refused command line is; `typed` is all of it, the program's name first.
pub(crate) fn failure(typed: &[OsString], error: &clap::Error, is_command: fn(&str) -> bool) -> Failure {
    let command = command_of(typed, is_command);
    let help = match command.as_str() {
        "" => "baio --help".to_owned(),
        command => format!("baio {command} --help"),
    };
    if is_missing_command(error) {
        return Failure::usage("", "a command is missing").cured_by(format!("see '{help}'"));
    }
    let mut told = Told::read(&error.render().to_string());
    if command == "dd" && error.kind() == ErrorKind::UnknownArgument {
        let option = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        told.tip = Some(dd_tip(&option.unwrap_or_default()));
    }
    let cure = match told.tip {
        Some(tip) => format!("{tip}; see '{help}'"),
        None => format!("see '{help}'"),
    };
    let failure = Failure::usage(command, told.said).cured_by(cure);
    match told.usage {
        Some(usage) => failure.needing(usage),
        None => failure,
    }
}

/// What to write in place of an option: dd has operands.
fn dd_tip(option: &str) -> String {
    match option.trim_start_matches('-') {
        "progress" => "write status=progress".to_owned(),
        name if operands::is_one(name) => format!("write {name}=VALUE, without dashes"),
        _ => "operands of dd are NAME=VALUE, without dashes, as in bs=4K".to_owned(),
    }
}

/// True if `--json` was typed, also on a command line that is refused.
pub(crate) fn asks_for_json(typed: &[OsString]) -> bool {
    options(typed).any(|argument| argument == "--json")
}

/// clap would answer with the whole help text, or with a list of all commands.
fn is_missing_command(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    )
}

/// The command that was typed, if there is such a command; else nothing.
fn command_of(typed: &[OsString], is_command: fn(&str) -> bool) -> String {
    let first = options(typed).find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    let first = first.and_then(|argument| argument.to_str()).unwrap_or("");
    if is_command(first) {
        first.to_owned()
    } else {
        String::new()
    }
}

/// The arguments in which an option counts as one: those before a `--`.
fn options(typed: &[OsString]) -> impl Iterator<Item = &OsString> {
    typed.iter().skip(1).take_while(|argument| *argument != "--")
}

/// An error of clap, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    said: String,
    tip: Option<String>,
    usage: Option<String>,
}

impl Told {
    fn read(rendered: &str) -> Told {
        let mut told = Told::default();
        for (index, paragraph) in rendered.split("\n\n").map(one_line).enumerate() {
            if index == 0 {
                let said = paragraph.strip_prefix("error:").unwrap_or(&paragraph);
                told.said = said.trim().to_owned();
            } else if let Some(tip) = paragraph.strip_prefix("tip: ") {
                told.tip = Some(tip.to_owned());
            } else if let Some(usage) = paragraph.strip_prefix("Usage: ") {
                told.usage = Some(usage.to_owned());
            }
        }
        told
    }
}

fn one_line(paragraph: &str) -> String {
    let lines: Vec<&str> = paragraph.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn paragraphs_become_fields() {
        let rendered = "error: the following required arguments were not provided:\n  --size <SIZE>\n\n  \
                        tip: do\n\nUsage: baio create --size <SIZE>\n\nFor more information, try '--help'.\n";
        let told = Told::read(rendered);
        assert_eq!(
            told.said,
            "the following required arguments were not provided: --size <SIZE>"
        );
        assert_eq!(told.tip.as_deref(), Some("do"));
        assert_eq!(told.usage.as_deref(), Some("baio create --size <SIZE>"));
    }

    #[test]
    fn any_text_can_be_read() {
        assert_eq!(Told::read(""), Told::default());
        assert_eq!(Told::read("error: \n\n\n\n").said, "");
    }

    #[test]
    fn json_is_seen_wherever_an_option_may_stand() {
        assert!(asks_for_json(&typed("baio --json dd foo")));
        assert!(asks_for_json(&typed("baio dd foo --json")));
        assert!(!asks_for_json(&typed("baio dd -- --json")));
        assert!(!asks_for_json(&typed("--json")));
    }

    #[test]
    fn only_a_real_command_is_named() {
        let named = |line| command_of(&typed(line), |name| name == "dd");
        assert_eq!(named("baio --json dd foo"), "dd");
        assert_eq!(named("baio fromat dd"), "");
        assert_eq!(named("baio"), "");
    }
}
