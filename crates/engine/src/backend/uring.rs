//! io_uring: one ring, used by one thread at a time.
//!
//! Flags by default: SINGLE_ISSUER and DEFER_TASKRUN (completions are posted only when the owner enters, so they never
//! interrupt it), TASKRUN_FLAG (tells that an enter would find something: without it a peek never sees a completion),
//! NO_SQARRAY, SUBMIT_ALL. Each is dropped alone on a kernel that refuses it, newest first, and `explain` says so.
//!
//! A ring that any thread may use has the last two only: the kernel posts its completions from whichever thread has submitted,
//! as soon as it can.
//!
//! | file | what it holds |
//! |---|---|
//! | `uring.rs` | the ring, and the backend that it is |
//! | `uring/setup.rs` | which flags the kernel takes |
//! | `uring/entrance.rs` | how the kernel is entered |
//! | `uring/entries.rs` | what it is told of an iteration |
//! | `uring/registration.rs` | files and memory that it knows by a number |
//! | `uring/beside.rs` | what this kernel's ring cannot do |
//! | `uring/ready.rs` | what an outside loop sleeps on |
//! | `uring/shared.rs` | a ring for shims, which many threads use at once |
#![allow(unsafe_code)]

mod beside;
mod entrance;
mod entries;
mod ready;
mod registration;
mod setup;
pub mod shared;

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio_process::kernel::{self, Feature};
use io_uring::types::{self, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};

use crate::affinity::Affinity;
use crate::backend::{Attach, Backend, Detached, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::memory::Arena;
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Ended, SLOTS_MAX, Slots, State};
use crate::sys::{self, Action};

use beside::Beside;
use entrance::Entrance;
use entries::Entries;
use ready::Ready;
use setup::{build, explain_refusal, feature_of};

pub(crate) const NAME: &str = "uring";

/// Completions of our own housekeeping; no request has this generation and slot.
const DOORBELL: u64 = u64::MAX;
const IGNORED: u64 = u64::MAX - 1;

/// What the kernel calls a cancellation: its request, with this bit, which no slot's number has, and how often it has been sent.
const CANCEL: u64 = 1 << 31;
const SENT_ONCE: u64 = 1 << 24;
const SENT: u64 = 0x7f * SENT_ONCE;
const _: () = assert!(SENT_ONCE >= SLOTS_MAX as u64);

/// Files that can be registered at a time, two descriptions each.
const FILES: u32 = 64;

/// A no-op has ended long before.
const PROVEN: Duration = Duration::from_secs(60);

/// How long a turn that may sleep rests when the kernel takes no entry for want of memory.
const REFUSED: Duration = Duration::from_millis(1);

/// Kernel worker threads, for what cannot be done without: buffered writes on ext4, syncs.
const WORKERS_MAX: u32 = 16;

