//! An open log, held on any thread: dropping it winds the log down.

use std::fmt;
use std::sync::Arc;

use super::LogId;
use crate::core::Core;
use crate::core::lane::returns::{Returned, Returns};
use crate::error::Error;
use crate::log::{Appender, LogError};

/// An open log of a core, until this is dropped, on whatever thread: then it is wound down.
pub struct HeldLog {
    id: LogId,
    name: String,
    appender: Appender,
    goes: Goes,
}

/// What becomes of it when nobody holds it.
enum Goes {
    To(Arc<Returns>),
    // `None` only while it is dropped.
    Elsewhere(Option<Box<dyn FnOnce() + Send + Sync>>),
}

impl fmt::Debug for HeldLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldLog({})", self.name)
    }
}

impl HeldLog {
    pub(super) fn new(id: LogId, appender: Appender, name: String, returns: Arc<Returns>) -> HeldLog {
        HeldLog {
            id,
            name,
            appender,
            goes: Goes::To(returns),
        }
    }

    /// One that somebody else keeps: `close` tells whoever does, once, to wind it down.
    #[must_use]
    pub fn elsewhere(
        id: LogId,
        appender: Appender,
        name: String,
        close: impl FnOnce() + Send + Sync + 'static,
    ) -> HeldLog {
        HeldLog {
            id,
            name,
            appender,
            goes: Goes::Elsewhere(Some(Box::new(close))),
        }
    }

    /// By which its core knows it.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// The segment or file that it is in, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The half by which records are appended; it wakes the core's driver where that sleeps. In the driver's own thread use its
    /// [`quiet`](Appender::quiet) one.
    #[must_use]
    pub fn appender(&self) -> &Appender {
        &self.appender
    }

    /// What the log said, with its name.
    #[must_use]
    pub fn failed(&self, what: &'static str, error: LogError) -> Error {
        Error::of_log(what, &self.name, error)
    }
}

impl Core {
    /// A callback was left with a log by the thread that turns the core, and nothing else tells of it: the next turn has something to do.
    pub fn hear_logs(&mut self) {
        self.lane.logs.is_told = true;
    }
}

impl Drop for HeldLog {
    fn drop(&mut self) {
        if self.appender.is_forked() {
            return; // Its keeper, and whatever lock that holds, are the parent's.
        }
        match &mut self.goes {
            Goes::To(returns) => returns.add(Returned::Log(self.id)),
            Goes::Elsewhere(close) => {
                if let Some(close) = close.take() {
                    close();
                }
            }
        }
    }
}
