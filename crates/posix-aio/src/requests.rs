//! The requests in flight: which of them wait for others, which the kernel has, and whom to tell when they end.
//!
//! Requests of one descriptor run at once, with three exceptions that POSIX makes. A sync waits for the writes before it. Writes through
//! a descriptor with `O_APPEND`, and reads and writes of what cannot be seeked (pipes, sockets, terminals), go in the order of the calls.
//! So the requests of each descriptor are a list in that order; what may not begin yet is held, and looked at when one before it ends.
//!
//! Moving results allocates and frees nothing: `aio_error` does it, also in a signal handler. Room is made when a request is taken in.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::os::fd::RawFd;

use baio_engine::Errno;
use baio_engine::shared::{Call, KEPT_MAX, Kept, What};
use baio_shim::file::{self, File};

use crate::abi::Aiocb;
use crate::by_number::ByNumber;
use crate::counted;
use crate::notice::Notice;

/// How often a call that ended with its thread is made again before what the kernel says is believed.
const AGAIN_MAX: u8 = 3;
/// As many as the kernel has at once; the rings' queues are that long. More wait.
pub(crate) const IN_RING_MAX: usize = 1024;

/// No request and no group.
pub(crate) const NONE: u32 = u32::MAX;

/// What is taken in.
pub(crate) struct Request {
    pub(crate) object: *mut Aiocb,
    pub(crate) call: Call,
    pub(crate) notice: Notice,
    pub(crate) group: u32,
    /// Which file its number stood for. A call that is made again goes to no other.
    pub(crate) file: Option<File>,
    /// Bytes that went in earlier calls.
    pub(crate) done: u32,
    /// It comes after those before it that do the same on its descriptor.
    pub(crate) ordered: bool,
    /// When it was made, for what is counted.
    pub(crate) started: u64,
}

impl Request {
    /// Is its file kept, or does its number still stand for it?
    fn has_its_file(&self) -> bool {
        self.call.kept.is_some() || self.file.is_some() && File::of(self.call.fd) == self.file
    }

    /// A blocking write to a pipe or a socket moves everything, and io_uring only what there is room for: moves on to the rest, if so. Its file is
    /// not kept: before Linux 6.13 one that nobody reads would keep every other kept file open, and the readers of those would see no end.
    fn goes_on(&mut self, raw: i32) -> bool {
        let (What::Write { len, .. }, Ok(moved)) = (&self.call.what, u32::try_from(raw)) else {
            return false;
        };
        let is_short = moved > 0 && moved < *len && self.file.is_some_and(File::is_stream);
        if !is_short || !self.has_its_file() || !file::blocks(self.call.fd) {
            return false;
        }
        if let What::Write { pointer, len, .. } = &mut self.call.what {
            *pointer = pointer.wrapping_add(moved as usize);
            *len -= moved;
        }
        self.done += moved;
        true
    }

    /// What its end is told as: what an error has cut short, as the bytes before it.
    fn sum(&self, raw: i32) -> i32 {
        match self.done {
            0 => raw,
            done => done as i32 + raw.max(0),
        }
    }
}

// SAFETY: the pointers are the program's, which has promised that any thread, and the kernel, may use them until the request ends.
#[allow(unsafe_code)]
unsafe impl Send for Request {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The place is free.
    Free,
    /// Something before it has to end.
    Held,
    /// It waits to be handed over.
    Ready,
    /// The kernel has it.
    Begun,
}

struct Place {
    uses: u32,
    stage: Stage,
    again: u8,
    /// Neighbours in the list of its descriptor.
    before: u32,
    after: u32,
    request: Option<Request>,
}

/// The requests of one descriptor, in order.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    held: u32,
}