pub(crate) struct Uring {
    ring: IoUring,
    entrance: Entrance,
    entries: Entries,
    doorbell: Doorbell,
    /// Somebody else was given it, and may ring.
    doorbell_lent: Cell<bool>,
    doorbell_watched: bool,
    ready: Ready,
    knows: Knows,
    /// A request on a stream was started: see [`Ready`].
    streams: bool,
    /// A timer was started.
    has_timers: bool,
    /// Those that have ended in one turn; kept for its room.
    timers: Vec<Ended>,
    registered_files: Option<Box<[bool]>>,
    /// Places in it of files that have been detached while entries that the kernel has yet to take may name them.
    leaving: Vec<u32>,
    /// It is dropped while requests are under way that may never end.
    is_stuck: bool,
    /// What the kernel said when it was asked to register the arena and would not.
    arena_refused: Option<Errno>,
    mark: u64,
    affinity: Affinity,
    features: Vec<(&'static str, Result<(), String>)>,
    system_calls: u64,
    /// The doorbell rang while an outside loop slept.
    rang_outside: bool,
    /// Where this kernel cannot truncate, who does.
    beside: Option<Beside>,
    /// Cancellations that the queue had no room for, or that came too early: what the kernel calls them.
    unsent: Vec<u64>,
    /// What the kernel is made to say to every entry, and how often it has been entered then.
    #[cfg(test)]
    refused: Option<(Errno, u32)>,
}

/// Operations that this kernel's ring knows, as far as it is not taken for granted.
#[derive(Clone, Copy, Default)]
struct Knows {
    truncate: bool,
    lists: bool,
    /// What came with the same kernel as [`Feature::LateEventFd`].
    messages: bool,
    /// The kernel was asked, and this is what it said.
    refused: Option<Errno>,
}

impl Knows {
    fn of(ring: &IoUring) -> Knows {
        let mut probe = Probe::new();
        if let Err(error) = ring.submitter().register_probe(&mut probe) {
            return Knows {
                refused: Some(Errno::of(&error)),
                ..Knows::default()
            };
        }
        let all = |codes: &[u8]| codes.iter().all(|code| probe.is_supported(*code));
        Knows {
            truncate: all(&[opcode::Ftruncate::CODE]),
            lists: all(&[opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE]),
            messages: all(&[opcode::MsgRingData::CODE]),
            refused: None,
        }
    }

    /// For `explain`.
    fn feature_of(&self, feature: Feature, known: bool) -> (&'static str, Result<(), String>) {
        match self.refused {
            Some(errno) if !kernel::is_taken_away(feature) => {
                let why = format!("the operations of the ring cannot be asked for: {errno}");
                (feature.line().name, Err(why))
            }
            _ => feature_of(feature, known),
        }
    }
}

impl Uring {
    pub(crate) fn new(slots: u32, affinity: Affinity) -> Result<Uring, SetupError> {
        let slots = slots.max(1);
        let (mut ring, mut features) = build(slots, affinity, None)?;
        let knows = Knows::of(&ring);
        let mut ready = Ready::of(&mut ring, &features, knows.messages);
        if let Err(why) = &ready {
            drop(ring);
            (ring, features) = build(slots, affinity, Some(why))?;
            ready = Ready::of(&mut ring, &features, knows.messages);
        }
        let ready = ready.map_err(|_| explain_refusal(Errno::EPERM))?;
        static MARKS: AtomicU64 = AtomicU64::new(1);
        let mut uring = Uring {
            ring,
            entrance: Entrance::default(),
            entries: Entries::new(slots),
            doorbell: Doorbell::new()?,
            doorbell_lent: Cell::new(false),
            doorbell_watched: false,
            ready,
            knows,
            streams: false,
            has_timers: false,
            timers: Vec::new(),
            registered_files: None,
            leaving: Vec::new(),
            is_stuck: false,
            arena_refused: None,
            mark: MARKS.fetch_add(1, Ordering::Relaxed),
            affinity,
            features,
            system_calls: 0,
            rang_outside: false,
            beside: None,
            unsent: Vec::new(),
            #[cfg(test)]
            refused: None,
        };
        uring.prove()?;
        uring.prepare();
        Ok(uring)
    }

    /// A ring that can be set up may still be blocked at its first enter (seccomp), or at the first with a limit, so one no-op goes round.
    fn prove(&mut self) -> Result<(), SetupError> {
        let nop = opcode::Nop::new().build().user_data(IGNORED);
        // SAFETY: a no-op refers to no memory.
        let pushed = unsafe { self.ring.submission().push(&nop) };
        let entered = pushed
            .map_err(|_| Errno::EBUSY)
            .and_then(|()| self.enter_once(1, Some(&Timespec::from(PROVEN))));
        self.system_calls += 1;
        self.ring.completion().for_each(drop);
        entered.map_err(explain_refusal)
    }

