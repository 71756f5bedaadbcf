//! `baio log`: what a durable log holds, also while its owner writes it. Writes nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | `area.rs` | where the log lies, and reading it there |
//!
//! While an owner writes, the bytes change while they are read. A batch that was not yet written when its place was read seems
//! lost once later batches are found. So damage is reported only if a second look finds the same: by then everything that was durable at
//! the first look can be read.

mod area;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use baio::{Error, LogError, LogUsage, Lsn, Recovered};
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table};
use baio_console::size::format_size;
use baio_console::target::TypedTarget;
use baio_engine::Arena;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::command::shown::{User, uuid_text};
use area::{Area, changing};

/// For the longest batch there is, twice; touched only as it is used.
const ARENA_BYTES: usize = 64 << 20;
/// Bytes of a payload that are shown.
const PREVIEW_BYTES: usize = 48;
/// How often, and how soon again, a log is looked at in which something is wrong, each time something else.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// `baio log`
#[derive(Debug, Args)]
#[command(after_help = "\
Shows what an opening would find, and changes nothing. A log that a program has open can be shown too: there may be more by
then, and what is shown may be gone.
Exit status: 0 everything that was durable can be read; 3 something of it cannot be read any more.

Examples:
  baio latency journal --log --size 16M --runtime 1s
  baio log journal
  baio log journal --count 100 --payload text
  baio log journal --count 0 --json

Elsewhere:
  baio log /srv/vol#log --from 8192")]
pub(crate) struct LogArgs {
    /// The segment, file or device in which the log is
    #[arg(value_name = "PATH[#[UID/]NAME]")]
    target: TypedTarget,
    /// Show records from this LSN on [default: the oldest that is kept]
    #[arg(long, value_name = "LSN")]
    from: Option<u64>,
    /// Show at most so many records
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// Show the first bytes of each record
    #[arg(long, value_name = "HOW")]
    payload: Option<PayloadArg>,
}

/// How payloads are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PayloadArg {
    /// As text
    Text,
    /// In hexadecimal digits
    Hex,
}

/// What `log` shows.
#[derive(Serialize)]
pub(crate) struct Looked {
    uuid: String,
    size_bytes: u64,
    block_size: u32,
    used_bytes: u64,
    free_bytes: u64,
    epoch: u64,
    clean: bool,
    head_lsn: u64,
    durable_lsn: u64,
    /// Known ones, and those that rot has made.
    holes: Vec<Lost>,
    rot: Option<Rot>,
    records: Vec<Shown>,
    /// Of the first record behind those that are shown.
    next_lsn: Option<u64>,
    /// Where it was asked to begin.
    #[serde(skip)]
    from_lsn: u64,
    /// There only while somebody has the volume open to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<User>,
}

/// LSNs whose records are lost.
#[derive(Serialize)]
struct Lost {
    from_lsn: u64,
    to_lsn: u64,
    offset: u64,
}

/// Where an opening fails: something that was durable is not there.
#[derive(Clone, Copy, Serialize)]
struct Rot {
    lsn: u64,
    offset: u64,
}

/// A record.
#[derive(Serialize)]
struct Shown {
    lsn: u64,
    bytes: u64,
    ends_group: bool,
    /// How it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
}

/// Looks.
pub(crate) fn run(args: LogArgs) -> Result<Looked, Failure> {
    let area = Area::open(&args.target)?;
    let arena = Arena::new(ARENA_BYTES).map_err(|error| {
        let error = Error::new("start", "the arena", error);
        Failure::from_storage("log", area.typed.clone(), &error)
    })?;
    let seen = look_until_sure(&area, &arena, &args)?;
    area.check()?;
    seen.map_err(|error| refused(&area, error))
}

/// What two looks in turn agree on, or the first that finds nothing wrong.
fn look_until_sure(area: &Area, arena: &Arc<Arena>, args: &LogArgs) -> Result<Result<Looked, LogError>, Failure> {
    let mut before = None;
    for _ in 0..TRIES {
        let seen = look(area, arena, args);
        let wrong = match &seen {
            Ok(Looked { rot: None, .. }) => return Ok(seen),
            Ok(Looked { rot: Some(rot), .. }) => LogError::Rot {
                lsn: Lsn(rot.lsn),
                offset: rot.offset,
            },
            Err(error) => error.clone(),
        };
        if before.as_ref() == Some(&wrong) {
            return Ok(seen);
        }
        before = Some(wrong);
        std::thread::sleep(PAUSE);
    }
    Err(changing(&area.typed))
}

fn look(area: &Area, arena: &Arc<Arena>, args: &LogArgs) -> Result<Looked, LogError> {
    let (mut log, recovered, rot) = match area.look(arena, false) {
        Ok((log, recovered)) => (log, recovered, None),
        // What lies behind it is there all the same.
        Err(LogError::Rot { lsn: Lsn(lsn), offset }) => {
            let (log, recovered) = area.look(arena, true)?;
            (log, recovered, Some(Rot { lsn, offset }))
        }
        Err(error) => return Err(error),
    };
    let from = args.from.map_or(recovered.head, Lsn);
    let previewed = if args.payload.is_some() { PREVIEW_BYTES } else { 0 };
    let (mut records, mut next_lsn) = (Vec::new(), None);
    log.records(from, previewed, |record| {
        if records.len() as u64 == args.count {
            next_lsn = Some(record.lsn.0);
            return ControlFlow::Break(());
        }
        records.push(Shown {
            lsn: record.lsn.0,
            bytes: record.len as u64,
            ends_group: record.is_last,
            payload: args.payload.map(|how| how.preview(record.bytes)),
        });
        ControlFlow::Continue(())
    })?;
    Ok(Looked {
        records,
        next_lsn,
        from_lsn: from.0,
        rot,
        in_use: area.in_use.map(User::from),
        ..Looked::of(&log.usage(), recovered)
    })
}

