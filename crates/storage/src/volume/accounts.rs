//! What each owner holds and how much it may hold: blocks and segments per uid.
//!
//! The sums are derived from the inodes, as the free set is; the limits stand in one quota record per owner. Who has none is
//! bound by the record of [`EVERYBODY_ELSE`], uid 0 excepted. Blocks count by
//! the run a segment holds, its reserve included; the second run of a segment that is being moved does not count, so an owner
//! at the limit can still be moved.

use std::collections::BTreeMap;

pub use baio_words::{Account, Limits, Usage};

use crate::segment::layout::SLOTS_PER_BUCKET;

/// The owner of the quota record that binds all who have none of their own. No user has this uid: to the system it means "no
/// change" (chown(2)).
pub const EVERYBODY_ELSE: u32 = u32::MAX;

/// Of so many segments that a volume can have, those that only uid 0 and the user that its file belongs to may make: the last
/// sixteenth, at least what one bucket of the table is for. Whatever tenants without limits do, there is room to set them.
pub(crate) fn kept_back(segments_max: u64) -> u64 {
    (segments_max / 16).max(SLOTS_PER_BUCKET as u64 / 2)
}

/// More than the owner may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// Whose limit.
    pub uid: u32,
    /// Blocks or segments?
    pub what: Limited,
    /// How many more were asked for.
    pub asked: u64,
    /// How many are held.
    pub used: u64,
    /// How many may be held.
    pub limit: u64,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Blocks.
    Blocks,
    /// Segments.
    Segments,
}

/// The accounts of all owners that hold something or are limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    of: BTreeMap<u32, Account>,
}

impl Accounts {
    /// What an owner holds, and the limits that bind it: its own, or those of everybody else.
    pub(crate) fn get(&self, uid: u32) -> Account {
        let own = self.own(uid);
        if uid == 0 || !own.limits.is_none() {
            return own;
        }
        let limits = self.own(EVERYBODY_ELSE).limits;
        Account { limits, ..own }
    }

    /// What the owner's records alone say.
    fn own(&self, uid: u32) -> Account {
        self.of.get(&uid).copied().unwrap_or_default()
    }

    /// Owners of segments that hold more than they may.
    pub(crate) fn over_quota(&self) -> u64 {
        self.of.keys().filter(|uid| self.get(**uid).is_over()).count() as u64
    }

