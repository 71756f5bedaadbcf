//! Segments for logs that clients keep: batches are their requests, like any others. Here is only who may write there.

use baio_engine::Errno;
use baio_words::entry::HandleWords;
use baio_words::session::Answer;
use baio_words::{Access, LogClaim};

use super::Broker;
use super::far::Opened;
use super::session::failed;

impl Broker {
    /// Has what is behind a handle for a log of this session's, which is charged for the place that it takes among its handles.
    pub(super) fn claim_log(&mut self, number: u32, words: HandleWords) -> Answer {
        let session = self.sessions[number as usize].as_deref_mut();
        let Some((bound, open)) = session.and_then(|session| Some((&mut session.bound, session.open.as_mut()?))) else {
            return Answer::Done;
        };
        let handles = &mut open.seat.border.handles;
        let Some(opened) = handles.find(words).cloned() else {
            return stale("claim log", "open the segment again");
        };
        let claim = match self.core.claim_log(opened.handle) {
            Ok(claim) => claim,
            Err(error) => return self.names.failed(&error),
        };
        if let Some(bound) = bound {
            let core = &self.core;
            bound.claims.retain(|claimed| core.is_log_claim(*claimed));
            bound.claims.push(claim.handle);
        }
        let handle = handles.add(Opened {
            handle: claim.handle,
            access: Access::Write,
            info: opened.info,
        });
        Answer::LogClaimed(LogClaim {
            handle: handle.into(),
            ..claim
        })
    }

    /// Takes a claim back. What is under way by it ends first: until then the segment is nobody else's.
    pub(super) fn release_log(&mut self, number: u32, words: HandleWords) -> Answer {
        let session = self.sessions[number as usize].as_deref_mut();
        let Some(open) = session.and_then(|session| session.open.as_mut()) else {
            return Answer::Done;
        };
        let handles = &mut open.seat.border.handles;
        let is_claim = self.core.is_log_claim(handles.get(words));
        let Some(handle) = is_claim.then(|| handles.remove(words)).flatten() else {
            return stale("release log", "claim the segment again");
        };
        open.seat.close_handles(&mut self.core, vec![handle]);
        Answer::Done
    }
}

fn stale(operation: &str, cure: &str) -> Answer {
    failed(
        Errno::ESTALE,
        operation,
        "an open handle of this session, and of this kind",
        cure,
    )
}
