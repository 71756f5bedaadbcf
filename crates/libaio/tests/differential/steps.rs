//! Steps of random programs that are more than a submission or a call: polls that become ready, requests on special files, waits for
//! more than there is, contexts that are full and contexts that are gone; and the live ring.

use std::fmt::Write as _;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use baio_libaio::{FLAG_EVENT_FD, IoEvent, Iocb, RingHeader, command};

use crate::common::{Context, Library, NO_EVENT, request};
use crate::{BLOCK, Dice, World, known};

fn header(context: Context) -> *mut RingHeader {
    std::ptr::with_exposed_provenance_mut(context)
}

/// The header of the live ring as it is now.
pub(crate) fn ring(context: Context) -> RingHeader {
    // SAFETY: a context points at its live ring.
    unsafe { header(context).read_volatile() }
}

fn place(context: Context, at: u32) -> IoEvent {
    // SAFETY: behind the header lie the events, and the caller asks for one of them.
    unsafe {
        header(context)
            .add(1)
            .cast::<IoEvent>()
            .add(at as usize)
            .read_volatile()
    }
}

/// Head and tail have moved by so many events, and the places between hold those that were taken.
pub(crate) fn compare_ring(context: Context, before: &RingHeader, taken: &[IoEvent], seen: &mut String) {
    let now = ring(context);
    let moved = |from: u32, to: u32| (to + now.nr - from) % now.nr;
    let same = taken.iter().enumerate().all(|(at, event)| {
        let there = place(context, (before.head + at as u32) % now.nr);
        (there.data, there.object, there.result, there.result2)
            == (event.data, event.object, event.result, event.result2)
    });
    let (head, tail) = (moved(before.head, now.head), moved(before.tail, now.tail));
    let fixed = (now.magic, now.compat_features, now.incompat_features, now.header_length);
    writeln!(seen, "ring: {head} {tail} of {}, events {same}, {fixed:x?}", now.nr).unwrap();
}

/// Takes events without a call, as fio does.
pub(crate) fn by_hand(context: Context, count: usize) -> Vec<IoEvent> {
    // SAFETY: these words of a live ring are used as atomics by everybody.
    let (head, tail) = unsafe {
        let ring = header(context);
        (
            AtomicU32::from_ptr(&raw mut (*ring).head),
            AtomicU32::from_ptr(&raw mut (*ring).tail),
        )
    };
    let nr = ring(context).nr;
    let until = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while events.len() < count {
        let at = head.load(Ordering::Relaxed) % nr;
        if at == tail.load(Ordering::Acquire) % nr {
            assert!(
                Instant::now() < until,
                "{} of {count} events in the live ring",
                events.len()
            );
            std::thread::yield_now();
            continue;
        }
        events.push(place(context, at));
        head.store((at + 1) % nr, Ordering::Release);
    }
    events
}

/// Does a poll that is not ready wait, and end when there is something?
pub(crate) fn ready(library: &Library, world: &mut World, dice: &mut Dice, context: Context, seen: &mut String) {
    let asked = dice.of(&[libc::POLLIN, libc::POLLIN | libc::POLLPRI, libc::POLLIN | libc::POLLOUT]);
    let (from, to) = (&world.others[known::PIPE], &world.others[known::PIPE_END]);
    let socket = dice.roll(3) == 0;
    let polled = if socket { &world.others[known::SOCKET] } else { from };
    let mut poll = request(command::POLL, polled.as_raw_fd(), null_mut(), 0, 0);
    poll.buffer = asked as u64;
    if dice.roll(2) == 0 {
        poll.flags = FLAG_EVENT_FD;
        poll.event_fd = world.event_fd.as_raw_fd() as u32;
    }
    let before = ring(context);
    let told = library.submit_one(context, &mut poll);
    let mut limit = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut early = NO_EVENT;
    let there = match socket {
        true => 0,
        // SAFETY: there is room for the one event.
        false => unsafe { (library.get_events)(context, 1, 1, &raw mut early, &raw mut limit) },
    };
    rustix::io::write(to, b"x").unwrap();
    world.signals += u64::from(told == 1 && poll.flags != 0);
    let events = library.events(context, told.max(0) as usize);
    compare_ring(context, &before, &events, seen);
    rustix::io::read(from, &mut [0; 8]).unwrap();
    let results: Vec<i64> = events.iter().map(|event| known::poll(event.result, asked)).collect();
    writeln!(
        seen,
        "poll {asked:x} of a socket {socket}: {told}, before that {there}; {results:?}"
    )
    .unwrap();
}

