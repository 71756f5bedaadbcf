//! Handles that are handed on: who has the other end of a socket may do what the handle may, until it is taken back.
//!
//! The socket is a session of its own, with memory and rings of its own; its requests are charged to the user who handed it on, and so
//! is its place. It ends with the session that made it.

use baio_engine::Errno;
use baio_words::Access;
use baio_words::entry::HandleWords;
use baio_words::session::{Answer, Question};

use super::Broker;
use super::account::{Charge, Kind};
use super::far::Opened;
use super::session::{Bound, failed, too_many};
use super::sockets;

const ANOTHER: &str = "open the segment again";

impl Broker {
    /// Hands a handle on, with these rights or fewer.
    pub(super) fn hand_on(&mut self, number: u32, id: u32, words: HandleWords, access: Access) {
        let Some(session) = self.sessions[number as usize].as_deref() else {
            return;
        };
        let (who, groups) = (session.who, session.groups.clone());
        let known = session
            .open
            .as_ref()
            .and_then(|open| open.seat.border.handles.find(words).cloned());
        let stale = || failed(Errno::ESTALE, "hand on", "an open handle", ANOTHER);
        let Some(Opened { handle, info, .. }) = known else {
            return self.tell(number, id, &stale());
        };
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let account = &self.owners.at(session.owner).account;
        let charge = self.accounts.take(account, Kind::Descriptors, 1);
        if charge.is_none_or(|charge| session.flies(charge).is_err()) {
            return self.tell(number, id, &too_many("hand on"));
        }
        let handle = match self.core.open_again(handle, access) {
            Ok(handle) => handle,
            Err(error) => {
                let failed = self.names.failed(&error);
                return self.tell(number, id, &failed);
            }
        };
        let (ours, theirs) = match sockets::pair() {
            Ok(pair) => pair,
            Err(errno) => {
                self.core.close_handle(handle);
                let refusal = failed(errno, "hand on", "two descriptors", "try again later");
                return self.tell(number, id, &refusal);
            }
        };
        self.grants += 1;
        let grant = self.grants;
        let bound = Bound {
            grant,
            by: number,
            handle,
            access,
            info,
            claims: Vec::new(),
            is_taken: false,
            revoked_by: None,
        };
        match self.enter(ours, who, Some((bound, groups))) {
            Ok(_) => self.tell_with(number, id, &Answer::HandedOn { grant }, Some(theirs)),
            Err((_, refusal)) => {
                self.core.close_handle(handle);
                self.tell(number, id, &refusal);
            }
        }
    }

    /// Who has the other end may ask for the one handle, once, and for nothing else.
    pub(super) fn asked_of_bound(&mut self, number: u32, id: u32, question: &Question) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let (Some(bound), Some(open)) = (&mut session.bound, &mut session.open) else {
            return;
        };
        let wanted = match question {
            Question::Open { name, access, .. } if name.is_empty() => Some(*access),
            _ => None,
        };
        let may = |access| bound.access == Access::Write || access == Access::Read;
        let Some(access) = wanted.filter(|access| may(*access) && !bound.is_taken) else {
            let refusal = failed(
                Errno::EACCES,
                question.name(),
                "what the handle that was handed on may do",
                "ask who has handed it on, or connect to the broker's own socket",
            );
            return self.tell(number, id, &refusal);
        };
        if access != bound.access {
            // What is opened to read does not write, though it was handed on to write.
            match self.core.open_again(bound.handle, access) {
                Ok(handle) => {
                    self.core.close_handle(std::mem::replace(&mut bound.handle, handle));
                    bound.access = access;
                }
                Err(error) => {
                    let failed = self.names.failed(&error);
                    return self.tell(number, id, &failed);
                }
            }
        }
        bound.is_taken = true;
        let mut info = bound.info.clone();
        // It may have another size by now.
        info.size_bytes = self.core.size(bound.handle).unwrap_or(info.size_bytes);
        let handle = open.seat.border.handles.add(Opened {
            handle: bound.handle,
            access: bound.access,
            info: info.clone(),
        });
        let handle = handle.into();
        self.tell(number, id, &Answer::Opened { handle, access, info });
    }

    /// Takes a handle back. Answered when nothing of what was asked by it can land any more.
    pub(super) fn revoke(&mut self, number: u32, id: u32, grant: u64, charge: Charge) {
        let Some(word) = self.sessions[number as usize].as_deref().map(|session| session.word) else {
            return;
        };
        let mut all = self.sessions.iter_mut().enumerate();
        let its = all.find_map(|(at, session)| {
            let bound = session.as_deref_mut()?.bound.as_mut()?;
            let is_it = bound.grant == grant && bound.by == number && bound.revoked_by.is_none();
            is_it.then(|| {
                bound.revoked_by = Some((id, word));
                at as u32
            })
        });
        match its {
            Some(its) => {
                if let Some(open) = self.sessions[number as usize]
                    .as_deref_mut()
                    .and_then(|session| session.open.as_mut())
                {
                    open.revoking.push(charge);
                }
                self.leave(its);
            }
            // It has ended by itself.
            None => self.tell(number, id, &Answer::Done),
        }
    }

    /// A session for a handle has ended.
    pub(super) fn taken_back(&mut self, bound: &Bound) {
        let Some((id, word)) = bound.revoked_by else { return };
        let by = self.sessions[bound.by as usize].as_deref_mut();
        // Who waited may have gone, and another may have come.
        let by = by.filter(|session| session.word == word);
        let Some(open) = by.and_then(|session| session.open.as_mut()) else {
            return;
        };
        drop(open.revoking.pop());
        self.tell(bound.by, id, &Answer::Done);
    }

    /// Whatever a session has handed on ends with it.
    pub(super) fn take_back_all_of(&mut self, number: u32) {
        for at in 0..self.sessions.len() {
            let bound = self.sessions[at].as_deref().and_then(|session| session.bound.as_ref());
            if bound.is_some_and(|bound| bound.by == number) {
                self.leave(at as u32);
            }
        }
    }
}
