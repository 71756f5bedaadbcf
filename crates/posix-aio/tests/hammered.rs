//! Eight threads submit, wait, cancel, sync and hand over lists at once, on a file and on pipes, with signals and threads that tell of it:
//! every request ends once, with the right bytes, is told of as often as it asked for, and its memory may go then.
//!
//! `sanitize.sh` runs this under ThreadSanitizer and AddressSanitizer. `BAIO_SECONDS` says how long; 1 if nothing does.

#![allow(unsafe_code)]

#[path = "../../libaio/tests/hammering/mod.rs"]
mod hammering;

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use baio_posix_aio::{
    Aiocb, aio_cancel, aio_error, aio_fsync, aio_read, aio_return, aio_suspend, aio_write, lio_listio,
};
use hammering::{Dice, PATIENCE, bounded, has_thread, in_shifts, pipe};

const THREADS: usize = 8;
const BYTES: usize = 512;
/// Bytes of the file for each thread, which hold its number.
const REGION: usize = 64 << 10;
/// Requests that a thread has at most, and so signals.
const MOST: usize = 24;
/// Requests that any thread may wait for, cancel and ask about.
const SHOWN: usize = 16;

const READ: c_int = 0;
const WRITE: c_int = 1;
const NOP: c_int = 2;
/// `LIO_WAIT`, `LIO_NOWAIT`.
const WAIT: c_int = 0;
const NO_WAIT: c_int = 1;

/// A request and its bytes.
struct Job {
    aiocb: Aiocb,
    bytes: [u8; BYTES],
    fill: u8,
    kind: Kind,
    /// So many times it is still to be told of.
    untold: AtomicI32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Sync,
    PipeRead,
}

/// What the threads share.
struct World {
    file: File,
    shown: [AtomicPtr<Job>; SHOWN],
    /// For each thread, the request of another's that it looks at.
    looked_at: [AtomicPtr<Job>; THREADS],
}

impl World {
    fn new() -> World {
        let file = tempfile::tempfile().unwrap();
        for thread in 0..THREADS {
            file.write_all_at(&[thread as u8 + 1; REGION], (thread * REGION) as u64)
                .unwrap();
        }
        World {
            file,
            shown: Default::default(),
            looked_at: Default::default(),
        }
    }

    /// May its owner free it? From here on nobody new looks at it.
    fn is_left_alone(&self, job: *mut Job) -> bool {
        for place in &self.shown {
            let _ = place.compare_exchange(job, null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        }
        // SeqCst, here and in `visit`: either they see that it is not shown any more, or we see them.
        self.looked_at.iter().all(|word| word.load(Ordering::SeqCst) != job)
    }
}

fn signal() -> c_int {
    libc::SIGRTMIN() + 1
}

/// A request, or a list by its first, has ended. In a signal handler, or in a thread that was made for it.
fn tell(value: *mut c_void) {
    let job: *mut Job = value.cast();
    // SAFETY: it is there as long as it is to be told of.
    unsafe {
        let request = &raw const (*job).aiocb;
        if aio_error(request) == libc::EINPROGRESS || aio_suspend(&raw const request, 1, null(), &mut 0) != 0 {
            // No panic can leave a handler.
            libc::abort();
        }
        // Release: whoever frees it comes after.
        if (*job).untold.fetch_sub(1, Ordering::Release) <= 0 {
            libc::abort();
        }
    }
}

extern "C" fn by_signal(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    if all_reach_us() {
        // SAFETY: the kernel gives the handler one, with the value of whoever has queued it.
        tell(unsafe { (*info).si_value().sival_ptr });
    }
}

unsafe extern "C" fn by_thread(value: *mut c_void) {
    tell(value);
}

/// Changes whether the signal is let through to this thread.
fn mask(how: c_int) {
    // SAFETY: all zeros are a set, an empty one, and nobody asks what was before.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal());
        assert_eq!(libc::pthread_sigmask(how, &raw const set, null_mut()), 0);
    }
}

extern "C" fn block() {
    mask(libc::SIG_BLOCK);
}

// SAFETY: functions of this section are called before `main`, with no thread but one; it makes a system call. Every thread has the mask
// of the one that has made it: no signal goes to those that do not ask for it.
#[used]
#[unsafe(link_section = ".init_array")]
static BLOCK: extern "C" fn() = block;

/// By a handler, in threads that let the signal through.
fn hear_signals() {
    // SAFETY: all zeros are an action, and the handler has the three arguments that the flag says.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = by_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal(), &raw const action, null_mut()), 0);
    }
}

