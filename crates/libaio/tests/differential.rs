//! Random programs, run on our library and on the distribution's: the same return values, events, memory, files and event fds.
//!
//! A program is a row of submissions of a few requests each, good and bad, on files open in several ways. The requests of one
//! submission touch different bytes, so their order does not matter. Between them stand calls without requests, good and bad: on
//! contexts that are there, unknown and destroyed.
//!
//! `BAIO_PROGRAMS=n` runs so many. A failure prints its seed; `BAIO_SEED=n` runs that one, or so many from there on.

#![allow(unsafe_code)]

mod common;
#[path = "differential/known.rs"]
mod known;
#[path = "differential/steps.rs"]
mod steps;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;

use baio_engine::sim::Random;
use baio_libaio::{FLAG_EVENT_FD, FLAG_PRIORITY, Iocb, command};
use common::{Library, request};

const BLOCK: usize = 8192;
const BLOCKS: usize = 8;
const PROGRAMS: u64 = 500;
/// Every so many programs one works on files of the disk, where syncs take their time; the others on files in memory.
const ON_DISK: u64 = 100;
/// Every so many make a context of their own and destroy it, for which the kernel takes tens of milliseconds; the others share some.
const OWN: u64 = 50;
/// Requests of a context.
const SIZES: [i32; 5] = [1, 2, 16, 63, 64];
const STEPS: usize = 8;

/// What a program does next.
struct Dice(Random);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.below(sides as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len())]
    }

    fn seldom(&mut self) -> bool {
        self.roll(25) == 0
    }
}

/// Memory that direct requests may use.
#[repr(align(4096))]
struct Bytes([[u8; BLOCK]; BLOCKS]);

const NAMES: [&str; 6] = ["buffered", "direct", "synced", "appended", "read", "written"];

/// What a program works on; the same for each library.
struct World {
    files: Vec<File>,
    event_fd: OwnedFd,
    /// Of requests that were taken, how many name the event fd.
    signals: u64,
    /// By their sizes; 0 where there is none yet.
    contexts: [usize; SIZES.len()],
    bytes: Box<Bytes>,
    /// A descriptor that is only a path, /dev/null, /dev/zero, a pipe with nothing in it (both ends), a socket whose other end is closed,
    /// the directory.
    others: [OwnedFd; 7],
    lists: Vec<Vec<libc::iovec>>,
    requests: Vec<Iocb>,
    dir: tempfile::TempDir,
}

impl World {
    fn new(place: &Path) -> World {
        let dir = tempfile::tempdir_in(place).unwrap();
        let path = |name: &str| dir.path().join(name);
        let filled = |name: &str, flags: i32| {
            let mut open = OpenOptions::new();
            open.read(true).write(true).create(true);
            let file = open.open(path(name)).unwrap();
            let bytes: Vec<u8> = (0..BLOCK * BLOCKS).map(|at| (at / 7) as u8).collect();
            file.write_all_at(&bytes, 0).unwrap();
            // A file system without direct I/O: then it is one more buffered file.
            open.custom_flags(flags).open(path(name)).unwrap_or(file)
        };
        let files = vec![
            filled("buffered", 0),
            filled("direct", libc::O_DIRECT),
            filled("synced", libc::O_DSYNC),
            filled("appended", libc::O_APPEND),
            filled("read", 0),
            OpenOptions::new().read(true).open(path("read")).unwrap(),
            filled("written", 0),
            OpenOptions::new().write(true).open(path("written")).unwrap(),
        ];
        World {
            files,
            event_fd: rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap(),
            signals: 0,
            contexts: [0; SIZES.len()],
            bytes: Box::new(Bytes([[0; BLOCK]; BLOCKS])),
            others: others(dir.path()),
            lists: Vec::new(),
            requests: Vec::new(),
            dir,
        }
    }

    /// Files and event fd as they were at first.
    fn renew(&self) {
        let bytes: Vec<u8> = (0..BLOCK * BLOCKS).map(|at| (at / 7) as u8).collect();
        for name in NAMES {
            std::fs::write(self.dir.path().join(name), &bytes).unwrap();
        }
        let _ = rustix::io::read(&self.event_fd, &mut [0; 8]);
    }

