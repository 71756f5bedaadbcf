//! `baio stat`: one segment, or the volume itself, also while it is in use. Writes nothing.

use baio::{Core, Identity, Link};
use baio_console::failure::Failure;
use baio_console::target::{Served, Target};

use crate::command::served;
use crate::command::shown::{Looked, Segment, Shown, Volume};
use crate::command::volume_args::StatArgs;

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Looked, Failure> {
    let who = Identity::effective();
    match args.target.meant("stat")? {
        Target::Served(served) => serve(&served),
        Target::File(path) => {
            let seen = Core::inspect_view_beside(&path, who);
            let seen = seen.map_err(|error| Failure::from_storage("stat", args.target.to_string(), &error))?;
            Ok(Looked::new(Shown::Volume(seen.found.into()), seen.torn))
        }
        Target::Segment(named) => {
            let seen = Core::inspect_segment_beside(&named.volume, who, named.owner_uid(who), &named.name);
            let seen = named.told("stat", seen)?;
            Ok(Looked::new(Shown::Segment(seen.found.into()), seen.torn))
        }
    }
}

fn serve(served: &Served) -> Result<Looked, Failure> {
    let shown = served::ask("stat", served, |link| match &served.name {
        None => Ok(Shown::Volume(Volume::served(link.info().wait()?))),
        Some(name) => served::look(link, served.owner, name).map(|info| Shown::Segment(Segment::served(info))),
    })?;
    Ok(Looked::new(shown, false))
}
