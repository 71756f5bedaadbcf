//! Promise: a broker may die at any moment, by SIGKILL, and be started again on its socket. What was acknowledged as durable is there,
//! and so is what was synced; of the operations that were under way each happened wholly or not at all. Its clients are told, connect
//! again and go on.
//!
//! Eight clients work on one volume, each on a segment of its own and with names of its own. Each knows for every block what may be there.
//! `BAIO_BROKER_DEATHS=N` chooses how often the broker dies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baio::{Access, CheckReport, Core, CreateOptions, Durability, Error, Fault, Link, Remote, Repair, Segment};

use crate::support::server::Server;
use crate::support::serving::{Random, all, times};
use crate::support::{self, BAIO, Place, until};

const CLIENTS: u64 = 8;
const BLOCK: usize = 4096;
/// Blocks of each client's segment.
const BLOCKS: u64 = 96;
/// Names that each client makes and deletes.
const NAMES: u64 = 4;

/// What a write leaves: a number, whose it is, where, and a checksum over all of it. Number 0 is what nobody has written.
fn block(client: u64, at: u64, number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; BLOCK];
    }
    let mut bytes = [number, client, at].map(u64::to_le_bytes).concat();
    bytes.extend(support::random_bytes(BLOCK - 28, number << 20 | at << 4 | client));
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The number in a block that is whole.
fn number_in(bytes: &[u8], client: u64, at: u64) -> Option<u64> {
    let number = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    (bytes == block(client, at, number)).then_some(number)
}

/// What the clients and the one who kills tell each other.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Requests and operations that have ended well.
    done: AtomicU64,
    /// When each session had its first one.
    firsts: Mutex<Vec<Instant>>,
    /// Brokers that were killed while they began.
    in_starts: AtomicU64,
    lives: AtomicU64,
    durable: AtomicU64,
    synced: AtomicU64,
    operations: AtomicU64,
    /// Found to have come about, though nobody was told.
    came_about: AtomicU64,
}

impl Shared {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a block may hold after a death: the last write that must be there, and those begun after it.
#[derive(Clone, Debug)]
struct Known {
    allowed: BTreeSet<u64>,
    /// What it holds now, as long as the broker lives.
    now: u64,
}

#[derive(Clone, Debug)]
enum Doubt {
    Create(String, u64),
    Delete(String),
    Rename(String, String),
}

struct Client<'a> {
    id: u64,
    shared: &'a Shared,
    random: Random,
    next: u64,
    blocks: Vec<Known>,
    /// Segments that are there, and their blocks.
    names: BTreeMap<String, u64>,
    doubt: Option<Doubt>,
}

/// One thing of a batch.
#[derive(Clone, Copy)]
enum Kind {
    Durable,
    Plain,
}

/// Is this how the end of a broker is told?
fn is_end(error: &Error) -> bool {
    matches!(error.fault, Fault::ServiceEnded) || error.code() == "EINDETERMINATE"
}

impl<'a> Client<'a> {
    fn new(id: u64, shared: &'a Shared) -> Client<'a> {
        let nothing = Known {
            allowed: [0].into(),
            now: 0,
        };
        Client {
            id,
            shared,
            random: Random::new(id + 1),
            next: 0,
            blocks: vec![nothing; BLOCKS as usize],
            names: BTreeMap::new(),
            doubt: None,
        }
    }

    fn own(&self) -> String {
        format!("blocks-{}", self.id)
    }

    fn begins(volume: &Remote, id: u64) {
        let options = CreateOptions::of_size(BLOCKS * BLOCK as u64);
        volume.create_segment(&format!("blocks-{id}"), &options).wait().unwrap();
    }

    /// Lives on, from broker to broker.
    fn lives(mut self, socket: &Path) -> Client<'a> {
        while !self.shared.stop.load(Ordering::SeqCst) {
            let Ok(volume) = Remote::connect(socket) else {
                // Nobody is there.
                std::thread::sleep(Duration::from_micros(500));
                continue;
            };
            match self.works(&volume) {
                Ok(()) => volume
                    .close()
                    .unwrap_or_else(|error| assert!(is_end(&error), "{error}")),
                Err(error) => assert!(is_end(&error), "{}: {error}", self.id),
            }
        }
        self
    }