    /// Fills in a request that touches bytes of this block only.
    fn make(&mut self, dice: &mut Dice, block: usize) -> Iocb {
        let opcode = dice.of(&[
            command::PREAD,
            command::PREAD,
            command::PWRITE,
            command::PWRITE,
            command::PREADV,
            command::PWRITEV,
            command::FSYNC,
            command::FDSYNC,
        ]);
        let opcode = if dice.seldom() {
            dice.of(&[command::NOOP, 4, 99])
        } else {
            opcode
        };
        let other = dice.roll(self.others.len());
        // A pipe keeps what is written to it.
        let keeps = other == known::PIPE_END && matches!(opcode, command::PWRITE | command::PWRITEV);
        let fd = match dice.roll(self.files.len() + 5) {
            at if at < self.files.len() => self.files[at].as_raw_fd(),
            at if at > self.files.len() + 3 && !keeps => self.others[other].as_raw_fd(),
            _ if dice.seldom() => 1 << 20,
            _ => self.files[dice.roll(3)].as_raw_fd(),
        };
        let (at, len) = dice.of(&[
            (0, BLOCK),
            (0, 4096),
            (4096, 4096),
            (512, 512),
            (512, 1024),
            (0, 0),
            (1, 1),
            (100, 5000),
            (4096, 512),
            (0, 5),
        ]);
        let bytes = self.bytes.0[block].as_mut_ptr();
        let offset = (block * BLOCK + at) as i64;
        let is_sync = matches!(opcode, command::FSYNC | command::FDSYNC);
        let mut made = match opcode {
            command::PREADV | command::PWRITEV => {
                let list = World::list(dice, bytes, len);
                let made = request(opcode, fd, list.as_ptr().cast_mut().cast(), list.len(), offset);
                self.lists.push(list);
                made
            }
            _ if is_sync && !dice.seldom() => request(opcode, fd, std::ptr::null_mut(), 0, 0),
            _ => request(opcode, fd, bytes.wrapping_add(at), len, offset),
        };
        if dice.seldom() && !is_sync {
            made.offset = dice.of(&[-1, i64::MIN, i64::MAX - 3]);
        }
        if dice.roll(8) == 0 && matches!(opcode, command::PREAD | command::PREADV) {
            made.offset = 1 << 30;
        }
        if dice.roll(6) == 0 {
            made.rw_flags = dice.of(&known::RW_FLAGS);
        }
        if dice.roll(10) == 0 {
            made.flags |= FLAG_PRIORITY;
            made.priority = dice.of(&known::PRIORITIES);
        }
        if dice.roll(6) == 0 {
            made.flags |= FLAG_EVENT_FD;
            made.event_fd = match dice.roll(6) {
                0 => self.files[0].as_raw_fd() as u32,
                1 => 1 << 20,
                _ => self.event_fd.as_raw_fd() as u32,
            };
        }
        if dice.seldom() {
            made.reserved = 1;
        }
        if dice.seldom() && dice.seldom() {
            made.bytes = u64::MAX;
        }
        made
    }

    fn list(dice: &mut Dice, bytes: *mut u8, len: usize) -> Vec<libc::iovec> {
        let part = |at: usize, len: usize| libc::iovec {
            iov_base: bytes.wrapping_add(at).cast(),
            iov_len: len,
        };
        match dice.roll(30) {
            0 => Vec::new(),
            1 => vec![part(0, 0); 1025],
            2 => vec![part(0, 1), part(0, usize::MAX)],
            3 => (0..1024).map(|at| part(at * (len / 1024), len / 1024)).collect(),
            4..10 => vec![part(0, len)],
            10..20 => vec![part(0, len / 2), part(len / 2, len - len / 2)],
            _ => vec![
                part(0, len.min(512)),
                part(512, 0),
                part(4096, len.saturating_sub(512).min(4096)),
            ],
        }
    }
}

fn others(dir: &Path) -> [OwnedFd; 7] {
    let open = |path: &str, flags: i32| {
        let mut options = OpenOptions::new();
        OwnedFd::from(options.read(true).custom_flags(flags).open(path).unwrap())
    };
    let mut ends = [-1; 2];
    // SAFETY: there is room for both ends.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    // SAFETY: the kernel has just made them for us.
    let [from, to] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let dir = dir.to_str().unwrap();
    let (path, null, zero) = (
        open(dir, libc::O_PATH),
        open("/dev/null", libc::O_RDWR),
        open("/dev/zero", 0),
    );
    [path, null, zero, from, to, socket.into(), open(dir, 0)]
}