/// Requests of one `lio_listio`.
struct Group {
    left: u32,
    failed: bool,
    /// A thread waits for it, and frees it.
    awaited: bool,
    notice: Notice,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Requests {
    places: Vec<Place>,
    free: Vec<u32>,
    lists: HashMap<RawFd, List, BuildHasherDefault<ByNumber>>,
    /// To be handed over, in order.
    ready: VecDeque<u32>,
    begun: usize,
    held: usize,
    /// In flight, with somebody to be told.
    notifying: usize,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    /// What is to be sent; threads apart, which a signal handler cannot start.
    notices: VecDeque<Notice>,
    threads: VecDeque<Notice>,
    /// Files of calls that have ended, to be given back to the ring.
    pub(crate) left: Vec<Kept>,
    /// Who moves results has just submitted: what was made then or later has ended at once.
    pub(crate) submitted: Option<u64>,
}

fn reads(call: &Call) -> bool {
    matches!(call.what, What::Read { .. })
}

fn syncs(call: &Call) -> bool {
    matches!(call.what, What::Sync { .. })
}

fn writes(call: &Call) -> bool {
    matches!(call.what, What::Write { .. })
}

impl Requests {
    /// Is there a request before a new one on this descriptor that reads, if that reads, or else writes?
    pub(crate) fn any_alike(&self, fd: RawFd, reading: bool) -> bool {
        let mut at = self.lists.get(&fd).map_or(NONE, |list| list.first);
        while let Some(place) = self.places.get(at as usize) {
            if place.request.as_ref().is_some_and(|it| reads(&it.call) == reading) {
                return true;
            }
            at = place.after;
        }
        false
    }

    /// Takes a request in; its name.
    pub(crate) fn insert(&mut self, mut request: Request) -> u64 {
        let at = match self.free.pop() {
            Some(at) => at,
            None => self.grow(),
        };
        let fd = request.call.fd;
        if request.call.kept.is_some() {
            // For all that are in flight: in a handler nothing is allocated.
            self.left.reserve(KEPT_MAX as usize);
        }
        let may = self.may_begin(fd, NONE, &request);
        let list = self.lists.entry(fd).or_insert(EMPTY);
        let before = std::mem::replace(&mut list.last, at);
        list.held += u32::from(!may);
        if list.first == NONE {
            list.first = at;
        }
        if let Some(place) = self.places.get_mut(before as usize) {
            place.after = at;
        }
        if !request.notice.is_none() {
            self.notifying += 1;
        }
        let place = &mut self.places[at as usize];
        // 31 bits: the highest names are the ring's.
        place.uses = (place.uses + 1) & (u32::MAX >> 1);
        let name = u64::from(place.uses) << 32 | u64::from(at);
        request.call.name = name;
        place.again = 0;
        (place.before, place.after) = (before, NONE);
        place.request = Some(request);
        if may {
            place.stage = Stage::Ready;
            self.ready.push_back(at);
        } else {
            place.stage = Stage::Held;
            self.held += 1;
        }
        name
    }

    /// One more place, and room for whatever may become of it: nothing is allocated later.
    fn grow(&mut self) -> u32 {
        self.places.push(Place {
            uses: 0,
            stage: Stage::Free,
            again: 0,
            before: NONE,
            after: NONE,
            request: None,
        });
        // Places double; so do these, each time to twice what all of them could need.
        let most = self.places.capacity() + self.groups.capacity();
        for queue in [&mut self.notices, &mut self.threads] {
            queue.reserve(most.saturating_sub(queue.len()));
        }
        self.ready.reserve(most.saturating_sub(self.ready.len()));
        self.free.reserve(most.saturating_sub(self.free.len()));
        self.places.len() as u32 - 1
    }

    /// May it begin, if it stands in the list before this one, or at its end?
    fn may_begin(&self, fd: RawFd, before: u32, request: &Request) -> bool {
        let is_sync = syncs(&request.call);
        if !is_sync && !request.ordered {
            return true;
        }
        let reading = reads(&request.call);
        let mut at = self.lists.get(&fd).map_or(NONE, |list| list.first);
        while at != before {
            let Some(place) = self.places.get(at as usize) else {
                break;
            };
            let bars = |it: &Request| if reading { reads(&it.call) } else { writes(&it.call) };
            if place.request.as_ref().is_some_and(bars) {
                return false;
            }
            at = place.after;
        }
        true
    }

