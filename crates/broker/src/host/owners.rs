//! Who shares the broker: what each user has under way and may start, and what it has had.
//!
//! Fairness is by user, not by session: who opens more sessions gets no more. While one user alone has requests, it may have
//! [`ALONE`] of them started. As soon as others have some too, they share [`TOGETHER`] evenly. So a user's request finds a short
//! queue at the device, whoever else fills rings; what may not start waits in its session, in order.

use std::time::Duration;

use baio_engine::{Histogram, Time};
use baio_words::entry::Completion;
use baio_words::session::OwnerWords;

use crate::seat::Done;

/// Requests that a user may have started when nobody else has any.
const ALONE: u32 = 128;
/// Who has had a request so lately shares still: a client that is just about to send its next ones does not find the device full of another's.
const LATELY: Duration = Duration::from_millis(20);
/// Requests that all users may have started together when there are several. A device of today reaches nine tenths of its rate
/// with as many.
const TOGETHER: u32 = 32;
/// Of these each user has at least so many.
const EACH: u32 = 4;
/// Entries taken from all rings of one user in one round: what is copied for one delays the others no longer.
const QUANTUM: u32 = 128;
/// Users whose figures are kept when they have left.
const REMEMBERED: usize = 256;

/// One user.
#[derive(Debug, Default)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) sessions: u32,
    /// Started and not ended, over all its sessions.
    pub(super) running: u32,
    /// Waits in its sessions.
    pub(super) held: u32,
    /// When it had a request last.
    wanted_at: Option<Time>,
    /// Entries that may still be taken in this round.
    pub(super) entries: u32,
    /// Requests that may still be started in this round.
    pub(super) room: u32,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    errors: u64,
    pub(super) violations: u64,
    latency: Histogram,
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
            let owner = Owner {
                uid,
                ..Owner::default()
            };
            let left = self.places.iter().position(|owner| owner.sessions == 0);
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
        let share = match wanting {
            0 | 1 => ALONE,
            several => (TOGETHER / several).max(EACH),
        };
        for owner in &mut self.places {
            owner.entries = QUANTUM;
            owner.room = share.saturating_sub(owner.running);
            owner.held = 0; // Counted again as its sessions are looked at.
        }
    }
}

impl Owner {
    /// A request has ended.
    pub(super) fn ended(&mut self, done: Done, completion: &Completion, now: Time) {
        self.running -= 1;
        self.requests += 1;
        self.errors += u64::from(completion.result.is_err());
        let bytes = u64::from(completion.bytes_done);
        match done.writes {
            true => self.bytes_written += bytes,
            false => self.bytes_read += bytes,
        }
        self.latency.record(now.since(done.since));
    }

    /// For who may see it.
    pub(super) fn words(&self, handles: u32) -> OwnerWords {
        let us = |took: Duration| u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        OwnerWords {
            uid: self.uid,
            sessions: self.sessions,
            handles,
            in_flight: self.running,
            held: self.held,
            requests: self.requests,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            errors: self.errors,
            violations: self.violations,
            latency_us_p50: us(self.latency.percentile(0.5)),
            latency_us_p99: us(self.latency.percentile(0.99)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_share_and_one_alone_has_all() {
        let mut owners = Owners::default();
        let (one, other) = (owners.enter(1), owners.enter(2));
        assert_eq!(owners.enter(1), one);
        let start = Time(1 << 40);
        owners.deal(start);
        assert_eq!((owners.at(one).room, owners.at(other).room), (ALONE, ALONE));
        owners.at(one).running = 100;
        owners.deal(start);
        assert_eq!(owners.at(one).room, ALONE - 100);
        owners.at(other).held = 1;
        owners.deal(start);
        assert_eq!((owners.at(one).room, owners.at(other).room), (0, TOGETHER / 2));
        // It has none for a moment, and then for longer.
        owners.deal(start.after(LATELY / 2));
        assert_eq!(owners.at(one).room, 0);
        owners.deal(start.after(LATELY));
        assert_eq!(owners.at(one).room, ALONE - 100);
        for uid in 3..100 {
            let at = owners.enter(uid);
            owners.at(at).running = 1;
        }
        owners.at(other).held = 1;
        owners.deal(start);
        assert_eq!(owners.at(other).room, EACH);
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
}