    /// All that hold something or have a record, with what their own records say.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Account)> + '_ {
        self.of.iter().map(|(uid, account)| (*uid, *account))
    }

    /// Segments of all owners.
    pub(crate) fn segments(&self) -> u64 {
        let segments = self.of.values().map(|account| account.used.segments);
        segments.fold(0, u64::saturating_add)
    }

    /// Blocks of all owners.
    pub(crate) fn blocks(&self) -> u64 {
        let blocks = self.of.values().map(|account| account.used.blocks);
        blocks.fold(0, u64::saturating_add)
    }

    /// Charges an owner, if its limits allow.
    pub(crate) fn charge(&mut self, uid: u32, more: Usage) -> Result<(), OverQuota> {
        let Account { used, limits } = self.get(uid);
        let check = |what, asked: u64, used: u64, limit: Option<u64>| match limit {
            Some(limit) if asked > 0 && used.saturating_add(asked) > limit => Err(OverQuota {
                uid,
                what,
                asked,
                used,
                limit,
            }),
            _ => Ok(()),
        };
        check(Limited::Blocks, more.blocks, used.blocks, limits.blocks)?;
        check(Limited::Segments, more.segments, used.segments, limits.segments)?;
        self.add(uid, more);
        Ok(())
    }

    /// Charges an owner whatever its limits say: for what is there already.
    pub(crate) fn add(&mut self, uid: u32, more: Usage) {
        let used = &mut self.of.entry(uid).or_default().used;
        used.blocks = used.blocks.saturating_add(more.blocks);
        used.segments = used.segments.saturating_add(more.segments);
    }

    /// Takes a charge back.
    pub(crate) fn give_back(&mut self, uid: u32, less: Usage) {
        let used = &mut self.of.entry(uid).or_default().used;
        used.blocks = used.blocks.saturating_sub(less.blocks);
        used.segments = used.segments.saturating_sub(less.segments);
        self.forget_if_idle(uid);
    }

    pub(crate) fn set_limits(&mut self, uid: u32, limits: Limits) {
        self.of.entry(uid).or_default().limits = limits;
        self.forget_if_idle(uid);
    }

    fn forget_if_idle(&mut self, uid: u32) {
        let is_forgotten = self.own(uid).used == Usage::default() && crate::seeded_bug("idle-owners-lose-their-limits");
        if self.own(uid) == Account::default() || is_forgotten {
            self.of.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_and_name_their_figures() {
        let mut accounts = Accounts::default();
        let limits = Limits {
            blocks: Some(10),
            segments: Some(2),
        };
        accounts.set_limits(7, limits);
        let of = |blocks, segments| Usage { blocks, segments };
        assert_eq!(accounts.charge(7, of(8, 1)), Ok(()));
        let over = OverQuota {
            uid: 7,
            what: Limited::Blocks,
            asked: 3,
            used: 8,
            limit: 10,
        };
        assert_eq!(accounts.charge(7, of(3, 1)), Err(over));
        assert_eq!(accounts.get(7).used, of(8, 1), "what is refused is not charged");
        assert_eq!(accounts.charge(7, of(2, 1)), Ok(()));
        let over = accounts.charge(7, of(0, 1)).map_err(|over| over.what);
        assert_eq!(over, Err(Limited::Segments));
        assert_eq!(accounts.charge(8, of(1 << 40, 9)), Ok(()), "an owner without limits");
        assert_eq!(accounts.segments(), 11);
    }

    #[test]
    fn who_has_no_limits_is_bound_by_those_of_everybody_else() {
        let mut accounts = Accounts::default();
        let at_most = |segments| Limits {
            blocks: None,
            segments: Some(segments),
        };
        let one = Usage { blocks: 1, segments: 1 };
        accounts.set_limits(EVERYBODY_ELSE, at_most(1));
        accounts.set_limits(8, at_most(2));
        for (uid, allowed) in [(7, 1), (8, 2), (9, 1), (0, 3)] {
            let charged = (0..3).filter(|_| accounts.charge(uid, one).is_ok()).count();
            assert_eq!(charged, allowed, "uid {uid}");
        }
        assert_eq!(accounts.get(7).limits, at_most(1));
        // Its record is nobody else's: who holds nothing is forgotten, and nothing of it is written down for another.
        accounts.give_back(7, one);
        assert!(accounts.iter().all(|(uid, _)| uid != 7));
        let stored = accounts.iter().find(|(uid, _)| *uid == 9);
        assert_eq!(stored.map(|(_, account)| account.limits), Some(Limits::default()));
        accounts.add(9, one);
        assert_eq!(accounts.over_quota(), 1);
        accounts.set_limits(EVERYBODY_ELSE, Limits::default());
        assert_eq!(accounts.charge(7, Usage { blocks: 1, segments: 9 }), Ok(()));
    }

    #[test]
    fn a_limit_below_what_is_held_refuses_more_and_takes_nothing() {
        let mut accounts = Accounts::default();
        let held = Usage { blocks: 5, segments: 1 };
        accounts.add(7, held);
        let limits = Limits {
            blocks: Some(3),
            segments: None,
        };
        accounts.set_limits(7, limits);
        assert!(accounts.charge(7, Usage { blocks: 1, segments: 0 }).is_err());
        assert_eq!(accounts.get(7).used, held);
        accounts.set_limits(7, Limits::default());
        accounts.give_back(7, held);
        assert_eq!(accounts.iter().count(), 0, "an owner of nothing is forgotten");
    }
}