/// A request on a file that is none: where `io_submit` refuses it or its event does, it is refused.
pub(crate) fn alone(library: &Library, world: &mut World, dice: &mut Dice, context: Context, seen: &mut String) {
    let other = dice.roll(world.others.len());
    let opcode = dice.of(&[
        command::PREAD,
        command::PWRITE,
        command::PREADV,
        command::PWRITEV,
        command::FSYNC,
        command::FDSYNC,
        command::POLL,
    ]);
    let fd = world.others[other].as_raw_fd();
    let len = dice.of(&[0, 1, 512, BLOCK]);
    world.bytes.0[0].fill(7);
    let bytes = world.bytes.0[0].as_mut_ptr();
    let half = |at: usize| libc::iovec {
        iov_base: bytes.wrapping_add(at).cast(),
        iov_len: len / 2,
    };
    let list = [half(0), half(len / 2)];
    let asked = dice.of(&[libc::POLLIN, libc::POLLOUT, libc::POLLPRI]);
    let mut one: Iocb = match opcode {
        command::PREADV | command::PWRITEV => request(opcode, fd, list.as_ptr().cast_mut().cast(), 2, 0),
        command::PREAD | command::PWRITE => request(opcode, fd, bytes, len, dice.of(&[0, 0, 4096])),
        _ => request(opcode, fd, null_mut(), 0, 0),
    };
    if opcode == command::POLL {
        one.buffer = asked as u64;
        // It would not end.
        if other == known::PIPE || other == known::SOCKET || asked == libc::POLLPRI && other == known::PIPE_END {
            return;
        }
        if other == known::PIPE_END && asked == libc::POLLIN {
            return;
        }
    }
    if other == known::PIPE && dice.roll(2) == 0 {
        rustix::io::write(&world.others[known::PIPE_END], b"abc").unwrap();
    }
    let told = library.submit_one(context, &mut one);
    let result = match told {
        1 => library.events(context, 1)[0].result,
        _ => i64::from(told),
    };
    let mut drained = [0; BLOCK];
    let left = rustix::io::read(&world.others[known::PIPE], &mut drained);
    let sum = world.bytes.0[0].iter().fold(0, crate::hash);
    let result = match opcode {
        command::POLL => known::poll(result, asked),
        _ => result,
    };
    writeln!(
        seen,
        "{opcode} of other file {other}, {len} bytes: {told} {result}; {left:?}; {sum:x}"
    )
    .unwrap();
}

/// Asks for more events than are in flight, with a short limit, until all are there.
pub(crate) fn short(library: &Library, world: &mut World, dice: &mut Dice, context: Context, seen: &mut String) {
    let count = 1 + dice.roll(3);
    let fd = world.files[0].as_raw_fd();
    let mut requests: Vec<Iocb> = (0..count)
        .map(|at| {
            request(
                command::PREAD,
                fd,
                world.bytes.0[at].as_mut_ptr(),
                512,
                (at * BLOCK) as i64,
            )
        })
        .collect();
    let mut list: Vec<*mut Iocb> = requests.iter_mut().map(std::ptr::from_mut).collect();
    // SAFETY: requests and bytes stay until all events are there.
    let told = unsafe { (library.submit)(context, count as i64, list.as_mut_ptr()) };
    let more = 1 + dice.roll(4);
    let (mut taken, mut bytes) = (0, 0);
    let until = Instant::now() + Duration::from_secs(20);
    while taken < told.max(0) as usize && Instant::now() < until {
        let mut events = [NO_EVENT; 8];
        let mut limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: 100_000,
        };
        let least = (count - taken + more) as i64;
        // SAFETY: there is room for so many.
        let got = unsafe { (library.get_events)(context, least, 8, events.as_mut_ptr(), &raw mut limit) };
        assert!(got >= 0 || got == -libc::EINTR, "{}: {got}", library.name);
        let got = got.max(0) as usize;
        taken += got;
        bytes += events[..got].iter().map(|event| event.result).sum::<i64>();
    }
    writeln!(seen, "{count} submitted: {told}; {taken} taken, {bytes} bytes").unwrap();
}

