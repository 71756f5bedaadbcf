//! The requests in flight of a context: what an event says of each, and what has to last until it ends.
//!
//! A sync waits here for the writes that were submitted before it by the same descriptor. The kernel's AIO has done a buffered write when
//! `io_submit` returns, so its programs submit a write and a sync together and are safe. io_uring begins both at once.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio_engine::Errno;
use baio_engine::shared::{Call, What};

use crate::abi::{IoEvent, Iocb};

/// How often a call that ended with its thread is made again before what the kernel says is believed.
const AGAIN_MAX: u8 = 3;

/// A request in flight.
pub(crate) struct Request {
    pub(crate) data: u64,
    pub(crate) object: *mut Iocb,
    pub(crate) call: Call,
    /// What the call points at, if that is a list.
    pub(crate) _list: Option<Box<[libc::iovec]>>,
    pub(crate) event_fd: Option<Arc<OwnedFd>>,
    pub(crate) again: u8,
    pub(crate) cancelled: bool,
    pub(crate) trial: Trial,
    /// Its place in the order of submission.
    pub(crate) sequence: u64,
    /// When it was submitted; 0 where nothing is counted.
    pub(crate) started: u64,
}

/// Does the kernel still look whether the descriptor is good, in place of `io_submit`?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trial {
    /// No: `io_submit` has looked, or it has returned.
    Over,
    /// Yes: an error about the descriptor is one of `io_submit`, and no event.
    On,
    /// It has, and this is the error; whoever submitted it takes it out.
    Refused(Errno),
}

// SAFETY: the pointers are the program's, which has promised that any thread, and the kernel, may use them until the request ends; the list
// is only read.
unsafe impl Send for Request {}

impl Request {
    pub(crate) fn is_poll(&self) -> bool {
        matches!(self.call.what, What::Poll { .. })
    }

    fn is_sync(&self) -> bool {
        matches!(self.call.what, What::Sync { .. })
    }

    fn is_write(&self) -> bool {
        matches!(self.call.what, What::Write { .. } | What::WriteList { .. })
    }

    /// Has the kernel dropped it because the thread that had submitted it has ended? With AIO a request outlives its thread.
    fn is_orphan(&self, raw: i32) -> bool {
        let dropped = raw == -Errno::ECANCELED.raw() || raw == -Errno::EFAULT.raw();
        dropped && !self.cancelled && self.again < AGAIN_MAX
    }

    /// Is this a word about the descriptor, in time for `io_submit` to say it?
    fn is_refusal(&self, raw: i32) -> bool {
        let flags = match self.call.what {
            What::Read { flags, .. }
            | What::Write { flags, .. }
            | What::ReadList { flags, .. }
            | What::WriteList { flags, .. } => flags,
            What::Sync { .. } | What::Poll { .. } => 0,
        };
        let about = raw == -Errno::EBADF.raw() || raw == -Errno::EOPNOTSUPP.raw() && flags != 0;
        about && self.trial == Trial::On
    }

    fn event(&self, raw: i32) -> IoEvent {
        // A poll that was cancelled has seen no events, as with the kernel's own.
        let cancelled = self.cancelled && raw == -Errno::ECANCELED.raw();
        IoEvent {
            data: self.data,
            object: self.object.expose_provenance() as u64,
            result: if cancelled { 0 } else { i64::from(raw) },
            result2: 0,
        }
    }
}

