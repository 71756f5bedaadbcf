//! `baio delete`: removes a segment.

use baio::{Identity, Link};
use baio_console::failure::Failure;

use crate::command::served::SegmentTarget;
use crate::command::shown::Segment;
use crate::command::volume_args::DeleteArgs;

/// Deletes, and shows what is gone.
pub(crate) fn run(args: DeleteArgs) -> Result<Segment, Failure> {
    let named = match SegmentTarget::resolve("delete", &args.target)? {
        SegmentTarget::Here(named) => named,
        SegmentTarget::Served(segment) => {
            let deleted = segment.ask("delete", |link| {
                link.delete_segment_of(segment.owner_uid(link), &segment.name).wait()
            })?;
            return Ok(Segment::served(deleted).deleted());
        }
    };
    let who = Identity::effective();
    named.look_first("delete", who)?;
    let deleted = named.with_volume("delete", |core| core.delete(who, named.owner_uid(who), &named.name))?;
    Ok(Segment::from(deleted).deleted())
}
