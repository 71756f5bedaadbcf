//! `baio delete`: removes a segment.

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_storage::Identity;

use crate::command::shown::Segment;
use crate::command::volume_args::DeleteArgs;

/// Deletes, and shows what is gone.
pub(crate) fn run(args: DeleteArgs) -> Result<Segment, Failure> {
    let named = NamedSegment::resolve("delete", &args.target)?;
    let who = Identity::effective();
    named.look_first("delete", who)?;
    let deleted = named.with_volume("delete", |core| core.delete(who, named.owner_uid(who), &named.name))?;
    Ok(deleted.into())
}
