//! `baio rename`: gives a segment another name.

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_storage::segment::name::SegmentName;
use baio_storage::{Error, Identity};

use crate::command::shown::Segment;
use crate::command::volume_args::RenameArgs;

/// Renames, and shows the segment under its new name.
pub(crate) fn run(args: RenameArgs) -> Result<Segment, Failure> {
    let named = NamedSegment::resolve("rename", &args.target)?;
    // A bad name must not even raise the volume's epoch.
    SegmentName::new(&args.new).map_err(|error| {
        let error = Error::new("rename", args.new.clone(), error);
        Failure::from_storage("rename", args.new.clone(), &error)
    })?;
    let who = Identity::effective();
    named.look_first("rename", who)?;
    let renamed = named.with_volume("rename", |core| {
        core.rename(who, named.owner_uid(who), &named.name, &args.new)
    })?;
    Ok(renamed.into())
}
