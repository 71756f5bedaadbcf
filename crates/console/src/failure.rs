//! A failure as the user sees it: what was asked, of which object, at which offset, what the system said, what to do.
//!
//! Libraries return typed errors; a command turns one into a [`Failure`] and gives it back. It is printed once, by
//! [`Output`](crate::output::Output): on standard error for people, in three lines where that is a terminal and in one where it is a log;
//! as one object on standard output under `--json`. The codes are the errno names and `EUSAGE`, `ENOTVOLUME`, `EVERSION`, `ECORRUPT`, `EBUSY`, `EVERIFY`,
//! `EPOISONED`, `EINDETERMINATE`.

use std::fmt;
use std::io;

use anstyle::{AnsiColor, Color, Style};
use baio::{Errno, Fault};
use baio_words::TOO_LARGE_CURE;
use serde_json::{Value, json};

use crate::came::{Interrupt, came};
use crate::diagnostics;
use crate::exit_status::ExitStatus;
use crate::json::SCHEMA_VERSION;
use crate::printable::Printable;
use crate::size::with_sizes;
use crate::terminal::Terminal;

/// Begins the target of a served volume.
pub(crate) const SERVED: &str = "unix:";

/// Of the one line that says what is wrong; nothing else is loud.
const LOUD: Style = Style::new().bold().fg_color(Some(Color::Ansi(AnsiColor::Red)));

/// Why a command did not do what it was asked.
///
/// The strings are boxed slices, so that a `Result` carrying a failure stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The command at work, such as `create`; empty while no command is known.
    operation: Box<str>,
    /// The errno name, or one of the program's own codes.
    code: Box<str>,
    /// What the library or the system said.
    said: Box<str>,
    /// The target or the argument concerned, as it was typed.
    object: Option<Box<str>>,
    /// The byte of the object at which it happened.
    offset: Option<u64>,
    /// What would have been needed: an alignment, a size, a syntax.
    need: Option<Box<str>>,
    /// What to do about it.
    cure: Option<Box<str>>,
}

impl Failure {
    /// The command `operation` failed with `code`, for the reason `said`.
    pub fn new(operation: impl Into<Box<str>>, code: impl Into<Box<str>>, said: impl Into<Box<str>>) -> Failure {
        Failure {
            operation: operation.into(),
            code: code.into(),
            said: said.into(),
            object: None,
            offset: None,
            need: None,
            cure: None,
        }
    }

    /// What was typed for the command `operation` makes no sense.
    pub fn usage(operation: impl Into<Box<str>>, said: impl Into<Box<str>>) -> Failure {
        Failure::new(operation, "EUSAGE", said)
    }

    /// The system refused something to the command `operation`.
    ///
    /// An error that carries no errno came from the standard library itself and is told as `EIO`.
    pub fn from_io(operation: impl Into<Box<str>>, error: &io::Error) -> Failure {
        let code = match error.raw_os_error() {
            Some(number) => match Errno::from_raw(number).name() {
                "E?" => format!("E{number}"),
                name => name.to_owned(),
            },
            None => "EIO".to_owned(),
        };
        Failure::new(operation, code, sentence_of(error))
    }

    /// The volume refused something to the command `operation`, which was given the target `typed`.
    ///
    /// The one place where a storage error becomes a failure: code, offset, need and cure are the library's own words.
    pub fn from_storage(operation: impl Into<Box<str>>, typed: impl Into<Box<str>>, error: &baio::Error) -> Failure {
        let typed = typed.into();
        if matches!(error.fault, Fault::ServiceEnded) && typed.starts_with(SERVED) {
            return broker_ended(operation, typed, error);
        }
        let said = match &error.fault {
            // The system's word for it tells nothing without the step that it answers.
            Fault::Io(_) | Fault::RepairCut { .. } => format!("cannot {}: {}", error.operation, error.fault),
            // Each number with its unit, so that a terminal can show a size beside it.
            Fault::NoSpace {
                asked,
                free: Some(free),
                largest: Some(largest),
            } => format!(
                "no space: asked for {asked} bytes; {free} bytes are free, the longest free run has {largest} bytes"
            ),
            fault => fault.to_string(),
        };
        let mut failure = Failure::new(operation, error.code(), said).on(typed);
        failure.offset = error.offset.or(offset_of(&error.fault));
        failure.need = need_in_bytes(&error.fault)
            .or_else(|| error.need())
            .or_else(|| need_of(&error.fault))
            .map(Into::into);
        failure.cure = error.cure().or_else(|| cure_of(&error.fault)).map(Into::into);
        failure
    }

