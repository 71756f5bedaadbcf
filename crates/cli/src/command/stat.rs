//! `baio stat`: one segment, or the volume itself, also while it is in use. Writes nothing.

use baio::{Core, Identity, Link};
use baio_console::failure::Failure;
use baio_console::named::Volume as At;
use baio_console::target::Target;

use crate::command::reach::{ask, look};
use crate::command::shown::{Looked, Segment, Shown, Volume};
use crate::command::volume_args::StatArgs;

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Looked, Failure> {
    let (who, typed) = (Identity::effective(), args.target.to_string());
    match args.target.meant("stat")? {
        Target::Served(socket) => {
            let view = ask("stat", (&At::Served(socket), &typed), |reach| reach.link.info().wait())?;
            Ok(Looked::new(Shown::Volume(Volume::served(view)), false))
        }
        Target::File(path) => {
            let seen = Core::inspect_view_beside(&path, who);
            let seen = seen.map_err(|error| Failure::from_storage("stat", typed, &error))?;
            Ok(Looked::new(Shown::Volume(seen.found.into()), seen.torn))
        }
        Target::Segment(segment) => {
            let (info, torn) = match &segment.volume {
                At::Here(path) => {
                    let seen = Core::inspect_segment_beside(path, who, segment.owner_uid(who), &segment.name);
                    let seen = segment.told("stat", seen)?;
                    (seen.found, seen.torn)
                }
                served => (
                    ask("stat", (served, &typed), |reach| look(&reach.link, &segment))?,
                    false,
                ),
            };
            Ok(Looked::new(Shown::Segment(Segment::of(info, &segment.volume)), torn))
        }
    }
}
