//! Requests that may not start yet: every slot is taken, or their client has its share. They wait in order, and they are
//! requests like any other: each ends at its deadline and can be cancelled, as one that the engine has and has not begun.
//!
//! A request whose deadline has passed is answered as indeterminate and keeps its slot until the kernel lets go, so a hung
//! device can take every slot for as long as it hangs. What is held then without a deadline is refused after
//! [`HELD_PATIENCE`] in which nothing has ended: it has had no effect, and the client may try again.

use std::collections::HashSet;
use std::time::Duration;

use baio_engine::{Caching, Error, Memory, Time};
use baio_storage::Core;
use baio_words::entry::{Completion, Tag, Violation};
use baio_words::{Failure, Handle, Mode, SegmentRequest};

use super::stage::{Stage, bytes_of};
use super::{Border, Other, Ration, Seat, seat_of};
use crate::served::tag_of;

/// How long a request without a deadline waits for a slot when every slot is with the kernel for a request that has been
/// answered already, so that nothing the client does can free one. As long as the drop of a core waits for the kernel.
const HELD_PATIENCE: Duration = Duration::from_secs(30);
const _: () = assert!(HELD_PATIENCE.as_secs() == Core::DROP_PATIENCE.as_secs());

impl<B: Border> Seat<B> {
    /// Starts a request, which is taken from the ration; back, when there is no slot for it.
    pub(super) fn start(
        &mut self,
        core: &mut Core,
        request: SegmentRequest<Memory>,
        ration: &mut Ration,
    ) -> Result<(), SegmentRequest<Memory>> {
        let (_, Tag { index, generation }) = seat_of(tag_of(request.tag));
        let writes = request.op.changes_bytes();
        let bytes = bytes_of(&request);
        let copied = match request.mode {
            Mode::Cached => i64::try_from(request.memory.len()).unwrap_or(i64::MAX),
            _ => 0,
        };
        let ticket = core.start(request)?;
        ration.requests -= 1;
        ration.device_bytes -= bytes;
        ration.copied_bytes -= copied;
        self.stages[index as usize] = Stage::Running {
            generation,
            ticket,
            cancelled: false,
            since: core.engine().now(),
            writes,
            bytes,
        };
        self.running += 1;
        self.stuck_since = None;
        Ok(())
    }

    /// Keeps a request that may not start yet.
    pub(super) fn hold(&mut self, request: SegmentRequest<Memory>) {
        self.sweep_by(self.given_up_at(&request));
        self.held.push_back(request);
    }

    fn given_up_at(&self, request: &SegmentRequest<Memory>) -> Option<Time> {
        let stuck = self.stuck_since.map(|since| since.after(HELD_PATIENCE));
        request.deadline.or(stuck)
    }

    /// Each request is cancelled once, however often the client asks: what a round does is bounded by what it takes.
    pub(super) fn cancel(&mut self, core: &mut Core, tag: Tag) -> Option<Other> {
        match &mut self.stages[tag.index as usize] {
            Stage::Running {
                generation,
                ticket,
                cancelled: cancelled @ false,
                ..
            } if *generation == tag.generation => {
                *cancelled = true;
                core.cancel(*ticket);
            }
            Stage::Held { generation, cancelled } if *generation == tag.generation => {
                *cancelled = true;
                self.sweep_by(Some(Time(0)));
            }
            Stage::Command => return Some(Other::CallOff(tag)),
            _ => {}
        }
        None
    }

    /// Cancels all that is under way: the client has gone.
    pub(crate) fn cancel_all(&mut self, core: &mut Core) {
        for stage in &mut self.stages {
            match stage {
                Stage::Running {
                    ticket,
                    cancelled: cancelled @ false,
                    ..
                } => {
                    *cancelled = true;
                    core.cancel(*ticket);
                }
                Stage::Held { cancelled, .. } => *cancelled = true,
                _ => {}
            }
        }
        if !self.held.is_empty() {
            self.sweep_by(Some(Time(0)));
        }
    }

