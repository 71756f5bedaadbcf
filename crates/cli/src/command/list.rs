//! `baio list`: the segments of a volume that the caller may see. Writes nothing.

use std::io::{self, Write};

use baio_console::failure::Failure;
use baio_console::output::Answer;
use baio_storage::{Core, Identity};
use serde::Serialize;

use crate::command::shown::{Segment, segment_table};
use crate::command::volume_args::ListArgs;

/// What `list` shows.
#[derive(Serialize)]
pub(crate) struct Listed {
    segments: Vec<Segment>,
}

/// Lists.
pub(crate) fn run(args: ListArgs) -> Result<Listed, Failure> {
    let path = args.path.path("list")?;
    let seen = Core::inspect(&path, Identity::effective());
    let (_, segments) = seen.map_err(|error| Failure::from_storage("list", args.path.to_string(), &error))?;
    Ok(Listed {
        segments: segments.into_iter().map(Segment::from).collect(),
    })
}

impl Answer for Listed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        segment_table(&self.segments).write(out)
    }
}
