//! What programs do with one context, told by both libraries alike: each claim runs over ours and over the distribution's.

#![allow(unsafe_code)]

mod common;

use std::collections::HashSet;
use std::ffi::{c_long, c_void};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use baio_libaio::{FLAG_EVENT_FD, IoEvent, Iocb, RING_MAGIC, RingHeader, command};
use common::{Library, NO_EVENT, request};

/// Runs a claim over both.
fn both(claim: impl Fn(&Library)) {
    claim(&Library::ours());
    match Library::original() {
        Some(original) => claim(&original),
        None => {
            let thread = std::thread::current();
            let test = format!("calls::{}: the comparison", thread.name().unwrap_or_default());
            common::skipped(&test, "libaio.so.1 (`apt install libaio1`)");
        }
    }
}

/// The kernel may say of a poll more than it was asked for: `POLLRDNORM`.
fn readable(events: &[IoEvent]) -> i64 {
    assert!(events[0].result > 0, "the poll ended with {}", events[0].result);
    events[0].result & i64::from(libc::POLLIN)
}

const EINVAL: i32 = -libc::EINVAL;
const EBADF: i32 = -libc::EBADF;

fn ring(context: usize) -> RingHeader {
    // SAFETY: a context points at its live ring.
    unsafe { std::ptr::with_exposed_provenance::<RingHeader>(context).read_volatile() }
}

#[test]
fn reads_writes_and_syncs() {
    both(|library| {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let context = library.context(8);
        let mut bytes = *b"hello world";
        let mut write = request(command::PWRITE, fd, bytes.as_mut_ptr(), 11, 4096);
        write.data = 42;
        assert_eq!(library.submit_one(context, &mut write), 1);
        assert_eq!(write.key, 0, "the library writes the key");
        let event = library.events(context, 1)[0];
        let told = (event.data, event.object, event.result, event.result2);
        assert_eq!(told, (42, std::ptr::from_mut(&mut write).addr() as u64, 11, 0));

        let mut sync = request(command::FSYNC, fd, std::ptr::null_mut(), 0, 0);
        let mut data_sync = request(command::FDSYNC, fd, std::ptr::null_mut(), 0, 0);
        let mut list = [&raw mut sync, &raw mut data_sync];
        // SAFETY: both requests stay.
        assert_eq!(unsafe { (library.submit)(context, 2, list.as_mut_ptr()) }, 2);
        assert!(library.events(context, 2).iter().all(|event| event.result == 0));

        // The list of memory may go when `io_submit` has returned.
        let (mut one, mut two) = ([0_u8; 5], [0_u8; 100]);
        let part = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut parts = vec![part(&mut one), part(&mut two)];
        let mut read = request(command::PREADV, fd, parts.as_mut_ptr().cast(), 2, 4096);
        assert_eq!(library.submit_one(context, &mut read), 1);
        parts.fill(part(&mut []));
        assert_eq!(
            library.events(context, 1)[0].result,
            11,
            "a short read is told as it is"
        );
        assert_eq!((&one, &two[..6]), (b"hello", &b" world"[..]));
        library.end_and(context, || {
            // SAFETY: the context is gone, and the library says so.
            assert_eq!(unsafe { (library.destroy)(context) }, EINVAL, "{}", library.name);
        });
    });
}

