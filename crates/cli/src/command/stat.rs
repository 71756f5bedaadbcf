//! `baio stat`: one segment, or the volume itself, also while it is in use. Writes nothing.

use baio::Link;
use baio_console::failure::Failure;
use baio_console::named::{Named, Reached};
use baio_console::target::Served;
use baio_storage::{Core, Error, Fault, Identity, SegmentInfo};

use crate::command::served;
use crate::command::shown::{Looked, Segment, Shown, Volume};
use crate::command::volume_args::StatArgs;

/// Looks.
pub(crate) fn run(args: StatArgs) -> Result<Looked, Failure> {
    let who = Identity::effective();
    let named = match Reached::resolve("stat", &args.target)? {
        Reached::Here(named) => named,
        Reached::Served(served) => return serve(&served),
    };
    match named {
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

/// A broker has no call for one segment: it is in the list of those that the caller may see.
fn serve(served: &Served) -> Result<Looked, Failure> {
    let shown = served::ask("stat", served, |link| {
        let Some(name) = &served.name else {
            return Ok(Shown::Volume(Volume::served(link.info().wait()?)));
        };
        let owner_uid = served.owner.unwrap_or(link.identity().uid);
        let is_it = |info: &SegmentInfo| info.owner_uid == owner_uid && info.name == *name;
        let found = link.list().wait()?.into_iter().find(is_it);
        let info = found.ok_or_else(|| Error::new("stat", served.typed.clone(), Fault::NotFound))?;
        Ok(Shown::Segment(Segment::served(info)))
    })?;
    Ok(Looked::new(shown, false))
}
