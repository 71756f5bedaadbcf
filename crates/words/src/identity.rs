//! The user who asks, an argument of every check of permissions. In a process that opens the volume itself it guards against mistakes only,
//! because whoever may open the volume's file can do anything. A broker takes it from the socket and enforces it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::codec::{record, words};

/// No group at all: the id that system calls take for none. Such is the group of a segment that uid 0 made for somebody else without naming one,
/// and of a client whose own group the broker's user namespace does not know. Nobody is in it.
pub const NO_GROUP: u32 = u32::MAX;

/// A user, as the volume sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// User id; 0 may act for everybody.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The name of the list of the other groups that it is in ([`Groups`]); 0 where it is in no other. So an identity stays as small as a few
    /// numbers.
    groups: u64,
}

/// A list of groups. It is there for as long as one of these is, and goes with the last one: an [`Identity`] only names it. Who makes identities
/// of others keeps the list for as long as anything may be asked in their names.
#[derive(Debug)]
#[must_use = "the list goes with it"]
pub struct Groups(u64);

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
        Identity { uid, gid, groups: 0 }
    }

    /// The same in these groups as well, for as long as the process lives: the list is kept for ever. [`Identity::in_groups`] is for a process
    /// that serves others.
    #[must_use]
    pub fn with_groups(self, groups: &[u32]) -> Identity {
        let groups = Groups::of(groups);
        let who = self.in_groups(&groups);
        std::mem::forget(groups);
        who
    }

    /// The same in these groups as well, for as long as the list is there. Then it is in no group at all, not even among the others: it may
    /// open what it owns, and nothing else.
    #[must_use]
    pub fn in_groups(self, groups: &Groups) -> Identity {
        Identity {
            groups: groups.0,
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
        self.listed(gid) == Some(true)
    }

    /// The same; `None` when its list has gone, so that nobody knows.
    fn listed(&self, gid: u32) -> Option<bool> {
        let is_own = self.gid == gid && gid != NO_GROUP;
        if is_own || self.groups == 0 {
            return Some(is_own);
        }
        let lists = Lists::locked();
        lists.by_name.get(&self.groups).map(|kept| kept.has(gid))
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
        let bits = match self.uid == of.owner_uid {
            true => of.mode >> 6,
            false => match self.listed(of.owner_gid) {
                Some(true) => of.mode >> 3,
                Some(false) => of.mode,
                None => 0,
            },
        };
        let wanted = match access {
            Access::Read => 0o4,
            Access::Write => 0o6,
        };
        bits & wanted == wanted
    }
}

impl Groups {
    /// The list of these, in any order. Equal lists are one.
    pub fn of(groups: &[u32]) -> Groups {
        let mut sorted = groups.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.is_empty() {
            return Groups(0);
        }
        let mut lists = Lists::locked();
        let known = lists.by_list.get(&sorted[..]).copied();
        let name = known.unwrap_or_else(|| lists.add(sorted.into()));
        lists.hold(name);
        Groups(name)
    }
}

impl Clone for Groups {
    fn clone(&self) -> Groups {
        Lists::locked().hold(self.0);
        Groups(self.0)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        Lists::locked().let_go(self.0);
    }
}

/// The lists that there are, one copy of each. A list goes with its last holder: whoever connects to a broker brings a list, as long and as
/// often as it likes.
struct Lists {
    /// The latest name. None is used twice.
    named: u64,
    by_name: BTreeMap<u64, KeptList>,
    by_list: BTreeMap<Arc<[u32]>, u64>,
}

struct KeptList {
    sorted: Arc<[u32]>,
    holders: u64,
}

impl KeptList {
    fn has(&self, gid: u32) -> bool {
        self.sorted.binary_search(&gid).is_ok()
    }
}

impl Lists {
    fn locked() -> MutexGuard<'static, Lists> {
        static LISTS: Mutex<Lists> = Mutex::new(Lists {
            named: 0,
            by_name: BTreeMap::new(),
            by_list: BTreeMap::new(),
        });
        // Nothing panics that has it, and what it has is whole.
        LISTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, sorted: Arc<[u32]>) -> u64 {
        self.named += 1;
        self.by_list.insert(Arc::clone(&sorted), self.named);
        self.by_name.insert(self.named, KeptList { sorted, holders: 0 });
        self.named
    }

    fn hold(&mut self, name: u64) {
        if let Some(kept) = self.by_name.get_mut(&name) {
            kept.holders += 1;
        }
    }

    fn let_go(&mut self, name: u64) {
        let Some(kept) = self.by_name.get_mut(&name) else {
            return;
        };
        kept.holders -= 1;
        if kept.holders > 0 {
            return;
        }
        if let Some(KeptList { sorted, .. }) = self.by_name.remove(&name) {
            self.by_list.remove(&sorted);
        }
    }
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

    /// What has no group is not for those who have none.
    #[test]
    fn nobody_is_in_no_group() {
        let none = Identity::new(1001, NO_GROUP);
        assert!(!none.is_in(NO_GROUP) && !none.may_give_to(NO_GROUP));
        let segment = Ownership {
            owner_gid: NO_GROUP,
            ..segment(0o660)
        };
        assert!(!none.may_open(segment, Access::Read));
    }

    /// Who connects again and again, each time in other groups, leaves none of them behind.
    #[test]
    fn a_list_of_groups_goes_with_its_last_holder() {
        let list = [7, 4_000_000_001, 7];
        let is_there = || Lists::locked().by_list.contains_key(&[7, 4_000_000_001][..]);
        let one = Groups::of(&list);
        let other = Groups::of(&[4_000_000_001, 7]);
        let who = Identity::new(1001, 1).in_groups(&one);
        assert_eq!(who, Identity::new(1001, 1).in_groups(&other));
        let third = one.clone();
        drop((one, other));
        assert!(is_there() && who.is_in(4_000_000_001) && who.is_in(1) && !who.is_in(8));
        drop(third);
        assert!(!is_there());
        // It is nobody's member then, and not one of the others either: a group may be denied what they may.
        assert!(!who.is_in(7) && who.is_in(1));
        let segment = Ownership {
            owner_gid: 7,
            ..segment(0o606)
        };
        assert!(!who.may_open(segment, Access::Read));
        let anew = Groups::of(&list);
        assert_ne!(who, Identity::new(1001, 1).in_groups(&anew), "a name comes once");
        let none = Groups::of(&[]);
        assert_eq!(Identity::new(1, 1).in_groups(&none), Identity::new(1, 1));
    }

    #[test]
    fn only_root_acts_for_others() {
        assert!(Identity::new(0, 0).acts_for(7));
        assert!(Identity::new(7, 0).acts_for(7));
        assert!(!Identity::new(8, 0).acts_for(7));
    }
}
