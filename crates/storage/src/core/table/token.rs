//! Who has the table token, and who waits for it.
//!
//! Turns go round by user: whoever has a thousand operations waiting gets one, then everybody else who waits gets one. Who only looks
//! shares the token with others who do, and does not wait for the end of a walk through the table: neither changes anything.

use std::collections::VecDeque;

use crate::operation::Taking;

/// Who look at the table at a time. Each has at most two reads under way in slots that are kept for such, and only one of them walks.
const SHARING_MAX: usize = 4;

/// The token.
#[derive(Debug, Default)]
pub(in crate::core) struct Token {
    /// Who may change the table.
    alone: Option<u32>,
    /// Those who look at it.
    sharing: Vec<Waiting>,
    /// Who waits, a line for each user. The first is the next whose turn it is.
    lines: VecDeque<Line>,
}

#[derive(Debug)]
struct Line {
    uid: u32,
    waiting: VecDeque<Waiting>,
}

/// An operation, and what it wants the token for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    index: u32,
    taking: Taking,
}

impl Token {
    /// An operation of this user waits, behind its others.
    pub(in crate::core) fn wait(&mut self, uid: u32, index: u32, taking: Taking) {
        let waiting = Waiting { index, taking };
        match self.lines.iter_mut().find(|line| line.uid == uid) {
            Some(line) => line.waiting.push_back(waiting),
            None => self.lines.push_back(Line {
                uid,
                waiting: VecDeque::from([waiting]),
            }),
        }
    }

    /// It waits no more; whether it had.
    pub(in crate::core) fn forget(&mut self, index: u32) -> bool {
        for at in 0..self.lines.len() {
            let waiting = &mut self.lines[at].waiting;
            if let Some(place) = waiting.iter().position(|waiting| waiting.index == index) {
                waiting.remove(place);
                if waiting.is_empty() {
                    self.lines.remove(at);
                }
                return true;
            }
        }
        false
    }

    /// Whether this operation has it.
    pub(in crate::core) fn is_with(&self, index: u32) -> bool {
        self.alone == Some(index) || self.sharing.iter().any(|sharing| sharing.index == index)
    }

    /// Whether this operation has it, or waits for it.
    pub(in crate::core) fn concerns(&self, index: u32) -> bool {
        let mut waiting = self.lines.iter().flat_map(|line| &line.waiting);
        self.is_with(index) || waiting.any(|waiting| waiting.index == index)
    }

    /// This operation gives it back, if it has it.
    pub(in crate::core) fn release(&mut self, index: u32) {
        self.alone.take_if(|alone| *alone == index);
        self.sharing.retain(|sharing| sharing.index != index);
    }

    /// Gives it to the next one, of those that may go on now.
    pub(in crate::core) fn grant(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        if self.alone.is_some() || self.sharing.len() >= SHARING_MAX {
            return None;
        }
        let is_walked = self.sharing.iter().any(|sharing| sharing.taking == Taking::Walking);
        for at in 0..self.lines.len() {
            let place = self.lines[at].waiting.iter().position(|waiting| may_go(waiting.index));
            let Some(place) = place else { continue };
            let may_join = match self.lines[at].waiting[place].taking {
                Taking::Alone => self.sharing.is_empty(),
                Taking::Walking => !is_walked,
                Taking::Looking => true,
            };
            if may_join {
                return self.give(at, place);
            }
            // Who waits for the end of a walk is not delayed by a look meanwhile. By looks without end it would be.
            if !is_walked {
                return None;
            }
        }
        None
    }

    fn give(&mut self, at: usize, place: usize) -> Option<u32> {
        let mut line = self.lines.remove(at)?;
        let next = line.waiting.remove(place);
        if !line.waiting.is_empty() {
            self.lines.push_back(line);
        }
        let next = next?;
        match next.taking {
            Taking::Alone => self.alone = Some(next.index),
            Taking::Walking | Taking::Looking => self.sharing.push(next),
        }
        Some(next.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(_: u32) -> bool {
        true
    }

    #[test]
    fn turns_go_round_by_user() {
        let mut token = Token::default();
        for index in 0..100 {
            token.wait(1, index, Taking::Alone);
        }
        token.wait(2, 100, Taking::Alone);
        token.wait(3, 101, Taking::Alone);
        let mut order = Vec::new();
        while let Some(index) = token.grant(all) {
            order.push(index);
            // Who has had a turn comes again, behind all others.
            if index == 100 {
                token.wait(2, 102, Taking::Alone);
            }
            token.release(index);
        }
        assert_eq!(order[..6], [0, 100, 101, 1, 102, 2]);
        assert_eq!(order.len(), 103);
    }

    #[test]
    fn who_looks_shares_and_waits_for_no_walk() {
        let mut token = Token::default();
        token.wait(1, 1, Taking::Walking);
        token.wait(1, 2, Taking::Walking);
        token.wait(2, 3, Taking::Alone);
        token.wait(3, 4, Taking::Looking);
        assert_eq!(token.grant(all), Some(1));
        assert_eq!(token.grant(all), Some(4), "a look beside the walk");
        assert_eq!(token.grant(all), None);
        token.release(1);
        token.wait(3, 5, Taking::Looking);
        assert_eq!(token.grant(all), None, "looks without end would keep the other out");
        token.release(4);
        assert_eq!(token.grant(all), Some(3));
        assert_eq!(token.grant(all), None);
        token.release(3);
        assert_eq!(token.grant(all), Some(2));
        assert_eq!(token.grant(all), Some(5));
    }

    #[test]
    fn who_may_not_go_keeps_nobody_back_and_who_is_forgotten_neither() {
        let mut token = Token::default();
        token.wait(1, 1, Taking::Alone);
        token.wait(1, 2, Taking::Looking);
        token.wait(2, 3, Taking::Alone);
        assert!(token.forget(3) && !token.forget(3));
        assert_eq!(token.grant(|index| index != 1), Some(2));
        assert!(token.is_with(2) && !token.is_with(1));
        token.release(2);
        assert_eq!(token.grant(all), Some(1));
    }
}
