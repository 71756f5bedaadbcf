//! The requests in flight of a context: what an event says of each, and what has to last until it ends.
//!
//! A sync waits here for the writes that were submitted before it by the same descriptor. The kernel's AIO has done a buffered write when
//! `io_submit` returns, so its programs submit a write and a sync together and are safe. io_uring begins both at once. For the same
//! reason reads of a pipe or a socket wait for the reads before them, and writes for the writes.
//!
//! A call goes by a number of the program's, and the kernel looks at the number when it is given the call. Whatever is given to it later
//! than `io_submit` (what waits here, the rest of a short write, a call that ended with its thread) is so only while the number still
//! stands for the same file; for what waits here the ring keeps the file, if it can. No duplicate of a descriptor is kept: closing it
//! would drop the program's record locks (fcntl_locking(2)).

#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use baio_engine::Errno;
use baio_engine::shared::{Call, Kept, What};
use baio_shim::file::{self, File};

use crate::abi::{IoEvent, Iocb};

/// How often a call that ended with its thread is made again before what the kernel says is believed.
const AGAIN_MAX: u8 = 3;

/// A request in flight.
pub(crate) struct Request {
    pub(crate) data: u64,
    pub(crate) object: *mut Iocb,
    pub(crate) call: Call,
    /// Which file its number stood for, where that was looked at.
    pub(crate) file: Option<File>,
    /// What the call points at, if that is a list.
    pub(crate) list: Option<Box<[libc::iovec]>>,
    /// Bytes of it that went in earlier calls.
    pub(crate) done: u32,
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

    /// Does it have to wait for this one, which came before it?
    fn waits_for(&self, other: &Request) -> bool {
        let is_of_same = self.file.is_some() && (other.file.is_none() || other.file == self.file);
        if other.call.fd != self.call.fd || !is_of_same || other.sequence >= self.sequence {
            return false;
        }
        match self.call.what {
            What::Sync { .. } => other.is_write(),
            What::Poll { .. } => false,
            _ => other.is_of_stream() && other.is_write() == self.is_write() && !other.is_sync(),
        }
    }

    /// Does it read or write what is known to be a pipe or the like?
    fn is_of_stream(&self) -> bool {
        !self.is_poll() && self.file.is_some_and(File::is_stream)
    }

    /// Is its file kept, or does its number still stand for it?
    fn has_its_file(&self) -> bool {
        self.call.kept.is_some() || self.file.is_some() && File::of(self.call.fd) == self.file
    }

    /// A blocking write to a pipe or a socket moves everything, and io_uring only what there is room for: moves on to the rest, if so.
    fn goes_on(&mut self, raw: i32) -> bool {
        let moved = match u32::try_from(raw) {
            Ok(moved) if moved > 0 && self.is_write() => moved,
            _ => return false,
        };
        let flags = match self.call.what {
            What::Write { len, flags, .. } if moved < len => flags,
            What::WriteList { flags, .. } if (moved as usize) < self.list_bytes() => flags,
            _ => return false,
        };
        let fd = self.call.fd;
        let file = File::of(fd);
        let same = file.is_some_and(File::is_stream) && self.file.is_none_or(|its| Some(its) == file);
        let waits = flags & libc::RWF_NOWAIT == 0 && file::blocks(fd);
        if !same || !waits {
            return false;
        }
        self.file = file;
        self.done = self.done.saturating_add(moved);
        self.skip(moved);
        true
    }

    fn list_bytes(&self) -> usize {
        let parts = self.list.iter().flatten();
        parts.fold(0, |sum: usize, part| sum.saturating_add(part.iov_len))
    }

