//! Promise: a log in a segment of a broker has what it acknowledged, whoever is killed (SIGKILL): the broker, which knows nothing of
//! records, or the program, which has the log's memory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use baio::{Access, CreateOptions, Fault, Link, Log, LogOptions, Lsn, Remote};

use crate::support::server::Server;
use crate::support::serving::{Random, as_child, role, times};
use crate::support::{BAIO, Place, TestName, until};

const WRITERS: u64 = 4;

fn serve(place: &Place) -> Server {
    let line = "serve vol.img --socket vol.sock --arena 1M";
    let mut command = Command::new(BAIO);
    Server::begin(command.args(line.split_whitespace()).current_dir(place.path(""))).ready()
}

fn made(place: &Place) -> Server {
    place.baio("format vol.img --size 64M").succeeds();
    let broker = serve(place);
    let volume = Remote::connect(place.path("vol.sock")).unwrap();
    volume
        .create_segment("log", &CreateOptions::of_size(8 << 20))
        .wait()
        .unwrap();
    let segment = volume.open_segment("log", Access::Write).wait().unwrap();
    let log = segment.create_log(&LogOptions::default()).wait().unwrap();
    log.close().wait().unwrap();
    drop((segment, log));
    volume.close().unwrap();
    broker
}

/// What the one before had under way may still be ending.
fn opened(socket: &Path) -> (Remote, Log<Remote>) {
    let volume = Remote::connect(socket).unwrap();
    let segment = volume.open_segment("log", Access::Write).wait().unwrap();
    loop {
        match segment.open_log(&LogOptions::default()).wait() {
            Ok(log) => return (volume, log),
            Err(error) => assert!(matches!(error.fault, Fault::HasLog), "{error}"),
        }
        std::thread::yield_now();
    }
}

/// All records, by their LSNs.
fn found(log: &Log<Remote>) -> BTreeMap<Lsn, Vec<u8>> {
    let mut records = log.records(log.head_lsn());
    let next = || records.next_record().wait().unwrap();
    std::iter::from_fn(next)
        .map(|record| (record.lsn(), record.into_payload()))
        .collect()
}

/// And no more: no device has failed, and nothing was closed by anybody.
fn says_that_the_broker_ended(error: &baio::Error) {
    let text = error.to_string();
    assert!(text.contains("has ended"), "{text}");
    assert!(!text.contains("device") && !text.contains("ETIMEDOUT"), "{text}");
}

fn has_all(acknowledged: &BTreeMap<Lsn, Vec<u8>>, found: &BTreeMap<Lsn, Vec<u8>>) {
    for (lsn, record) in acknowledged {
        assert_eq!(found.get(lsn), Some(record), "the record at {lsn}");
    }
}

#[test]
fn what_was_acknowledged_outlives_the_broker() {
    let place = Place::new();
    let mut broker = made(&place);
    let socket = place.path("vol.sock");
    let acknowledged = Mutex::new(BTreeMap::new());
    let mut random = Random::new(5);
    for round in 0..times("BAIO_BROKER_DEATHS", 8) {
        let (volume, log) = opened(&socket);
        has_all(&acknowledged.lock().unwrap(), &found(&log));
        let done = AtomicU64::new(0);
        let wanted = 1 + random.below(100);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (log, acknowledged, done) = (&log, &acknowledged, &done);
                scope.spawn(move || {
                    for number in 0_u64.. {
                        let word = (round << 40 | writer << 32 | number).to_le_bytes();
                        let record = word.repeat(1 + (number % 500) as usize);
                        // Whoever appends is told of the end, and nobody waits for ever.
                        let lsn = match log.append_durable(&record).wait() {
                            Ok(lsn) => lsn,
                            Err(error) => return says_that_the_broker_ended(&error),
                        };
                        acknowledged.lock().unwrap().insert(lsn, record);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let mut follower = log.follow(log.end_lsn());
            // It hears of the end too, though nothing of its own is under way.
            scope.spawn(move || while let Ok(Some(_)) = follower.next_record().wait() {});
            until("records are acknowledged", || done.load(Ordering::SeqCst) >= wanted);
            std::mem::replace(&mut broker, serve_later()).killed();
        });
        for error in [
            log.append_durable(b"never").wait().unwrap_err(),
            log.durable(log.end_lsn()).wait().unwrap_err(),
            log.truncate(log.end_lsn()).wait().unwrap_err(),
        ] {
            says_that_the_broker_ended(&error);
        }
        drop((log, volume));
        broker = serve(&place);
        let keep = acknowledged.lock().unwrap().keys().next_back().copied();
        if let Some(keep) = keep.filter(|_| round % 3 == 2) {
            let (volume, log) = opened(&socket);
            has_all(&acknowledged.lock().unwrap(), &found(&log));
            let head = log.truncate(keep).wait().unwrap();
            acknowledged.lock().unwrap().retain(|lsn, _| *lsn >= head);
            drop(log);
            volume.close().unwrap();
        }
    }
    let (volume, log) = opened(&socket);
    has_all(&acknowledged.lock().unwrap(), &found(&log));
    drop(log);
    volume.close().unwrap();
    broker.stops_well();
}

/// Nobody yet.
fn serve_later() -> Server {
    Server::begin(&mut Command::new("true"))
}

/// Appends until it is killed, and says what was acknowledged.
fn appends(socket: &Path) {
    let (_volume, log) = opened(socket);
    for number in 0_u64.. {
        let lsn = log.append_durable(&number.to_le_bytes().repeat(20)).wait().unwrap();
        eprintln!("{} {number}", lsn.0);
    }
}

#[test]
fn what_was_acknowledged_outlives_the_program() {
    let socket = std::env::var_os("BAIO_TEST_SOCKET");
    if let Some(socket) = role().and(socket) {
        return appends(Path::new(&socket));
    }
    let place = Place::new();
    let broker = made(&place);
    let socket = place.path("vol.sock");
    let mut acknowledged = BTreeMap::new();
    let mut random = Random::new(6);
    for _ in 0..4 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        as_child(
            &mut command,
            TestName::of(what_was_acknowledged_outlives_the_program),
            "append",
        )
        .env("BAIO_TEST_SOCKET", &socket);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let wanted = 1 + random.below(200);
        let mut take = |line: String| {
            let (lsn, number) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            let number: u64 = number.parse().unwrap_or_else(|_| panic!("{line}"));
            acknowledged.insert(Lsn(lsn.parse().unwrap()), number.to_le_bytes().repeat(20));
        };
        for _ in 0..wanted {
            take(lines.next().unwrap().unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.for_each(|line| take(line.unwrap()));
        let (volume, log) = opened(&socket);
        has_all(&acknowledged, &found(&log));
        log.close().wait().unwrap();
        drop(log);
        volume.close().unwrap();
    }
    broker.stops_well();
}
