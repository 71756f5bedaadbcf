//! The requests in flight of a context that has gone over: what an event says of each, and what has to last until it ends.
//!
//! A call goes by a number of the program's, and the kernel looks at the number when it is given the call. A call that ended with its thread
//! is given to it again, and only while the number still stands for the same file. No duplicate of a descriptor is kept: closing it
//! would drop the program's record locks (fcntl_locking(2)).

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio_engine::Errno;
use baio_engine::shared::{Call, What};
use baio_shim::file::File;

use crate::abi::{IoEvent, Iocb};

/// How often a call that ended with its thread is made again before what the kernel says is believed.
const AGAIN_MAX: u8 = 3;

/// A request in flight.
pub(crate) struct Request {
    pub(crate) data: u64,
    pub(crate) object: *mut Iocb,
    pub(crate) call: Call,
    /// Which file its number stood for when `io_submit` returned.
    pub(crate) file: Option<File>,
    /// What the call points at, if that is a list.
    #[expect(dead_code, reason = "kept, not read")]
    pub(crate) list: Option<Box<[libc::iovec]>>,
    pub(crate) event_fd: Option<Arc<OwnedFd>>,
    pub(crate) again: u8,
    pub(crate) cancelled: bool,
    /// Its place in the order of submission.
    pub(crate) sequence: u64,
    /// When it was submitted; 0 where nothing is counted.
    pub(crate) started: u64,
}

// SAFETY: the pointers are the program's, which has promised that any thread, and the kernel, may use them until the request ends; the list
// is only read.
unsafe impl Send for Request {}

impl Request {
    pub(crate) fn is_poll(&self) -> bool {
        matches!(self.call.what, What::Poll { .. })
    }

    /// Does it change a file, or wait for what did?
    fn is_change(&self) -> bool {
        matches!(
            self.call.what,
            What::Write { .. } | What::WriteList { .. } | What::Sync { .. }
        )
    }

    /// Is its file kept, or does its number still stand for it?
    fn has_its_file(&self) -> bool {
        self.call.kept.is_some() || self.file.is_some() && File::of(self.call.fd) == self.file
    }

    /// Has the kernel dropped it because the thread that had submitted it has ended? With AIO a request outlives its thread.
    fn is_orphan(&self, raw: i32) -> bool {
        let dropped = raw == -Errno::ECANCELED.raw() || raw == -Errno::EFAULT.raw();
        dropped && !self.cancelled && self.again < AGAIN_MAX
    }

    pub(crate) fn event(&self, raw: i32) -> IoEvent {
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
}

/// A request, if there is one, and how often the place has been used: a name is never another request's.
#[derive(Default)]
struct Place {
    uses: u32,
    request: Option<Request>,
}

impl Requests {
    /// Takes one in, and gives the call its name.
    pub(crate) fn insert(&mut self, mut request: Request) -> Call {
        self.sequence += 1;
        request.sequence = self.sequence;
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
        call
    }

    /// The result of a call.
    pub(crate) fn ended(&mut self, name: u64, raw: i32) -> Ended {
        let Some(request) = self.place(name).and_then(|place| place.request.as_mut()) else {
            return Ended::Nobody;
        };
        if request.is_orphan(raw) && request.has_its_file() {
            request.again += 1;
            return Ended::Again(request.call);
        }
        match self.remove(name) {
            Some(request) => Ended::Event(request.event(raw), request),
            None => Ended::Nobody,
        }
    }

    /// These are in flight, and `io_submit` is about to return.
    pub(crate) fn know_files(&mut self, calls: &[Call]) {
        let mut last = None;
        for call in calls {
            let Some(request) = self.place(call.name).and_then(|place| place.request.as_mut()) else {
                continue;
            };
            let file = match last {
                Some((fd, file)) if fd == call.fd => file,
                _ => File::of(call.fd),
            };
            last = Some((call.fd, file));
            request.file = file;
        }
    }

    pub(crate) fn remove(&mut self, name: u64) -> Option<Request> {
        let request = self.place(name)?.request.take()?;
        self.free.push(name as u32);
        Some(request)
    }

    /// Takes calls out that the ring will never see.
    pub(crate) fn forget(&mut self, calls: &[Call]) -> Vec<Request> {
        calls.iter().filter_map(|call| self.remove(call.name)).collect()
    }

    fn get(&self, name: u64) -> Option<&Request> {
        let place = self.places.get(name as u32 as usize)?;
        place.request.as_ref().filter(|_| u64::from(place.uses) == name >> 32)
    }

    fn place(&mut self, name: u64) -> Option<&mut Place> {
        let place = self.places.get_mut(name as u32 as usize)?;
        (u64::from(place.uses) == name >> 32).then_some(place)
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

    /// Is a write or a sync under way that was submitted no later than this?
    pub(crate) fn any_change(&self, submitted: u64) -> bool {
        let mut all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.any(|it| it.sequence <= submitted && it.is_change())
    }
}
