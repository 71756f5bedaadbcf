//! `baio defrag`: moves segments together.

use std::io::{self, Write};

use baio::{DefragReport, Link};
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table};
use baio_console::progress::Unit;
use baio_console::size::format_size;
use serde::Serialize;

use crate::command::reach::ask;
use crate::command::volume_args::DefragArgs;

/// What `defrag` shows.
#[derive(Serialize)]
pub(crate) struct Packed {
    segments_moved: u64,
    moves: u64,
    moved_bytes: u64,
    free_bytes: u64,
    largest_free_before_bytes: u64,
    largest_free_bytes: u64,
    unmoved: Vec<Unmoved>,
    /// Segments not moved that a broker has not told one by one.
    untold: u64,
}

#[derive(Serialize)]
struct Unmoved {
    name: String,
    owner_uid: u32,
    why: String,
}

/// Packs, and shows what has come of it.
pub(crate) fn run(args: DefragArgs) -> Result<Packed, Failure> {
    let volume = args.path.volume("defrag")?;
    let report = ask("defrag", (&volume, &args.path.to_string()), |reach| {
        reach.run(Unit::Things("segments"), reach.link.defrag())
    });
    report.map(Packed::from)
}

impl From<DefragReport> for Packed {
    fn from(report: DefragReport) -> Packed {
        Packed {
            segments_moved: report.moved_segments,
            moves: report.moves,
            moved_bytes: report.moved_bytes,
            free_bytes: report.free_bytes,
            largest_free_before_bytes: report.largest_free_before_bytes,
            largest_free_bytes: report.largest_free_bytes,
            unmoved: report
                .unmoved
                .into_iter()
                .map(|unmoved| Unmoved {
                    name: unmoved.name,
                    owner_uid: unmoved.owner_uid,
                    why: unmoved.why,
                })
                .collect(),
            untold: report.untold,
        }
    }
}

impl Answer for Packed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row(["segments moved", &self.segments_moved.to_string()]);
        table.row(["bytes moved", &format_size(self.moved_bytes)]);
        table.row(["free", &format_size(self.free_bytes)]);
        table.row([
            "largest free run",
            &format!(
                "{}, was {}",
                format_size(self.largest_free_bytes),
                format_size(self.largest_free_before_bytes)
            ),
        ]);
        for unmoved in &self.unmoved {
            let whose = format!("{}/{}", unmoved.owner_uid, unmoved.name);
            table.row(["not moved", &format!("{whose}: {}", unmoved.why)]);
        }
        if self.untold > 0 {
            table.row(["not moved", &format!("{} more", self.untold)]);
        }
        table.write(out)
    }
}