    /// Moves calls that may begin to `calls`; how many. They count as the kernel's from here on.
    pub(crate) fn take_ready(&mut self, calls: &mut [Call]) -> usize {
        let mut count = 0;
        while count < calls.len() && self.begun < IN_RING_MAX {
            let Some(at) = self.ready.pop_front() else { break };
            let Some(place) = self.places.get_mut(at as usize) else {
                continue;
            };
            // One that was cancelled is not there any more, or another's by now, which is in the queue again.
            if place.stage != Stage::Ready {
                continue;
            }
            if let Some(request) = &place.request {
                place.stage = Stage::Begun;
                calls[count] = request.call;
                count += 1;
                self.begun += 1;
            }
        }
        count
    }

    /// A call that the kernel has ended.
    pub(crate) fn ended(&mut self, name: u64, raw: i32) {
        let Some(place) = self.place(name).filter(|place| place.stage == Stage::Begun) else {
            return;
        };
        let (mut again, mut raw) = (false, raw);
        if let Some(request) = &mut place.request {
            // The kernel has dropped it because the thread that had submitted it has ended: with threads of its own it would go on.
            let dropped = raw == -Errno::ECANCELED.raw() || raw == -Errno::EFAULT.raw() || raw == -Errno::EINTR.raw();
            if request.goes_on(raw) {
                again = true;
            } else if dropped && place.again < AGAIN_MAX {
                place.again += 1;
                again = true;
            } else if raw == -Errno::ESPIPE.raw() {
                // A socket that was not known to be one: as with read(2) its offset is forgotten.
                if let What::Read { offset, .. } | What::Write { offset, .. } = &mut request.call.what {
                    again = std::mem::take(offset) != 0;
                }
            }
            if again && !request.has_its_file() {
                again = false;
                raw = if dropped { raw } else { -Errno::EBADF.raw() };
            }
        }
        place.stage = Stage::Ready;
        self.begun -= 1;
        if again {
            self.ready.push_back(name as u32);
        } else {
            self.end(name as u32, raw);
        }
    }

    /// Takes one out that the kernel does not have, tells its status, and makes a note of whom to tell.
    fn end(&mut self, at: u32, raw: i32) {
        let place = &mut self.places[at as usize];
        let Some(request) = place.request.take() else { return };
        let was_held = place.stage == Stage::Held;
        place.stage = Stage::Free;
        self.left.extend(request.call.kept);
        let (before, after) = (place.before, place.after);
        self.free.push(at);
        self.held -= usize::from(was_held);
        if let Some(place) = self.places.get_mut(before as usize) {
            place.after = after;
        }
        if let Some(place) = self.places.get_mut(after as usize) {
            place.before = before;
        }
        let fd = request.call.fd;
        let mut held = 0;
        if let Some(list) = self.lists.get_mut(&fd) {
            list.held -= u32::from(was_held);
            held = list.held;
            if before == NONE {
                list.first = after;
            }
            if after == NONE {
                list.last = before;
            }
            if list.first == NONE && self.lists.len() > LISTS_KEPT {
                self.lists.remove(&fd);
            }
        }
        if held > 0 {
            self.let_go(fd, held);
        }
        self.tell(&request, raw);
    }

    fn tell(&mut self, request: &Request, raw: i32) {
        let raw = request.notice.judge(request.sum(raw));
        if !request.notice.is_none() {
            self.notifying -= 1;
            self.note(request.notice);
        }
        if let Some(sheet) = counted::sheet() {
            let at_once = self.submitted.is_some_and(|submitted| request.started >= submitted);
            let time = counted::now().saturating_sub(request.started);
            sheet.ended(counted::operation(&request.call.what), at_once, raw < 0, time);
        }
        // The status before the group: who waits for that must find it.
        // SAFETY: the request is under way, and its memory is there until this says that it has ended; it is touched no more.
        #[allow(unsafe_code)]
        unsafe {
            Aiocb::end(request.object, raw);
        }
        let Some(group) = self.groups.get_mut(request.group as usize) else {
            return;
        };
        group.left -= 1;
        group.failed |= raw < 0;
        if group.left == 0 && !group.awaited {
            let notice = group.notice;
            self.free_groups.push(request.group);
            if !notice.is_none() {
                self.notifying -= 1;
                self.note(notice);
            }
        }
    }

