//! An open log, held on any thread: dropping it winds the log down.

use std::fmt;
use std::sync::Arc;

use super::LogId;
use crate::core::Core;
use crate::core::returns::{Returned, Returns};
use crate::error::Error;
use crate::log::{Appender, LogError};

/// An open log of a core, until this is dropped, on whatever thread: then it is wound down.
pub struct HeldLog {
    id: LogId,
    name: String,
    appender: Appender,
    returns: Arc<Returns>,
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
            returns,
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
        self.logs.is_told = true;
    }
}

impl Drop for HeldLog {
    fn drop(&mut self) {
        self.returns.add(Returned::Log(self.id));
    }
}
