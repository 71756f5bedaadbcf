//! `baio rename`: gives a segment another name.

use baio::{Identity, Link};
use baio_console::failure::Failure;
use baio_console::named::check_name;

use crate::command::served::SegmentTarget;
use crate::command::shown::Segment;
use crate::command::volume_args::RenameArgs;

/// Renames, and shows the segment under its new name.
pub(crate) fn run(args: RenameArgs) -> Result<Segment, Failure> {
    let target = SegmentTarget::resolve("rename", &args.target)?;
    // A bad name must not even raise the volume's epoch.
    check_name("rename", &args.new, &args.new)?;
    let named = match target {
        SegmentTarget::Here(named) => named,
        SegmentTarget::Served(segment) => {
            let renamed = segment.ask("rename", |link| {
                link.rename_segment_of(segment.owner_uid(link), &segment.name, &args.new)
                    .wait()
            })?;
            return Ok(Segment::served(renamed));
        }
    };
    let who = Identity::effective();
    named.look_first("rename", who)?;
    let renamed = named.with_volume("rename", |core| {
        core.rename(who, named.owner_uid(who), &named.name, &args.new)
    })?;
    Ok(renamed.into())
}