/// Runs a program; what it saw, as text.
fn run(library: &Library, world: &mut World, seed: u64) -> String {
    let mut dice = Dice(Random(seed));
    let mut seen = String::new();
    world.renew();
    let size = dice.roll(SIZES.len());
    let own = seed % OWN == 0;
    let processors = own.then(|| steps::stay(None));
    let context = match world.contexts[size] {
        known if known != 0 && !own => known,
        known => {
            let made = if own {
                steps::begin(library, SIZES[size], &mut dice)
            } else {
                library.context(SIZES[size])
            };
            if known == 0 && !own {
                world.contexts[size] = made;
            }
            made
        }
    };
    for step in 0..STEPS {
        match dice.roll(24) {
            0 => steps::ready(library, world, &mut dice, context, &mut seen),
            1 => steps::alone(library, world, &mut dice, context, &mut seen),
            2 => steps::short(library, world, &mut dice, context, &mut seen),
            3..9 => call(library, world, &mut dice, context, &mut seen),
            _ => submission(library, world, &mut dice, context, step, &mut seen),
        }
    }
    if own {
        steps::end(library, world, &mut dice, context, &mut seen);
    }
    if let Some(before) = processors {
        steps::stay(Some(&before));
    }
    for name in NAMES {
        let file = File::open(world.dir.path().join(name)).unwrap();
        // A file in memory may end at the highest offset of all.
        let (len, mut bytes) = (file.metadata().unwrap().len(), Vec::new());
        file.take(1 << 20).read_to_end(&mut bytes).unwrap();
        writeln!(seen, "{name}: {len} bytes, {:x}", bytes.iter().fold(0, hash)).unwrap();
    }
    let until = Instant::now() + known::LATE;
    let mut signals = 0;
    while signals < world.signals && Instant::now() < until {
        let mut count = [0; 8];
        match rustix::io::read(&world.event_fd, &mut count) {
            Ok(_) => signals += u64::from_ne_bytes(count),
            Err(_) => std::thread::yield_now(),
        }
    }
    let more = rustix::io::read(&world.event_fd, &mut [0; 8]);
    writeln!(seen, "event fd: {signals}, {more:?}").unwrap();
    world.signals = 0;
    seen
}

fn submission(library: &Library, world: &mut World, dice: &mut Dice, context: usize, step: usize, seen: &mut String) {
    world.lists.clear();
    for (at, block) in world.bytes.0.iter_mut().enumerate() {
        block.fill((step * 16 + at) as u8);
    }
    let count = 1 + dice.roll(BLOCKS);
    let requests: Vec<Iocb> = (0..count).map(|block| world.make(dice, block)).collect();
    world.requests = requests;
    let mut list: Vec<*mut Iocb> = world.requests.iter_mut().map(std::ptr::from_mut).collect();
    let first = list[0].addr();
    let before = steps::ring(context);
    // SAFETY: requests, lists and bytes stay until all events are there.
    let told = unsafe { (library.submit)(context, count as i64, list.as_mut_ptr()) };
    let taken = world.requests.iter().take(told.max(0) as usize);
    world.signals += taken.filter(|made| made.flags & FLAG_EVENT_FD != 0).count() as u64;
    let taken = match dice.seldom() && dice.seldom() {
        true => steps::by_hand(context, told.max(0) as usize),
        false => library.events(context, told.max(0) as usize),
    };
    steps::compare_ring(context, &before, &taken, seen);
    let mut events: Vec<(usize, i64, i64)> = taken
        .iter()
        .map(|event| {
            let at = (event.object as usize - first) / size_of::<Iocb>();
            (at, event.result, event.result2)
        })
        .collect();
    events.sort_unstable();
    let sum = world.bytes.0.as_flattened().iter().fold(0_u64, hash);
    writeln!(seen, "{step}: {count} submitted: {told}; {events:?}; memory {sum:x}").unwrap();
    for made in &world.requests {
        let (opcode, flags, bytes, offset) = (made.opcode, made.rw_flags, made.bytes, made.offset);
        writeln!(seen, "   opcode {opcode} flags {flags:x} {bytes} at {offset}").unwrap();
    }
}