    fn works(&mut self, volume: &Remote) -> Result<(), Error> {
        let segment = self.looks(volume)?;
        Shared::count(&self.shared.lives);
        while !self.shared.stop.load(Ordering::SeqCst) {
            match self.random.below(8) {
                0 => self.syncs(&segment)?,
                1..4 => self.operates(volume)?,
                _ => self.writes(volume, &segment)?,
            }
        }
        Ok(())
    }

    /// Compares all that is there with what must be there and may be there.
    fn looks(&mut self, volume: &Remote) -> Result<Segment<Remote>, Error> {
        let segment = volume.open_segment(&self.own(), Access::Write).wait()?;
        self.shared.firsts.lock().unwrap().push(Instant::now());
        for at in 0..BLOCKS {
            // Either way it must be the same.
            let read = segment.read_at(at * BLOCK as u64, segment.buffer(BLOCK)?);
            let read = if self.random.below(2) == 0 {
                read.cached()
            } else {
                read.direct()
            };
            let read = read.wait()?;
            let known = &mut self.blocks[at as usize];
            let number = number_in(&read.buffer, self.id, at);
            let number = number.unwrap_or_else(|| panic!("block {at} of {} is no whole write: {known:?}", self.id));
            assert!(
                known.allowed.contains(&number),
                "block {at} of {} has {number}: {known:?}",
                self.id
            );
            *known = Known {
                allowed: [number].into(),
                now: number,
            };
        }
        let mine = format!("name-{}-", self.id);
        let listed = volume.list().wait()?;
        let found: BTreeMap<String, u64> = listed
            .iter()
            .filter(|info| info.name.starts_with(&mine))
            .map(|info| (info.name.clone(), info.size_bytes / BLOCK as u64))
            .collect();
        let before = self.names.clone();
        if let Some(doubt) = &self.doubt {
            let came_about = match doubt {
                Doubt::Create(name, _) => found.contains_key(name),
                Doubt::Delete(name) => !found.contains_key(name),
                Doubt::Rename(_, new) => found.contains_key(new),
            };
            if came_about {
                let doubt = doubt.clone();
                self.settle(doubt);
                Shared::count(&self.shared.came_about);
            }
        }
        assert_eq!(
            found, self.names,
            "{:?} was in doubt, and before it was {before:?}",
            self.doubt
        );
        self.doubt = None;
        // Whatever is there is whole: it opens, and every block of it is there.
        for (name, blocks) in found {
            let segment = volume.open_segment(&name, Access::Read).wait()?;
            let len = blocks as usize * BLOCK;
            let read = segment.read_exact_at(0, segment.buffer(len)?).wait()?;
            let is_fresh = read.buffer.iter().all(|byte| *byte == 0);
            let is_marked = read.buffer[..BLOCK].iter().all(|byte| *byte == self.id as u8 + 1)
                && read.buffer[BLOCK..].iter().all(|byte| *byte == 0);
            assert!(is_fresh || is_marked, "{name} has foreign bytes");
        }
        Ok(segment)
    }

    fn settle(&mut self, doubt: Doubt) {
        match doubt {
            Doubt::Create(name, blocks) => _ = self.names.insert(name, blocks),
            Doubt::Delete(name) => _ = self.names.remove(&name),
            Doubt::Rename(old, new) => {
                if let Some(blocks) = self.names.remove(&old) {
                    self.names.insert(new, blocks);
                }
            }
        }
    }