    /// Asks for what is good to have; a refusal costs speed only.
    fn prepare(&mut self) {
        let submitter = self.ring.submitter();
        let files = asked(Feature::RegisteredFiles, || submitter.register_files_sparse(FILES * 2));
        if files.is_ok() {
            self.registered_files = Some(vec![false; FILES as usize].into());
        }
        let limits = &mut [WORKERS_MAX, WORKERS_MAX];
        let workers = asked(Feature::BoundedWorkers, || submitter.register_iowq_max_workers(limits));
        let registered = self.entrance.register(&self.ring);
        let truncates = self.knows.feature_of(Feature::Truncate, self.knows.truncate);
        self.beside = truncates.1.is_err().then(Beside::default);
        self.system_calls += 5;
        self.features.push((Feature::RegisteredFiles.line().name, files));
        self.features.push((Feature::BoundedWorkers.line().name, workers));
        self.features.push((Feature::RegisteredRing.line().name, registered));
        self.features.push(truncates);
        self.features.push(self.ready.feature());
    }

    /// Queues entries as long as there is room, and shows them to the kernel all at once.
    fn fill(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let mut room = self.ring.submission();
        for (taken, &id) in queue.iter().enumerate() {
            if room.is_full() {
                return taken;
            }
            let Some(iteration) = slots.iteration(id, self.mark) else {
                return taken;
            };
            let entry = match (&mut self.beside, iteration.action, slots.file(id)) {
                (Some(beside), Action::Truncate { len }, Some(file)) => {
                    self.streams = true; // It ends by an event fd: see `Ready`.
                    beside.truncate(id, file, len)
                }
                // The kernel believes a terminal that says it is writable, and would sleep in it: here, before the queue's others.
                (_, Action::Write { offset: -1, .. }, _) if slots.is_at_a_terminal(id) => {
                    self.entries.of(id, &iteration).flags(squeue::Flags::ASYNC)
                }
                _ => self.entries.of(id, &iteration),
            };
            // SAFETY: the entry's memory belongs to a slot, which is not emptied before its completion has been reaped.
            if unsafe { room.push(&entry) }.is_err() {
                return taken;
            }
            slots.transition(id, State::Running);
            self.streams = self.streams || slots.is_stream(id);
            self.has_timers = self.has_timers || matches!(iteration.action, Action::Timer { .. });
        }
        queue.len()
    }

    /// Queues an entry of our own, making room when the queue is full.
    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        // SAFETY: the doorbell's and the cancellations' entries refer to no memory.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.enter(0, None)?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::EBUSY)
    }

