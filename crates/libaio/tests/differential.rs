//! Random programs, run on our library and on the distribution's: the same return values, events, memory, files and event fds.
//!
//! A program is a row of submissions of a few requests each, good and bad, on files open in several ways. The requests of one
//! submission touch different bytes, so their order does not matter. A failure prints its seed; `BAIO_SEED=n` runs that one.

#![allow(unsafe_code)]

mod common;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use baio_libaio::{FLAG_EVENT_FD, FLAG_PRIORITY, Iocb, command};
use common::{Library, request};

const BLOCK: usize = 8192;
const BLOCKS: usize = 8;
const PROGRAMS: u64 = 40;
const SUBMISSIONS: usize = 40;

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % sides as u64) as usize
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

const NAMES: [&str; 5] = ["buffered", "direct", "synced", "read", "written"];

/// What a program works on; the same for each library.
struct World {
    files: Vec<File>,
    event_fd: OwnedFd,
    bytes: Box<Bytes>,
    lists: Vec<Vec<libc::iovec>>,
    requests: Vec<Iocb>,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
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
            filled("read", 0),
            OpenOptions::new().read(true).open(path("read")).unwrap(),
            filled("written", 0),
            OpenOptions::new().write(true).open(path("written")).unwrap(),
        ];
        World {
            files,
            event_fd: rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap(),
            bytes: Box::new(Bytes([[0; BLOCK]; BLOCKS])),
            lists: Vec::new(),
            requests: Vec::new(),
            dir,
        }
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
        let fd = match dice.roll(self.files.len() + 4) {
            at if at < self.files.len() => self.files[at].as_raw_fd(),
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
            made.rw_flags = dice.of(&[libc::RWF_DSYNC, libc::RWF_SYNC, 1, 1 << 30, 0x30]);
        }
        if dice.roll(10) == 0 {
            made.flags |= FLAG_PRIORITY;
            made.priority = dice.of(&[0, 3, 2 << 13 | 4, 3 << 13, 7 << 13]);
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
            3..10 => vec![part(0, len)],
            10..20 => vec![part(0, len / 2), part(len / 2, len - len / 2)],
            _ => vec![
                part(0, len.min(512)),
                part(512, 0),
                part(4096, len.saturating_sub(512).min(4096)),
            ],
        }
    }
}

/// Runs a program; what it saw, as text.
fn run(library: &Library, seed: u64) -> String {
    let mut dice = Dice(seed);
    let mut world = World::new();
    let mut seen = String::new();
    let context = library.context(16);
    for step in 0..SUBMISSIONS {
        world.lists.clear();
        for (at, block) in world.bytes.0.iter_mut().enumerate() {
            block.fill((step * 16 + at) as u8);
        }
        let count = 1 + dice.roll(BLOCKS);
        let requests: Vec<Iocb> = (0..count).map(|block| world.make(&mut dice, block)).collect();
        world.requests = requests;
        let mut list: Vec<*mut Iocb> = world.requests.iter_mut().map(std::ptr::from_mut).collect();
        let first = list[0].addr();
        // SAFETY: requests, lists and bytes stay until all events are there.
        let told = unsafe { (library.submit)(context, count as i64, list.as_mut_ptr()) };
        let mut events: Vec<(usize, i64, i64)> = library
            .events(context, told.max(0) as usize)
            .iter()
            .map(|event| {
                let at = (event.object as usize - first) / size_of::<Iocb>();
                (at, event.result, event.result2)
            })
            .collect();
        events.sort_unstable();
        let sum = world.bytes.0.as_flattened().iter().fold(0_u64, hash);
        writeln!(seen, "{step}: {count} submitted: {told}; {events:?}; memory {sum:x}").unwrap();
        for (made, at) in world.requests.iter().zip(0..) {
            if told < count as i32 && at == told.max(0) {
                writeln!(seen, "   refused: opcode {} fd flags {:x}", made.opcode, made.rw_flags).unwrap();
            }
        }
    }
    library.end(context);
    for name in NAMES {
        let bytes = std::fs::read(world.dir.path().join(name)).unwrap();
        writeln!(seen, "{name}: {} bytes, {:x}", bytes.len(), bytes.iter().fold(0, hash)).unwrap();
    }
    let mut count = [0; 8];
    let told = rustix::io::read(&world.event_fd, &mut count);
    writeln!(seen, "event fd: {told:?} {count:?}").unwrap();
    seen
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
    let seeds = one.map_or(0..PROGRAMS, |seed| seed..seed + 1);
    for seed in seeds {
        let (theirs, ours) = (run(&original, seed), run(&ours, seed));
        let differs = theirs.lines().zip(ours.lines()).find(|(theirs, ours)| theirs != ours);
        assert!(
            differs.is_none(),
            "BAIO_SEED={seed} cargo test -p baio-libaio --test differential\ntheirs: {}\nours:   {}",
            differs.unwrap().0,
            differs.unwrap().1
        );
    }
}
