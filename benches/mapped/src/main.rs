//! What a hit by a map would cost, and what it would cost to take a page back. Without words it runs all of it.
//!
//! `baio-mapped [hits|taking] [--dir DIR] [--rounds N]`: `--dir` is where the file for pread(2) is made, and removed.
//!
//! What is compared takes turns, round by round; a figure is the median of the rounds. Times are by the wall clock, and the
//! processor time beside them, or alone, is of this process.

use std::cell::Cell;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use baio_mapped::table::{Table, table_pages};
use baio_mapped::{Child, Map, Memory, PAGE, check, copy_racing, hear, now, reads_are_over, say};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A cache of 64 MiB, as `baio serve` has it.
const FRAMES: usize = 16384;
/// Hits between two looks at the clock.
const HITS: usize = 100_000;
/// Round trips, which take longer.
const TRIPS: usize = 10_000;
/// Pages that are taken back in a round.
const TAKEN: usize = 1024;

struct Words {
    parts: Vec<String>,
    dir: PathBuf,
    rounds: usize,
}

fn words() -> Outcome<Words> {
    let mut words = Words {
        parts: Vec::new(),
        dir: std::env::temp_dir(),
        rounds: 9,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--dir" => words.dir = rest.next().ok_or("--dir DIR")?.into(),
            "--rounds" => words.rounds = rest.next().ok_or("--rounds N")?.parse()?,
            "hits" | "taking" => words.parts.push(word),
            _ => return Err(format!("{word}: hits, taking, --dir DIR, --rounds N").into()),
        }
    }
    Ok(words)
}

