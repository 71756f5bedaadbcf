//! `baio delete`: removes a segment.

use baio::Link;
use baio_console::failure::Failure;

use crate::command::reach;
use crate::command::shown::Segment;
use crate::command::volume_args::DeleteArgs;

/// Deletes, and shows what is gone.
pub(crate) fn run(args: DeleteArgs) -> Result<Segment, Failure> {
    let segment = args.target.segment("delete")?;
    let deleted = reach::change("delete", &segment, |link, owner| {
        link.delete_segment_of(owner, &segment.name)
    })?;
    Ok(deleted.deleted())
}
