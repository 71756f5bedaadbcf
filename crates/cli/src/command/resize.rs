//! `baio resize`: another size for a segment, or for the volume itself.

use std::path::Path;

use baio::{Core, EngineOptions, Identity, Link, ResizeOptions, VolumeInfo};
use baio_console::failure::Failure;
use baio_console::target::Target;

use crate::command::reach::{self, tell_rounded};
use crate::command::shown::Shown;
use crate::command::volume_args::ResizeArgs;

/// Resizes, and shows what it resized.
pub(crate) fn run(args: ResizeArgs) -> Result<Shown, Failure> {
    let size_bytes = args.size.bytes();
    match args.target.meant("resize")? {
        // A broker resizes segments; the volume itself is whoever's who has its file.
        Target::Served(_) => Err(args.target.served("resize")),
        Target::File(path) => {
            let typed = args.target.to_string();
            if args.reserve.is_some() {
                return Err(Failure::usage("resize", "a volume has no reserve")
                    .on(typed)
                    .needing("a segment, PATH#NAME, for --reserve")
                    .cured_by("leave --reserve out, or name a segment"));
            }
            let resized = resize_volume(&path, size_bytes);
            let info = resized.map_err(|error| Failure::from_storage("resize", typed, &error))?;
            Ok(Shown::Volume(info.into()))
        }
        Target::Segment(segment) => {
            let options = ResizeOptions {
                size_bytes,
                reserve_bytes: args.reserve.map(|size| size.bytes()),
                // What was written there does not come back.
                grows_only: !args.shrink,
            };
            let resized = reach::change("resize", &segment, |link, owner| {
                link.resize_segment_of(owner, &segment.name, &options)
            })?;
            tell_rounded("resize", &segment.typed, size_bytes, resized.size_bytes);
            Ok(Shown::Segment(resized))
        }
    }
}

fn resize_volume(path: &Path, size_bytes: u64) -> baio::Result<VolumeInfo> {
    let mut core = Core::open(path, &EngineOptions::default())?;
    let resized = core.resize_volume(Identity::effective(), size_bytes);
    let closed = core.close();
    resized.and(closed)?;
    // As it is now, closed, and not as it was when it had grown.
    Core::inspect_volume(path)
}