/// Does every signal reach its handler? `BAIO_SIGNALS=lossy` says that it does not: then they interrupt, and nothing waits for them.
fn all_reach_us() -> bool {
    static ALL: OnceLock<bool> = OnceLock::new();
    *ALL.get_or_init(|| std::env::var_os("BAIO_SIGNALS").is_none_or(|how| how != "lossy"))
}

/// So many notices of this kind are to come.
fn notices(notify: c_int) -> i32 {
    match notify {
        libc::SIGEV_SIGNAL => i32::from(all_reach_us()),
        libc::SIGEV_THREAD => 1,
        _ => 0,
    }
}

/// A thread's own.
struct Worker {
    number: usize,
    dice: Dice,
    jobs: Vec<*mut Job>,
    pipe: (OwnedFd, OwnedFd),
    ended: u64,
    cancelled: u64,
}

// SAFETY: the jobs are its own.
unsafe impl Send for Worker {}

impl Worker {
    fn new(number: usize) -> Worker {
        Worker {
            number,
            dice: Dice::new(number),
            jobs: Vec::new(),
            pipe: pipe(0),
            ended: 0,
            cancelled: 0,
        }
    }

    fn fill(&self) -> u8 {
        self.number as u8 + 1
    }

    fn job(&mut self, world: &World, kind: Kind) -> *mut Job {
        // SAFETY: all zeros are a request, as C programs make it, and are valid for the rest.
        let mut aiocb: Aiocb = unsafe { std::mem::zeroed() };
        aiocb.fd = match kind {
            Kind::PipeRead => self.pipe.0.as_raw_fd(),
            _ => world.file.as_raw_fd(),
        };
        aiocb.opcode = if kind == Kind::Write { WRITE } else { READ };
        aiocb.bytes = BYTES;
        aiocb.offset = (self.number * REGION + self.dice.roll(REGION / BYTES) * BYTES) as i64;
        aiocb.priority = self.dice.roll(3) as c_int;
        let fill = self.fill();
        let reads = matches!(kind, Kind::Read | Kind::PipeRead);
        let job = Box::into_raw(Box::new(Job {
            aiocb,
            bytes: [if reads { 0 } else { fill }; BYTES],
            fill,
            kind,
            untold: AtomicI32::new(0),
        }));
        // SAFETY: nobody else has the job yet.
        let made = unsafe { &mut *job };
        made.aiocb.buffer = (&raw mut made.bytes).cast();
        let notify = match self.dice.roll(12) {
            0..6 => libc::SIGEV_NONE,
            6..11 => libc::SIGEV_SIGNAL,
            _ => libc::SIGEV_THREAD,
        };
        made.aiocb.event.notify = notify;
        made.aiocb.event.signal = signal();
        made.aiocb.event.function = Some(by_thread);
        made.aiocb.event.value = job.cast();
        *made.untold.get_mut() = notices(notify);
        job
    }

    fn any_kind(&mut self) -> Kind {
        match self.dice.roll(10) {
            0..5 => Kind::Read,
            _ => Kind::Write,
        }
    }

