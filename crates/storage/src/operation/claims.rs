//! Who is changing which segment: what an operation does to a segment in several turns with the table token is not crossed
//! by another operation on it.
//!
//! A claim is taken while the token is held, by the slot in which the segment was just found, and ends with its
//! operation. An operation that finds a segment claimed gives the token back and waits ([`super::Step::Unclaimed`]); when
//! a claim ends it gets the token and looks again, as the segment may be gone or have another name.

use crate::segment::probe::SlotAddress;

/// What a defragmentation claims, beside the segments that it moves: where all of them lie. No segment has this slot.
pub(crate) const ALL_PLACES: SlotAddress = SlotAddress {
    bucket: u64::MAX,
    slot: 0,
};

/// What the others may do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Open the segment: it serves, and handles are told what becomes of it.
    Shared,
    /// The same, but no log is opened in it: it gets shorter.
    Shorter,
    /// Nothing, nor is a log opened: a handle that was opened now might miss that requests are being refused.
    Closed,
}

#[derive(Debug)]
struct Claimed {
    at: SlotAddress,
    by: u32,
    claim: Claim,
    /// Who asks the operation to end where it stands.
    wanted_by: Vec<u32>,
    /// Somebody waits for its end.
    awaited: bool,
}

/// All claims.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: Vec<Claimed>,
    closing: bool,
}

impl Claims {
    /// Claims a segment for an operation; `false` if another has it. An operation's second claim replaces the kind of its
    /// first.
    pub(crate) fn claim(&mut self, at: SlotAddress, by: u32, claim: Claim) -> bool {
        match self.claims.iter_mut().find(|claimed| claimed.at == at) {
            Some(claimed) if claimed.by == by => {
                claimed.claim = claim;
                true
            }
            Some(_) => crate::seeded_bug("claims-are-shared"),
            None => {
                self.claims.push(Claimed {
                    at,
                    by,
                    claim,
                    wanted_by: Vec::new(),
                    awaited: false,
                });
                true
            }
        }
    }

    /// Whether an open of this segment must wait.
    pub(crate) fn is_closed(&self, at: SlotAddress) -> bool {
        let closed = |claimed: &Claimed| claimed.at == at && claimed.claim == Claim::Closed;
        self.claims.iter().any(closed)
    }

    /// Whether no log may be opened in this segment.
    pub(crate) fn refuses_logs(&self, at: SlotAddress) -> bool {
        let is_it = |claimed: &Claimed| claimed.at == at && claimed.claim != Claim::Shared;
        self.claims.iter().any(is_it)
    }

    /// Asks whoever has the segment to end where it stands: a delete need not wait until all is copied. Nobody asks any more when the
    /// operation that does has ended.
    pub(crate) fn ask_to_end(&mut self, at: SlotAddress, asks: u32) {
        for claimed in self.claims.iter_mut().filter(|claimed| claimed.at == at) {
            claimed.wanted_by.push(asks);
        }
    }

    /// Whoever has the segment is waited for: it may go on, but not sit idle for ever.
    pub(crate) fn wait_for(&mut self, at: SlotAddress) {
        for claimed in self.claims.iter_mut().filter(|claimed| claimed.at == at) {
            claimed.awaited = true;
        }
    }

    /// Whether somebody waits for what this operation has claimed.
    pub(crate) fn is_awaited(&self, by: u32) -> bool {
        self.claims.iter().any(|claimed| claimed.by == by && claimed.awaited)
    }

    /// Asks everybody who can to end where they stand: the volume is being closed.
    pub(crate) fn ask_all_to_end(&mut self) {
        self.closing = true;
    }

    /// Whether the volume is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether this operation was asked to end where it stands.
    pub(crate) fn is_asked_to_end(&self, by: u32) -> bool {
        self.closing
            || self
                .claims
                .iter()
                .any(|claimed| claimed.by == by && !claimed.wanted_by.is_empty())
    }

    /// The operation has ended; whether it had claimed anything.
    pub(crate) fn release(&mut self, by: u32) -> bool {
        let before = self.claims.len();
        self.claims.retain(|claimed| claimed.by != by);
        for claimed in &mut self.claims {
            claimed.wanted_by.retain(|asks| *asks != by);
        }
        self.claims.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_has_a_segment_until_it_ends() {
        let at = |bucket| SlotAddress { bucket, slot: 0 };
        let mut claims = Claims::default();
        assert!(claims.claim(at(1), 7, Claim::Shared) && claims.claim(at(2), 8, Claim::Closed));
        assert!(!claims.claim(at(1), 8, Claim::Shared) && claims.claim(at(1), 7, Claim::Closed));
        assert!(claims.is_closed(at(1)) && claims.is_closed(at(2)) && !claims.is_closed(at(3)));
        assert!(claims.refuses_logs(at(2)) && !claims.refuses_logs(at(3)));
        claims.claim(at(1), 7, Claim::Shorter);
        assert!(claims.refuses_logs(at(1)) && !claims.is_closed(at(1)));
        claims.claim(at(1), 7, Claim::Shared);
        assert!(!claims.refuses_logs(at(1)));
        claims.ask_to_end(at(1), 9);
        claims.ask_to_end(at(1), 10);
        assert!(claims.is_asked_to_end(7) && !claims.is_asked_to_end(8));
        claims.release(9);
        assert!(claims.is_asked_to_end(7), "another asks");
        claims.release(10);
        assert!(!claims.is_asked_to_end(7));
        assert!(claims.release(7) && !claims.release(7));
        assert!(claims.claim(at(1), 8, Claim::Shared) && !claims.is_asked_to_end(8));
    }
}
