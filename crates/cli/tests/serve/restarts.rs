//! Promise: a new version of a broker is a restart on a socket that somebody keeps. Clients that may reconnect go on under load: reads and the
//! handles of what was synced see nothing of it, what was under way is told as indeterminate, and nothing that was acknowledged as durable is
//! lost. The same when the old one crashes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baio::{Access, CreateOptions, Durability, Error, Fault, Link, LinkOptions, Reconnect, Remote, Segment};
use baio_words::Lost;

use crate::support::Place;
use crate::support::server::{PATIENCE, Server, listening};

const PAGE: usize = 4096;
const CLIENTS: u64 = 4;
const BLOCKS: u64 = 16;
const RESTARTS: u64 = 6;

/// What each block of a segment may hold.
struct Blocks(Vec<BTreeSet<u64>>);

impl Blocks {
    fn new() -> Blocks {
        Blocks(vec![BTreeSet::from([0]); BLOCKS as usize])
    }

    /// Reads one, which holds one of what it may.
    fn look(&mut self, segment: &Segment<Remote>, at: u64, cached: bool) -> Result<(), Error> {
        let read = segment.read_exact_at(at * PAGE as u64, segment.buffer(PAGE)?);
        let read = if cached { read.cached() } else { read.direct() };
        let done = read.wait().map_err(|failed| failed.error)?;
        let number = u64::from_le_bytes(done.buffer[..8].try_into().unwrap());
        assert!(done.buffer.chunks(8).all(|word| word == number.to_le_bytes()), "torn");
        let may = &mut self.0[at as usize];
        assert!(may.contains(&number), "{number} at {at}: {may:?}");
        *may = [number].into();
        Ok(())
    }
}

fn connect(place: &Place) -> Remote {
    let options = LinkOptions {
        reconnect: Reconnect::Within(PATIENCE),
        ..LinkOptions::default()
    };
    Remote::connect_with(place.path("vol.sock"), "", &options).unwrap()
}

fn open(volume: &Remote, name: &str) -> Segment<Remote> {
    volume.open_segment(name, Access::Write).wait().unwrap()
}

/// A client that works on through all restarts. Panics at any error but those that a restart may bring.
fn works(place: &Place, id: u64, stop: &AtomicBool, done: &AtomicU64, told: &AtomicU64) {
    let volume = connect(place);
    let (direct, mut cached) = (
        open(&volume, &format!("direct-{id}")),
        open(&volume, &format!("cached-{id}")),
    );
    let (mut of_direct, mut of_cached) = (Blocks::new(), Blocks::new());
    let (mut random, mut number) = (id + 1, 0);
    let page = |segment: &Segment<Remote>, number: u64| {
        let mut buffer = segment.buffer(PAGE).unwrap();
        buffer
            .chunks_mut(8)
            .for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
        buffer
    };
    let is_indeterminate = |error: &Error| {
        told.fetch_add(1, Ordering::SeqCst);
        assert_eq!(error.code(), "EINDETERMINATE", "{error}");
    };
    while !stop.load(Ordering::SeqCst) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) % BLOCKS;
        number += 1;
        let write = direct
            .write_at(at * PAGE as u64, page(&direct, number))
            .durable(Durability::Data);
        match write.wait() {
            Ok(_) => of_direct.0[at as usize] = [number].into(),
            Err(failed) => {
                is_indeterminate(&failed.error);
                of_direct.0[at as usize].insert(number);
            }
        }
        of_direct.look(&direct, (at + 1) % BLOCKS, false).unwrap();
        // Through the cache, and synced: of both together each may be what the end of a broker meets.
        of_cached.0[at as usize].insert(number);
        let write = cached.write_at(at * PAGE as u64, page(&cached, number)).cached();
        let written = write.wait().map_err(|failed| failed.error);
        let synced = cached.sync(Durability::Data).wait().map_err(|failed| failed.error);
        if let (Ok(_), Ok(_)) = (&written, &synced) {
            of_cached.0[at as usize] = [number].into();
        }
        let looked = of_cached.look(&cached, (at + 1) % BLOCKS, true);
        let mut is_lost = false;
        for error in [written.err(), synced.err(), looked.err()].into_iter().flatten() {
            match error.fault {
                Fault::Lost(lost) => {
                    assert_eq!(lost, Lost::CachedWrites);
                    is_lost = true;
                }
                _ => is_indeterminate(&error),
            }
        }
        if is_lost {
            told.fetch_add(1, Ordering::SeqCst);
            cached = open(&volume, &format!("cached-{id}"));
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
    for at in 0..BLOCKS {
        of_direct.look(&direct, at, false).unwrap();
        of_cached
            .look(&open(&volume, &format!("cached-{id}")), at, true)
            .unwrap();
    }
    volume.close().unwrap();
}

/// A new version is a restart: the socket is the service manager's and stays. Every other time the old one crashes instead.
#[test]
fn restarts_under_load_are_told_only_by_what_is_indeterminate() {
    let place = Place::new();
    place.baio("format vol.img --size 32M --segments 64").succeeds();
    let socket = listening(&place.path("vol.sock"));
    let start = || Server::handed(&place, &socket, "--cache 1M", &[]).ready();
    let mut server = Some(start());
    let volume = connect(&place);
    for id in 0..CLIENTS {
        for kind in ["direct", "cached"] {
            let options = CreateOptions::of_size(BLOCKS * PAGE as u64);
            volume.create_segment(&format!("{kind}-{id}"), &options).wait().unwrap();
        }
    }
    let (stop, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let done: Vec<_> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let (place, stop, done, told) = (&place, &stop, &done[id as usize], &told);
                scope.spawn(move || works(place, id, stop, done, told))
            })
            .collect();
        let work = |so_many: u64| {
            let before: Vec<_> = done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
            let since = Instant::now();
            let all_have = || {
                let mut each = done.iter().zip(&before);
                each.all(|(done, before)| done.load(Ordering::SeqCst) >= before + so_many)
            };
            // One that has panicked does nothing more: the scope tells.
            while !all_have() && !clients.iter().any(|client| client.is_finished()) {
                assert!(since.elapsed() < PATIENCE, "nobody goes on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for number in 0..RESTARTS {
            work(10 + number);
            match (number % 2, server.take().unwrap()) {
                (0, old) => old.stops_well(),
                (_, old) => old.killed(),
            }
            server = Some(start());
        }
        work(10);
        stop.store(true, Ordering::SeqCst);
    });
    // It was under load: some of it was under way.
    assert!(told.load(Ordering::SeqCst) > 0);
    // A link that nobody has looked at meanwhile goes on with the last of them.
    assert_eq!(volume.list().wait().unwrap().len() as u64, 2 * CLIENTS);
    volume.close().unwrap();
    server.unwrap().stops_well();
}
