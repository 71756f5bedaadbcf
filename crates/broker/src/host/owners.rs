//! The users of a broker: what each has under way and may start, what it holds, and its counters.
//!
//! `deal.rs` says how a round is shared between users, `account.rs` how much each may hold. A request that may not start yet waits in its
//! session, in order.

use std::time::Duration;

use baio_engine::{Histogram, Time};
use baio_words::entry::Completion;
use baio_words::session::OwnerStatus;

use super::account::Account;
use super::deal::{self, Hand};
use crate::seat::{Done, Ration};

/// Who has had a request so lately shares still: a client that is just about to send its next ones does not find the device full of another's.
const LATELY: Duration = Duration::from_millis(20);
/// Users whose figures are kept when they have left.
const REMEMBERED: usize = 256;

/// One user.
#[derive(Debug, Default)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) sessions: u32,
    /// What it holds, that of sessions included which have ended and are not gone.
    pub(super) account: Account,
    /// Started, and the device is not done with them, over all its sessions, those that have gone included; and their bytes.
    running: u32,
    running_bytes: i64,
    /// Waits in its sessions.
    pub(super) held: u32,
    /// When it had a request last.
    wanted_at: Option<Time>,
    /// What may still be taken and started in this round.
    pub(super) ration: Ration,
    /// What else it may have in this round.
    pub(super) hand: Hand,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    errors: u64,
    pub(super) violations: u64,
    latency: Lately,
}

/// All of them, by place; a place is kept while its user has a session.
#[derive(Debug, Default)]
pub(super) struct Owners {
    places: Vec<Owner>,
}

impl Owners {
    /// The place of a user, who has one session more.
    pub(super) fn enter(&mut self, uid: u32) -> usize {
        let known = self.places.iter().position(|owner| owner.uid == uid);
        let at = known.unwrap_or_else(|| {
            let mut owner = Owner {
                uid,
                ..Owner::default()
            };
            owner.hand.deal();
            let left = self.places.iter().position(Owner::has_left);
            match left.filter(|_| self.places.len() >= REMEMBERED) {
                Some(at) => {
                    self.places[at] = owner;
                    at
                }
                None => {
                    self.places.push(owner);
                    self.places.len() - 1
                }
            }
        });
        self.places[at].sessions += 1;
        at
    }

    /// A session of the user has gone.
    pub(super) fn leave(&mut self, at: usize) {
        self.places[at].sessions -= 1;
    }

