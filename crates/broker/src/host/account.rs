//! What each user holds of the broker, and how much that may be.
//!
//! Whatever a client can make the broker pay for is taken here, by a [`Charge`] that gives it back when it is dropped, and lies with what
//! is paid for: a session's place goes with its socket, the arena's bytes with the last view of the memory. So nothing is given back that
//! is not gone, and nothing is taken that is not counted. The limits are one table (`docs/inside/broker.md` has the same).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Options;

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A session, until the client's end of its socket is closed: with it go a descriptor or two, rings, and the least arena.
    Places,
    /// Bytes of arenas beyond the least, until nobody here uses the memory and its pages are given back.
    ArenaBytes,
    /// Descriptors that were sent as an answer and perhaps not received.
    Descriptors,
    /// Questions without an answer.
    Questions,
    /// Of these, changes that the core has begun.
    Changes,
    /// Opens that it has begun.
    Looks,
    /// Walks through the table that it has begun, and lists that were not read to their end.
    Walks,
}

const KINDS: usize = 7;

/// How much may be held of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) of_one: u64,
    pub(super) in_all: u64,
}

const fn limit(of_one: u64, in_all: u64) -> Limit {
    Limit { of_one, in_all }
}

const NO_LIMIT: u64 = u64::MAX;

/// One user's sums, or everybody's.
#[derive(Debug, Default)]
struct Sums([AtomicU64; KINDS]);

impl Sums {
    // Relaxed: one thread takes; who gives back from another is seen in a later round.

    fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    fn add(&self, kind: Kind, amount: u64) {
        self.0[kind as usize].fetch_add(amount, Ordering::Relaxed);
    }

    fn sub(&self, kind: Kind, amount: u64) {
        self.0[kind as usize].fetch_sub(amount, Ordering::Relaxed);
    }
}

/// What one user holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Account(Arc<Sums>);

impl Account {
    pub(super) fn held(&self, kind: Kind) -> u64 {
        self.0.of(kind)
    }

    /// Holds nothing at all?
    pub(super) fn is_empty(&self) -> bool {
        self.0.0.iter().all(|sum| sum.load(Ordering::Relaxed) == 0)
    }
}

/// Something that is held; given back by its drop.
#[derive(Debug)]
#[must_use = "it is given back at once"]
pub(super) struct Charge {
    kind: Kind,
    amount: u64,
    of_one: Arc<Sums>,
    in_all: Arc<Sums>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of_one.sub(self.kind, self.amount);
        self.in_all.sub(self.kind, self.amount);
    }
}

/// What may be held, and what is held by everybody.
#[derive(Debug)]
pub(super) struct Accounts {
    limits: [Limit; KINDS],
    /// Places that only uid 0 and the owner of the volume or of the broker may have.
    kept_places: u64,
    in_all: Arc<Sums>,
}

impl Accounts {
    /// `place_bytes`: what the least session takes.
    pub(super) fn new(options: &Options, place_bytes: u64, least_arena_bytes: u64) -> Accounts {
        let (clients, of_one) = (u64::from(options.clients_max), u64::from(options.clients_of_one_max));
        let arena = options.arena_bytes_max.next_multiple_of(least_arena_bytes);
        let wanted = clients.saturating_mul(arena - least_arena_bytes);
        let arenas = match options.memory_bytes_max {
            Some(max) => max.saturating_sub(clients.saturating_mul(place_bytes)).min(wanted),
            None => wanted,
        };
        let questions = options.questions_max.into();
        let mut limits = [limit(NO_LIMIT, NO_LIMIT); KINDS];
        let mut set = |kind: Kind, limit: Limit| limits[kind as usize] = limit;
        set(Kind::Places, limit(of_one, clients));
        set(Kind::ArenaBytes, limit(of_share(arenas, of_one, clients), arenas));
        set(Kind::Descriptors, limit(of_one, clients));
        set(Kind::Questions, limit(QUESTIONS_OF_ONE.max(questions), NO_LIMIT));
        set(Kind::Changes, limit(CHANGES_OF_ONE, CHANGES_IN_ALL));
        set(Kind::Looks, limit(LOOKS_OF_ONE, LOOKS_IN_ALL));
        // Not in all: who does not read its lists would keep everybody from theirs.
        set(Kind::Walks, limit(WALKS_OF_ONE, NO_LIMIT));
        Accounts {
            limits,
            kept_places: (clients / 4).min(PLACES_KEPT),
            in_all: Arc::default(),
        }
    }

    pub(super) fn limit(&self, kind: Kind) -> Limit {
        self.limits[kind as usize]
    }

    /// Places that there are for this one: for uid 0 and the owner all.
    pub(super) fn places(&self, is_owner: bool) -> u64 {
        self.limit(Kind::Places).in_all - if is_owner { 0 } else { self.kept_places }
    }

    /// Are all places taken, the kept ones too?
    pub(super) fn is_full(&self) -> bool {
        self.in_all.of(Kind::Places) >= self.limit(Kind::Places).in_all
    }

    pub(super) fn held_in_all(&self, kind: Kind) -> u64 {
        self.in_all.of(kind)
    }