    /// The same, of another command: the one that the user has typed.
    #[must_use]
    pub fn of(mut self, operation: impl Into<Box<str>>) -> Failure {
        self.operation = operation.into();
        self
    }

    /// Names the target or argument concerned, as it was typed.
    pub fn on(mut self, object: impl Into<Box<str>>) -> Failure {
        self.object = Some(object.into());
        self
    }

    /// Names the byte of the object at which it happened.
    pub fn at(mut self, offset: u64) -> Failure {
        self.offset = Some(offset);
        self
    }

    /// Tells what would have been needed.
    pub fn needing(mut self, need: impl Into<Box<str>>) -> Failure {
        self.need = Some(need.into());
        self
    }

    /// Tells what to do about it.
    pub fn cured_by(mut self, cure: impl Into<Box<str>>) -> Failure {
        self.cure = Some(cure.into());
        self
    }

    /// Tells it on standard error.
    pub fn tell(&self) {
        let text = match Terminal::of_stderr() {
            Some(terminal) => self.in_lines(terminal.has_colour),
            None => format!("{self}\n"),
        };
        diagnostics::write(&text);
    }

    /// For a terminal: what, needed and cure in a line each, with sizes beside bytes.
    fn in_lines(&self, has_colour: bool) -> String {
        let shown = |text: &str| Printable(&with_sizes(text)).to_string();
        let what = shown(&self.message());
        let mut text = match has_colour {
            true => format!("{LOUD}baio: {what}{LOUD:#}\n"),
            false => format!("baio: {what}\n"),
        };
        for (name, part) in [("needed", &self.need), ("cure", &self.cure)] {
            if let Some(part) = part {
                text.push_str(&format!("  {:<7} {}\n", format!("{name}:"), shown(part)));
            }
        }
        text
    }

    /// What the library or the system said.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The status with which the program ends.
    ///
    /// A command that a signal has ended ends as a shell says it. Usage errors of `dd` exit with 1, because GNU dd's do and scripts know it so.
    pub fn exit_status(&self) -> ExitStatus {
        match &*self.code {
            "EUSAGE" if &*self.operation == "dd" => ExitStatus::Failed,
            "EUSAGE" => ExitStatus::Usage,
            "EINTR" => came().map_or(ExitStatus::Interrupted, Interrupt::exit_status),
            "EVERIFY" => ExitStatus::NotVerified,
            _ => ExitStatus::Failed,
        }
    }

    /// The one object that `--json` prints. All keys are always there; an unknown one is null.
    pub fn to_json(&self) -> Value {
        json!({
            "schema_version": SCHEMA_VERSION,
            "error": {
                "code": self.code,
                "object": self.object,
                "offset": self.offset,
                "need": self.need,
                "cure": self.cure,
                "message": self.message(),
            },
        })
    }

    /// What happened, without need and cure: `create vol#a at offset 4096: No space left on device`.
    fn message(&self) -> String {
        let mut message = self.operation.to_string();
        if let Some(object) = &self.object {
            if !message.is_empty() {
                message.push(' ');
            }
            message.push_str(object);
        }
        if let Some(offset) = self.offset {
            message.push_str(&format!(" at offset {offset}"));
        }
        if !message.is_empty() {
            message.push_str(": ");
        }
        message + &self.said
    }
}

