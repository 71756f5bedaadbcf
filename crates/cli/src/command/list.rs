//! `baio list`: the segments of a volume that the caller may see, also while it is in use. Writes nothing.

use std::io::{self, Write};

use baio::{Core, Identity, Link};
use baio_console::failure::Failure;
use baio_console::named::Volume;
use baio_console::output::Answer;
use baio_console::progress::Unit;
use serde::Serialize;

use crate::command::reach::ask;
use crate::command::shown::{Segment, segment_table, tell_torn};
use crate::command::volume_args::ListArgs;

/// What `list` shows.
#[derive(Serialize)]
pub(crate) struct Listed {
    segments: Vec<Segment>,
    /// There only if so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    torn: bool,
}

/// Lists.
pub(crate) fn run(args: ListArgs) -> Result<Listed, Failure> {
    let (volume, typed) = (args.path.volume("list")?, args.path.to_string());
    let (segments, torn) = match &volume {
        Volume::Served(_) => (
            ask("list", (&volume, &typed), |reach| {
                reach.run(Unit::Bytes, reach.link.list())
            })?,
            false,
        ),
        Volume::Here(path) => {
            let seen = Core::inspect_beside(path, Identity::effective());
            let seen = seen.map_err(|error| Failure::from_storage("list", typed, &error))?;
            (seen.found.1, seen.torn)
        }
    };
    let segments = segments.into_iter().map(|info| Segment::of(info, &volume));
    Ok(Listed {
        segments: segments.collect(),
        torn,
    })
}

impl Answer for Listed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        segment_table(&self.segments).write(out)?;
        tell_torn(self.torn, out)
    }
}
