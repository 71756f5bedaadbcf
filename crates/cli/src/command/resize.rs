//! `baio resize`: another size for a segment, or for the volume itself.

use std::path::Path;

use baio::{Core, Identity, Link, ResizeOptions, VolumeInfo};
use baio_console::failure::Failure;
use baio_console::named::with_volume;
use baio_console::target::Target;

use crate::command::making;
use crate::command::served::SegmentTarget;
use crate::command::shown::{Segment, Shown};
use crate::command::volume_args::ResizeArgs;

/// Resizes, and shows what it resized.
pub(crate) fn run(args: ResizeArgs) -> Result<Shown, Failure> {
    let who = Identity::effective();
    match args.target.meant("resize")? {
        Target::Served(served) if served.name.is_none() => Err(args.target.served("resize")),
        Target::Served(_) => serve(&args),
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
            Ok(Shown::Volume(info.into()))
        }
        Target::Segment(named) => {
            named.look_first("resize", who)?;
            let options = options(&args);
            let resized = named.with_volume("resize", |core| {
                let begun = core.begin_resize(who, named.owner_uid(who), &named.name, &options)?;
                making::ended(core, begun, &format!("resize {}", named.typed))
            })?;
            making::tell_rounded("resize", &named.typed, options.size_bytes, &resized);
            Ok(Shown::Segment(resized.into()))
        }
    }
}

fn options(args: &ResizeArgs) -> ResizeOptions {
    ResizeOptions {
        size_bytes: args.size.bytes(),
        reserve_bytes: args.reserve.map(|size| size.bytes()),
        // What was written there does not come back.
        grows_only: !args.shrink,
    }
}

/// A broker resizes segments; the volume itself is whoever's who has its file.
fn serve(args: &ResizeArgs) -> Result<Shown, Failure> {
    let SegmentTarget::Served(segment) = SegmentTarget::resolve("resize", &args.target)? else {
        return Err(args.target.segment_expected("resize"));
    };
    let resized = segment.ask("resize", |link| {
        link.resize_segment_of(segment.owner_uid(link), &segment.name, &options(args))
            .wait()
    })?;
    making::tell_rounded("resize", segment.typed(), args.size.bytes(), &resized);
    Ok(Shown::Segment(Segment::served(resized)))
}

fn resize_volume(path: &Path, who: Identity, size_bytes: u64) -> baio::Result<VolumeInfo> {
    with_volume(path, |core| core.resize_volume(who, size_bytes))?;
    // As it is now, closed, and not as it was when it had grown.
    Core::inspect_volume(path)
}
