//! The user who asks, an argument of every check of permissions. In a process that opens the volume itself it guards against mistakes only,
//! because whoever may open the volume's file can do anything. A broker takes it from the socket and enforces it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::codec::{record, words};

/// A user, as the volume sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// User id; 0 may act for everybody.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The other groups that it is in, sorted. Each list is kept once for as long as the process lives, so that an identity
    /// stays as small as two numbers: there are as many as the system's administrator has made.
    groups: &'static [u32],
}

/// How much of a volume somebody may see, beside the segments that it may open, and take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All: uid 0, and the user that the volume's file belongs to, who can read it anyway.
    Whole,
    /// What is its own.
    Own,
}

/// What a handle may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// Whose something is, and what its mode lets others do: the bits of a file's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Its owner.
    pub owner_uid: u32,
    /// Its group.
    pub owner_gid: u32,
    /// The nine bits of the owner, the group and the others.
    pub mode: u32,
}

/// What of that is to be another; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnershipChange {
    /// Its owner; only uid 0 may give it away.
    pub owner_uid: Option<u32>,
    /// Its group: one that the owner is in; uid 0 any.
    pub owner_gid: Option<u32>,
    /// The nine bits of the owner, the group and the others.
    pub mode: Option<u32>,
}

words!(Access, "an unknown access" { 0 Read, 1 Write });
record!(OwnershipChange {
    owner_uid,
    owner_gid,
    mode
});

impl OwnershipChange {
    /// Another mode, and nothing else.
    #[must_use]
    pub fn of_mode(mode: u32) -> OwnershipChange {
        OwnershipChange {
            mode: Some(mode),
            ..OwnershipChange::default()
        }
    }

    /// Another owner, and another group where one is named.
    #[must_use]
    pub fn of_owner(owner_uid: u32, owner_gid: Option<u32>) -> OwnershipChange {
        OwnershipChange {
            owner_uid: Some(owner_uid),
            owner_gid,
            mode: None,
        }
    }
}

impl Identity {
    /// A user in one group.
    #[must_use]
    pub const fn new(uid: u32, gid: u32) -> Identity {
        Identity { uid, gid, groups: &[] }
    }

    /// The same in these groups as well.
    #[must_use]
    pub fn with_groups(self, groups: &[u32]) -> Identity {
        Identity {
            groups: kept(groups),
            ..self
        }
    }

    /// The effective user and group of this process, and its supplementary groups.
    #[must_use]
    pub fn effective() -> Identity {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Identity::new(uid.as_raw(), gid.as_raw()).with_groups(&groups)
    }

    /// Is it in that group?
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }

    /// May it act for that owner: create and delete in the owner's name, list the owner's segments?
    #[must_use]
    pub fn acts_for(&self, owner_uid: u32) -> bool {
        self.uid == 0 || self.uid == owner_uid
    }

    /// How much of a volume it may see whose file belongs to that user; `None` is nobody.
    #[must_use]
    pub fn sight(&self, file_owner: Option<u32>) -> Sight {
        match self.uid == 0 || file_owner == Some(self.uid) {
            true => Sight::Whole,
            false => Sight::Own,
        }
    }

    /// May it make a segment of that group? As for files, a group that it is in; uid 0 any.
    #[must_use]
    pub fn may_give_to(&self, gid: u32) -> bool {
        self.uid == 0 || self.is_in(gid)
    }

    /// May it open what is owned so? The owner by the owner's bits of the mode, the group by the group's, others by theirs.
    #[must_use]
    pub fn may_open(&self, of: Ownership, access: Access) -> bool {
        if self.uid == 0 {
            return true;
        }
        let bits = if self.uid == of.owner_uid {
            of.mode >> 6
        } else if self.is_in(of.owner_gid) {
            of.mode >> 3
        } else {
            of.mode
        };
        let wanted = match access {
            Access::Read => 0o4,
            Access::Write => 0o6,
        };
        bits & wanted == wanted
    }
}

/// The one copy of a list of groups.
fn kept(groups: &[u32]) -> &'static [u32] {
    static LISTS: Mutex<BTreeSet<&'static [u32]>> = Mutex::new(BTreeSet::new());
    let sorted: BTreeSet<u32> = groups.iter().copied().collect();
    let sorted: Vec<u32> = sorted.into_iter().collect();
    // A list is entered whole or not at all, whatever became of another thread.
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(list) = lists.get(&sorted[..]) {
        return list;
    }
    let list: &'static [u32] = Box::leak(sorted.into_boxed_slice());
    lists.insert(list);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(mode: u32) -> Ownership {
        Ownership {
            owner_uid: 1000,
            owner_gid: 100,
            mode,
        }
    }

    #[test]
    fn the_mode_decides_as_for_files() {
        let segment = segment(0o640);
        let who = |uid, gid| Identity::new(uid, gid);
        assert!(who(1000, 1).may_open(segment, Access::Write));
        assert!(who(1001, 100).may_open(segment, Access::Read));
        assert!(!who(1001, 100).may_open(segment, Access::Write));
        assert!(!who(1001, 1).may_open(segment, Access::Read));
        assert!(who(0, 0).may_open(segment, Access::Write));
    }

    /// As for files, the first class that fits decides: what others may, a group may be denied.
    #[test]
    fn a_supplementary_group_counts_as_the_group() {
        let member = Identity::new(1001, 1).with_groups(&[7, 100, 7]);
        assert!(!member.may_open(segment(0o604), Access::Read));
        assert!(Identity::new(1001, 1).may_open(segment(0o604), Access::Read));
        assert!(member.may_open(segment(0o640), Access::Read));
        assert!(member.may_give_to(100) && !member.may_give_to(8));
        assert_eq!(member, Identity::new(1001, 1).with_groups(&[100, 7]));
    }

    #[test]
    fn only_root_acts_for_others() {
        assert!(Identity::new(0, 0).acts_for(7));
        assert!(Identity::new(7, 0).acts_for(7));
        assert!(!Identity::new(8, 0).acts_for(7));
    }
}
