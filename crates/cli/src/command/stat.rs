//! `baio stat`: one segment, or the volume itself. Writes nothing.

use baio_console::failure::Failure;
use baio_console::named::Named;
use baio_storage::{Core, Identity};

use crate::command::shown::Shown;
use crate::command::volume_args::StatArgs;

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Shown, Failure> {
    let who = Identity::effective();
    match Named::resolve("stat", &args.target)? {
        Named::File(path) => {
            let seen = Core::inspect_view(&path, who);
            let volume = seen.map_err(|error| Failure::from_storage("stat", args.target.to_string(), &error))?;
            Ok(Shown::Volume(volume.into()))
        }
        Named::Segment(named) => {
            let seen = Core::inspect_segment(&named.volume, who, named.owner_uid(who), &named.name);
            Ok(Shown::Segment(named.told("stat", seen)?.into()))
        }
    }
}