/// What became of a result.
pub(crate) enum Ended {
    /// An event, and what it is the end of.
    Event(IoEvent, Request),
    /// Nothing yet: the call is to be made again.
    Again(Call),
    /// It was nobody's.
    Nobody,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Requests {
    places: Vec<Place>,
    free: Vec<u32>,
    /// How many there have been.
    sequence: u64,
    /// Syncs that the kernel has not been given yet.
    held: Vec<u64>,
}

/// A request, if there is one, and how often the place has been used: a name is never another request's.
#[derive(Default)]
struct Place {
    uses: u32,
    request: Option<Request>,
}

impl Requests {
    /// Takes one in, and gives the call its name; no call yet for a sync that has to wait.
    pub(crate) fn insert(&mut self, mut request: Request) -> Option<Call> {
        self.sequence += 1;
        request.sequence = self.sequence;
        let waits = request.is_sync() && self.has_writes_before(&request);
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.places.push(Place::default());
                self.places.len() as u32 - 1
            }
        };
        let place = &mut self.places[at as usize];
        // 31 bits: the highest names are the ring's.
        place.uses = (place.uses + 1) & (u32::MAX >> 1);
        request.call.name = u64::from(place.uses) << 32 | u64::from(at);
        let call = request.call;
        place.request = Some(request);
        if waits {
            self.held.push(call.name);
            return None;
        }
        Some(call)
    }

    fn has_writes_before(&self, sync: &Request) -> bool {
        let mut all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.any(|it| it.is_write() && it.call.fd == sync.call.fd && it.sequence < sync.sequence)
    }

    /// Is there a sync that waits?
    pub(crate) fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The syncs that need not wait any longer.
    pub(crate) fn release(&mut self) -> Vec<Call> {
        let mut free = Vec::new();
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&name| match self.get(name) {
            Some(sync) if self.has_writes_before(sync) => true,
            Some(sync) => {
                free.push(sync.call);
                false
            }
            None => false,
        });
        self.held = held;
        free
    }

    /// The result of a call.
    pub(crate) fn ended(&mut self, name: u64, raw: i32) -> Ended {
        match self.get_mut(name) {
            None => Ended::Nobody,
            Some(request) if request.is_orphan(raw) => {
                request.again += 1;
                Ended::Again(request.call)
            }
            Some(request) if request.is_refusal(raw) => {
                request.trial = Trial::Refused(Errno::from_raw(-raw));
                Ended::Nobody
            }
            Some(_) => match self.remove(name) {
                Some(request) => Ended::Event(request.event(raw), request),
                None => Ended::Nobody,
            },
        }
    }

    pub(crate) fn remove(&mut self, name: u64) -> Option<Request> {
        let request = self.place(name)?.request.take()?;
        self.free.push(name as u32);
        Some(request)
    }

    fn get_mut(&mut self, name: u64) -> Option<&mut Request> {
        self.place(name)?.request.as_mut()
    }

    fn get(&self, name: u64) -> Option<&Request> {
        let place = self.places.get(name as u32 as usize)?;
        place.request.as_ref().filter(|_| u64::from(place.uses) == name >> 32)
    }

    fn place(&mut self, name: u64) -> Option<&mut Place> {
        let place = self.places.get_mut(name as u32 as usize)?;
        (u64::from(place.uses) == name >> 32).then_some(place)
    }

    /// `io_submit` is about to return: the request goes on as any, or comes out, if the kernel refused its descriptor.
    pub(crate) fn end_trial(&mut self, name: u64) -> Option<(Errno, Request)> {
        let request = self.get_mut(name)?;
        match std::mem::replace(&mut request.trial, Trial::Over) {
            Trial::Refused(errno) => self.remove(name).map(|request| (errno, request)),
            Trial::On | Trial::Over => None,
        }
    }

    /// Marks the polls that `wanted` picks as cancelled; gives their names.
    pub(crate) fn cancel_polls(&mut self, wanted: impl Fn(&Request) -> bool) -> Vec<u64> {
        let polls = self.places.iter_mut().filter_map(|place| place.request.as_mut());
        let picked = polls.filter(|request| request.is_poll() && !request.cancelled && wanted(request));
        let cancelled = picked.map(|request| {
            request.cancelled = true;
            request.call.name
        });
        cancelled.collect()
    }

    /// Is this a poll that was cancelled?
    pub(crate) fn is_cancelled(&self, name: u64) -> bool {
        self.get(name).is_some_and(|request| request.cancelled)
    }

    /// Is anything but a poll under way?
    pub(crate) fn any_transfer(&self) -> bool {
        let mut all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.any(|request| !request.is_poll())
    }
}
