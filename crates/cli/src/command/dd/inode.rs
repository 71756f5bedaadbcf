//! What tells whether two paths lead to one file or device.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Device and inode number: equal for two paths to one file.
pub(super) type Inode = (u64, u64);

/// What a path leads to; `None` where it leads nowhere. A block device is one, whichever of its nodes is named.
pub(super) fn inode_of(path: &Path) -> Option<Inode> {
    let metadata = path.metadata().ok()?;
    if metadata.file_type().is_block_device() {
        return Some((u64::MAX, metadata.rdev()));
    }
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is opened: a number that no device has will do.
    #[test]
    fn two_nodes_of_one_device_lead_to_one() {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let node = |name: &str, minor| {
            let path = dir.path().join(name);
            mknodat(CWD, &path, FileType::BlockDevice, Mode::RUSR, makedev(240, minor)).map(|()| inode_of(&path))
        };
        let (Ok(one), Ok(two), Ok(other)) = (node("one", 1), node("two", 1), node("other", 2)) else {
            return eprintln!("skipped: no device node can be made here");
        };
        assert!(one.is_some());
        assert_eq!(one, two);
        assert_ne!(one, other);
    }
}
