//! Whose turn it is: what each user may have in a round, whatever it is that is dealt out.
//!
//! Fairness is by user, not by session: who opens more sessions gets no more. Each round deals each user a quantum of everything that a
//! round spends on clients. Who has taken more than that (the last thing that was taken is taken whole) starts the next round with less.
//! What a user may have *started* is a share instead: of the device's queue, in requests and in bytes ([`share`]).

use crate::seat::Ration;

/// What a round spends on a user's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    /// Messages that are read, doorbells too, and what is answered at once.
    Messages,
    /// Memory that is made for whoever says hello.
    Greetings,
    /// Looks at all sockets before a connection is refused.
    SecondLooks,
}

/// Pages that a hint goes over, or begins to read, in the time of a message.
pub(super) const PAGES: u64 = 1024;
/// Entries taken from all rings of one user in one round: what is copied for one delays the others no longer.
pub(super) const ENTRIES: i64 = 128;
/// Bytes copied to and from the cache for one user in one round, and at most one request more.
pub(super) const COPIED_BYTES: i64 = 1 << 20;
const GOODS: usize = 3;
const QUANTA: [i64; GOODS] = [64, 4, 4];

/// What a user has left in this round; less than nothing if more was spent for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand([i64; GOODS]);

impl Hand {
    pub(super) fn deal(&mut self) {
        for (left, quantum) in self.0.iter_mut().zip(QUANTA) {
            *left = left.saturating_add(quantum).min(quantum);
        }
    }

    /// What was taken cost so many more: the next rounds have that much less.
    pub(super) fn owe(&mut self, good: Good, amount: u64) {
        let left = &mut self.0[good as usize];
        *left = left.saturating_sub_unsigned(amount);
    }

    /// Takes one, if there is one left.
    pub(super) fn take(&mut self, good: Good) -> bool {
        let left = &mut self.0[good as usize];
        let has_one = *left > 0;
        *left -= i64::from(has_one);
        has_one
    }
}

/// Requests that a user may have started when nobody else has any, and their bytes.
pub(super) const ALONE: Share = Share {
    requests: 128,
    bytes: 16 << 20,
};
/// What all users may have started together when there are several. A device of today reaches nine tenths of its rate with as many.
pub(super) const TOGETHER: Share = Share {
    requests: 32,
    bytes: 4 << 20,
};
/// Of these each user has at least so many.
pub(super) const EACH: Share = Share {
    requests: 4,
    bytes: 512 << 10,
};

/// What may be at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) requests: u32,
    pub(super) bytes: i64,
}

/// What each of so many users may have at the device.
pub(super) fn share(wanting: u32) -> Share {
    match wanting {
        0 | 1 => ALONE,
        several => Share {
            requests: (TOGETHER.requests / several).max(EACH.requests),
            bytes: (TOGETHER.bytes / i64::from(several)).max(EACH.bytes),
        },
    }
}

/// The ration of a round for who has so much at the device. What was copied beyond the last one is missing from this one.
pub(super) fn ration(share: Share, running: u32, running_bytes: i64, last: &Ration) -> Ration {
    Ration {
        entries: ENTRIES,
        requests: share.requests.saturating_sub(running),
        device_bytes: share.bytes - running_bytes,
        copied_bytes: (last.copied_bytes + COPIED_BYTES).min(COPIED_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What costs as much as many messages keeps its user silent for as long.
    #[test]
    fn a_debt_goes_from_round_to_round() {
        let quantum = QUANTA[Good::Messages as usize] as u64;
        let mut hand = Hand::default();
        hand.deal();
        assert!(hand.take(Good::Messages));
        hand.owe(Good::Messages, 2 * quantum);
        for _ in 0..2 {
            assert!(!hand.take(Good::Messages) && hand.take(Good::Greetings));
            hand.deal();
        }
        let left = (0..).take_while(|_| hand.take(Good::Messages)).count();
        assert_eq!(left as u64, quantum - 1);
        // What was not taken is not kept.
        hand.deal();
        hand.deal();
        let left = (0..).take_while(|_| hand.take(Good::Messages)).count();
        assert_eq!(left as u64, quantum);
    }
}