    /// Takes bytes from the front of what it writes.
    fn skip(&mut self, bytes: u32) {
        match &mut self.call.what {
            What::Write { pointer, len, .. } => {
                *pointer = pointer.wrapping_add(bytes as usize);
                *len -= bytes;
            }
            What::WriteList { .. } => {
                let mut left = bytes as usize;
                for part in self.list.iter_mut().flatten() {
                    let here = left.min(part.iov_len);
                    part.iov_base = part.iov_base.wrapping_byte_add(here);
                    part.iov_len -= here;
                    left -= here;
                }
            }
            _ => {}
        }
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
        let result = match raw {
            _ if cancelled => 0,
            // What an error has cut short is told as the bytes before it, as by write(2).
            _ if self.done > 0 => i64::from(self.done) + i64::from(raw.max(0)),
            _ => i64::from(raw),
        };
        IoEvent {
            data: self.data,
            object: self.object.expose_provenance() as u64,
            result,
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
    /// Those that the kernel has not been given yet.
    held: Vec<u64>,
    /// How many there are of pipes and the like, as far as is known.
    streams: usize,
}

/// A request, if there is one, and how often the place has been used: a name is never another request's.
#[derive(Default)]
struct Place {
    uses: u32,
    request: Option<Request>,
}

impl Requests {
    /// Takes one in, and gives the call its name; no call yet for one that has to wait.
    pub(crate) fn insert(&mut self, mut request: Request, keep: impl FnOnce(RawFd) -> Option<Kept>) -> Option<Call> {
        self.sequence += 1;
        request.sequence = self.sequence;
        let may_wait = request.is_sync() || self.streams > 0 && request.file.is_none_or(File::is_stream);
        if may_wait {
            request.file = request.file.or_else(|| File::of(request.call.fd));
        }
        let waits = may_wait && self.has_to_wait(&request);
        if waits {
            request.call.kept = keep(request.call.fd);
            // `io_submit` returns before the kernel has it.
            request.trial = Trial::Over;
        }
        self.streams += usize::from(request.is_of_stream());
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

    fn has_to_wait(&self, request: &Request) -> bool {
        let mut all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.any(|it| request.waits_for(it))
    }

    /// Is there one that waits?
    pub(crate) fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Those that need not wait any longer: calls for the kernel, and names of those whose number is no longer their file's.
    pub(crate) fn release(&mut self) -> (Vec<Call>, Vec<u64>) {
        let (mut free, mut lost) = (Vec::new(), Vec::new());
        let mut held = std::mem::take(&mut self.held);
        // One behind another that waits is not looked at: there may be thousands.
        let mut rows = Vec::new();
        held.retain(|&name| {
            let Some(request) = self.get(name) else { return false };
            let row = (request.call.fd, request.file, request.is_sync(), request.is_write());
            if rows.contains(&row) {
                return true;
            }
            if self.has_to_wait(request) {
                rows.push(row);
                return true;
            }
            match request.has_its_file() {
                true => free.push(request.call),
                false => lost.push(name),
            }
            false
        });
        self.held = held;
        (free, lost)
    }

    /// The result of a call.
    pub(crate) fn ended(&mut self, name: u64, raw: i32) -> Ended {
        let Some(request) = self.get_mut(name) else {
            return Ended::Nobody;
        };
        if request.is_refusal(raw) {
            request.trial = Trial::Refused(Errno::from_raw(-raw));
            return Ended::Nobody;
        }
        if request.is_orphan(raw) && request.has_its_file() {
            request.again += 1;
            return Ended::Again(request.call);
        }
        let known = request.is_of_stream();
        if request.goes_on(raw) {
            let call = request.call;
            self.streams += usize::from(!known);
            return Ended::Again(call);
        }
        match self.remove(name) {
            Some(request) => Ended::Event(request.event(raw), request),
            None => Ended::Nobody,
        }
    }

    /// Ends one that the kernel has not been given.
    pub(crate) fn end(&mut self, name: u64, raw: i32) -> Option<(IoEvent, Request)> {
        self.remove(name).map(|request| (request.event(raw), request))
    }

    pub(crate) fn remove(&mut self, name: u64) -> Option<Request> {
        let request = self.place(name)?.request.take()?;
        self.streams -= usize::from(request.is_of_stream());
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

    /// `io_submit` is about to return: the request goes on as any, with the file that its number stands for by now, or comes out, if the
    /// kernel refused its descriptor.
    pub(crate) fn end_trial(&mut self, name: u64) -> Option<(Errno, Request)> {
        let request = self.get_mut(name)?;
        if let Trial::Refused(errno) = std::mem::replace(&mut request.trial, Trial::Over) {
            return self.remove(name).map(|request| (errno, request));
        }
        if request.file.is_none() {
            request.file = File::of(request.call.fd);
            self.streams += usize::from(request.is_of_stream());
        }
        None
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

    /// How many there have been.
    pub(crate) fn submitted(&self) -> u64 {
        self.sequence
    }

    /// Is a write or a sync under way that was submitted no later than this? Not of a pipe or the like, where nobody may ever read.
    pub(crate) fn any_change(&self, submitted: u64) -> bool {
        let mut all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.any(|it| it.sequence <= submitted && (it.is_write() || it.is_sync()) && !it.is_of_stream())
    }
}