    /// Enters the kernel. Sleeping that was cut short (a signal, the time limit, a full completion queue) is no error:
    /// the caller looks at what has completed and decides again.
    fn enter(&mut self, want: usize, limit: Option<&Timespec>) -> Result<(), Errno> {
        self.system_calls += 1;
        let result = self.enter_once(want, limit);
        if !self.leaving.is_empty() {
            self.let_go();
        }
        match result {
            Err(Errno::EAGAIN) if want > 0 => {
                self.rest();
                Ok(())
            }
            Ok(()) | Err(Errno::EINTR | Errno::ETIME | Errno::EBUSY | Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The kernel has no memory for an entry: asking again at once would be a storm, unless something has ended that can be looked at meanwhile.
    fn rest(&mut self) {
        if self.ring.completion().is_empty() {
            std::thread::sleep(REFUSED);
        }
    }

    fn enter_once(&mut self, want: usize, limit: Option<&Timespec>) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some((errno, entered)) = &mut self.refused {
            *entered += 1;
            return Err(*errno);
        }
        let queue = self.ring.submission();
        let submit = queue.len() as u32;
        let mut flags = EnterFlags::empty();
        // What is waiting to be completed here is only completed by an enter that says so.
        if want > 0 || queue.taskrun() || queue.cq_overflow() {
            flags |= EnterFlags::GETEVENTS;
        }
        drop(queue);
        let limit = limit.map(|limit| SubmitArgs::new().timespec(limit));
        if limit.is_some() {
            flags |= EnterFlags::EXT_ARG;
        }
        // SAFETY: what the entries refer to belongs to slots, which are not emptied before they have ended.
        unsafe {
            self.entrance
                .enter(&self.ring, submit, want as u32, flags, limit.as_ref())
        }
    }

    /// Sends the cancellations that there was no room for, and those of streams that came too early.
    fn send_unsent(&mut self, slots: &Slots) {
        for name in std::mem::take(&mut self.unsent) {
            if slots.is_running(slots.named(name & !(CANCEL | SENT))) {
                self.send_cancel(name);
            }
        }
    }

    fn send_cancel(&mut self, name: u64) {
        let whose = name & !(CANCEL | SENT);
        let entry = opcode::AsyncCancel::new(whose).build().user_data(name + SENT_ONCE);
        if self.push(&entry).is_err() {
            self.unsent.push(name);
        }
    }

    /// False: the queue is full, and the kernel takes nothing out of it now.
    fn watch_doorbell(&mut self) -> Result<bool, Errno> {
        if !self.doorbell_watched {
            let fd = types::Fd(self.doorbell.fd().as_raw_fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32)
                .build()
                .user_data(DOORBELL);
            match self.push(&entry) {
                Err(Errno::EBUSY) => return Ok(false),
                pushed => pushed?,
            }
            self.doorbell_watched = true;
        }
        Ok(true)
    }

    fn reap(&mut self, slots: &Slots, done: &mut Done) {
        let mut rang = false;
        let before = done.raw.len();
        for entry in self.ring.completion() {
            match cqueue::Entry::user_data(&entry) {
                DOORBELL => rang = true,
                IGNORED => {}
                name if name & CANCEL != 0 => {
                    // The kernel may be about to poll a stream, or to leave the request to a worker, and finds it in neither place. A
                    // request at a disk is in none until it ends.
                    let is_early = entry.result() == -libc::ENOENT && name & SENT < SENT;
                    if is_early && slots.is_stream(slots.named(name & !(CANCEL | SENT))) {
                        self.unsent.push(name);
                    }
                }
                bits => {
                    let raw = entry.result();
                    let beside = self.beside.as_mut();
                    let raw = beside.map_or(raw, |beside| beside.ended(bits, raw));
                    done.raw.push((slots.named(bits), raw));
                }
            }
        }
        if self.has_timers && done.raw.len() > before + 1 {
            slots.in_the_order_of_time(&mut done.raw[before..], &mut self.timers);
        }
        if rang {
            self.doorbell_watched = false;
            done.rang |= self.doorbell.silence();
        }
    }

    fn must_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }
}

/// Asks the kernel to register something. What it says to what it does not know is `EINVAL`.
fn asked(feature: Feature, ask: impl FnOnce() -> std::io::Result<()>) -> Result<(), String> {
    if kernel::is_taken_away(feature) {
        kernel::has(feature, false);
        return Err(feature.missing());
    }
    ask().map_err(|error| match Errno::of(&error) {
        Errno::EINVAL => {
            kernel::has(feature, false);
            feature.missing()
        }
        errno => errno.to_string(),
    })
}

impl Backend for Uring {
    fn leak_memory(&mut self) {
        self.is_stuck = true;
        self.entries.leak_messages();
    }

    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let mut taken = self.fill(slots, queue);
        while taken < queue.len() && self.ring.submission().is_full() {
            if self.enter(0, None).is_err() || self.ring.submission().is_full() {
                break;
            }
            taken += self.fill(slots, &queue[taken..]);
        }
        taken
    }

