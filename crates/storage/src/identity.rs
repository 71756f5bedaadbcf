//! Who asks. An argument of every check: embedded it guards against mistakes only, because whoever may open the volume's
//! file can do anything; a broker fills it from the socket and enforces it.

use crate::segment::inode::Inode;

/// A user, as the volume sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User id; 0 may act for everybody.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What a handle may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

impl Identity {
    /// The effective user and group of this process. Its supplementary groups are ignored: a segment of such a group takes it
    /// for one of the others.
    #[must_use]
    pub fn effective() -> Identity {
        Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// May it act for that owner: create and delete in the owner's name, list the owner's segments?
    #[must_use]
    pub fn acts_for(&self, owner_uid: u32) -> bool {
        self.uid == 0 || self.uid == owner_uid
    }

    /// May it make a segment of that group? As for files, a group that it is in; uid 0 any.
    #[must_use]
    pub fn may_give_to(&self, gid: u32) -> bool {
        self.uid == 0 || self.gid == gid
    }

    /// May it open the segment? The owner by the owner's bits of the mode, the group by the group's, others by theirs.
    #[must_use]
    pub fn may_open(&self, inode: &Inode, access: Access) -> bool {
        if self.uid == 0 {
            return true;
        }
        let bits = if self.uid == inode.owner_uid {
            inode.mode >> 6
        } else if self.gid == inode.owner_gid {
            inode.mode >> 3
        } else {
            inode.mode
        };
        let wanted = match access {
            Access::Read => 0o4,
            Access::Write => 0o6,
        };
        bits & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(mode: u32) -> Inode {
        Inode {
            owner_uid: 1000,
            owner_gid: 100,
            mode,
            ..Inode::free()
        }
    }

    #[test]
    fn the_mode_decides_as_for_files() {
        let inode = segment(0o640);
        let who = |uid, gid| Identity { uid, gid };
        assert!(who(1000, 1).may_open(&inode, Access::Write));
        assert!(who(1001, 100).may_open(&inode, Access::Read));
        assert!(!who(1001, 100).may_open(&inode, Access::Write));
        assert!(!who(1001, 1).may_open(&inode, Access::Read));
        assert!(who(0, 0).may_open(&inode, Access::Write));
    }

    #[test]
    fn only_root_acts_for_others() {
        assert!(Identity { uid: 0, gid: 0 }.acts_for(7));
        assert!(Identity { uid: 7, gid: 0 }.acts_for(7));
        assert!(!Identity { uid: 8, gid: 0 }.acts_for(7));
    }
}