    /// Several writes at a time, and reads of other blocks.
    fn writes(&mut self, volume: &Remote, segment: &Segment<Remote>) -> Result<(), Error> {
        let mut blocks = BTreeSet::new();
        for _ in 0..1 + self.random.below(12) {
            blocks.insert(self.random.below(BLOCKS));
        }
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        let mut begun = Vec::new();
        for at in blocks {
            let offset = at * BLOCK as u64;
            let known = &mut self.blocks[at as usize];
            if self.random.below(4) == 0 {
                let read = segment.read_at(offset, segment.buffer(BLOCK)?);
                let read = if self.random.below(2) == 0 {
                    read.cached()
                } else {
                    read.direct()
                };
                reads.push(async move { (at, read.await) });
                continue;
            }
            self.next += 1;
            let number = self.next;
            let mut buffer = segment.buffer(BLOCK)?;
            buffer.copy_from_slice(&block(self.id, at, number));
            known.allowed.insert(number);
            let request = segment.write_at(offset, buffer);
            let (kind, request) = match self.random.below(3) {
                0 => (Kind::Durable, request.direct().durable(Durability::Data)),
                1 => (Kind::Durable, request.cached().durable(Durability::Data)),
                _ => (Kind::Plain, request.cached()),
            };
            begun.push((at, number, kind));
            writes.push(request);
        }
        let both = async { (all(writes).await, all(reads).await) };
        let (written, read) = volume.block_on(both)?;
        // All of them are looked at: some may have been acknowledged before the end.
        let mut ended = Ok(());
        for ((at, number, kind), written) in begun.into_iter().zip(written) {
            let known = &mut self.blocks[at as usize];
            match written {
                Ok(done) => {
                    assert_eq!(done.bytes, BLOCK);
                    Shared::count(&self.shared.done);
                    known.now = number;
                    if let Kind::Durable = kind {
                        Shared::count(&self.shared.durable);
                        known.allowed = [number].into();
                    }
                }
                Err(failed) => ended = Err(failed.error),
            }
        }
        for (at, read) in read {
            match read {
                Ok(read) => {
                    Shared::count(&self.shared.done);
                    let now = self.blocks[at as usize].now;
                    assert_eq!(
                        number_in(&read.buffer, self.id, at),
                        Some(now),
                        "block {at} of {}",
                        self.id
                    );
                }
                Err(failed) => ended = Err(failed.error),
            }
        }
        ended
    }

    /// Then all that was completed before is safe.
    fn syncs(&mut self, segment: &Segment<Remote>) -> Result<(), Error> {
        segment.sync(Durability::Data).wait()?;
        Shared::count(&self.shared.done);
        Shared::count(&self.shared.synced);
        for known in &mut self.blocks {
            known.allowed = [known.now].into();
        }
        Ok(())
    }

    /// Makes, deletes or renames a segment.
    fn operates(&mut self, volume: &Remote) -> Result<(), Error> {
        let name = format!("name-{}-{}", self.id, self.random.below(NAMES));
        let other = format!("name-{}-{}", self.id, self.random.below(NAMES));
        let doubt = match self.names.contains_key(&name) {
            false => Doubt::Create(name, 1 + self.random.below(8)),
            true if self.random.below(2) == 0 && !self.names.contains_key(&other) => Doubt::Rename(name, other),
            true => Doubt::Delete(name),
        };
        self.doubt = Some(doubt.clone());
        match &doubt {
            Doubt::Create(name, blocks) => {
                let options = CreateOptions::of_size(blocks * BLOCK as u64);
                volume.create_segment(name, &options).wait()?;
            }
            Doubt::Delete(name) => volume.delete_segment(name).wait()?,
            Doubt::Rename(old, new) => _ = volume.rename_segment(old, new).wait()?,
        }
        self.doubt = None;
        self.settle(doubt.clone());
        Shared::count(&self.shared.done);
        Shared::count(&self.shared.operations);
        if let Doubt::Create(name, _) = &doubt {
            let made = volume.open_segment(name, Access::Write).wait()?;
            let mut buffer = made.buffer(BLOCK)?;
            buffer.fill(self.id as u8 + 1);
            made.write_at(0, buffer).wait()?;
        }
        Ok(())
    }
}

