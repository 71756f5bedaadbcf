//! `baio delete`: removes a segment.

use baio_storage::Identity;

use crate::args::DeleteArgs;
use crate::command::named::NamedSegment;
use crate::command::shown::Segment;
use crate::failure::Failure;

/// Deletes, and shows what is gone.
pub(crate) fn run(args: DeleteArgs) -> Result<Segment, Failure> {
    let named = NamedSegment::resolve("delete", &args.target)?;
    let who = Identity::effective();
    let deleted = named.with_volume("delete", |core| core.delete(who, named.owner_uid(who), &named.name))?;
    Ok(deleted.into())
}
