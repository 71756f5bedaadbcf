//! Eight threads submit, reap, cancel and destroy at once, on files, pipes and event fds: every request ends once, with the right
//! bytes, and its memory may go when its event is there or its context is destroyed.
//!
//! `sanitize.sh` runs this under ThreadSanitizer and AddressSanitizer. What is handed from thread to thread travels through the library
//! alone: the threads' own words are ordered no more than they must be, since an order made here would hide a race there.
//! `BAIO_SECONDS` says how long; 1 if nothing does.

#![allow(unsafe_code)]

mod hammering;

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baio_libaio::{
    FLAG_EVENT_FD, IoEvent, Iocb, RingHeader, command, io_cancel, io_destroy, io_getevents, io_pgetevents, io_setup,
    io_submit,
};
use hammering::{Dice, PATIENCE, bounded, has_thread, in_shifts, pipe};
use rustix::event::EventfdFlags;

const THREADS: usize = 8;
const SLOTS: usize = 3;
const BYTES: usize = 512;
/// Bytes of the file for each thread, which hold its number.
const REGION: usize = 64 << 10;
/// Polls, of twelve requests.
const FEW: usize = 2;
const MANY: usize = 9;

const IN_FLIGHT: u8 = 0;
const ENDED: u8 = 1;

/// A request and its bytes.
struct Job {
    iocb: Iocb,
    bytes: [u8; BYTES],
    fill: u8,
    state: AtomicU8,
}

/// A context that all threads use.
#[derive(Default)]
struct Slot {
    context: AtomicUsize,
    /// Counts contexts that are gone.
    gone: AtomicU32,
}

/// Held while a context that others may be about to enter goes, and while one is made, which must not get its address: there is one for all
/// worlds, since tests that run at once share the addresses.
static GATE: AtomicBool = AtomicBool::new(false);

/// Opens it again, also when a claim fails inside: the others would wait for ever, and what has failed would be told by nobody.
struct AtTheGate;

impl Drop for AtTheGate {
    fn drop(&mut self) {
        GATE.store(false, Ordering::Relaxed);
    }
}

/// Alone with whoever else asks so. Relaxed: it keeps addresses apart, and orders nothing.
fn at_the_gate<T>(work: impl FnOnce() -> T) -> T {
    while GATE.swap(true, Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let _alone = AtTheGate;
    work()
}

/// What the threads share.
struct World {
    slots: [Slot; SLOTS],
    /// For each thread, the slot that it is in; 0 for none. One word each, and not a count: threads that only come and go must not be
    /// ordered by it.
    inside: [AtomicUsize; THREADS],
    /// Of twelve requests in slots, how many poll.
    polls: usize,
    /// Another one's numbers would do as well: it has nothing to read until somebody writes.
    silent: (OwnedFd, OwnedFd),
    file: File,
    event_fd: OwnedFd,
}

impl World {
    fn new(polls: usize) -> World {
        let file = tempfile::tempfile().unwrap();
        for thread in 0..THREADS {
            file.write_all_at(&[thread as u8 + 1; REGION], (thread * REGION) as u64)
                .unwrap();
        }
        World {
            slots: Default::default(),
            inside: Default::default(),
            polls,
            silent: pipe(libc::O_NONBLOCK),
            file,
            event_fd: event_fd(),
        }
    }

    /// Destroys the context of a slot under the feet of the others, if there is one.
    fn destroy(&self, slot: usize) {
        let at = &self.slots[slot];
        // At the gate all of it: a next context in this slot comes when the count says that this one is gone.
        at_the_gate(|| {
            let context = at.context.swap(0, Ordering::SeqCst);
            if context == 0 {
                return;
            }
            assert_eq!(io_destroy(context), 0);
            // SeqCst, here and in `enter`: either they see that it is gone, or we see them.
            let is_in = |thread: &AtomicUsize| thread.load(Ordering::SeqCst) == slot + 1;
            while self.inside.iter().any(is_in) {
                std::thread::yield_now();
            }
            // Release: whoever sees it may free what was in flight there.
            at.gone.fetch_add(1, Ordering::Release);
        });
    }

    /// A context for a slot, if it has none.
    fn fill(&self, slot: usize, requests: i32) {
        let place = &self.slots[slot].context;
        at_the_gate(|| {
            if place.load(Ordering::SeqCst) == 0 {
                place.store(set_up(requests), Ordering::SeqCst);
            }
        });
    }
}

fn set_up(requests: i32) -> usize {
    let until = Instant::now() + PATIENCE;
    let mut context = 0;
    // SAFETY: the one context is ours. All processes of the machine share fs.aio-max-nr.
    while unsafe { io_setup(requests, &raw mut context) } == -libc::EAGAIN {
        assert!(Instant::now() < until, "other programs have all of fs.aio-max-nr");
        std::thread::yield_now();
    }
    assert_ne!(context, 0);
    context
}

fn event_fd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Counts a thread into a slot while it lives.
struct Inside<'a> {
    word: &'a AtomicUsize,
    context: usize,
    gone: u32,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::SeqCst);
    }
}