fn check(path: &Path) -> CheckReport {
    baio::check(path, false, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// A copy of what a death left has nothing but what a death leaves, and nothing at all when it has been opened.
fn a_copy_is_sound(place: &Place, round: u64) {
    let (volume, copy) = (place.path("vol.img"), place.path("copy.img"));
    let mut command = Command::new("cp");
    let copied = command
        .args(["--sparse=always", "--reflink=auto"])
        .args([&volume, &copy]);
    assert!(copied.status().unwrap().success());
    for problem in check(&copy).problems {
        let is_half = matches!(problem.kind, "image" | "superblock" | "rename");
        assert!(is_half && problem.repair == Repair::Repairable, "{round}: {problem:?}");
    }
    let core = Core::open(&copy, &baio::EngineOptions::default()).unwrap_or_else(|error| panic!("{round}: {error}"));
    core.close().unwrap();
    let problems = check(&copy).problems;
    assert!(problems.is_empty(), "{round}: {problems:?}");
    std::fs::remove_file(&copy).unwrap();
}

fn serve(place: &Place) -> Server {
    let line = "serve vol.img --socket vol.sock --cache 256K --places 64 --arena 1M";
    let mut command = Command::new(BAIO);
    Server::begin(command.args(line.split_whitespace()).current_dir(place.path("")))
}

/// Kills the broker, and starts it again, so often. Times from a start to the first thing that ended well.
fn kill_many(
    place: &Place,
    mut broker: Server,
    shared: &Shared,
    deaths: u64,
    is_lost: &dyn Fn() -> bool,
) -> (Server, Vec<Duration>) {
    let mut random = Random::new(77);
    let mut times = Vec::new();
    for round in 0..deaths {
        let wanted = shared.done.load(Ordering::SeqCst) + 1 + random.below(400);
        // By what is done, not by time: a busy machine kills in the midst of work, too.
        until("the clients go on", || {
            assert!(!is_lost(), "a client has failed");
            shared.done.load(Ordering::SeqCst) >= wanted
        });
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        broker.killed();
        a_copy_is_sound(place, round);
        while random.below(4) == 0 {
            // Once more, at any moment of its start and its recovery.
            let another = serve(place);
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
            another.killed();
            Shared::count(&shared.in_starts);
        }
        shared.firsts.lock().unwrap().clear();
        let began = Instant::now();
        broker = serve(place).ready();
        until("somebody is served", || {
            assert!(!is_lost(), "a client has failed");
            !shared.firsts.lock().unwrap().is_empty()
        });
        times.extend(
            shared
                .firsts
                .lock()
                .unwrap()
                .iter()
                .min()
                .map(|first| first.duration_since(began)),
        );
    }
    (broker, times)
}

#[test]
fn what_a_broker_has_acknowledged_survives_its_deaths() {
    let deaths = times("BAIO_BROKER_DEATHS", 10);
    let place = Place::new();
    place.baio("format vol.img --size 1G").succeeds();
    let socket = place.path("vol.sock");
    let broker = serve(&place).ready();
    let volume = Remote::connect(&socket).unwrap();
    (0..CLIENTS).for_each(|id| Client::begins(&volume, id));
    volume.close().unwrap();
    let shared = Shared::default();
    let times = std::thread::scope(|scope| {
        let socket = &socket;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| Client::new(id, &shared))
            .map(|client| scope.spawn(move || client.lives(socket)))
            .collect();
        let is_lost = || clients.iter().any(|client| client.is_finished());
        let killed = std::panic::AssertUnwindSafe(|| kill_many(&place, broker, &shared, deaths, &is_lost));
        let killed = std::panic::catch_unwind(killed);
        shared.stop.store(true, Ordering::SeqCst);
        let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        let (broker, times) = killed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // After a proper end everything is there, synced or not.
        broker.stops_well();
        let problems = check(&place.path("vol.img")).problems;
        assert!(problems.is_empty(), "{problems:?}");
        let broker = serve(&place).ready();
        for client in clients {
            let mut client = client.expect("a client that lives");
            for known in &mut client.blocks {
                known.allowed = [known.now].into();
            }
            client.looks(&Remote::connect(socket).unwrap()).unwrap();
        }
        broker.stops_well();
        times
    });
    let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let mut times = times;
    times.sort_unstable();
    println!(
        "{deaths} deaths, and {} more in a start; {} sessions that found everything, {} durable writes, {} syncs, {} creates, deletes and renames, {} more that came \
         about untold; from a start to the first completion: p50 {:?}, p99 {:?}",
        of(&shared.in_starts),
        of(&shared.lives),
        of(&shared.durable),
        of(&shared.synced),
        of(&shared.operations),
        of(&shared.came_about),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
    );
    assert!(of(&shared.durable) > 0 && of(&shared.synced) > 0 && of(&shared.operations) > 0);
    assert!(of(&shared.lives) >= deaths, "after each death somebody has looked");
}