    fn flush(&mut self) {
        if !self.ring.submission().is_empty() {
            // An error is told by the next turn, which enters again.
            let _ = self.enter(0, None);
        }
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.reap(slots, done);
        // Those that came too early are known by what has just been reaped.
        if !self.unsent.is_empty() {
            self.send_unsent(slots);
        }
        let Wait::Until { count, deadline, .. } = wait else {
            if self.must_enter() {
                self.enter(0, None)?;
                self.reap(slots, done);
            }
            self.rang_outside = false;
            return Ok(());
        };
        done.rang |= std::mem::take(&mut self.rang_outside);
        let want = (count.max(1) as usize).saturating_sub(done.raw.len());
        if want == 0 || done.rang {
            if self.must_enter() {
                self.enter(0, None)?;
                self.reap(slots, done);
            }
            return Ok(());
        }
        if self.doorbell_lent.get() && !self.watch_doorbell()? {
            // Nobody would hear it in a longer sleep. What has ended makes room, or the kernel has memory again soon.
            self.rest();
            self.reap(slots, done);
            return Ok(());
        }
        let limit = deadline.map(|at| {
            let left = at.since(sys::monotonic());
            Timespec::new().sec(left.as_secs()).nsec(left.subsec_nanos())
        });
        self.enter(want, limit.as_ref())?;
        self.reap(slots, done);
        Ok(())
    }

    fn cancel(&mut self, _: &Slots, id: RequestId) {
        if self.beside.as_ref().is_some_and(|beside| beside.has(id)) {
            return; // It is on its way, and cannot be called back.
        }
        self.send_cancel(id.to_bits() | CANCEL);
    }

    fn attach(&mut self, what: Attach<'_>) -> Result<(), Errno> {
        match what {
            Attach::File(file) => self.attach_file(file),
            Attach::Arena(arena) => self.attach_arena(arena),
        }
    }

    fn detach(&mut self, what: Detached<'_>) {
        let Detached::File(file) = what;
        self.detach_file(file);
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        let calls = self.ready.prepare(&self.ring, &self.doorbell).ok()?;
        self.system_calls += calls;
        if arm {
            self.system_calls += self.ready.arm(&mut self.ring, self.streams).ok()?;
        } else {
            self.ready.disarm(&mut self.ring);
            self.rang_outside |= self.doorbell.silence();
        }
        self.ready.fd()
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell_lent.set(true);
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        let mut features = self.features.clone();
        let arena = match (&self.entries.arena, self.arena_refused) {
            (Some(_), _) => Ok(()),
            (None, Some(Errno::ENOMEM)) => Err("refused: ENOMEM; raise RLIMIT_MEMLOCK (`ulimit -l`)".into()),
            (None, Some(errno)) => Err(format!("refused: {errno}")),
            (None, None) => Err("not asked for".into()),
        };
        features.push(("registered_arena", arena));
        Explain {
            backend: NAME,
            features,
        }
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }

    /// A ring of the doorbell is one completion among those waited for, and the kernel would sleep until they are as many.
    fn gains_by_gathering(&self) -> bool {
        !self.doorbell_lent.get()
    }

    /// A ring that one thread uses ends with that thread.
    fn loses_orphans(&self) -> bool {
        self.affinity == Affinity::AnyThread
    }

    fn disown(mut self: Box<Self>) {
        // The table is the parent's too. What is left to `drop`, unmapping and closing, concerns this process alone.
        self.registered_files = None;
        self.entrance.forget();
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }

    fn mark(&self) -> u64 {
        self.mark
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A registered file would keep its lock alive until the kernel gets round to closing the ring.
        if self.registered_files.is_some() {
            let submitter = self.ring.submitter();
            let _ = match self.is_stuck {
                false => submitter.unregister_files(),
                // From Linux 5.19 to 6.12 the table goes only when every request on one of its files has ended (`io_rsrc_ref_quiesce`,
                // io_uring/rsrc.c). Emptying it waits for nobody.
                true => submitter.register_files_update(0, &[-1; FILES as usize * 2]).map(drop),
            };
        }
        self.entrance.unregister(&self.ring);
    }
}

#[cfg(test)]
#[path = "uring/tests.rs"]
mod tests;
