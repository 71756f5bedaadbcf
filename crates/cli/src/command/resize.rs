//! `baio resize`: another size for a segment, or for the volume itself.

use std::io::{self, Write};
use std::path::Path;

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_console::output::Answer;
use baio_console::target::{Target, exists_on_disk};
use baio_engine::Config;
use baio_storage::{Core, Identity, ResizeOptions, VolumeInfo};
use serde::Serialize;

use crate::command::shown::{Segment, Volume};
use crate::command::volume_args::ResizeArgs;

/// What `resize` shows: what it resized.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Resized {
    /// `resize PATH`
    Volume(Volume),
    /// `resize PATH#NAME`
    Segment(Segment),
}

/// Resizes.
pub(crate) fn run(args: ResizeArgs) -> Result<Resized, Failure> {
    let target = args.target.resolve(exists_on_disk);
    let who = Identity::effective();
    match target.map_err(|error| error.into_failure("resize"))? {
        Target::File(path) => {
            let typed = args.target.to_string();
            if args.reserve.is_some() {
                return Err(Failure::usage("resize", "a volume has no reserve")
                    .on(typed)
                    .needing("a segment, PATH#NAME, for --reserve")
                    .cured_by("leave --reserve out, or name a segment"));
            }
            let resized = resize_volume(&path, who, args.size.bytes());
            let info = resized.map_err(|error| Failure::from_storage("resize", typed, &error))?;
            Ok(Resized::Volume(info.into()))
        }
        Target::Segment { volume, owner, name } => {
            let named = NamedSegment::checked("resize", &args.target, volume, owner, name)?;
            named.look_first("resize", who)?;
            let options = ResizeOptions {
                size_bytes: args.size.bytes(),
                reserve_bytes: args.reserve.map(|size| size.bytes()),
            };
            let resized = named.with_volume("resize", |core| {
                core.resize(who, named.owner_uid(who), &named.name, &options)
            })?;
            Ok(Resized::Segment(resized.into()))
        }
    }
}

fn resize_volume(path: &Path, who: Identity, size_bytes: u64) -> baio_storage::Result<VolumeInfo> {
    let mut core = Core::open(path, &Config::default())?;
    let done = core.resize_volume(who, size_bytes);
    let closed = core.close();
    done.and(closed)?;
    // As it is now, closed, and not as it was when it had grown.
    Core::inspect_volume(path)
}

impl Answer for Resized {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Resized::Volume(volume) => volume.write_text(out),
            Resized::Segment(segment) => segment.write_text(out),
        }
    }
}