    fn show(&mut self, world: &World, job: *mut Job) {
        if self.dice.roll(2) == 0 {
            let place = &world.shown[self.dice.roll(SHOWN)];
            let _ = place.compare_exchange(null_mut(), job, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    fn submit(&mut self, world: &World) {
        let kind = match self.dice.roll(12) {
            0 => Kind::Sync,
            1 => Kind::PipeRead,
            _ => self.any_kind(),
        };
        let job = self.job(world, kind);
        self.jobs.push(job);
        // SAFETY: the job is freed when it has ended and was told of.
        let told = unsafe {
            let request = &raw mut (*job).aiocb;
            match kind {
                Kind::Write => aio_write(request),
                Kind::Sync => aio_fsync([libc::O_SYNC, libc::O_DSYNC][self.dice.roll(2)], request),
                Kind::Read | Kind::PipeRead => aio_read(request),
            }
        };
        assert_eq!(told, 0, "{}", Error::last_os_error());
        if kind == Kind::PipeRead && self.dice.roll(4) != 0 {
            self.feed();
        }
        self.show(world, job);
    }

    /// What one reads from the pipe: all of this thread's number, like everything.
    fn feed(&self) {
        assert_eq!(rustix::io::write(&self.pipe.1, &[self.fill(); BYTES]), Ok(BYTES));
    }

    fn list(&mut self, world: &World) {
        let count = 1 + self.dice.roll(6);
        let mut list = Vec::new();
        for _ in 0..count {
            let kind = self.any_kind();
            let job = self.job(world, kind);
            self.jobs.push(job);
            // SAFETY: as in `submit`.
            list.push(unsafe { &raw mut (*job).aiocb });
        }
        let first = self.jobs[self.jobs.len() - count];
        // A place without a request, and one that asks for nothing.
        list.push(null_mut());
        // SAFETY: as in `job`.
        let mut nothing: Aiocb = unsafe { std::mem::zeroed() };
        nothing.opcode = NOP;
        list.push(&raw mut nothing);
        let len = list.len() as c_int;
        // SAFETY: as in `job`; and as in `submit`. The first is told of once more, when all have ended.
        let (mode, told) = unsafe {
            if self.dice.roll(2) == 0 {
                (WAIT, lio_listio(WAIT, list.as_ptr(), len, null_mut()))
            } else {
                let mut event = (*first).aiocb.event;
                event.notify = [libc::SIGEV_SIGNAL, libc::SIGEV_THREAD][usize::from(self.dice.roll(8) == 0)];
                (*first).untold.fetch_add(notices(event.notify), Ordering::Relaxed);
                (NO_WAIT, lio_listio(NO_WAIT, list.as_ptr(), len, &raw mut event))
            }
        };
        let errno = Error::last_os_error().raw_os_error();
        // A signal ends the wait; a request that another thread has cancelled has failed.
        let excused = mode == WAIT && matches!(errno, Some(libc::EINTR | libc::EIO));
        assert!(told == 0 || excused, "{mode}: {errno:?}");
        for &job in &self.jobs[self.jobs.len() - count..] {
            // SAFETY: it is this thread's to free.
            let ended = unsafe { aio_error(&raw const (*job).aiocb) } != libc::EINPROGRESS;
            assert!(
                ended || mode == NO_WAIT || told != 0,
                "a list that was waited for has not ended"
            );
        }
    }

    /// Waits for one of its own, and sometimes for another's.
    fn suspend(&mut self, also: *mut Job) {
        let mut list: Vec<*const Aiocb> = vec![null()];
        let mine = self.jobs.iter().copied().take(self.dice.roll(5));
        // SAFETY: they are there as long as this thread waits.
        list.extend(
            mine.chain([also])
                .filter(|job| !job.is_null())
                .map(|job| unsafe { &raw const (*job).aiocb }),
        );
        if list.len() == 1 {
            return;
        }
        wait_for(&list, Duration::from_micros(self.dice.roll(3) as u64 * 300));
    }

    /// Looks at a request of whoever has shown one.
    fn visit(&mut self, world: &World) {
        let (place, word) = (&world.shown[self.dice.roll(SHOWN)], &world.looked_at[self.number]);
        let job = place.load(Ordering::SeqCst);
        word.store(job, Ordering::SeqCst);
        if job.is_null() || place.load(Ordering::SeqCst) != job {
            word.store(null_mut(), Ordering::SeqCst);
            return;
        }
        // SAFETY: its owner sees that it is looked at, and does not free it.
        unsafe {
            let request = &raw mut (*job).aiocb;
            match self.dice.roll(3) {
                0 => cancel((&raw const (*request).fd).read(), request),
                1 => self.suspend(job),
                _ if aio_error(request) == 0 => check(job),
                _ => {}
            }
        }
        word.store(null_mut(), Ordering::SeqCst);
    }

    /// Frees what has ended, was told of, and nobody looks at.
    fn sweep(&mut self, world: &World) {
        let jobs = std::mem::take(&mut self.jobs);
        for job in jobs {
            // SAFETY: it is there until this frees it. Acquire: who tells of it is done with it.
            let (status, untold) = unsafe {
                let status = aio_error(&raw const (*job).aiocb);
                (status, (*job).untold.load(Ordering::Acquire))
            };
            if status == libc::EINPROGRESS || untold > 0 || !world.is_left_alone(job) {
                self.jobs.push(job);
                continue;
            }
            // SAFETY: as above.
            let (result, kind) = unsafe { (aio_return(&raw mut (*job).aiocb), (*job).kind) };
            match (status, kind) {
                (0, Kind::Sync) => assert_eq!(result, 0),
                (0, _) => {
                    assert_eq!(result, BYTES as isize);
                    check(job);
                }
                (libc::ECANCELED, _) => assert_eq!(result, -1),
                _ => panic!("a request has ended with {status} and {result}"),
            }
            self.ended += u64::from(status == 0);
            self.cancelled += u64::from(status == libc::ECANCELED);
            // SAFETY: it came from a box, and nobody has it any more.
            unsafe {
                (&raw mut (*job).bytes).write_bytes(0xee, 1);
                drop(Box::from_raw(job));
            }
        }
    }

    fn work(&mut self, world: &World) {
        match self.dice.roll(16) {
            0..6 if self.jobs.len() < MOST => self.submit(world),
            6..9 if self.jobs.len() < MOST => self.list(world),
            9 => self.suspend(null_mut()),
            10 => {
                let some = self.jobs.first().copied();
                if let Some(job) = some {
                    // SAFETY: the job is this thread's.
                    unsafe { cancel((&raw const (*job).aiocb.fd).read(), &raw mut (*job).aiocb) };
                }
            }
            11 => self.cancel_pipe(),
            12 if self.dice.roll(16) == 0 => cancel(world.file.as_raw_fd(), null_mut()),
            _ => self.visit(world),
        }
        self.sweep(world);
    }

    /// Ends what reads from the pipe, for which there may be bytes or not.
    fn cancel_pipe(&self) {
        cancel(self.pipe.0.as_raw_fd(), null_mut());
    }

    /// What has not come to its end.
    fn left(&self) -> String {
        let told = self.jobs.iter().map(|&job| {
            // SAFETY: it is there, and this thread's to free.
            unsafe {
                (
                    (*job).kind,
                    aio_error(&raw const (*job).aiocb),
                    (*job).untold.load(Ordering::Relaxed),
                )
            }
        });
        format!(
            "requests, their status and how often they are still to be told of: {:?}",
            told.collect::<Vec<_>>()
        )
    }

    /// Waits until all has ended, been told of and freed.
    fn end(&mut self, world: &World) {
        let until = Instant::now() + PATIENCE;
        while !self.jobs.is_empty() {
            assert!(Instant::now() < until, "thread {}: {}", self.number, self.left());
            self.cancel_pipe();
            // One that has begun is not cancelled.
            if rustix::io::ioctl_fionread(&self.pipe.0) == Ok(0) {
                self.feed();
            }
            self.suspend(null_mut());
            self.sweep(world);
        }
    }
}

/// Bytes of its own thread, which nobody changes after its end.
fn check(job: *const Job) {
    // SAFETY: it is there, and has ended.
    unsafe {
        let fill = (*job).fill;
        let bytes = (&raw const (*job).bytes).read();
        assert!(
            bytes.iter().all(|&byte| byte == fill),
            "other bytes than those of thread {fill}"
        );
    }
}

fn cancel(fd: RawFd, request: *mut Aiocb) {
    // SAFETY: who calls this keeps the request.
    let told = unsafe { aio_cancel(fd, request) };
    assert!((0..3).contains(&told), "{told}: {}", Error::last_os_error());
}

/// As `aio_suspend` in C does.
fn wait_for(list: &[*const Aiocb], limit: Duration) {
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut until = 0;
    let told = loop {
        // SAFETY: who calls this keeps the requests.
        let told = unsafe { aio_suspend(list.as_ptr(), list.len() as c_int, &raw const limit, &mut until) };
        if told != 1 {
            break told;
        }
    };
    let errno = Error::last_os_error().raw_os_error();
    assert!(
        told == 0 || matches!(errno, Some(libc::EAGAIN | libc::EINTR)),
        "{told}: {errno:?}"
    );
}

#[test]
fn eight_threads_on_a_file_and_pipes() {
    bounded(hammer);
}

fn hammer(length: Duration) {
    // Before a handler asks.
    all_reach_us();
    hear_signals();
    let world = World::new();
    let workers = (0..THREADS).map(Worker::new).collect();
    let mut carried = false;
    let work = |worker: &mut Worker| {
        mask(libc::SIG_UNBLOCK);
        worker.work(&world);
    };
    let mut workers = in_shifts(workers, length, work, || carried |= has_thread("baio-posix-aio"));
    mask(libc::SIG_UNBLOCK);
    for worker in &mut workers {
        worker.end(&world);
        assert!(worker.ended > 0, "thread {} has seen no request end", worker.number);
    }
    let ended: u64 = workers.iter().map(|worker| worker.ended).sum();
    let cancelled: u64 = workers.iter().map(|worker| worker.cancelled).sum();
    println!("{ended} requests ended well, {cancelled} were cancelled");
    if !carried {
        let test = "hammered::eight_threads_on_a_file_and_pipes";
        eprintln!("SKIPPED: {test}: needs io_uring; glibc's threads were hammered");
    }
}