/// Of several requests those before the first bad one are taken, and its fault is told only when it is the first.
#[test]
fn the_first_bad_request_ends_a_submission() {
    both(|library| {
        let file = tempfile::tempfile().unwrap();
        let context = library.context(8);
        let mut byte = [7_u8];
        let fd = file.as_raw_fd();
        let good = |at: i64, byte: &mut [u8]| request(command::PWRITE, fd, byte.as_mut_ptr(), 1, at);
        let mut closed = good(1, &mut byte);
        closed.fd = 1 << 20;
        let mut reserved = good(1, &mut byte);
        reserved.reserved = 1;
        let mut negative = good(-1, &mut byte);
        let mut noop = request(command::NOOP, fd, std::ptr::null_mut(), 0, 0);
        let mut unknown = request(99, fd, std::ptr::null_mut(), 0, 0);
        let mut flags = good(1, &mut byte);
        flags.rw_flags = 1 << 30;
        let mut event_fd = good(1, &mut byte);
        (event_fd.flags, event_fd.event_fd) = (FLAG_EVENT_FD, fd as u32);
        let mut sync = request(command::FSYNC, fd, std::ptr::null_mut(), 1, 0);
        let mut poll = request(
            command::POLL,
            fd,
            std::ptr::without_provenance_mut(libc::POLLPRI as usize),
            0,
            0,
        );
        let bad: [(&mut Iocb, i32); 9] = [
            (&mut closed, EBADF),
            (&mut reserved, EINVAL),
            (&mut negative, EINVAL),
            (&mut noop, EINVAL),
            (&mut unknown, EINVAL),
            (&mut flags, -libc::EOPNOTSUPP),
            (&mut event_fd, EINVAL),
            (&mut sync, EINVAL),
            (&mut poll, EINVAL),
        ];
        for (at, (bad, errno)) in bad.into_iter().enumerate() {
            assert_eq!(
                library.submit_one(context, bad),
                errno,
                "{}: bad request {at}",
                library.name
            );
            let (mut before, mut behind) = (good(0, &mut byte), good(5000, &mut byte));
            let mut list = [&raw mut before, std::ptr::from_mut(bad), &raw mut behind];
            // SAFETY: the requests stay.
            let told = unsafe { (library.submit)(context, 3, list.as_mut_ptr()) };
            assert_eq!(told, 1, "{}: bad request {at} as the second", library.name);
            assert_eq!(library.events(context, 1)[0].result, 1);
        }
        assert_eq!(
            file.metadata().unwrap().len(),
            1,
            "what stood behind a bad one was not run"
        );
        library.end(context);
    });
}

/// Programs submit buffered writes and a sync together: the sync is to cover them.
#[test]
fn a_sync_comes_after_the_writes_before_it() {
    both(|library| {
        // In memory a sync has nothing to do, and would overtake.
        let file = tempfile::tempfile_in("/dev/shm")
            .or_else(|_| tempfile::tempfile())
            .unwrap();
        let context = library.context(64);
        let mut bytes = vec![5_u8; 1 << 20];
        let base = bytes.as_mut_ptr();
        for round in 0..20 {
            let mut requests: Vec<Iocb> = (0..8)
                .map(|at| request(command::PWRITE, file.as_raw_fd(), base, 1 << 20, at << 20))
                .collect();
            requests.push(request(command::FDSYNC, file.as_raw_fd(), std::ptr::null_mut(), 0, 0));
            let sync = std::ptr::from_ref(&requests[8]).addr() as u64;
            let mut list: Vec<*mut Iocb> = requests.iter_mut().map(std::ptr::from_mut).collect();
            // Together, and one by one.
            let parts = if round % 2 == 0 { 9 } else { 1 };
            for part in list.chunks_mut(parts) {
                // SAFETY: the requests stay.
                let told = unsafe { (library.submit)(context, part.len() as c_long, part.as_mut_ptr()) };
                assert_eq!(told, part.len() as i32);
            }
            let events = library.events(context, 9);
            let at = events.iter().position(|event| event.object == sync);
            assert_eq!(at, Some(8), "{}: the sync ended before a write", library.name);
        }
        library.end(context);
    });
}

