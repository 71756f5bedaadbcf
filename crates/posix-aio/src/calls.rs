//! What the calls of a program do with the requests of a process: one is taken in, some are waited for, or cancelled.
//!
//! Each leaves by `Context::finish`, or in a wait that does so: what it has changed is handed on, and whoever must hear of it does.

#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use baio_engine::Errno;
use baio_engine::shared::{Call, What};
use baio_shim::file::File;

use crate::abi::{Aiocb, SigEvent, operation};
use crate::check::{self, Checked};
use crate::context::{Context, From, any_broken};
use crate::counted;
use crate::inside::is_inside;
use crate::long;
use crate::notice::Notice;
use crate::requests::{NONE, Request, Requests};

impl Context {
    /// `aio_read`, `aio_write`, `aio_fsync`: takes a request in and hands it on.
    ///
    /// # Errors
    /// `EINVAL` for a priority that there is not; `EAGAIN` without a helper that it needs.
    ///
    /// # Safety
    /// The request and its bytes are there, and nobody else's, until it has ended.
    pub(crate) unsafe fn submit(&'static self, object: *mut Aiocb, opcode: i32) -> Result<(), Errno> {
        let started = counted::now();
        // SAFETY: the caller's promise.
        let notice = Notice::of(unsafe { &(*object).event });
        // SAFETY: the caller's promise.
        unsafe { self.admit(object, opcode, notice, NONE, started) }?;
        self.finish(self.lock(), From::Submitting(started));
        Ok(())
    }

    /// Takes a request in, unless it has ended with the look at it.
    ///
    /// # Safety
    /// As for [`Context::submit`].
    unsafe fn admit(
        &'static self,
        object: *mut Aiocb,
        opcode: i32,
        notice: Notice,
        group: u32,
        started: u64,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { check::priority(object, opcode) }?;
        if !notice.is_none() {
            self.helper.be_there(self)?;
        }
        // SAFETY: the caller's promise.
        let fd = unsafe { (*object).fd };
        // SAFETY: the caller's promise.
        let checked = unsafe { check::request(object, opcode) };
        // SAFETY: the caller's promise.
        unsafe { (*object).opcode = opcode };
        let bare = |what| Call {
            what,
            fd,
            kept: None,
            beside: false,
            priority: 0,
            name: 0,
        };
        let file = File::of(fd);
        let mut state = self.lock();
        let what = match checked {
            Checked::Good(what) => what,
            Checked::Ended(raw) => {
                let raw = notice.judge(raw);
                if group != NONE && raw < 0 {
                    state.requests.fail_in(group);
                }
                // SAFETY: the caller's promise.
                unsafe { Aiocb::end(object, raw) };
                state.requests.note(notice);
                return Ok(());
            }
        };
        let ordered = match what {
            What::Sync { .. } => false,
            _ => {
                let reading = matches!(what, What::Read { .. });
                state.requests.any_alike(fd, reading) && check::is_ordered(fd, !reading)
            }
        };
        if group != NONE {
            state.requests.join(group);
        }
        let mut call = bare(check::on_its_file(what, file, self.knows_no_signal, ordered));
        long::keep(&self.ring, &mut call, file);
        let name = state.requests.insert(Request {
            object,
            call,
            file,
            done: 0,
            notice,
            group,
            ordered,
            started,
        });
        // SAFETY: the caller's promise.
        unsafe { Aiocb::begin(object, name) };
        if state.requests.is_held(name) {
            // Without it the request begins when the program calls the next time.
            let _ = self.helper.be_there(self);
        }
        Ok(())
    }

    /// `aio_suspend`.
    ///
    /// # Safety
    /// Null pointers and requests.
    pub(crate) unsafe fn suspend(&self, list: &[*const Aiocb], limit: Duration) -> Result<(), Errno> {
        if is_inside() {
            // A handler, above ourselves: nothing would go on while it waits.
            return Err(Errno::EINTR);
        }
        self.wait_until(Some(limit), From::Handler, |requests| {
            let mut any = false;
            let over = list.iter().any(|&object| {
                any |= !object.is_null();
                // One that is not here may be of a ring that is gone, which still carries it.
                let known = |requests: &mut Requests, name| requests.has(name, object) || any_broken();
                // SAFETY: the caller's promise.
                !object.is_null() && unsafe { !is_under_way(object) || !known(requests, Aiocb::name(object)) }
            });
            over || !any
        })
    }

    /// `aio_cancel` of one request that says it is under way: `EINVAL` if it is none of this descriptor.
    ///
    /// # Safety
    /// It is a request.
    pub(crate) unsafe fn cancel_one(&self, fd: i32, object: *const Aiocb) -> Result<(u32, u32), Errno> {
        let mut state = self.lock();
        self.look(&mut state, From::Plain);
        // SAFETY: the caller's promise.
        if unsafe { !is_under_way(object) } {
            self.finish(state, From::Plain);
            return Ok((0, 0));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { Aiocb::name(object) };
        let told = match state.requests.has(name, object) {
            true => Ok(state.requests.cancel(fd, Some(name))),
            false => Err(Errno::EINVAL),
        };
        state.call_all();
        self.finish(state, From::Plain);
        told
    }

    /// `aio_cancel` of all of a descriptor.
    pub(crate) fn cancel_all(&self, fd: i32) -> (u32, u32) {
        let mut state = self.lock();
        self.look(&mut state, From::Plain);
        let told = state.requests.cancel(fd, None);
        state.call_all();
        self.finish(state, From::Plain);
        told
    }

    /// `lio_listio`. `EIO` when one of those that are waited for failed.
    ///
    /// # Safety
    /// As for [`Context::submit`], for each that is not null.
    pub(crate) unsafe fn list(
        &'static self,
        waits: bool,
        list: &[*mut Aiocb],
        event: Option<&SigEvent>,
    ) -> Result<(), Errno> {
        let notice = if waits {
            Notice::None
        } else {
            event.map_or(Notice::None, Notice::of)
        };
        if !notice.is_none() {
            self.helper.be_there(self)?;
        }
        let started = counted::now();
        let group = self.lock().requests.group(notice, waits);
        let (mut total, mut refused) = (0, None);
        for &object in list.iter().filter(|object| !object.is_null()) {
            // SAFETY: the caller's promise.
            let (opcode, own) = unsafe { ((*object).opcode, Notice::of(&(*object).event)) };
            if opcode == operation::NOP {
                continue;
            }
            // SAFETY: the caller's promise.
            match unsafe { self.admit(object, opcode, own, group, started) } {
                Ok(()) => total += 1,
                Err(errno) => refused = Some(errno),
            }
        }
        let mut state = self.lock();
        state.requests.close_group(group);
        self.finish(state, From::Submitting(started));
        if !waits {
            return refused.map_or(Ok(()), Err);
        }
        let told = self.wait_until(None, From::Plain, |requests| requests.is_over(group));
        let failed = self.lock().requests.leave_group(group);
        match (told, refused) {
            (Err(errno), _) => Err(errno),
            (Ok(()), Some(errno)) if total == 0 => Err(errno),
            (Ok(()), refused) if failed || refused.is_some() => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    /// Waits until writes and syncs of files have ended, and at most so long: the program exits.
    pub(crate) fn drain(&self, patience: Duration) {
        if is_inside() {
            return;
        }
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let told = self.wait_until(Some(left), From::Handler, |requests| !requests.any_write());
            if told != Err(Errno::EINTR) {
                return;
            }
        }
    }
}

/// # Safety
/// It is a request.
pub(crate) unsafe fn is_under_way(object: *const Aiocb) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Aiocb::error(object) == Errno::EINPROGRESS.raw() }
}