fn refused(area: &Area, error: LogError) -> Failure {
    let with_size = |need: &u64| {
        format!("copy it, give the copy its size back (truncate -s {need}), and look at that; what was cut off is lost")
    };
    let (need, cure) = match &error {
        LogError::NotLog => (
            None,
            "name the file or segment of a log; one in a volume is PATH#SEGMENT".to_owned(),
        ),
        LogError::Version(_) => (
            Some("a log of a format that this program knows"),
            "use a newer baio".to_owned(),
        ),
        LogError::HeaderLost => (
            Some("one whole copy of the header"),
            "restore the log from a copy".to_owned(),
        ),
        LogError::Cut { need, .. } => (None, with_size(need)),
        LogError::Truncated { .. } => (None, "leave out --from, or name a later LSN".to_owned()),
        _ => (
            Some("a log that can be read"),
            "look again, or restore the log from a copy".to_owned(),
        ),
    };
    let error = Error::of_log("look at", area.typed.clone(), error);
    let failure = Failure::from_storage("log", area.typed.clone(), &error).cured_by(cure);
    match need {
        Some(need) => failure.needing(need),
        None => failure,
    }
}

impl PayloadArg {
    fn preview(self, bytes: &[u8]) -> String {
        let bytes = bytes.get(..PREVIEW_BYTES).unwrap_or(bytes);
        match self {
            PayloadArg::Text => String::from_utf8_lossy(bytes).into_owned(),
            PayloadArg::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl Looked {
    fn of(usage: &LogUsage, recovered: Recovered) -> Looked {
        let holes = recovered.holes.into_iter().map(|hole| Lost {
            from_lsn: hole.from.0,
            to_lsn: hole.to.0,
            offset: hole.offset,
        });
        Looked {
            uuid: uuid_text(usage.uuid),
            size_bytes: usage.size_bytes,
            block_size: usage.block_bytes,
            used_bytes: usage.used_bytes,
            free_bytes: usage.free_bytes,
            epoch: recovered.epoch,
            clean: recovered.was_clean,
            head_lsn: recovered.head.0,
            durable_lsn: recovered.end.0,
            holes: holes.collect(),
            rot: None,
            records: Vec::new(),
            next_lsn: None,
            from_lsn: 0,
            in_use: None,
        }
    }

    fn write_records(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::with_headings(&[
            ("LSN", Align::Right),
            ("BYTES", Align::Right),
            ("GROUP", Align::Left),
            ("PAYLOAD", Align::Left),
        ]);
        for record in &self.records {
            let more = if record.bytes > PREVIEW_BYTES as u64 { "..." } else { "" };
            table.row([
                record.lsn.to_string(),
                record.bytes.to_string(),
                if record.ends_group { "ends" } else { "goes on" }.to_owned(),
                record
                    .payload
                    .as_ref()
                    .map_or_else(String::new, |payload| format!("{payload}{more}")),
            ]);
        }
        table.write(out)
    }
}

impl Answer for Looked {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row(["uuid", &self.uuid]);
        table.row(["size", &format_size(self.size_bytes)]);
        table.row(["block size", &format_size(self.block_size.into())]);
        let (used, free) = (format_size(self.used_bytes), format_size(self.free_bytes));
        table.row(["used", &format!("{used}; free {free}")]);
        table.row(["epoch", &self.epoch.to_string()]);
        table.row([
            "closed cleanly",
            match (self.clean, self.rot) {
                (true, _) => "yes",
                (false, None) => "no: it is in use, or its next opening recovers it",
                (false, Some(_)) => "no, or it was damaged since",
            },
        ]);
        table.row(["head", &self.head_lsn.to_string()]);
        table.row(["durable", &self.durable_lsn.to_string()]);
        for Lost {
            from_lsn,
            to_lsn,
            offset,
        } in &self.holes
        {
            table.row([
                "hole",
                &format!("records from LSN {from_lsn} up to LSN {to_lsn} are lost; they lay from byte {offset} on"),
            ]);
        }
        if let Some(Rot { lsn, offset }) = self.rot {
            let rot =
                format!("what was durable at LSN {lsn}, byte {offset}, cannot be read: the next opening fails there");
            table.row(["rot", &rot]);
            table.row([
                "cure",
                "restore it from a copy; or let its program open it with `LogOptions::salvage`, which gives the holes up",
            ]);
        }
        if let Some(user) = self.in_use {
            table.row(["in use", &format!("the volume, by {user}")]);
        }
        table.write(out)?;
        if !self.records.is_empty() {
            writeln!(out)?;
            self.write_records(out)?;
        } else if self.next_lsn.is_none() {
            writeln!(out, "\nno record from LSN {} on", self.from_lsn)?;
        }
        if let Some(next) = self.next_lsn {
            writeln!(out, "more: --from {next}")?;
        }
        if !self.clean {
            writeln!(
                out,
                "if it is in use: what is shown may be gone already, and there may be more"
            )?;
        }
        Ok(())
    }

    /// What was durable and is lost did not verify.
    fn exit_status(&self) -> ExitStatus {
        match self.rot {
            Some(_) => ExitStatus::NotVerified,
            None => ExitStatus::Success,
        }
    }
}
