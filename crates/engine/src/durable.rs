//! What makes a durable write durable, for each file.
//!
//! A durable write asks the kernel by a flag of the request (`RWF_DSYNC`, `RWF_SYNC`; pwritev2(2)), and a block device or a
//! local file system keeps its word: the write ends when the device has it for good. Others take the flag and do not.
//! FUSE sends an asynchronous direct write to its server with the flag and without an fsync (fs/fuse/file.c), which many
//! servers overlook; a network file system may end it when the server has the bytes in memory; what lies below an overlay
//! is not known. So the flag is trusted on file systems that are known to keep it, in every caching mode and from every
//! backend. Anywhere else a durable write is a write, and behind it a sync (`Engine::go_on_as_sync`).

use std::os::fd::BorrowedFd;

use crate::device::{DurableBy, Kind};

impl DurableBy {
    /// For the files of a file system of this type (`f_type`, statfs(2)).
    #[must_use]
    pub fn on_file_system(kind: i64) -> DurableBy {
        durable_by(Kind::Regular, Some(kind & 0xffff_ffff))
    }
}

/// The number of ext2, ext3 and ext4.
pub(crate) const EXT: i64 = 0xef53;
pub(crate) const XFS: i64 = 0x5846_5342;

/// `f_type` of statfs(2) for file systems that keep the flag (`include/uapi/linux/magic.h`). Their direct writes, also the
/// asynchronous ones, end behind `generic_write_sync` (fs/iomap/direct-io.c, fs/direct-io.c) or a flush of their own
/// journal (bcachefs); their cached ones call it themselves.
const KEEPS_THE_FLAG: [i64; 5] = [
    EXT, // ext2, ext3, ext4
    XFS,
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
];

/// tmpfs and ramfs have no more durable place than memory.
pub(crate) const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Huge pages by name: memory too, but nobody writes to it by requests.
pub(crate) const HUGETLBFS: i64 = 0x9584_58f6;

/// Some that do not, or not surely, for messages.
const NAMED: [(i64, &str); 7] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x794c_7630, "overlayfs"),
];

/// The file system that an open file lies on, as statfs(2) numbers it.
pub(crate) fn file_system_of(fd: BorrowedFd<'_>) -> Option<i64> {
    let kind = rustix::fs::fstatfs(fd).ok()?.f_type;
    // A type of 32 bits, whatever the width of the field.
    Some(kind & 0xffff_ffff)
}

/// Is the flag kept? What is not known to keep it does not.
pub(crate) fn durable_by(kind: Kind, file_system: Option<i64>) -> DurableBy {
    match kind {
        // A flush or FUA by the block layer itself (block/fops.c), whatever its node lies on.
        Kind::Block => DurableBy::Flag,
        // Nothing of it is ever durable.
        Kind::Stream => DurableBy::Flag,
        // Says itself what it does.
        Kind::Foreign => DurableBy::Flag,
        Kind::Regular => {
            let keeps = |kind: i64| KEEPS_THE_FLAG.contains(&kind) || IN_MEMORY.contains(&kind);
            if file_system.is_some_and(keeps) {
                DurableBy::Flag
            } else {
                DurableBy::Sync
            }
        }
    }
}

/// What to call a file system in a message.
pub(crate) fn name_of(file_system: Option<i64>) -> String {
    let Some(kind) = file_system else {
        return "a file system that does not tell its type".into();
    };
    let known = NAMED.iter().find(|(number, _)| *number == kind);
    known.map_or_else(
        || format!("a file system of type {kind:#x}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_trusted_where_it_is_known_to_be_kept_and_nowhere_else() {
        for kind in KEEPS_THE_FLAG.into_iter().chain(IN_MEMORY) {
            assert_eq!(durable_by(Kind::Regular, Some(kind)), DurableBy::Flag, "{kind:#x}");
        }
        for (kind, name) in NAMED {
            assert_eq!(durable_by(Kind::Regular, Some(kind)), DurableBy::Sync, "{name}");
        }
        assert_eq!(durable_by(Kind::Regular, Some(0x1234)), DurableBy::Sync);
        assert_eq!(durable_by(Kind::Regular, None), DurableBy::Sync);
        // The node of a device may lie anywhere.
        assert_eq!(durable_by(Kind::Block, Some(0x6573_5546)), DurableBy::Flag);
    }

    #[test]
    fn a_file_system_without_a_name_is_told_by_its_number() {
        assert_eq!(name_of(Some(0x6573_5546)), "FUSE");
        assert_eq!(name_of(Some(0xabc)), "a file system of type 0xabc");
    }
}
