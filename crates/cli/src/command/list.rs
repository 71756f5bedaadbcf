//! `baio list`: the segments of a volume that the caller may see, also while it is in use. Writes nothing.

use std::io::{self, Write};

use baio::{Core, Identity, Link};
use baio_console::failure::Failure;
use baio_console::output::Answer;
use baio_console::target::Volume;
use serde::Serialize;

use crate::command::served;
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
    let path = match args.path.volume("list")? {
        Volume::Here(path) => path,
        Volume::Served(served) => {
            let segments = served::ask("list", &served, |link| link.list().wait())?;
            return Ok(Listed {
                segments: segments.into_iter().map(Segment::served).collect(),
                torn: false,
            });
        }
    };
    let seen = Core::inspect_beside(&path, Identity::effective());
    let seen = seen.map_err(|error| Failure::from_storage("list", args.path.to_string(), &error))?;
    let (_, segments) = seen.found;
    Ok(Listed {
        segments: segments.into_iter().map(Segment::from).collect(),
        torn: seen.torn,
    })
}

impl Answer for Listed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        segment_table(&self.segments).write(out)?;
        tell_torn(self.torn, out)
    }
}