/// A thread's own.
struct Worker {
    number: usize,
    dice: Dice,
    /// In flight in slots: the job, its slot, and how many contexts had gone there before.
    shared: VecDeque<(*mut Job, usize, u32)>,
    pipe: (OwnedFd, OwnedFd),
    event_fd: OwnedFd,
    ended: u64,
}

// SAFETY: the jobs are its own.
unsafe impl Send for Worker {}

impl Worker {
    fn new(number: usize) -> Worker {
        Worker {
            number,
            dice: Dice::new(number),
            shared: VecDeque::new(),
            pipe: pipe(0),
            event_fd: event_fd(),
            ended: 0,
        }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice.roll(sides)
    }

    fn job(&mut self, opcode: u16, fd: RawFd) -> *mut Job {
        let fill = self.number as u8 + 1;
        let job = Box::into_raw(Box::new(Job {
            iocb: Iocb {
                data: 0,
                key: 77,
                rw_flags: 0,
                opcode,
                priority: 0,
                fd: fd as u32,
                buffer: 0,
                bytes: 0,
                offset: 0,
                reserved: 0,
                flags: 0,
                event_fd: 0,
            },
            bytes: [fill; BYTES],
            fill,
            state: AtomicU8::new(IN_FLIGHT),
        }));
        let region = (self.number * REGION + self.roll(REGION / BYTES) * BYTES) as i64;
        // SAFETY: nobody else has the job yet.
        let made = unsafe { &mut *job };
        made.iocb.data = job.expose_provenance() as u64;
        match opcode {
            command::POLL => made.iocb.buffer = libc::POLLIN as u64,
            command::FSYNC | command::FDSYNC => {}
            _ => {
                made.iocb.buffer = (&raw mut made.bytes).expose_provenance() as u64;
                made.iocb.bytes = BYTES as u64;
                made.iocb.offset = region;
            }
        }
        if opcode == command::PREAD {
            made.bytes = [0; BYTES];
        }
        job
    }

    /// A request on the file, or, so many of twelve, a poll of what is silent.
    fn any_job(&mut self, world: &World, polls: usize) -> *mut Job {
        let file = world.file.as_raw_fd();
        let job = match (self.roll(12) < polls, self.roll(10)) {
            (true, _) => self.job(command::POLL, world.silent.0.as_raw_fd()),
            (false, 0) => self.job(command::FDSYNC, file),
            (false, 1..5) => self.job(command::PWRITE, file),
            _ => self.job(command::PREAD, file),
        };
        if self.roll(3) == 0 {
            let event_fd = match self.roll(2) {
                0 => world.event_fd.as_raw_fd(),
                _ => self.event_fd.as_raw_fd(),
            };
            // SAFETY: nobody else has the job yet.
            unsafe {
                (*job).iocb.flags = FLAG_EVENT_FD;
                (*job).iocb.event_fd = event_fd as u32;
            }
        }
        job
    }

