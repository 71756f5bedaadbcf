//! `baio rename`: gives a segment another name.

use baio::Link;
use baio_console::failure::Failure;
use baio_console::named::check_name;

use crate::command::reach;
use crate::command::shown::Segment;
use crate::command::volume_args::RenameArgs;

/// Renames, and shows the segment under its new name.
pub(crate) fn run(args: RenameArgs) -> Result<Segment, Failure> {
    let segment = args.target.segment("rename")?;
    // A bad name must not even raise the volume's epoch.
    check_name("rename", &args.new, &args.new)?;
    reach::change("rename", &segment, |link, owner| {
        link.rename_segment_of(owner, &segment.name, &args.new)
    })
}
