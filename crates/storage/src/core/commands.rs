//! What is asked besides requests ([`Command`]): one arm a verb.

use baio_engine::{Errno, SetupError};

use super::{Core, OperationId};
use crate::error::{Error, Fault, Result};
use crate::identity::Identity;
use crate::operation::Answer;
use crate::operation::check::check;
use crate::operation::create::create;
use crate::operation::delete::delete;
use crate::operation::freeze::freeze;
use crate::operation::open::{open, open_known};
use crate::operation::resize::resize;
use baio_words::{Command, Hint};

/// What becomes of a command.
#[derive(Debug)]
pub enum Begun {
    /// It takes turns: [`Core::poll_answer`].
    Operation(OperationId),
    /// It is done.
    Answered(Answer),
}

impl Core {
    /// Begins what is asked in the name of `who`; nothing here waits for a device. Turn the core, and look for the answer.
    ///
    /// An operation with a name ([`OperationName::first`](crate::OperationName::first)) leaves it in the volume. A repeat
    /// ([`OperationName::again`](crate::OperationName::again)) changes nothing: it is answered as done if the volume shows that it was (a
    /// delete with a segment of no size: the rest is forgotten), else it fails as `EINDETERMINATE`.
    ///
    /// # Errors
    /// What can be said at once: a bad name, no volume, a stale handle; what only a broker has. Everything else is told by the answer.
    pub fn begin_command(&mut self, who: Identity, command: Command) -> Result<Begun> {
        let what = command.operation();
        let operation = match command {
            Command::Create {
                operation,
                owner_uid,
                name,
                options,
            } => {
                let subject = self.subject(what, who, owner_uid, &name)?;
                create(subject, options, operation)
            }
            Command::Delete {
                operation,
                owner_uid,
                name,
            } => delete(self.subject(what, who, owner_uid, &name)?, operation),
            Command::Resize {
                operation,
                owner_uid,
                name,
                options,
            } => {
                let subject = self.subject(what, who, owner_uid, &name)?;
                resize(subject, options, operation)
            }
            Command::Rename {
                operation,
                owner_uid,
                old,
                new,
            } => self.rename_of(who, owner_uid, &old, &new, operation)?,
            Command::ChangeOwnership {
                operation,
                owner_uid,
                name,
                change,
            } => self.ownership_of(who, owner_uid, &name, change, operation)?,
            Command::Open {
                owner_uid,
                name,
                access,
            }
            | Command::OpenKnown {
                owner_uid,
                name,
                access,
                identity: None,
            } => open(self.subject(what, who, owner_uid, &name)?, access),
            Command::OpenKnown {
                owner_uid,
                name,
                access,
                identity: Some(uuid),
            } => {
                let subject = self.subject(what, who, owner_uid, &name)?;
                open_known(subject, access, uuid)
            }
            Command::List => self.list_of(who)?,
            Command::SetQuota { uid, limits } => self.quota_of(who, uid, limits)?,
            Command::Defrag => self.defrag_of(who)?,
            Command::Check => check(self.whole_subject(what, who)?),
            Command::Freeze => freeze(self.whole_subject(what, who)?),
            at_once => return self.answer(who, at_once).map(Begun::Answered),
        };
        Ok(Begun::Operation(self.begin(operation)))
    }

    /// What needs no device.
    fn answer(&mut self, who: Identity, command: Command) -> Result<Answer> {
        Ok(match command {
            Command::Info => Answer::Volume(Box::new(self.volume_view(who)?)),
            Command::Quota { uid } => Answer::Account(self.quota(who, uid)?),
            Command::Size { handle } => Answer::Count {
                value: self.lane.size(handle)?,
            },
            Command::Hint { handle, hint } => Answer::Count {
                value: match hint {
                    Hint::Prefetch(pages) => self.prefetch(handle, &pages)?,
                    Hint::Drop(pages) => self.drop_cached(handle, pages)?,
                    Hint::Keep(pages) => self.keep_cached(handle, pages).map(|()| 0)?,
                    Hint::KeepNoMore(pages) => self.keep_cached_no_more(handle, pages).map(|()| 0)?,
                    Hint::Pattern(pattern) => self.read_pattern(handle, pattern).map(|()| 0)?,
                },
            },
            Command::Thaw { freeze } => {
                self.thaw(freeze);
                Answer::Done
            }
            Command::Opening => {
                let (volume, epoch) = self.opening()?;
                Answer::Opening { volume, epoch }
            }
            Command::ClaimLog { handle } => Answer::LogClaimed(self.claim_log(handle)?),
            Command::ReleaseLog { handle } => {
                self.lane.close_handle(handle);
                Answer::Done
            }
            Command::Status | Command::HandOn { .. } | Command::Revoke { .. } | Command::Cancel { .. } => {
                return Err(self.no_broker());
            }
            takes_turns => {
                let fault = Fault::Unexpected("a command that takes turns, as one that does not");
                return Err(Error::new(takes_turns.operation(), self.volume_name(), fault));
            }
        })
    }

    /// It was asked for what only a broker has.
    fn no_broker(&self) -> Error {
        let name = self.volume_name();
        let fault = SetupError::new("show the clients of", name.clone(), Errno::EOPNOTSUPP)
            .need("a link to a broker")
            .cure("connect to one (`Remote::connect`), or look at this link's own counters");
        Error::new("show the clients of", name, fault)
    }
}
