//! Recognising an operation that is asked for again.
//!
//! Who has lost its connection, or was restarted, does not know whether what it had asked for was done. It gives each operation a name of its
//! own, and asks again under the same one, saying so. The inode that an operation writes last carries its name, and so does the tombstone
//! that it leaves; the tombstone of a named operation stays when others of its bucket become free. So the table says of some operations that
//! they were done:
//!
//! | repeated | found | answer |
//! |---|---|---|
//! | create | a segment of that name with this id | done: the segment |
//! | create | one with another id, or none; tombstones or not | `EINDETERMINATE` |
//! | resize | a segment of that name with this id, and as long as asked for | done: the segment |
//! | resize | one with this id that is not, as a move that was cut off leaves it | `EINDETERMINATE` |
//! | resize | one with another id, or none | `EINDETERMINATE` |
//! | delete | a tombstone of that name with this id, whatever else has the name now | done: what the tombstone knows, of no size |
//! | delete | a segment with any id, a tombstone with another, or nothing | `EINDETERMINATE` |
//! | rename | a segment of the new name with this id | done: the segment |
//! | rename | a tombstone of the old name with this id, and the same segment under the new name | done: the segment as it is now |
//! | rename | a segment of the old name with any id, a tombstone with another, or nothing | `EINDETERMINATE` |
//! | change of ownership | as a rename; the key that it gives may be the one that the segment has | |
//! | any | it has no id | `EINDETERMINATE` |
//!
//! Why nothing is done when no trace is found: the next operation on a segment writes its own name over the trace, a slot that is given up may be
//! used or become free, and a name may be given again. A segment that is there may be another one than was deleted, one that is not there may have been
//! made and deleted by somebody else. The table has no memory of that, so "never done" is known of no operation. Who is told `EINDETERMINATE` looks, and
//! asks anew for what it then wants, under a new name.
//!
//! What would be refused whatever had happened (no right, a bad size, a volume that is latched or read-only) is refused as ever.
//!
//! Ids are their callers': who gives one to two operations is told that the second was done.

pub use baio_words::OperationName;

use crate::error::Fault;
use crate::segment::inode::{Inode, InodeState};
use crate::segment::name::Key;

/// What the table says of a named operation.
pub(crate) trait Traced {
    /// Was this inode written by it last?
    fn has_written(&self, inode: &Inode) -> bool;

    /// Is this the tombstone that it left of a segment with this key?
    fn has_left(&self, key: &Key, inode: &Inode) -> bool;
}

impl Traced for OperationName {
    fn has_written(&self, inode: &Inode) -> bool {
        self.id != [0; 16] && inode.operation_id == self.id
    }

    fn has_left(&self, key: &Key, inode: &Inode) -> bool {
        let is_its = inode.state == InodeState::Tombstone && self.has_written(inode);
        is_its && inode.owner_uid == key.owner_uid && inode.name == key.name
    }
}

/// Nothing says whether it was done.
pub(crate) fn unknown() -> Fault {
    Fault::Io(baio_engine::Error::Indeterminate)
}