/// One call that leaves no request in flight.
fn call(library: &Library, world: &mut World, dice: &mut Dice, context: usize, seen: &mut String) {
    let mut events = [common::NO_EVENT; 4];
    let into = events.as_mut_ptr();
    let numbers = [-1, 0, 1, 2, i64::MIN, i64::MAX];
    let (least, most) = (dice.of(&numbers), dice.of(&[-1, 0, 1, 4, i64::MIN]));
    let mut limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: dice.of(&[0, 0, 1, 50_000]),
    };
    let waits = limit.tv_nsec > 0;
    let limit = &raw mut limit;
    let which = dice.roll(16);
    // The original looks into the memory of whatever context it is to take events of.
    let unknown = match which {
        0..=5 | 13 | 14 => dice.of(&[context, context, 0]),
        _ => dice.of(&[context, context, context, 0, 1, 4096 * 7, usize::MAX]),
    };
    let mut spare: usize = 0;
    let fd = world.files[0].as_raw_fd();
    let mut one = request(command::PREAD, fd, world.bytes.0[0].as_mut_ptr(), 1, 0);
    one.key = dice.of(&[0, 1, 77]);
    let mut silent = request(command::POLL, world.others[3].as_raw_fd(), null_mut(), 0, 0);
    silent.buffer = libc::POLLIN as u64;
    // SAFETY: the arrays have room for what is asked, and nothing is in flight but the poll, which is awaited.
    let told = unsafe {
        match which {
            0 => (library.get_events)(unknown, least, most, into, limit),
            1 => (library.pget_events)(unknown, least, most, into, limit, null_mut()),
            2 => {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                (library.pget_events)(unknown, least, most, into, limit, &raw mut mask)
            }
            3 => (library.get_events_0_1)(unknown, most, into, limit),
            4 => (library.get_events)(context, 0, 4, into, null_mut()),
            5 => (library.queue_run)(unknown),
            6 => (library.cancel)(unknown, &raw mut one, into),
            7 => (library.cancel_0_1)(unknown, &raw mut one),
            8 => (library.submit)(unknown, dice.of(&[0, -1, i64::MIN]), null_mut()),
            9 => (library.submit)(unknown, 1, [null_mut()].as_mut_ptr()),
            10 => (library.setup)(dice.of(&[0, -1, i32::MIN, i32::MAX, 0x0080_0001]), &raw mut spare),
            11 => {
                spare = 4096 * 7;
                (library.setup)(1, &raw mut spare)
            }
            12 => (library.queue_init)(dice.of(&[0, -1, i32::MIN]), &raw mut spare),
            13 => (library.queue_wait)(unknown, limit),
            14 => (library.queue_wait_0_1)(unknown, limit),
            _ => {
                assert_eq!(library.submit_one(context, &mut silent), 1);
                let told = (library.cancel)(context, &raw mut silent, into);
                let again = (library.cancel)(context, &raw mut silent, into);
                let event = library.events(context, 1)[0];
                writeln!(
                    seen,
                    "a poll cancelled, again {again}: {} {}",
                    event.result, event.result2
                )
                .unwrap();
                told
            }
        }
    };
    let told = known::woken(told, waits);
    let ring = steps::ring(context);
    let waiting = ring.tail != ring.head;
    let known = if unknown == context { "its own" } else { "unknown" };
    writeln!(
        seen,
        "call {which} ({known} {least} {most}): {told}; nr {} waiting {waiting}",
        ring.nr
    )
    .unwrap();
}

fn hash(sum: u64, byte: &u8) -> u64 {
    (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
}

#[test]
fn random_programs_see_the_same() {
    let Some(original) = Library::original() else {
        return common::skipped("differential::random_programs_see_the_same", "libaio.so.1");
    };
    let ours = Library::ours();
    let one = std::env::var("BAIO_SEED")
        .ok()
        .and_then(|seed| seed.parse::<u64>().ok());
    let programs = std::env::var("BAIO_PROGRAMS")
        .ok()
        .and_then(|programs| programs.parse::<u64>().ok());
    let seeds = one.map_or(0..programs.unwrap_or(PROGRAMS), |seed| {
        seed..seed + programs.unwrap_or(1)
    });
    let disk = std::env::temp_dir();
    let memory = Path::new("/dev/shm");
    let memory = if memory.is_dir() { memory } else { &disk };
    let mut worlds = [&disk, memory].map(|place| [World::new(place), World::new(place), World::new(place)]);
    let run_all = seeds.end - seeds.start;
    for seed in seeds {
        let [one, two, three] = &mut worlds[usize::from(seed % ON_DISK != 0)];
        let theirs = run(&original, one, seed);
        let chosen = run(&ours, two, seed);
        // SAFETY: no other thread is in the environment: those of the library are in its rings.
        unsafe { std::env::set_var("BAIO_LIBAIO", "uring") };
        let on_ring = run(&ours, three, seed);
        // SAFETY: as above.
        unsafe { std::env::remove_var("BAIO_LIBAIO") };
        for (how, ours) in [("as it chooses", chosen), ("on a ring", on_ring)] {
            if theirs == ours {
                continue;
            }
            let same = theirs
                .lines()
                .zip(ours.lines())
                .take_while(|(theirs, ours)| theirs == ours)
                .count();
            let from = |text: &str| text.lines().skip(same).take(10).collect::<Vec<_>>().join("\n");
            panic!(
                "BAIO_SEED={seed} cargo test -p baio-libaio --test differential\ntheirs: {}\nours, {how}: {}",
                from(&theirs),
                from(&ours)
            );
        }
    }
    for (library, side) in [(&original, 0), (&ours, 1), (&ours, 2)] {
        let contexts = worlds.iter().flat_map(|world| world[side].contexts);
        contexts
            .filter(|&context| context != 0)
            .for_each(|context| library.end(context));
    }
    println!("{run_all} programs of {STEPS} steps each");
}