fn main() -> Outcome<()> {
    let words = words()?;
    let runs = |part: &str| words.parts.is_empty() || words.parts.iter().any(|word| word == part);
    if runs("hits") {
        hits(&words.dir, words.rounds.max(1))?;
    }
    if runs("taking") {
        taking(words.rounds.max(1))?;
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Processor time of this process in ns, the kernel's part included.
fn processor() -> u64 {
    // SAFETY: all zeroes is a value of the structure, which the call fills.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A page of so many at random; every round goes by the same ones.
fn scattered(n: usize, of: usize) -> usize {
    ((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % of
}

fn key(page: usize) -> u64 {
    (7 << 40) + page as u64 + 1
}

/// What a line compares: a name, how often, and the work.
struct Peer<'a> {
    name: &'static str,
    times: usize,
    work: Box<dyn FnMut(usize) + 'a>,
}

impl<'a> Peer<'a> {
    fn new(name: &'static str, times: usize, work: impl FnMut(usize) + 'a) -> Peer<'a> {
        Peer {
            name,
            times,
            work: Box::new(work),
        }
    }
}

fn compare(title: &str, rounds: usize, peers: &mut [Peer<'_>]) {
    let mut figures = vec![(Vec::new(), Vec::new()); peers.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let place = (round + turn) % peers.len();
            let peer = &mut peers[place];
            let (wall, used) = (now(), processor());
            (0..peer.times).for_each(&mut peer.work);
            let per = |end: u64, begin: u64| (end - begin) as f64 / peer.times as f64;
            figures[place].0.push(per(now(), wall));
            figures[place].1.push(per(processor(), used));
        }
    }
    println!("{title:44} {:>8} {:>8}", "wall ns", "CPU ns");
    for (peer, (wall, used)) in peers.iter().zip(figures) {
        println!("{:44} {:8.0} {:8.0}", peer.name, median(wall), median(used));
    }
    println!();
}

/// A cache of frames and its table, all full, and a client's view of it.
struct Cache {
    frames: Memory,
    words: Memory,
    broker: Table,
}

impl Cache {
    fn new() -> Outcome<Cache> {
        let (frames, words) = (Memory::new(FRAMES)?, Memory::new(table_pages(FRAMES))?);
        let broker = Table::new(frames.map()?, words.map()?, FRAMES);
        for frame in 0..FRAMES {
            broker.take_back(frame);
            broker.frames.write(frame, &[frame as u8; PAGE]);
            broker.name(frame, key(frame))?;
            broker.publish(frame);
        }
        Ok(Cache { frames, words, broker })
    }

    fn client(&self) -> Outcome<Table> {
        let frames = Map::to_read(&self.frames.for_a_client()?, FRAMES)?;
        let words = Map::to_read(&self.words.for_a_client()?, table_pages(FRAMES))?;
        Ok(Table::new(frames, words, FRAMES))
    }
}

fn filled(dir: &Path) -> Outcome<File> {
    let at = dir.join(format!("mapped-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&at)?;
    std::fs::remove_file(&at)?;
    (0..FRAMES).try_for_each(|page| (&file).write_all(&[page as u8; PAGE]))?;
    file.sync_all()?;
    Ok(file)
}

/// A buffer as callers have it.
#[repr(align(4096))]
struct Aligned([u8; PAGE]);

fn pread(fd: i32, page: usize, to: &mut [u8; PAGE]) {
    // SAFETY: a page.
    let got = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), PAGE, (page * PAGE) as libc::off_t) };
    assert_eq!(got, PAGE as isize);
}

fn hits(dir: &Path, rounds: usize) -> Outcome<()> {
    let cache = Cache::new()?;
    let client = cache.client()?;
    let file = filled(dir)?;
    let readable = cache.frames.for_a_client()?;
    let own = Map::private(FRAMES)?;
    (0..FRAMES).for_each(|page| own.write(page, &[page as u8; PAGE]));

    // Copies a page to the arena that both have, for each byte on the socket; as a broker without rings would.
    let arena = Memory::new(1)?.map()?;
    let server = Child::run(|socket| {
        let mut n = 0;
        while let Ok(true) = hear(socket) {
            // SAFETY: a page of each mapping.
            unsafe { copy_racing(cache.broker.frames.at(scattered(n, FRAMES)), arena.at(0)) };
            n += 1;
            if say(socket).is_err() {
                return 1;
            }
        }
        0
    })?;

    let mut buffers = [(); 5].map(|()| Box::new(Aligned([0; PAGE])));
    let [alone, mapped, kept, of_memory, of_file] = buffers.each_mut().map(|buffer| &mut buffer.0);
    let failed = Cell::new(0);
    let count = |refused: bool| failed.set(failed.get() + usize::from(refused));
    let mut peers = [
        Peer::new("a copy alone", HITS, |n| {
            own.read(scattered(n, FRAMES), alone);
            black_box(&alone);
        }),
        Peer::new("by the map: table, copy, version", HITS, |n| {
            count(client.read(key(scattered(n, FRAMES)), mapped).is_err());
            black_box(&mapped);
        }),
        Peer::new("a copy of one's own, a word of the broker's", HITS, |n| {
            let word = client.words.word(scattered(n, FRAMES) * 2);
            let before = word.load(Ordering::Acquire);
            own.read(scattered(n, FRAMES), kept);
            reads_are_over();
            count(word.load(Ordering::Relaxed) != before);
            black_box(&kept);
        }),
        Peer::new("pread of the memfd, without a mapping", HITS, |n| {
            pread(readable.as_raw_fd(), scattered(n, FRAMES), of_memory);
        }),
        Peer::new("pread of the kernel's page cache", HITS, |n| {
            pread(file.as_raw_fd(), scattered(n, FRAMES), of_file);
        }),
        Peer::new("a round trip by a socket (CPU: this side's)", TRIPS, |_| {
            assert!(say(&server.socket).is_ok() && hear(&server.socket).unwrap_or(false));
        }),
    ];
    compare("a hit of 4 KiB, of 64 MiB at random", rounds, &mut peers);
    drop(peers);
    println!("hits that were refused: {}, as nobody changes anything\n", failed.get());
    drop(server);
    beside_a_writer(&cache, &client, rounds)
}

/// The same hits while the broker changes frames as fast as it can, on another processor if there is one.
fn beside_a_writer(cache: &Cache, client: &Table, rounds: usize) -> Outcome<()> {
    let _writer = Child::run(|_| {
        let changed = [1; PAGE];
        for n in 0.. {
            let frame = scattered(n, FRAMES);
            cache.broker.take_back(frame);
            cache.broker.frames.write(frame, &changed);
            cache.broker.publish(frame);
        }
        0
    })?;
    let (mut to, mut failed) = (Box::new(Aligned([0; PAGE])), 0);
    compare(
        "the same, while frames change all the time",
        rounds,
        &mut [Peer::new("by the map: table, copy, version", HITS, |n| {
            failed += usize::from(client.read(key(scattered(n, FRAMES)), &mut to.0).is_err());
            black_box(&to);
        })],
    );
    println!("hits that were refused: {failed} of {}\n", HITS * rounds);
    Ok(())
}

/// How the clients of a round spend their time.
#[derive(Clone, Copy)]
enum Clients {
    Asleep(usize),
    /// One that looks at its pages all the time, on another processor, which has them in its TLB. The last of all, as both
    /// stay where they are.
    Looking,
}

/// Clients that have all pages mapped and touched. One byte makes those that sleep touch them again, and say so.
fn clients_of(memory: &Memory, how: Clients) -> Outcome<Vec<Child>> {
    let descriptor = memory.for_a_client()?;
    let count = match how {
        Clients::Asleep(count) => count,
        Clients::Looking => 1,
    };
    let client = |socket: &_| {
        let Ok(map) = Map::to_read(&descriptor, TAKEN) else {
            return 1;
        };
        let touch = || (0..TAKEN).fold(0, |all, page| all | map.peek(page));
        while let Ok(true) = hear(socket) {
            black_box(touch());
            if say(socket).is_err() {
                return 1;
            }
            if matches!(how, Clients::Looking) {
                loop {
                    black_box(touch());
                }
            }
        }
        0
    };
    let clients = (0..count).map(|_| Child::run(client).map_err(Into::into)).collect();
    if matches!(how, Clients::Looking) {
        // The client stays where it is put, and the broker elsewhere, from here on.
        stay_on(0)?;
    }
    clients
}

/// Keeps this process on one processor. `EINVAL` if there is none of that number.
fn stay_on(processor: usize) -> std::io::Result<()> {
    // SAFETY: a set of the C library's layout, for which all zeroes is the empty one.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    check(answer).map(drop)
}

fn all_touch(clients: &[Child]) -> Outcome<()> {
    for client in clients {
        say(&client.socket)?;
    }
    for client in clients {
        if !hear(&client.socket)? {
            return Err("a client has ended".into());
        }
    }
    Ok(())
}

/// Processor time of one, in ns. A wait for other processors to empty their TLBs is among it, since the kernel spins.
fn timed(times: usize, mut work: impl FnMut(usize) -> std::io::Result<()>) -> Outcome<f64> {
    let begin = processor();
    for n in 0..times {
        work(n)?;
    }
    Ok((processor() - begin) as f64 / times as f64)
}

/// How many pages a call takes: one, as eviction would; 64, as one that gathers.
const TOGETHER: [usize; 2] = [1, 64];

fn taking(rounds: usize) -> Outcome<()> {
    println!("CPU ns a page of 4 KiB, of {TAKEN}        punched by ones     by 64   filled again   filled in place");
    let all = [
        ("nobody has it mapped", Clients::Asleep(0)),
        ("1 client, asleep", Clients::Asleep(1)),
        ("8 clients, asleep", Clients::Asleep(8)),
        ("64 clients, asleep", Clients::Asleep(64)),
        ("1 client, on another processor", Clients::Looking),
    ];
    for (name, how) in all {
        let memory = Memory::new(TAKEN)?;
        let map = memory.map()?;
        let fill = |page| {
            map.write(page, &[1; PAGE]);
            Ok(())
        };
        timed(TAKEN, fill)?;
        let clients = clients_of(&memory, how)?;
        all_touch(&clients)?;
        let mut punched = [Vec::new(), Vec::new()];
        let (mut again, mut in_place) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            for (together, punched) in TOGETHER.into_iter().zip(&mut punched) {
                in_place.push(timed(TAKEN, fill)?);
                if matches!(how, Clients::Asleep(_)) {
                    all_touch(&clients)?;
                }
                let calls = TAKEN / together;
                // Not in order, so that the kernel frees no page table and merges nothing.
                let punch = |n: usize| memory.punch((n * 37 % calls) * together, together);
                punched.push(timed(calls, punch)? / together as f64);
                again.push(timed(TAKEN, fill)?);
            }
        }
        let [ones, many] = punched.map(median);
        println!(
            "{name:34} {ones:21.0} {many:9.0} {:14.0} {:17.0}",
            median(again),
            median(in_place)
        );
    }
    println!();
    many_mappings(rounds)?;
    by_the_client(rounds)
}

/// One client that maps one page again and again: the kernel visits each mapping to take the page away.
fn many_mappings(rounds: usize) -> Outcome<()> {
    println!("CPU us to punch a page that one client has mapped so many times");
    for count in [1, 1000, 30_000] {
        let memory = Memory::new(1)?;
        let map = memory.map()?;
        map.write(0, &[1; PAGE]);
        let descriptor = memory.for_a_client()?;
        let client = Child::run(|socket| {
            let mapped: Result<Vec<Map>, _> = (0..count).map(|_| Map::to_read(&descriptor, 1)).collect();
            let Ok(maps) = mapped else { return 1 };
            while let Ok(true) = hear(socket) {
                black_box(maps.iter().fold(0, |all, map| all | map.peek(0)));
                if say(socket).is_err() {
                    return 1;
                }
            }
            0
        })?;
        let mut took = Vec::new();
        for _ in 0..rounds {
            all_touch(std::slice::from_ref(&client))?;
            took.push(timed(1, |_| memory.punch(0, 1))? / 1e3);
            map.write(0, &[1; PAGE]);
        }
        println!("{count:34} {:21.1}", median(took));
    }
    println!();
    Ok(())
}

/// What a client that does as it is told would do at its side.
fn by_the_client(rounds: usize) -> Outcome<()> {
    let memory = Memory::new(TAKEN)?;
    let broker = memory.map()?;
    (0..TAKEN).for_each(|page| broker.write(page, &[1; PAGE]));
    let client = Map::to_read(&memory.for_a_client()?, TAKEN)?;
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let touch = |page| {
            black_box(client.peek(page));
            Ok(())
        };
        let none = libc::PROT_NONE;
        figures[0].push(timed(TAKEN, |page| client.protect(page, 1, none))?);
        figures[1].push(timed(TAKEN, |page| client.protect(page, 1, libc::PROT_READ))?);
        figures[2].push(timed(TAKEN, |page| client.advise(page, 1, libc::MADV_DONTNEED))?);
        figures[3].push(timed(TAKEN, touch)?);
    }
    let names = [
        "mprotect to nothing",
        "mprotect to be read again",
        "MADV_DONTNEED of a page",
        "the next look at it, in order",
    ];
    println!("at the client's side, CPU ns a page");
    for (name, figure) in names.iter().zip(figures) {
        println!("{name:34} {:21.0}", median(figure));
    }
    Ok(())
}
