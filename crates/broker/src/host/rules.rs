//! What the administrator lets clients do at most. Rules only narrow: what they allow, the mode of a segment still decides.

use baio_words::session::Question;
use baio_words::{Access, Identity, Right};

/// Whom a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Every client.
    Everybody,
    /// This user.
    Uid(u32),
    /// Who is in this group, as main or supplementary group.
    Gid(u32),
}

/// What somebody may do at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct May {
    /// Open segments to read.
    pub read: bool,
    /// Open segments to write, where reading is allowed too.
    pub write: bool,
    /// Create, delete, resize and rename segments, change their ownership, set quotas, freeze, defragment, check.
    pub manage: bool,
}

impl May {
    /// All of it.
    pub const ALL: May = May {
        read: true,
        write: true,
        manage: true,
    };

    /// Nothing.
    pub const NOTHING: May = May {
        read: false,
        write: false,
        manage: false,
    };

    /// Does it allow all that `other` allows?
    #[must_use]
    pub fn includes(self, other: May) -> bool {
        (self.read || !other.read) && (self.write || !other.write) && (self.manage || !other.manage)
    }

    /// May a client with this ask that? What a question does beyond that, the volume decides.
    pub(super) fn ask(self, question: &Question) -> bool {
        match question.right() {
            Right::None => true,
            Right::Open(access) => self.opens(access),
            Right::Change | Right::Upkeep => self.manage,
        }
    }

    fn opens(self, access: Access) -> bool {
        self.read && (self.write || access == Access::Read)
    }
}

/// Rules in order. The first one that is for a client decides; whom none is for may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<(Whom, May)>);

impl Rules {
    /// These, in this order.
    #[must_use]
    pub fn new(rules: Vec<(Whom, May)>) -> Rules {
        Rules(rules)
    }

    /// What this client may do at most.
    #[must_use]
    pub fn of(&self, who: &Identity) -> May {
        let is_for = |whom: &Whom| match *whom {
            Whom::Everybody => true,
            Whom::Uid(uid) => who.uid == uid,
            Whom::Gid(gid) => who.is_in(gid),
        };
        let first = self.0.iter().find(|(whom, _)| is_for(whom));
        first.map_or(May::NOTHING, |(_, may)| *may)
    }
}

impl Default for Rules {
    /// Everybody may do everything that modes and quotas allow.
    fn default() -> Rules {
        Rules(vec![(Whom::Everybody, May::ALL)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: May = May {
        read: true,
        ..May::NOTHING
    };

    #[test]
    fn the_first_rule_that_is_for_somebody_decides() {
        let rules = Rules::new(vec![
            (Whom::Uid(7), May::NOTHING),
            (Whom::Gid(100), READ),
            (Whom::Uid(8), May::ALL),
        ]);
        assert_eq!(rules.of(&Identity::new(7, 100)), May::NOTHING);
        assert_eq!(rules.of(&Identity::new(9, 1).with_groups(&[100])), READ);
        assert_eq!(rules.of(&Identity::new(8, 1)), May::ALL);
        assert_eq!(rules.of(&Identity::new(8, 100)), READ);
        assert_eq!(rules.of(&Identity::new(0, 0)), May::NOTHING);
        assert_eq!(Rules::default().of(&Identity::new(5, 5)), May::ALL);
    }

    #[test]
    fn what_may_be_asked_follows() {
        let open = |access| Question::Open {
            owner_uid: 1,
            name: "a".into(),
            access,
        };
        let write = May { write: true, ..READ };
        assert!(READ.ask(&open(Access::Read)) && !READ.ask(&open(Access::Write)));
        assert!(write.ask(&open(Access::Write)) && !write.ask(&Question::Freeze));
        assert!(!write.ask(&Question::Defrag) && !write.ask(&Question::Check));
        // A handle for writing reads too.
        let only_write = May { read: false, ..write };
        assert!(!only_write.ask(&open(Access::Write)));
        assert!(May::NOTHING.ask(&Question::List) && May::ALL.ask(&Question::Freeze));
        assert!(May::ALL.includes(READ) && !READ.includes(write) && READ.includes(READ));
    }
}