#[test]
fn modes_and_pipes_are_refused_as_the_kernel_does() {
    both(|library| {
        let place = tempfile::NamedTempFile::new().unwrap();
        let reads = std::fs::File::open(place.path()).unwrap();
        let writes = std::fs::OpenOptions::new().write(true).open(place.path()).unwrap();
        let (out, _in) = std::io::pipe().unwrap();
        let context = library.context(8);
        let mut byte = [0_u8];
        let bytes = byte.as_mut_ptr();
        let told = |mut request: Iocb| library.submit_one(context, &mut request);
        assert_eq!(told(request(command::PWRITE, reads.as_raw_fd(), bytes, 1, 0)), EBADF);
        assert_eq!(told(request(command::PREAD, writes.as_raw_fd(), bytes, 1, 0)), EBADF);
        assert_eq!(
            told(request(command::FSYNC, out.as_raw_fd(), std::ptr::null_mut(), 0, 0)),
            EINVAL
        );
        library.end(context);
    });
}

#[test]
fn arguments_are_refused() {
    both(|library| {
        let mut context = 0;
        let mut events = [NO_EVENT];
        let events = events.as_mut_ptr();
        // SAFETY: the arguments are this test's.
        unsafe {
            assert_eq!((library.setup)(0, &raw mut context), EINVAL);
            assert_eq!((library.setup)(-1, &raw mut context), EINVAL);
            assert_eq!((library.queue_init)(-1, &raw mut context), EINVAL);
            assert_eq!((library.setup)(1, std::ptr::null_mut()), -libc::EFAULT);
            context = 8;
            assert_eq!(
                (library.setup)(1, &raw mut context),
                EINVAL,
                "a context must be 0 before"
            );
        }
        let context = library.context(1);
        let none = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            assert_eq!((library.get_events)(context, 2, 1, events, none), EINVAL);
            assert_eq!((library.get_events)(context, -1, 1, events, none), EINVAL);
            assert_eq!((library.get_events)(context, 0, 0, std::ptr::null_mut(), none), 0);
            assert_eq!((library.submit)(context, -1, std::ptr::null_mut()), EINVAL);
            assert_eq!((library.submit)(context, 0, std::ptr::null_mut()), 0);
            assert_eq!(
                (library.submit)(context, 1, [std::ptr::null_mut()].as_mut_ptr()),
                -libc::EFAULT
            );
        }
        library.end_and(context, || {
            // SAFETY: as above.
            let told = unsafe { (library.submit)(context, 0, std::ptr::null_mut()) };
            assert_eq!(told, EINVAL, "it is gone");
        });
    });
}

/// As long as no event is taken, a context lets in as many as the kernel's does, and says EAGAIN then.
#[test]
fn a_full_context_says_so() {
    // The kernel keeps places apart for each processor.
    // SAFETY: a set of processors of ours.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut may);
        let first = (0..1024).find(|&at| libc::CPU_ISSET(at, &may)).unwrap();
        libc::CPU_SET(first, &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
    }
    let let_in = |library: &Library, requests| {
        let file = tempfile::tempfile().unwrap();
        let context = library.context(requests);
        let mut byte = [7_u8];
        let mut write = request(command::PWRITE, file.as_raw_fd(), byte.as_mut_ptr(), 1, 0);
        let mut count = 0;
        while library.submit_one(context, &mut write) == 1 {
            count += 1;
        }
        assert_eq!(library.submit_one(context, &mut write), -libc::EAGAIN);
        assert_eq!(library.events(context, count).len(), count);
        assert_eq!(library.submit_one(context, &mut write), 1, "there is room again");
        library.events(context, 1);
        library.end(context);
        count
    };
    let ours = Library::ours();
    let counts = [1, 64, 100].map(|requests| let_in(&ours, requests));
    assert!(counts.iter().zip([1, 64, 100]).all(|(&count, asked)| count >= asked));
    match Library::original() {
        Some(original) => assert_eq!(counts, [1, 64, 100].map(|requests| let_in(&original, requests))),
        None => common::skipped("calls::a_full_context_says_so", "libaio.so.1"),
    }
}