    /// How much more this user may take of it.
    pub(super) fn left(&self, account: &Account, kind: Kind) -> u64 {
        let limit = self.limit(kind);
        let of_one = limit.of_one.saturating_sub(account.held(kind));
        // A few are kept for those who have none: others who have many do not keep them out.
        let kept = match kind {
            Kind::Changes | Kind::Looks if account.held(kind) == 0 => FIRSTS_KEPT,
            _ => 0,
        };
        let held = self.in_all.of(kind);
        let first = limit.in_all.saturating_add(kept).saturating_sub(held).min(1);
        of_one.min(limit.in_all.saturating_sub(held).max(first))
    }

    /// Takes so much, if the user may have it.
    pub(super) fn take(&self, account: &Account, kind: Kind, amount: u64) -> Option<Charge> {
        (self.left(account, kind) >= amount).then(|| {
            account.0.add(kind, amount);
            self.in_all.add(kind, amount);
            Charge {
                kind,
                amount,
                of_one: Arc::clone(&account.0),
                in_all: Arc::clone(&self.in_all),
            }
        })
    }
}

/// One user's part of what `clients` places have.
fn of_share(all: u64, of_one: u64, clients: u64) -> u64 {
    let part = u128::from(all) * u128::from(of_one) / u128::from(clients.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

const QUESTIONS_OF_ONE: u64 = 1024;
/// Each may have a request in the slots that the engine keeps for operations; 64 of them, if nothing else is said.
const CHANGES_OF_ONE: u64 = 8;
const CHANGES_IN_ALL: u64 = 32;
const LOOKS_OF_ONE: u64 = 32;
const LOOKS_IN_ALL: u64 = 256;
/// Beyond all others, of changes and of looks: for users who have none, one each. Those of changes have slots still.
const FIRSTS_KEPT: u64 = 16;
const WALKS_OF_ONE: u64 = 2;
/// At most; no more than a quarter of all.
const PLACES_KEPT: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(memory_bytes_max: Option<u64>) -> Accounts {
        let options = Options {
            clients_max: 100,
            clients_of_one_max: 50,
            arena_bytes_max: 4 << 20,
            memory_bytes_max,
            ..Options::default()
        };
        Accounts::new(&options, 300 << 10, 256 << 10)
    }

    #[test]
    fn what_is_taken_comes_back_when_its_charge_goes() {
        let accounts = accounts(None);
        let (one, other) = (Account::default(), Account::default());
        for kind in [
            Kind::Places,
            Kind::ArenaBytes,
            Kind::Descriptors,
            Kind::Questions,
            Kind::Changes,
            Kind::Looks,
            Kind::Walks,
        ] {
            let most = accounts.limit(kind).of_one;
            let charge = accounts.take(&one, kind, most).expect("all that one may have");
            assert!(accounts.take(&one, kind, 1).is_none(), "{kind:?} beyond its limit");
            assert!(accounts.take(&other, kind, 1).is_some(), "{kind:?} of another");
            assert_eq!((one.held(kind), accounts.held_in_all(kind)), (most, most));
            drop(charge);
            assert!(one.is_empty() && accounts.held_in_all(kind) == 0);
        }
    }

    /// Who has none gets one, though others have all there are; as many as are kept, and no second one.
    #[test]
    fn some_firsts_are_kept() {
        let accounts = accounts(None);
        for kind in [Kind::Changes, Kind::Looks] {
            let limit = accounts.limit(kind);
            let many: Vec<_> = (0..limit.in_all / limit.of_one)
                .map(|_| {
                    let account = Account::default();
                    (accounts.take(&account, kind, limit.of_one).unwrap(), account)
                })
                .collect();
            let few: Vec<_> = (0..FIRSTS_KEPT)
                .map(|_| {
                    let account = Account::default();
                    let first = accounts.take(&account, kind, 1).expect("its first");
                    assert!(accounts.take(&account, kind, 1).is_none(), "a second of {kind:?}");
                    (first, account)
                })
                .collect();
            assert!(accounts.take(&Account::default(), kind, 1).is_none());
            drop((many, few));
            assert_eq!(accounts.held_in_all(kind), 0);
        }
    }

    /// Whatever the users are, all of them together hold no more than this.
    #[test]
    fn memory_is_bounded_in_all() {
        let small = accounts(Some(64 << 20));
        let arenas = small.limit(Kind::ArenaBytes);
        assert_eq!(100 * (300 << 10) + arenas.in_all, 64 << 20);
        assert_eq!(arenas.of_one, arenas.in_all / 2);
        let none = accounts(Some(1 << 20));
        assert_eq!(
            none.limit(Kind::ArenaBytes).in_all,
            0,
            "each has the least, and no more"
        );
        let all = accounts(None).limit(Kind::ArenaBytes).in_all;
        assert_eq!(all, 100 * ((4 << 20) - (256 << 10)));
    }

    #[test]
    fn some_places_are_kept() {
        let accounts = accounts(None);
        assert_eq!((accounts.places(true), accounts.places(false)), (100, 92));
    }
}