    pub(crate) fn note(&mut self, notice: Notice) {
        match notice {
            Notice::None => {}
            Notice::Signal { .. } => self.notices.push_back(notice),
            Notice::Thread { .. } => self.threads.push_back(notice),
        }
    }

    /// Lets begin what does not have to wait any longer on this descriptor.
    fn let_go(&mut self, fd: RawFd, mut held: u32) {
        let (mut any_read, mut any_write) = (false, false);
        let mut at = self.lists.get(&fd).map_or(NONE, |list| list.first);
        while held > 0 && !(any_read && any_write) {
            let Some(place) = self.places.get_mut(at as usize) else {
                break;
            };
            let Some(request) = &place.request else { break };
            let reading = reads(&request.call);
            if place.stage == Stage::Held {
                held -= 1;
                if !(if reading { any_read } else { any_write }) {
                    place.stage = Stage::Ready;
                    self.ready.push_back(at);
                    self.held -= 1;
                    if let Some(list) = self.lists.get_mut(&fd) {
                        list.held -= 1;
                    }
                }
            }
            any_read |= reading;
            any_write |= writes(&request.call);
            at = place.after;
        }
    }

    fn place(&mut self, name: u64) -> Option<&mut Place> {
        let place = self.places.get_mut(name as u32 as usize)?;
        (u64::from(place.uses) == name >> 32 && place.request.is_some()).then_some(place)
    }

    /// Is this request, which says that this is its name, in flight?
    pub(crate) fn has(&mut self, name: u64, object: *const Aiocb) -> bool {
        let place = self.place(name).and_then(|place| place.request.as_ref());
        place.is_some_and(|request| request.object.cast_const() == object)
    }

    /// Does it wait for another?
    pub(crate) fn is_held(&mut self, name: u64) -> bool {
        self.place(name).is_some_and(|place| place.stage == Stage::Held)
    }

    /// Ends what has not begun, of all of a descriptor or only of this name; how many were ended, and how many had begun.
    pub(crate) fn cancel(&mut self, fd: RawFd, only: Option<u64>) -> (u32, u32) {
        let (mut ended, mut begun) = (0, 0);
        // From the last: what is let go then has ended by then.
        let mut at = self.lists.get(&fd).map_or(NONE, |list| list.last);
        while let Some(place) = self.places.get(at as usize) {
            let (this, before, stage, uses) = (at, place.before, place.stage, place.uses);
            at = before;
            if only.is_some_and(|name| name != u64::from(uses) << 32 | u64::from(this)) {
                continue;
            }
            // One that is made again had begun.
            let done = place.request.as_ref().map_or(0, |request| request.done);
            if stage == Stage::Begun || place.again > 0 || done > 0 {
                begun += 1;
            } else {
                if stage == Stage::Ready {
                    self.ready.retain(|&other| other != this);
                }
                self.end(this, -Errno::ECANCELED.raw());
                ended += 1;
            }
        }
        (ended, begun)
    }

    /// The ring is gone: what the kernel does not have ends as an error. It still writes what it has.
    pub(crate) fn fail_what_has_not_begun(&mut self, errno: Errno) {
        for at in 0..self.places.len() as u32 {
            if self.places[at as usize].stage != Stage::Begun {
                self.end(at, -errno.raw());
            }
        }
        self.ready.clear();
    }

    /// Calls that the ring never took, which count as the kernel's.
    pub(crate) fn take_back(&mut self, calls: &[Call]) {
        for call in calls {
            if let Some(place) = self.place(call.name).filter(|place| place.stage == Stage::Begun) {
                place.stage = Stage::Ready;
                self.begun -= 1;
            }
        }
    }

    /// Has the kernel any?
    pub(crate) fn any_begun(&self) -> bool {
        self.begun > 0
    }