#[test]
fn polls_end_when_there_is_something_and_can_be_cancelled() {
    both(|library| {
        let (mut out, mut into) = std::io::pipe().unwrap();
        let context = library.context(8);
        let mut poll = request(
            command::POLL,
            out.as_raw_fd(),
            std::ptr::without_provenance_mut(libc::POLLIN as usize),
            0,
            0,
        );
        assert_eq!(library.submit_one(context, &mut poll), 1);
        into.write_all(b"x").unwrap();
        assert_eq!(readable(&library.events(context, 1)), 1);
        out.read_exact(&mut [0]).unwrap();

        assert_eq!(library.submit_one(context, &mut poll), 1);
        let mut event = NO_EVENT;
        // SAFETY: request and event are this test's.
        unsafe {
            assert_eq!(
                (library.cancel)(context, &raw mut poll, &raw mut event),
                -libc::EINPROGRESS
            );
            assert_eq!(library.events(context, 1)[0].result, 0, "{}", library.name);
            assert_eq!((library.cancel)(context, &raw mut poll, &raw mut event), EINVAL);
            assert_eq!((library.cancel_0_1)(context, &raw mut poll), EINVAL);
        }
        // One in flight does not keep the context.
        assert_eq!(library.submit_one(context, &mut poll), 1);
        library.end(context);
    });
}

/// Programs read the ring without a call. In the kernel's it has these fields, and so it has in ours.
#[test]
fn the_live_ring_is_kept_up_to_date_without_a_call() {
    both(|library| {
        let file = tempfile::tempfile().unwrap();
        let context = library.context(64);
        let before = ring(context);
        let told = (
            before.magic,
            before.header_length,
            before.compat_features,
            before.incompat_features,
        );
        assert_eq!(told, (RING_MAGIC, 32, 1, 0));
        assert_eq!((before.head, before.tail), (0, 0));
        let mut byte = [7_u8];
        let mut write = request(command::PWRITE, file.as_raw_fd(), byte.as_mut_ptr(), 1, 0);
        let mut sync = request(command::FSYNC, file.as_raw_fd(), std::ptr::null_mut(), 0, 0);
        let mut list = [&raw mut write, &raw mut sync];
        // SAFETY: both stay.
        assert_eq!(unsafe { (library.submit)(context, 2, list.as_mut_ptr()) }, 2);
        while ring(context).tail != 2 {
            std::thread::yield_now();
        }
        // SAFETY: the event is there, since the tail has passed it.
        let first = unsafe { std::ptr::with_exposed_provenance::<IoEvent>(context + 32).read_volatile() };
        let ours = [&raw mut write, &raw mut sync].map(|request| request.addr() as u64);
        assert!(ours.contains(&first.object));
        // The program takes the first itself.
        // SAFETY: the head is the program's to move.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(context + 8).write_volatile(1) };
        let other = library.events(context, 1)[0].object;
        assert!(ours.contains(&other) && other != first.object);
        assert_eq!((ring(context).head, ring(context).tail), (2, 2));
        library.end(context);
    });
}

#[test]
fn rings_are_as_large_as_the_kernels() {
    let Some(original) = Library::original() else {
        return common::skipped("calls::rings_are_as_large_as_the_kernels", "libaio.so.1");
    };
    let ours = Library::ours();
    for requests in [1, 7, 64, 128, 1000, 4096] {
        let nr = [&original, &ours].map(|library| {
            let context = library.context(requests);
            let nr = ring(context).nr;
            library.end(context);
            nr
        });
        assert_eq!(nr[0], nr[1], "{requests}");
    }
}