    /// Starts what is held, as far as the ration goes. Says whether any was started.
    pub(crate) fn start_held(&mut self, core: &mut Core, ration: &mut Ration) -> bool {
        let before = self.held.len();
        while self.held.front().is_some_and(|request| ration.allows(request)) {
            let Some(request) = self.held.pop_front() else { break };
            if let Err(request) = self.start(core, request, ration) {
                self.held.push_front(request);
                break;
            }
        }
        self.has_let_go |= self.held.len() < before;
        self.held.len() < before
    }

    /// Requests that are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// What was asked before the close is under way, also while it is held.
    pub(crate) fn close_handle(&mut self, core: &mut Core, handle: Handle) {
        if !self.is_named(handle) {
            core.close_handle(handle);
        } else if !self.leaving.contains(&handle) {
            self.leaving.push(handle);
        }
    }

    /// The same for many, each of which is there once.
    pub(crate) fn close_handles(&mut self, core: &mut Core, mut handles: Vec<Handle>) {
        self.leaving.append(&mut handles);
        self.has_let_go = true;
        self.close_leaving(core);
    }

    /// Closes what no held request names any more.
    pub(crate) fn close_leaving(&mut self, core: &mut Core) {
        if self.leaving.is_empty() || !std::mem::take(&mut self.has_let_go) {
            return;
        }
        // Looked at once, as there may be thousands of each.
        let named: HashSet<Handle> = self.held.iter().map(|request| request.handle).collect();
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|handle| {
            let is_named = named.contains(handle);
            if !is_named {
                core.close_handle(*handle);
            }
            is_named
        });
        self.leaving = leaving;
    }

    fn is_named(&self, handle: Handle) -> bool {
        self.held.iter().any(|request| request.handle == handle)
    }

    /// When held requests are to be looked at again.
    pub(crate) fn sweep_at(&self) -> Option<Time> {
        self.sweep_at
    }

    /// Something has ended: who waits for a slot may get one.
    pub(crate) fn unstick(&mut self) {
        self.stuck_since = None;
    }

    /// Ends the held requests that are to be started no more. `waits`: the client waits for something else too.
    ///
    /// # Errors
    /// As [`Seat::end`].
    pub(crate) fn end_held(&mut self, now: Time, waits: bool) -> Result<(), Violation> {
        if self.running > 0 || waits {
            self.stuck_since = None;
        } else if !self.held.is_empty() && self.stuck_since.is_none() {
            self.stuck_since = Some(now);
            self.sweep_by(Some(now.after(HELD_PATIENCE)));
        }
        if self.sweep_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.sweep_at = None;
        let mut posted = Ok(());
        for _ in 0..self.held.len() {
            let Some(request) = self.held.pop_front() else { break };
            let late = self.given_up_at(&request).is_some_and(|at| at <= now);
            // One that cannot be posted ends too: all others still have to.
            if self.is_cancelled(&request) || late && request.deadline.is_some() {
                posted = posted.and(self.refuse(request, Error::Cancelled));
            } else if late {
                posted = posted.and(self.refuse(request, Error::Full));
            } else {
                self.hold(request);
            }
        }
        posted
    }

    fn is_cancelled(&self, request: &SegmentRequest<Memory>) -> bool {
        let (_, tag) = seat_of(tag_of(request.tag));
        matches!(self.stages[tag.index as usize], Stage::Held { cancelled: true, .. })
    }

    /// The end of a request that was never started.
    fn refuse(&mut self, request: SegmentRequest<Memory>, error: Error) -> Result<(), Violation> {
        let completion = Completion {
            tag: tag_of(request.tag),
            result: Err(Failure::Io(error)),
            bytes_done: 0,
            took: Caching::Direct,
            iterations: 0,
        };
        self.has_let_go = true;
        self.end(completion, request.memory).1
    }

    /// A held request may have to be given up at this time.
    fn sweep_by(&mut self, time: Option<Time>) {
        self.sweep_at = match (self.sweep_at, time) {
            (Some(known), Some(time)) => Some(known.min(time)),
            (known, time) => known.or(time),
        };
    }
}
