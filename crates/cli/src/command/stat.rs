//! `baio stat`: one segment, or the volume itself, also while it is in use. Writes nothing.

use baio_console::failure::Failure;
use baio_console::named::Named;
use baio_storage::{Core, Identity};

use crate::command::shown::{Looked, Shown};
use crate::command::volume_args::StatArgs;

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Looked, Failure> {
    let who = Identity::effective();
    match Named::resolve("stat", &args.target)? {
        Named::File(path) => {
            let seen = Core::inspect_view_beside(&path, who);
            let seen = seen.map_err(|error| Failure::from_storage("stat", args.target.to_string(), &error))?;
            Ok(Looked::new(Shown::Volume(seen.found.into()), seen.torn))
        }
        Named::Segment(named) => {
            let seen = Core::inspect_segment_beside(&named.volume, who, named.owner_uid(who), &named.name);
            let seen = named.told("stat", seen)?;
            Ok(Looked::new(Shown::Segment(seen.found.into()), seen.torn))
        }
    }
}