/// Each request has an event fd of its own, and one of them is closed meanwhile: its number is another file's, which must not be written.
#[test]
fn event_fds_are_signalled_without_a_call() {
    both(|library| {
        let (out, mut into) = std::io::pipe().unwrap();
        let context = library.context(8);
        let fds = [0, 1].map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap());
        let kept = rustix::io::dup(&fds[1]).unwrap();
        let mut polls = fds.each_ref().map(|fd| {
            let events = std::ptr::without_provenance_mut(libc::POLLIN as usize);
            let mut poll = request(command::POLL, out.as_raw_fd(), events, 0, 0);
            (poll.flags, poll.event_fd) = (FLAG_EVENT_FD, fd.as_raw_fd() as u32);
            poll
        });
        for poll in &mut polls {
            assert_eq!(library.submit_one(context, poll), 1);
        }
        let [first, mut second] = fds;
        let victim = tempfile::tempfile().unwrap();
        rustix::io::dup2(&victim, &mut second).unwrap();
        into.write_all(b"x").unwrap();
        for fd in [&first, &kept] {
            let mut count = [0; 8];
            assert_eq!(rustix::io::read(fd, &mut count), Ok(8));
            assert_eq!(u64::from_ne_bytes(count), 1, "{}", library.name);
        }
        assert_eq!(
            library.events(context, 2).len(),
            2,
            "an event is there when its event fd says so"
        );
        assert_eq!(victim.metadata().unwrap().len(), 0, "another file was written");
        library.end(context);
    });
}

#[test]
fn a_limit_ends_a_wait_with_what_there_is() {
    both(|library| {
        let file = tempfile::tempfile().unwrap();
        let context = library.context(8);
        let mut byte = [7_u8];
        let mut write = request(command::PWRITE, file.as_raw_fd(), byte.as_mut_ptr(), 1, 0);
        assert_eq!(library.submit_one(context, &mut write), 1);
        while ring(context).tail == 0 {
            std::thread::yield_now();
        }
        let mut events = [NO_EVENT; 2];
        let mut limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let mut wait = |limit: &mut libc::timespec| {
            // SAFETY: there is room for two.
            unsafe { (library.get_events)(context, 2, 2, events.as_mut_ptr(), limit) }
        };
        assert_eq!(wait(&mut limit), 1, "{}", library.name);
        assert_eq!(wait(&mut limit), 0);
        limit.tv_nsec = 0;
        assert_eq!(wait(&mut limit), 0);
        library.end(context);
    });
}

#[test]
fn the_old_forms_and_callbacks_work() {
    unsafe extern "C" fn callback(_: usize, request: *mut Iocb, result: c_long, _: c_long) {
        // SAFETY: the request's bytes are the test's counter, which nobody else uses now.
        unsafe { *std::ptr::with_exposed_provenance_mut::<u8>((*request).buffer as usize) += result as u8 };
    }
    both(|library| {
        let file = tempfile::tempfile().unwrap();
        let mut context = 5;
        // SAFETY: the context is this test's.
        assert_eq!(unsafe { (library.queue_init)(4, &raw mut context) }, 0);
        let mut byte = [7_u8];
        let bytes = byte.as_mut_ptr();
        let mut write = request(command::PWRITE, file.as_raw_fd(), bytes, 1, 0);
        write.data = callback as *mut c_void as u64;
        assert_eq!(library.submit_one(context, &mut write), 1);
        while ring(context).tail != 1 {
            std::thread::yield_now();
        }
        // SAFETY: the one request names a callback.
        assert_eq!(unsafe { (library.queue_run)(context) }, 0);
        assert_eq!(byte, [8], "{}", library.name);
        assert_eq!(library.submit_one(context, &mut write), 1);
        let mut event = NO_EVENT;
        // SAFETY: there is room for one.
        let told = unsafe { (library.get_events_0_1)(context, 1, &raw mut event, std::ptr::null()) };
        assert_eq!((told, event.result), (1, 1));
        library.end(context);
    });
}

