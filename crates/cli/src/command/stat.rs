//! `baio stat`: one segment, or the volume itself. Writes nothing.

use std::io::{self, Write};

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_console::output::Answer;
use baio_console::target::{Target, exists_on_disk};
use baio_storage::{Core, Identity};
use serde::Serialize;

use crate::command::shown::{Segment, Volume};
use crate::command::volume_args::StatArgs;

/// What `stat` shows: the object's keys tell which of the two it is.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Stat {
    /// `stat PATH`
    Volume(Volume),
    /// `stat PATH#NAME`
    Segment(Segment),
}

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Stat, Failure> {
    let target = args.target.resolve(exists_on_disk);
    let who = Identity::effective();
    match target.map_err(|error| error.into_failure("stat"))? {
        Target::File(path) => {
            let seen = Core::inspect_view(&path, who);
            let volume = seen.map_err(|error| Failure::from_storage("stat", args.target.to_string(), &error))?;
            Ok(Stat::Volume(volume.into()))
        }
        Target::Segment { volume, owner, name } => {
            let named = NamedSegment::checked("stat", &args.target, volume, owner, name)?;
            let seen = Core::inspect_segment(&named.volume, who, named.owner_uid(who), &named.name);
            Ok(Stat::Segment(named.told("stat", seen)?.into()))
        }
    }
}

impl Answer for Stat {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Stat::Volume(volume) => volume.write_text(out),
            Stat::Segment(segment) => segment.write_text(out),
        }
    }
}