    fn enter<'a>(&self, world: &'a World, slot: usize) -> Option<Inside<'a>> {
        let word = &world.inside[self.number];
        word.store(slot + 1, Ordering::SeqCst);
        let context = world.slots[slot].context.load(Ordering::SeqCst);
        let gone = world.slots[slot].gone.load(Ordering::Relaxed);
        let inside = Inside { word, context, gone };
        (context != 0).then_some(inside)
    }

    /// Submits; frees what was not taken, and says how many were.
    fn submit(&mut self, context: usize, jobs: &[*mut Job]) -> usize {
        // SAFETY: the jobs are ours until they are submitted.
        let mut list: Vec<*mut Iocb> = jobs.iter().map(|&job| unsafe { &raw mut (*job).iocb }).collect();
        // SAFETY: jobs are freed when they have ended or their context is gone.
        let told = unsafe { io_submit(context, list.len() as _, list.as_mut_ptr()) };
        assert!(told >= 0 || told == -libc::EAGAIN || told == -libc::EINVAL, "{told}");
        let taken = told.max(0) as usize;
        for &job in &jobs[taken..] {
            free(job);
        }
        taken
    }

    /// Takes events of a context; any thread's.
    fn reap(&mut self, context: usize, least: usize, most: usize, limit: Option<Duration>) -> usize {
        let mut events = vec![NO_EVENT; most];
        let mut time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time = time.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let (least, most) = (least as _, most as _);
        // SAFETY: there is room for so many events, and a null mask is none.
        let told = unsafe {
            match self.roll(2) {
                0 => io_getevents(context, least, most, events.as_mut_ptr(), time),
                _ => io_pgetevents(context, least, most, events.as_mut_ptr(), time, null_mut()),
            }
        };
        assert!(told >= 0 || told == -libc::EINVAL || told == -libc::EINTR, "{told}");
        let taken = told.max(0) as usize;
        events[..taken].iter().for_each(|event| self.end(event));
        taken
    }

    /// Looks at what a request has done, and gives it back to whoever submitted it.
    fn end(&mut self, event: &IoEvent) {
        let job: *mut Job = std::ptr::with_exposed_provenance_mut(event.data as usize);
        // SAFETY: it has ended, and who submitted it leaves it alone until it is told so.
        let job = unsafe { &mut *job };
        assert_eq!(event.object, (&raw mut job.iocb).addr() as u64);
        let all = |fill: u8| job.bytes.iter().all(|&byte| byte == fill);
        match job.iocb.opcode {
            command::PREAD => assert!(event.result > 0 && all(job.fill), "{event:?}"),
            command::PWRITE => assert_eq!(event.result, BYTES as i64),
            command::POLL => assert!(event.result >= 0, "{event:?}"),
            _ => assert_eq!(event.result, 0),
        }
        job.bytes.fill(0xee);
        let before = job.state.swap(ENDED, Ordering::Release);
        assert_eq!(before, IN_FLIGHT, "a request has ended twice");
        self.ended += 1;
    }

    /// Frees what has ended in the slots, or was in flight in one that is gone.
    fn sweep(&mut self, world: &World) {
        self.shared.retain(|&(job, slot, gone)| {
            // SAFETY: it is there until this frees it. Acquire: whoever took its event is done with it.
            let ended = unsafe { (*job).state.load(Ordering::Acquire) } == ENDED;
            let lost = world.slots[slot].gone.load(Ordering::Acquire) != gone;
            if ended || lost {
                free(job);
            }
            !(ended || lost)
        });
    }

    fn in_a_slot(&mut self, world: &World) {
        let slot = self.roll(SLOTS);
        match self.roll(64) {
            0 => return world.destroy(slot),
            1 => {
                // So that polls end.
                let _ = rustix::io::write(&world.silent.1, b"x");
                let _ = rustix::io::read(&world.silent.0, &mut [0; 64]);
            }
            2 => drop(rustix::io::read(&world.event_fd, &mut [0; 8])),
            // So that reads have to wait, and contexts go over.
            3 if self.roll(16) == 0 => {
                rustix::fs::fdatasync(&world.file).unwrap();
                rustix::fs::fadvise(&world.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            _ => {}
        }
        if world.slots[slot].context.load(Ordering::Relaxed) == 0 {
            let requests = 1 + self.roll(64) as i32;
            world.fill(slot, requests);
            return;
        }
        let Some(inside) = self.enter(world, slot) else {
            return;
        };
        match self.roll(5) {
            0 | 1 => {
                let count = 1 + self.roll(4);
                let jobs: Vec<_> = (0..count).map(|_| self.any_job(world, world.polls)).collect();
                let taken = self.submit(inside.context, &jobs);
                let gone = inside.gone;
                self.shared.extend(jobs[..taken].iter().map(|&job| (job, slot, gone)));
            }
            2 => {
                let polls = |&&(job, its, gone): &&(*mut Job, usize, u32)| {
                    // SAFETY: it is there until `sweep` frees it, in this thread.
                    its == slot
                        && gone == inside.gone
                        && unsafe { (&raw const (*job).iocb.opcode).read() } == command::POLL
                };
                if let Some(&(job, ..)) = self.shared.iter().find(polls) {
                    let mut event = NO_EVENT;
                    // SAFETY: as above.
                    let told = unsafe { io_cancel(inside.context, &raw mut (*job).iocb, &raw mut event) };
                    assert!(told == -libc::EINPROGRESS || told == -libc::EINVAL, "{told}");
                }
            }
            _ => {
                let most = 1 + self.roll(8);
                let least = self.roll(most + 1);
                let limit = Duration::from_micros(self.roll(2) as u64 * 500);
                self.reap(inside.context, least, most, Some(limit));
            }
        }
        drop(inside);
        self.sweep(world);
    }

    /// A context of this thread alone.
    fn alone(&mut self, world: &World) {
        let requests = 1 + self.roll(64) as i32;
        let context = at_the_gate(|| set_up(requests));
        let count = 1 + self.roll(16);
        let mut jobs: Vec<_> = (0..count).map(|_| self.any_job(world, FEW)).collect();
        if self.roll(2) == 0 {
            jobs.push(self.job(command::PREAD, self.pipe.0.as_raw_fd()));
        }
        let reads_pipe = jobs.len() > count;
        if reads_pipe {
            // What it reads from the pipe must be all of one thread's number, like everything.
            rustix::io::write(&self.pipe.1, &[self.number as u8 + 1; BYTES]).unwrap();
        }
        let taken = self.submit(context, &jobs);
        if reads_pipe && taken < jobs.len() {
            rustix::io::read(&self.pipe.0, &mut [0; BYTES]).unwrap();
        }
        jobs.truncate(taken);
        let mut polls = 0;
        for &job in &jobs {
            // SAFETY: nobody else has this context, and its events have not been taken.
            let request = unsafe { &raw mut (*job).iocb };
            // SAFETY: as above.
            if unsafe { (*request).opcode } == command::POLL {
                polls += 1;
                let mut event = NO_EVENT;
                if self.roll(2) == 0 {
                    // SAFETY: as above.
                    unsafe { io_cancel(context, request, &raw mut event) };
                }
            }
        }
        let sure = taken - polls;
        match self.roll(4) {
            // With everything in flight.
            0 => {}
            1 => {
                self.take_by_hand(context, sure);
            }
            2 => {
                self.reap(context, sure, taken.max(1), None);
            }
            _ => {
                let mut left = sure;
                while left > 0 {
                    let most = 1 + self.roll(left);
                    left -= self.reap(context, 1, most, Some(PATIENCE)).min(left);
                }
            }
        }
        assert_eq!(io_destroy(context), 0);
        jobs.into_iter().for_each(free);
    }

    /// Takes events from the live ring without a call, as fio does.
    fn take_by_hand(&mut self, context: usize, count: usize) {
        let ring: *mut RingHeader = std::ptr::with_exposed_provenance_mut(context);
        let until = Instant::now() + PATIENCE;
        // SAFETY: the context is ours, and these words of its ring are used as atomics by everybody.
        let (nr, head, tail) = unsafe {
            (
                (*ring).nr,
                AtomicU32::from_ptr(&raw mut (*ring).head),
                AtomicU32::from_ptr(&raw mut (*ring).tail),
            )
        };
        let mut taken = 0;
        while taken < count {
            let at = head.load(Ordering::Relaxed);
            if at == tail.load(Ordering::Acquire) {
                assert!(Instant::now() < until, "{taken} of {count} events in the live ring");
                std::thread::yield_now();
                continue;
            }
            // SAFETY: behind the header lie the events, and this one is there.
            let event = unsafe { ring.add(1).cast::<IoEvent>().add(at as usize).read() };
            self.end(&event);
            head.store((at + 1) % nr, Ordering::Release);
            taken += 1;
        }
    }
}

fn free(job: *mut Job) {
    // SAFETY: it came from a box, and has ended, was refused, or its context is gone.
    drop(unsafe { Box::from_raw(job) });
}

const NO_EVENT: IoEvent = IoEvent {
    data: 0,
    object: 0,
    result: 0,
    result2: 0,
};

#[test]
fn eight_threads_on_files_pipes_and_event_fds() {
    bounded(|length| hammer(FEW, length));
}

/// `io_cancel` and `io_destroy` reach a poll that another thread is about to hand over.
#[test]
fn polls_that_are_let_in_while_their_context_goes() {
    bounded(|length| hammer(MANY, length));
}

/// The same where every context is on a ring from the start.
#[test]
fn eight_threads_on_rings() {
    let program = std::env::current_exe().unwrap();
    for test in [
        "eight_threads_on_files_pipes_and_event_fds",
        "polls_that_are_let_in_while_their_context_goes",
    ] {
        let told = std::process::Command::new(&program)
            .args(["--exact", "--nocapture", test])
            .env("BAIO_LIBAIO", "uring")
            .status();
        assert!(told.unwrap().success(), "{test} on rings");
    }
}

#[test]
fn a_claim_that_fails_at_the_gate_leaves_it_open() {
    let failed = std::panic::catch_unwind(|| at_the_gate(|| panic!("as a claim fails")));
    assert!(failed.is_err());
    bounded(|_| at_the_gate(|| ()));
}

fn hammer(polls: usize, length: Duration) {
    let world = World::new(polls);
    let workers: Vec<Worker> = (0..THREADS).map(Worker::new).collect();
    let mut carried = false;
    let work = |worker: &mut Worker| match worker.roll(16) {
        0 => worker.alone(&world),
        _ => worker.in_a_slot(&world),
    };
    let mut workers = in_shifts(workers, length, work, || carried |= has_thread("baio-libaio"));
    for slot in 0..SLOTS {
        world.destroy(slot);
    }
    for worker in &mut workers {
        worker.sweep(&world);
        assert!(worker.shared.is_empty(), "a request outlives its context");
    }
    let ended: u64 = workers.iter().map(|worker| worker.ended).sum();
    assert!(ended > 0, "no thread has seen an event");
    println!("{ended} requests ended");
    if !carried {
        let test = "hammered::eight_threads_on_files_pipes_and_event_fds";
        eprintln!("SKIPPED: {test}: needs io_uring; the kernel's own calls were hammered");
    }
}