/// Threads submit and wait on one context, and every event is somebody's once.
#[test]
fn any_number_of_threads_use_one_context() {
    both(|library| {
        const THREADS: usize = 4;
        const EACH: usize = 500;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        let context = library.context(THREADS as i32 * 4);
        let seen = std::sync::Mutex::new(HashSet::new());
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (file, seen, taken) = (&file, &seen, &taken);
                scope.spawn(move || {
                    let mut bytes = vec![0_u8; EACH];
                    let base = bytes.as_mut_ptr();
                    let mut requests: Vec<Iocb> = (0..EACH)
                        .map(|at| {
                            let mut read =
                                request(command::PREAD, file.as_raw_fd(), base.wrapping_add(at), 1, at as i64);
                            read.data = (thread * EACH + at + 1) as u64;
                            read
                        })
                        .collect();
                    let mut next = 0;
                    while taken.load(std::sync::atomic::Ordering::SeqCst) < THREADS * EACH {
                        if next < EACH && library.submit_one(context, &mut requests[next]) == 1 {
                            next += 1;
                        }
                        let mut events = [NO_EVENT; 3];
                        let mut limit = libc::timespec {
                            tv_sec: 0,
                            tv_nsec: 1_000_000,
                        };
                        // SAFETY: there is room for three.
                        let told = unsafe { (library.get_events)(context, 1, 3, events.as_mut_ptr(), &raw mut limit) };
                        for event in &events[..told.max(0) as usize] {
                            assert_eq!(event.result, 1);
                            assert!(seen.lock().unwrap().insert(event.data), "an event came twice");
                            taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        }
                    }
                    assert_eq!(next, EACH);
                    assert_eq!(bytes, vec![1; EACH]);
                });
            }
        });
        assert_eq!(seen.lock().unwrap().len(), THREADS * EACH);
        library.end(context);
    });
}

/// A request outlives the thread that has submitted it.
#[test]
fn a_thread_may_end_with_its_requests_in_flight() {
    both(|library| {
        let (out, mut into) = std::io::pipe().unwrap();
        let file = tempfile::tempfile().unwrap();
        let context = library.context(64);
        let mut bytes = vec![3_u8; 32 * 4096];
        let base = bytes.as_mut_ptr();
        let mut poll = request(
            command::POLL,
            out.as_raw_fd(),
            std::ptr::without_provenance_mut(libc::POLLIN as usize),
            0,
            0,
        );
        let mut writes: Vec<Iocb> = (0..32)
            .map(|at| {
                let bytes = base.wrapping_add(at * 4096);
                request(command::PWRITE, file.as_raw_fd(), bytes, 4096, at as i64 * 4096)
            })
            .collect();
        std::thread::scope(|scope| {
            let (writes, poll) = (&mut writes, &mut poll);
            let submit = move || {
                let mut list: Vec<*mut Iocb> = writes.iter_mut().map(std::ptr::from_mut).collect();
                list.push(std::ptr::from_mut(poll));
                // SAFETY: the requests stay.
                assert_eq!(unsafe { (library.submit)(context, 33, list.as_mut_ptr()) }, 33);
            };
            scope.spawn(submit).join().unwrap();
        });
        assert!(library.events(context, 32).iter().all(|event| event.result == 4096));
        assert_eq!(file.metadata().unwrap().len(), 32 * 4096);
        into.write_all(b"x").unwrap();
        assert_eq!(readable(&library.events(context, 1)), 1, "{}", library.name);
        library.end(context);
    });
}

/// A context that is destroyed wakes who waits on it.
#[test]
fn a_wait_ends_when_its_context_is_destroyed() {
    both(|library| {
        let context = library.context(8);
        std::thread::scope(|scope| {
            let (told, hear) = std::sync::mpsc::channel();
            let waits = scope.spawn(move || {
                told.send(()).unwrap();
                let mut event = NO_EVENT;
                // SAFETY: there is room for one.
                unsafe { (library.get_events)(context, 1, 1, &raw mut event, std::ptr::null_mut()) }
            });
            hear.recv().unwrap();
            // So that it is asleep as a rule; it ends the same when it is not.
            std::thread::sleep(Duration::from_millis(20));
            library.end(context);
            assert_eq!(waits.join().unwrap(), EINVAL, "{}", library.name);
        });
    });
}

/// All of the above where each context of ours is on a ring from the start.
#[test]
fn the_same_on_rings() {
    let told = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "the_same_on_rings"])
        .env("BAIO_LIBAIO", "uring")
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
}
