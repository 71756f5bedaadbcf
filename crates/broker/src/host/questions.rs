//! What clients ask, and what they are told.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use baio_engine::Errno;
use baio_storage::{Error, Fault, Result};
use baio_words::session::{Answer, BrokerStatus, Question};
use baio_words::{Right, Sight};

use super::Broker;
use super::account::{Charge, Kind};
use super::deal::{Good, PAGES};
use super::far::Opened;
use super::session::{Asking, Charges, Opens, Waiting, failed};
use crate::control::{self, Begun, Reply};

impl Broker {
    pub(super) fn asked(&mut self, number: u32, id: u32, question: Question) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let Some(open) = &mut session.open else { return };
        if question.feature() & !open.features != 0 {
            return self.violated(number);
        }
        let name = question.name();
        let opens = Opens::of(&question);
        let is_claim = matches!(question, Question::ClaimLog { .. });
        let opening = open.asking.iter().filter(|asking| asking.opens.is_some()).count()
            + open
                .waiting
                .iter()
                .filter(|waiting| Opens::of(&waiting.question).is_some())
                .count();
        // Done at once. All others may wait for just that.
        let ends_others = matches!(question, Question::Cancel { .. } | Question::Thaw { .. });
        let refusal = if !self.options.rules.of(&session.who).ask(&question) {
            let need = "a rule of the broker's that allows it";
            Some(failed(Errno::EACCES, name, need, "ask whoever runs the broker"))
        } else if question.right() == Right::Upkeep && self.core.sight(session.who) == Sight::Own {
            // A core packs anybody's own segments. What it tells of free space is for who may see the whole volume, and so is the device's time.
            let fault = Fault::Access { uid: session.who.uid };
            Some(self.names.failed(&Error::new(name, self.core.volume_name(), fault)))
        } else if !ends_others && open.questions() >= self.options.questions_max as usize {
            let need = format!("at most {} questions without an answer", self.options.questions_max);
            Some(failed(Errno::EAGAIN, name, &need, "wait for the answers to others"))
        } else if (opens.is_some() || is_claim) && !open.seat.border.handles.has_room(opening + 1) {
            let need = format!("at most {} open segments in one session", self.options.handles_max);
            Some(failed(
                Errno::EMFILE,
                name,
                &need,
                "close others first, or connect again",
            ))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.tell(number, id, &refusal);
        }
        let account = &self.owners.at(session.owner).account;
        let charge = self.accounts.take(account, Kind::Questions, u64::from(!ends_others));
        let Some(charge) = charge else {
            let most = self.accounts.limit(Kind::Questions).of_one;
            let need = format!("at most {most} questions of one user without an answer");
            let refusal = failed(Errno::EAGAIN, name, &need, "wait for the answers to others");
            return self.tell(number, id, &refusal);
        };
        let for_all = matches!(
            question,
            Question::Hint { .. }
                | Question::Size { .. }
                | Question::Cancel { .. }
                | Question::ClaimLog { .. }
                | Question::ReleaseLog { .. }
        );
        if session.bound.is_some() && !for_all {
            return self.asked_of_bound(number, id, &question);
        }
        if let Some(kind) = kind_of(&question) {
            open.waiting.push_back(Waiting {
                id,
                question,
                kind,
                charge,
            });
            self.wake(number);
            self.begin_waiting(number);
            return;
        }
        self.begin_question(number, id, question, Charges(charge, None));
    }

    /// Asks the core what waits in a session, as far as its user may have more under way there. Says whether there was anything.
    pub(super) fn begin_waiting(&mut self, number: u32) -> bool {
        let mut any = false;
        while let Some((waiting, charge)) = self.next_waiting(number) {
            any = true;
            let charges = Charges(waiting.charge, Some(charge));
            self.begin_question(number, waiting.id, waiting.question, charges);
        }
        any
    }

    /// The first question that may be asked. One that may not keeps back those of its kind.
    fn next_waiting(&mut self, number: u32) -> Option<(Waiting, Charge)> {
        let session = self.sessions[number as usize].as_deref_mut()?;
        let may_list = session.may_list();
        let account = &self.owners.at(session.owner).account;
        let open = session.open.as_mut().filter(|_| !session.is_leaving)?;
        let mut refused = [None; 3];
        for at in 0..open.waiting.len() {
            let waiting = &open.waiting[at];
            let kind = waiting.kind;
            if refused.contains(&Some(kind)) {
                continue;
            }
            let may_begin = may_list || !matches!(waiting.question, Question::List);
            let charge = may_begin.then(|| self.accounts.take(account, kind, 1)).flatten();
            if let Some(charge) = charge {
                return Some((open.waiting.remove(at)?, charge));
            }
            match refused.iter_mut().find(|refused| refused.is_none()) {
                Some(none) => *none = Some(kind),
                None => break,
            }
        }
        None
    }

    fn begin_question(&mut self, number: u32, id: u32, question: Question, charges: Charges) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let Some(open) = &mut session.open else { return };
        let (opens, lists) = (Opens::of(&question), matches!(question, Question::List));
        let answer = match question {
            // These are of the session and the host; a core has them for others of its process.
            Question::Thaw { freeze } => {
                open.freezes.retain(|(known, _)| *known != freeze);
                Answer::Done
            }
            Question::Cancel { question } => return self.cancel_question(number, question),
            Question::Status => self.status(number),
            Question::ClaimLog { handle } => self.claim_log(number, handle.into()),
            Question::ReleaseLog { handle } => self.release_log(number, handle.into()),
            Question::HandOn { handle, access } => return self.hand_on(number, id, handle.into(), access),
            Question::Revoke { grant } => return self.revoke(number, id, grant, charges.0),
            mut command => {
                if let Some(handle) = command.handle_mut() {
                    // A stale one is one to the core too.
                    *handle = open.seat.border.handles.get((*handle).into());
                }
                let before = self.core.pages_hinted();
                let begun = control::begin(&mut self.core, session.who, command.into());
                let over = self.core.pages_hinted().saturating_sub(before);
                self.owners.at(session.owner).hand.owe(Good::Messages, over / PAGES);
                match begun {
                    Begun::Doing(doing) => {
                        open.asking.push(Asking {
                            id,
                            doing,
                            opens,
                            lists,
                            was_called_off: false,
                            charges,
                        });
                        return self.wake(number);
                    }
                    Begun::Answered(reply) => {
                        let reply = self.in_words(number, opens, reply);
                        return self.tell_of(number, id, reply, charges);
                    }
                    Begun::Close => return, // No question is one.
                }
            }
        };
        self.tell(number, id, &answer);
    }

    fn cancel_question(&mut self, number: u32, question: u32) {
        let session = self.sessions[number as usize].as_deref_mut();
        let Some(open) = session.and_then(|session| session.open.as_mut()) else {
            return;
        };
        if let Some(at) = open.waiting.iter().position(|waiting| waiting.id == question) {
            let name = open.waiting.remove(at).map_or("ask", |waiting| waiting.question.name());
            let error = Error::new(name, self.core.volume_name(), baio_engine::Error::Cancelled);
            let answer = self.names.failed(&error);
            return self.tell(number, question, &answer);
        }
        let asking = open.asking.iter_mut().find(|asking| asking.id == question);
        if let Some(asking) = asking.filter(|asking| !asking.was_called_off) {
            asking.was_called_off = true;
            asking.doing.cancel(&mut self.core);
        }
    }

    /// What everybody has and had: for uid 0, and for the user that the broker runs as.
    fn status(&self, number: u32) -> Answer {
        let Some(session) = self.sessions[number as usize].as_deref() else {
            return Answer::Done;
        };
        let uid = session.who.uid;
        let sees_all = uid == 0 || uid == rustix::process::geteuid().as_raw();
        Answer::Status(self.status_of((!sees_all).then_some(uid)))
    }

    /// What one user, or everybody, has and had.
    pub(super) fn status_of(&self, only: Option<u32>) -> BrokerStatus {
        let mut handles: HashMap<u32, u32> = HashMap::new();
        for session in self.sessions.iter().flatten() {
            let open = session.open.as_deref().map_or(0, |open| open.seat.border.handles.len());
            *handles.entry(session.who.uid).or_default() += open as u32;
        }
        let handles_of = |uid| handles.get(&uid).copied().unwrap_or(0);
        let is_shown = |uid| only.is_none_or(|only| only == uid);
        let shown = self.owners.iter().filter(|owner| is_shown(owner.uid));
        let mut status = BrokerStatus::default();
        status.owners = shown.map(|owner| owner.status(handles_of(owner.uid))).collect();
        status.started_at_unix = self.counts.started_at_unix;
        if only.is_none() {
            status.sessions_ended = self.counts.sessions_ended;
        }
        status
    }

    /// A question has its answer.
    pub(super) fn answered(&mut self, number: u32, asking: Asking, reply: Result<Reply>) {
        let reply = self.in_words(number, asking.opens, reply);
        self.tell_of(number, asking.id, reply, asking.charges);
    }

    /// The answer as its client is told it, or the list that it is. What is opened or held for one who is leaving is given back.
    fn in_words(&mut self, number: u32, opens: Option<Opens>, reply: Result<Reply>) -> Told {
        let session = self.sessions[number as usize].as_deref_mut();
        let open = session
            .filter(|session| !session.is_leaving)
            .and_then(|session| session.open.as_mut());
        let Some(open) = open else {
            if let Some(handle) = reply.ok().and_then(|reply| reply.handle()) {
                self.core.close_handle(handle);
            }
            return Told::Answer(Answer::Done);
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Told::Answer(self.names.failed(&error)),
        };
        Told::Answer(match reply {
            Reply::Answer(Answer::Segments { infos, .. }) => return Told::List(infos),
            Reply::Answer(Answer::Opened { handle, access, info }) => {
                let identity = info.uuid;
                let opened = Opened {
                    handle,
                    access,
                    info: info.clone(),
                };
                let handle = open.seat.border.handles.add(opened).into();
                match opens.is_some_and(|opens| opens.is_known) {
                    true => Answer::OpenedKnown {
                        handle,
                        access,
                        info: Box::new(info),
                        identity,
                    },
                    false => Answer::Opened { handle, access, info },
                }
            }
            Reply::Answer(answer) => self.names.hidden_in(answer),
            Reply::Frozen(held) => {
                self.freezes += 1;
                open.freezes.push((self.freezes, held));
                Answer::Frozen { freeze: self.freezes }
            }
            _ => failed(
                Errno::EOPNOTSUPP,
                "answer",
                "a question of this protocol",
                "ask another",
            ),
        })
    }

    fn tell_of(&mut self, number: u32, id: u32, told: Told, charges: Charges) {
        match told {
            Told::Answer(answer) => self.tell(number, id, &answer),
            Told::List(list) => {
                let session = self.sessions[number as usize].as_deref_mut();
                if session.is_some_and(|session| !session.is_leaving && !session.list(id, list, charges)) {
                    self.leave(number);
                }
                self.listen_to(number);
            }
        }
    }

    pub(super) fn tell(&mut self, number: u32, id: u32, answer: &Answer) {
        self.tell_with(number, id, answer, None);
    }

    /// The same with a descriptor.
    pub(super) fn tell_with(&mut self, number: u32, id: u32, answer: &Answer, with: Option<OwnedFd>) {
        let session = self.sessions[number as usize].as_deref_mut();
        if session.is_some_and(|session| !session.is_leaving && !session.answer(id, answer, with)) {
            self.leave(number);
        }
        self.listen_to(number);
    }
}

/// What a user may have so many of under way in the core at a time. All else is answered at once, or asked by few.
fn kind_of(question: &Question) -> Option<Kind> {
    match question {
        Question::Open { .. } | Question::OpenKnown { identity: None, .. } => Some(Kind::Looks),
        Question::OpenKnown { .. } | Question::List => Some(Kind::Walks),
        _ => (question.right() == Right::Change).then_some(Kind::Changes),
    }
}

/// What a client is told.
enum Told {
    Answer(Answer),
    List(Vec<baio_storage::SegmentInfo>),
}

#[cfg(test)]
mod tests {
    use baio_words::{OperationName, OwnershipChange};

    use super::*;

    #[test]
    fn a_change_of_ownership_is_a_change() {
        let question = Question::ChangeOwnership {
            operation: OperationName::NONE,
            owner_uid: 7,
            name: "data".to_owned(),
            change: OwnershipChange::default(),
        };
        assert_eq!(kind_of(&question), Some(Kind::Changes));
    }
}