    /// A group of so many requests that are about to come; one more, so that it does not end before all have.
    pub(crate) fn group(&mut self, notice: Notice, awaited: bool) -> u32 {
        self.notifying += usize::from(!notice.is_none());
        let group = Group {
            left: 1,
            failed: false,
            awaited,
            notice,
        };
        match self.free_groups.pop() {
            Some(at) => {
                self.groups[at as usize] = group;
                at
            }
            None => {
                self.groups.push(group);
                self.free_groups.reserve(self.groups.capacity());
                let most = self.places.capacity() + self.groups.capacity();
                for queue in [&mut self.notices, &mut self.threads] {
                    queue.reserve(most.saturating_sub(queue.len()));
                }
                self.groups.len() as u32 - 1
            }
        }
    }

    pub(crate) fn join(&mut self, group: u32) {
        self.groups[group as usize].left += 1;
    }

    /// One of them was found bad, and has ended.
    pub(crate) fn fail_in(&mut self, group: u32) {
        self.groups[group as usize].failed = true;
    }

    /// All have come.
    pub(crate) fn close_group(&mut self, at: u32) {
        let group = &mut self.groups[at as usize];
        group.left -= 1;
        if group.left == 0 && !group.awaited {
            let notice = group.notice;
            self.free_groups.push(at);
            self.notifying -= usize::from(!notice.is_none());
            self.note(notice);
        }
    }

    /// Has all of it ended?
    pub(crate) fn is_over(&self, group: u32) -> bool {
        self.groups[group as usize].left == 0
    }

    /// Nobody waits for it any longer; did one of them fail?
    pub(crate) fn leave_group(&mut self, at: u32) -> bool {
        let group = &mut self.groups[at as usize];
        group.awaited = false;
        let failed = group.failed;
        if group.left == 0 {
            self.free_groups.push(at);
        }
        failed
    }

    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty() && self.begun < IN_RING_MAX
    }

    /// A signal to be sent, or a thread to be started, if that may be.
    pub(crate) fn next_notice(&mut self, threads_too: bool) -> Option<Notice> {
        let signal = self.notices.pop_front();
        signal.or_else(|| if threads_too { self.threads.pop_front() } else { None })
    }

    pub(crate) fn any_notice(&self) -> bool {
        !self.notices.is_empty()
    }

    pub(crate) fn any_thread(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Must something go on while nobody calls?
    pub(crate) fn need_a_helper(&self) -> bool {
        self.notifying > 0 || self.held > 0 || self.any_thread() || !self.ready.is_empty()
    }

    /// Is a write or a sync of a file under way? One of a pipe may never end. What its number stands for by now says nothing.
    pub(crate) fn any_write(&self) -> bool {
        let all = self.places.iter().filter_map(|place| place.request.as_ref());
        all.filter(|request| !reads(&request.call))
            .any(|request| request.file.is_none_or(|file| !file.is_stream()))
    }
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
    held: 0,
};

/// Lists without requests that are kept: a descriptor that was used is likely used again.
const LISTS_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Exit waits for a write of a file whose number is a pipe's by then, and not for one of a pipe whose number is a file's.
    #[test]
    fn what_a_number_stands_for_by_now_says_nothing_of_a_write() {
        let regular = tempfile::tempfile().unwrap();
        let (_end, pipe) = rustix::pipe::pipe().unwrap();
        let (regular, pipe) = (regular.as_raw_fd(), pipe.as_raw_fd());
        for (of, by_now, is_awaited) in [(regular, pipe, true), (pipe, regular, false)] {
            let mut requests = Requests::default();
            let pointer = std::ptr::null();
            requests.insert(Request {
                object: std::ptr::null_mut(),
                call: Call {
                    what: What::Write {
                        pointer,
                        len: 1,
                        offset: 0,
                        flags: 0,
                    },
                    fd: by_now,
                    kept: None,
                    beside: false,
                    priority: 0,
                    name: 0,
                },
                notice: Notice::None,
                group: NONE,
                file: File::of(of),
                done: 0,
                ordered: false,
                started: 0,
            });
            assert_eq!(requests.any_write(), is_awaited);
        }
    }
}