/// Stays on this processor from here on, since the kernel keeps places in contexts apart for each, or goes back to where it may be.
pub(crate) fn stay(on: Option<&libc::cpu_set_t>) -> libc::cpu_set_t {
    // SAFETY: sets of processors of ours.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        let bytes = size_of::<libc::cpu_set_t>();
        libc::sched_getaffinity(0, bytes, &raw mut before);
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        if let Some(first) = (0..1024).find(|&at| libc::CPU_ISSET(at, &before)) {
            libc::CPU_SET(first, &mut one);
        }
        libc::sched_setaffinity(0, bytes, on.unwrap_or(&one));
        before
    }
}

/// A context, made as newer or as older programs do.
pub(crate) fn begin(library: &Library, requests: i32, dice: &mut Dice) -> Context {
    if dice.roll(2) == 0 {
        return library.context(requests);
    }
    let mut context = 5;
    // SAFETY: the one context is ours.
    assert_eq!(unsafe { (library.queue_init)(requests, &raw mut context) }, 0);
    context
}

/// Destroys a context, and one that is full of polls with these in flight, and uses both nevertheless.
pub(crate) fn end(library: &Library, world: &mut World, dice: &mut Dice, context: Context, seen: &mut String) {
    let mut silent = request(command::POLL, world.others[known::PIPE].as_raw_fd(), null_mut(), 0, 0);
    silent.buffer = libc::POLLIN as u64;
    gone(library, world, dice, context, seen);
    if dice.roll(2) == 0 {
        // A new one: the kernel's processors take places, and keep what they have not used.
        let context = begin(library, dice.of(&crate::SIZES), dice);
        let mut polls = vec![silent; 1024];
        let mut taken = 0;
        let refused = loop {
            match library.submit_one(context, &mut polls[taken]) {
                1 => taken += 1,
                told => break told,
            }
        };
        let bytes = world.bytes.0[0].as_mut_ptr();
        let mut read = request(command::PREAD, world.files[0].as_raw_fd(), bytes, 1, 0);
        let again = library.submit_one(context, &mut read);
        // SAFETY: there is room for the event.
        let cancelled = unsafe { (library.cancel)(context, &raw mut polls[0], &mut NO_EVENT.clone()) };
        let event = library.events(context, 1)[0];
        writeln!(
            seen,
            "full of {taken}: {refused} {again}, cancelled: {cancelled} {}",
            event.result
        )
        .unwrap();
        gone(library, world, dice, context, seen);
    }
}

fn gone(library: &Library, world: &mut World, dice: &mut Dice, context: Context, seen: &mut String) {
    // SAFETY: no memory is involved.
    let told = unsafe {
        match dice.roll(2) {
            0 => (library.destroy)(context),
            _ => (library.queue_release)(context),
        }
    };
    writeln!(seen, "destroyed: {told}").unwrap();
    let fd = world.files[0].as_raw_fd();
    let mut one = request(command::PREAD, fd, world.bytes.0[0].as_mut_ptr(), 1, 0);
    one.key = 0;
    for gone in [context, 0, 4096 * 7] {
        let mut events = [NO_EVENT; 4];
        let (into, mut limit) = (
            events.as_mut_ptr(),
            libc::timespec {
                tv_sec: 0,
                tv_nsec: 1000,
            },
        );
        let limit = &raw mut limit;
        // SAFETY: the arrays have room for what is asked, and nothing can be in flight.
        unsafe {
            let told = [
                (library.destroy)(gone),
                (library.queue_release)(gone),
                library.submit_one(gone, &mut one),
                (library.submit)(gone, 0, null_mut()),
                (library.cancel)(gone, &raw mut one, into),
                (library.cancel_0_1)(gone, &raw mut one),
            ];
            writeln!(seen, "gone: {told:?}").unwrap();
            if !known::may_take_from_none(library, gone) {
                continue;
            }
            let told = [
                (library.get_events)(gone, 1, 4, into, limit),
                (library.pget_events)(gone, 1, 4, into, limit, null_mut()),
                (library.get_events_0_1)(gone, 4, into, limit),
                (library.queue_run)(gone),
                (library.queue_wait)(gone, limit),
                (library.queue_wait_0_1)(gone, limit),
            ];
            match gone {
                0 => writeln!(seen, "none: {told:?}").unwrap(),
                _ => assert_eq!(told, [-libc::EINVAL; 6], "ours says what it is"),
            }
        }
    }
}
