//! `baio defrag`: moves segments together.

use std::io::{self, Write};
use std::path::Path;

use baio::{DefragReport, Identity, Link};
use baio_console::failure::Failure;
use baio_console::named::with_volume;
use baio_console::output::{Align, Answer, Table};
use baio_console::progress::{Progress, Unit};
use baio_console::size::format_size;
use baio_console::target::Volume;
use serde::Serialize;

use crate::command::served;
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
    let path = match args.path.volume("defrag")? {
        Volume::Here(path) => path,
        Volume::Served(served) => {
            return served::ask("defrag", &served, |link| link.defrag().wait()).map(Packed::from);
        }
    };
    let report = pack(&path).map_err(|error| Failure::from_storage("defrag", args.path.to_string(), &error))?;
    Ok(Packed::from(report))
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

fn pack(path: &Path) -> baio::Result<DefragReport> {
    let mut shown = Progress::new("defrag", Unit::Things("segments"));
    with_volume(path, |core| {
        core.defrag(Identity::effective(), &mut |progress| {
            // How many passes there will be is not known before.
            shown.say(|| {
                format!(
                    "defrag, pass {}, {} moved",
                    progress.pass,
                    format_size(progress.moved_bytes)
                )
            });
            shown.reach(progress.segments_done, progress.segments);
        })
    })
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