    pub(super) fn at(&mut self, at: usize) -> &mut Owner {
        &mut self.places[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Owner> {
        self.places.iter()
    }

    /// Deals out what each may take and start in this round.
    pub(super) fn deal(&mut self, now: Time) {
        let mut wanting = 0;
        for owner in &mut self.places {
            if owner.running + owner.held > 0 {
                owner.wanted_at = Some(now);
            }
            wanting += u32::from(owner.wanted_at.is_some_and(|at| now < at.after(LATELY)));
        }
        let share = deal::share(wanting);
        for owner in &mut self.places {
            owner.ration = deal::ration(share, owner.running, owner.running_bytes, &owner.ration);
            owner.hand.deal();
            owner.held = 0; // Counted again as its sessions are looked at.
        }
    }
}

impl Owner {
    /// Has it no session, and is nothing left of any?
    fn has_left(&self) -> bool {
        self.sessions == 0 && self.account.is_empty() && self.running == 0
    }

    /// Requests were started since its ration was this.
    pub(super) fn started_since(&mut self, before: &Ration) {
        self.running += before.requests - self.ration.requests;
        self.running_bytes += before.device_bytes - self.ration.device_bytes;
    }

    /// The device is done with a request of so many bytes.
    pub(super) fn let_go(&mut self, bytes: i64) {
        self.running -= 1;
        self.running_bytes -= bytes;
    }

    /// A request has ended. If that is its deadline's doing, the device may have it still: it counts until [`Owner::let_go`].
    pub(super) fn ended(&mut self, done: Done, completion: &Completion, now: Time) {
        self.requests += 1;
        self.errors += u64::from(completion.result.is_err());
        let bytes = u64::from(completion.bytes_done);
        match done.writes {
            true => self.bytes_written += bytes,
            false => self.bytes_read += bytes,
        }
        self.latency.record(now.since(done.since), now);
    }

    /// For who may see it.
    pub(super) fn status(&self, handles: u32) -> OwnerStatus {
        let mut status = OwnerStatus::default();
        let latency = self.latency.seen();
        (status.uid, status.clients, status.handles) = (self.uid, self.sessions, handles);
        (status.in_flight, status.held) = (self.running, self.held);
        (status.requests, status.errors, status.violations) = (self.requests, self.errors, self.violations);
        (status.bytes_read, status.bytes_written) = (self.bytes_read, self.bytes_written);
        status.latency_p50 = latency.percentile(0.5);
        status.latency_p99 = latency.percentile(0.99);
        status
    }
}

/// How long requests took, of those that ended lately: in the last second in which any did, and in the one before that.
#[derive(Debug, Default)]
struct Lately {
    second: i64,
    in_it: Histogram,
    before: Histogram,
}

impl Lately {
    fn record(&mut self, took: Duration, now: Time) {
        let (second, _) = now.split();
        if second != self.second {
            std::mem::swap(&mut self.in_it, &mut self.before);
            self.in_it.clear();
            if second != self.second.saturating_add(1) {
                self.before.clear();
            }
            self.second = second;
        }
        self.in_it.record(took);
    }

    fn seen(&self) -> Histogram {
        let mut seen = self.before.clone();
        seen.merge(&self.in_it);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::super::deal::{ALONE, COPIED_BYTES, EACH, TOGETHER};
    use super::*;

    fn room(owners: &mut Owners, at: usize) -> (u32, i64) {
        let ration = &owners.at(at).ration;
        (ration.requests, ration.device_bytes)
    }

    #[test]
    fn several_share_and_one_alone_has_all() {
        let mut owners = Owners::default();
        let (one, other) = (owners.enter(1), owners.enter(2));
        assert_eq!(owners.enter(1), one);
        let start = Time(1 << 40);
        owners.deal(start);
        let all = (ALONE.requests, ALONE.bytes);
        assert_eq!((room(&mut owners, one), room(&mut owners, other)), (all, all));
        owners.at(one).running = 100;
        owners.at(one).running_bytes = 8 << 20;
        owners.deal(start);
        assert_eq!(room(&mut owners, one), (ALONE.requests - 100, ALONE.bytes - (8 << 20)));
        owners.at(other).held = 1;
        owners.deal(start);
        assert_eq!(room(&mut owners, one).0, 0);
        assert!(
            room(&mut owners, one).1 < 0,
            "what is at the device is more than its share"
        );
        assert_eq!(room(&mut owners, other), (TOGETHER.requests / 2, TOGETHER.bytes / 2));
        // It has none for a moment, and then for longer.
        owners.deal(start.after(LATELY / 2));
        assert_eq!(room(&mut owners, one).0, 0);
        owners.deal(start.after(LATELY));
        assert_eq!(room(&mut owners, one).0, ALONE.requests - 100);
        for uid in 3..100 {
            let at = owners.enter(uid);
            owners.at(at).running = 1;
        }
        owners.at(other).held = 1;
        owners.deal(start);
        assert_eq!(room(&mut owners, other), (EACH.requests, EACH.bytes));
    }

    /// Who copies much has as much as all others in the long run: what one round gave too much the next ones keep back.
    #[test]
    fn bytes_are_dealt_as_requests_are() {
        let mut owners = Owners::default();
        let one = owners.enter(1);
        let (mut copied, mut rounds) = (0, 0);
        while rounds < 100 {
            owners.deal(Time(1 << 40));
            rounds += 1;
            let ration = &mut owners.at(one).ration;
            while ration.copied_bytes > 0 {
                ration.copied_bytes -= 4 << 20;
                copied += 4 << 20;
            }
        }
        let fair = rounds * COPIED_BYTES;
        assert!(
            (fair..=fair + (4 << 20)).contains(&copied),
            "{copied} bytes in {rounds} rounds"
        );
    }

    #[test]
    fn times_are_of_the_last_seconds_with_requests() {
        let mut lately = Lately::default();
        let start = Time(1 << 40);
        let at = |seconds| start.after(Duration::from_secs(seconds));
        let (slow, fast) = (Duration::from_secs(1), Duration::from_millis(1));
        lately.record(slow, at(0));
        lately.record(fast, at(1));
        assert_eq!((lately.seen().count(), lately.seen().max()), (2, slow));
        lately.record(fast, at(2));
        assert_eq!((lately.seen().count(), lately.seen().max()), (2, fast));
        // Nothing has come for long: what was last stays, and goes with the next.
        lately.record(slow, at(9));
        assert_eq!((lately.seen().count(), lately.seen().max()), (1, slow));
    }

    #[test]
    fn who_has_left_is_forgotten_when_there_are_many() {
        let mut owners = Owners::default();
        for uid in 0..2 * REMEMBERED as u32 {
            let at = owners.enter(uid);
            owners.leave(at);
        }
        assert_eq!(owners.places.len(), REMEMBERED);
    }

    /// What the device has of somebody who has gone comes back to him, and not to whoever has his place then.
    #[test]
    fn who_has_something_at_the_device_has_not_left() {
        let mut owners = Owners::default();
        let gone = owners.enter(7);
        owners.at(gone).running = 1;
        owners.leave(gone);
        for uid in 100..100 + 2 * REMEMBERED as u32 {
            let at = owners.enter(uid);
            assert_ne!(at, gone);
            owners.leave(at);
        }
        owners.at(gone).let_go(0);
        assert!(owners.at(gone).has_left());
    }
}