/// One line, for a log.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "baio: {}", Printable(&self.message()))?;
        if let Some(need) = &self.need {
            write!(f, "; needed: {}", Printable(need))?;
        }
        if let Some(cure) = &self.cure {
            write!(f, "; cure: {}", Printable(cure))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The link to a broker has an end that is no fault of the request: whatever it did, it says so.
fn broker_ended(operation: impl Into<Box<str>>, typed: Box<str>, error: &baio::Error) -> Failure {
    let mut failure = Failure::new(operation, error.code(), "the broker has ended")
        .on(typed)
        .needing("a broker that runs")
        .cured_by("see in its log why it ended, start it again (`baio serve`), and read back what was being written");
    failure.offset = error.offset;
    failure
}

/// Where a fault that concerns the whole volume was found: in its first superblock.
fn offset_of(fault: &Fault) -> Option<u64> {
    matches!(fault, Fault::NotVolume(_) | Fault::Version(_)).then_some(0)
}

/// A need whose unit stands behind its number, so that a terminal can show a size beside it.
fn need_in_bytes(fault: &Fault) -> Option<String> {
    match fault {
        Fault::NoSpace { asked, .. } => Some(format!("{asked} bytes that are free in one run")),
        _ => None,
    }
}

/// What would have been needed, where the library leaves it open.
fn need_of(fault: &Fault) -> Option<String> {
    let need = match fault {
        Fault::Setup(error) => match error.errno {
            Errno::ENOENT => "a file or a device that exists",
            Errno::EACCES | Errno::EPERM => "the permission to open it",
            Errno::EISDIR => "a file or a device",
            Errno::EEXIST => "a file that does not exist yet",
            _ => return None,
        },
        Fault::Io(error) if error.errno() == Errno::EFBIG => "a file that may be so large, here and in this process",
        Fault::NotVolume(_) => "a baio volume",
        Fault::Version(_) => "a volume of a format that this program knows",
        Fault::Corrupt(_) => "a whole volume, of which every piece of metadata has a valid copy",
        Fault::Occupied(_) => "a file or device that holds nothing",
        Fault::Exists => "a name that is not taken",
        Fault::NotFound => "a segment that exists",
        Fault::TableFull { .. } => "a free place in the table of segments",
        Fault::BadSize(_) => "at least one byte, and no more than there is",
        _ => return None,
    };
    Some(need.to_owned())
}

/// What to do, where the library leaves it open.
fn cure_of(fault: &Fault) -> Option<String> {
    let error = match fault {
        Fault::Setup(error) => error,
        _ => return None,
    };
    let cure = match error.errno {
        Errno::EFBIG => TOO_LARGE_CURE,
        Errno::EISDIR => "name a file in it",
        Errno::EPERM => {
            "let the container have it (its list of devices), or run where nothing forbids it (a seal, an attribute, a policy)"
        }
        Errno::EBUSY => "unmount it, or stop what holds it",
        Errno::EEXIST => "name a file that does not exist yet",
        Errno::EROFS => "make the file system writable, or choose another one",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// The text of an I/O error without the `(os error 2)` that the code already tells.
fn sentence_of(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unaligned() -> Failure {
        Failure::new("dd", "EINVAL", "direct read refused")
            .on("vol#a")
            .at(513)
            .needing("an offset that is a multiple of 4096")
            .cured_by("leave out iflag=direct")
    }

    #[test]
    fn people_get_one_sentence() {
        assert_eq!(
            unaligned().to_string(),
            "baio: dd vol#a at offset 513: direct read refused; \
             needed: an offset that is a multiple of 4096; cure: leave out iflag=direct"
        );
    }

    #[test]
    fn a_terminal_gets_three_lines_with_sizes() {
        let failure = unaligned().needing("1048576 bytes\u{1b}");
        assert_eq!(
            failure.in_lines(false),
            "baio: dd vol#a at offset 513: direct read refused\n  \
             needed: 1048576 bytes (1 MiB)\\u{1b}\n  \
             cure:   leave out iflag=direct\n"
        );
        let coloured = failure.in_lines(true);
        let first = coloured.lines().next().unwrap();
        assert!(first.starts_with("\u{1b}[1m\u{1b}[31mbaio: dd") && first.ends_with("\u{1b}[0m"));
        assert_eq!(coloured.matches('\u{1b}').count(), 3, "only the first line is loud");
    }

    #[test]
    fn a_volume_without_room_tells_bytes_thrice() {
        let fault = Fault::NoSpace {
            asked: 10 << 30,
            free: Some(32 << 20),
            largest: Some(16 << 20),
        };
        let error = baio::Error::new("create", "a", fault);
        let told = Failure::from_storage("create", "vol#a", &error).in_lines(false);
        for size in ["10 GiB", "32 MiB", "16 MiB"] {
            assert!(told.contains(&format!(" bytes ({size})")), "{told}");
        }
    }

    #[test]
    fn a_broker_that_has_ended_is_named_and_a_service_is_none() {
        let error = baio::Error::new("read", "b#1/a", Fault::ServiceEnded).at(8192);
        let told = |typed: &str| Failure::from_storage("stress", typed, &error).to_string();
        assert_eq!(
            told("unix:/run/b#a"),
            "baio: stress unix:/run/b#a at offset 8192: the broker has ended; needed: a broker that runs; cure: see in its log why it \
             ended, start it again (`baio serve`), and read back what was being written"
        );
        assert!(!told("vol#a").contains("broker"));
    }

    #[test]
    fn what_a_container_forbids_has_a_cure() {
        let refused = baio::SetupError::new("open", "/dev/sda".into(), Errno::EPERM);
        let error = baio::Error::new("open", "/dev/sda", refused);
        let told = Failure::from_storage("dd", "/dev/sda", &error).to_string();
        assert!(
            told.contains("needed: the permission") && told.contains("cure: let the container have it"),
            "{told}"
        );
    }

    #[test]
    fn what_is_unknown_leaves_no_trace_in_the_sentence() {
        let failure = Failure::usage("", "unrecognized subcommand 'fromat'");
        assert_eq!(failure.to_string(), "baio: unrecognized subcommand 'fromat'");
    }

    #[test]
    fn programs_get_every_key() {
        let object = unaligned().to_json();
        assert_eq!(object["schema_version"], 1);
        assert_eq!(object["error"]["code"], "EINVAL");
        assert_eq!(object["error"]["object"], "vol#a");
        assert_eq!(object["error"]["offset"], 513);
        assert_eq!(
            object["error"]["message"],
            "dd vol#a at offset 513: direct read refused"
        );

        let bare = Failure::usage("list", "no").to_json();
        for key in ["object", "offset", "need", "cure"] {
            assert_eq!(bare["error"].get(key), Some(&Value::Null), "{key}");
        }
    }

    #[test]
    fn a_hostile_name_cannot_drive_the_terminal() {
        let failure = Failure::new("stat", "ENOENT", "no such segment").on("v#\u{1b}[2J\n");
        assert_eq!(failure.to_string(), "baio: stat v#\\u{1b}[2J\\n: no such segment");
        assert_eq!(failure.to_json()["error"]["object"], "v#\u{1b}[2J\n");
    }

    #[test]
    fn system_errors_keep_their_name_and_lose_their_number() {
        let failure = Failure::from_io("list", &io::Error::from_raw_os_error(Errno::ENOENT.raw()));
        assert_eq!(failure.to_string(), "baio: list: No such file or directory");
        assert_eq!(failure.to_json()["error"]["code"], "ENOENT");

        let foreign = Failure::from_io("list", &io::Error::other("strange"));
        assert_eq!(foreign.to_json()["error"]["code"], "EIO");
        let unnamed = Failure::from_io("list", &io::Error::from_raw_os_error(4000));
        assert_eq!(unnamed.to_json()["error"]["code"], "E4000");
    }

    #[test]
    fn the_status_follows_from_command_and_code() {
        assert_eq!(Failure::usage("list", "").exit_status(), ExitStatus::Usage);
        assert_eq!(Failure::usage("dd", "").exit_status(), ExitStatus::Failed);
        assert_eq!(unaligned().exit_status(), ExitStatus::Failed);
        let of = |operation: &str, code: &str| Failure::new(operation, code, "").exit_status();
        assert_eq!(of("stress", "EINTR"), ExitStatus::Interrupted);
        assert_eq!(of("dd", "EVERIFY"), ExitStatus::NotVerified);
        assert_eq!(of("list", "ECORRUPT"), ExitStatus::Failed);
    }
}
