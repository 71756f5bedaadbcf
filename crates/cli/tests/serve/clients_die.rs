//! Promise: clients of a broker may die at any moment, by SIGKILL, and nothing of theirs is left: no descriptor, no memory, no
//! session, no request, no stillness of the volume. Whoever else is there is served on.
//!
//! `BAIO_BROKER_KILLS=N` chooses how many are killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baio::{Access, CreateOptions, Durability, Fault, Link, Remote, ResizeOptions};
use baio_words::session::{Answer, Question};

use crate::support::server::Server;
use crate::support::serving::{Random, Talk, all, as_child, role, times};
use crate::support::{BAIO, Place, TestName, until};

/// Killed together.
const TOGETHER: u64 = 4;
/// So much the broker may have touched of what it took when it began: the engine's buffers, the page cache, the program.
const OWN_KIB: u64 = 100 << 10;
/// So many rounds touch all of it.
const WARM: u64 = 250;
/// More than this it does not grow from then on, however many die. Less than one client has in buffers.
const GROWTH_KIB: u64 = 1024;
const BLOCK: usize = 4096;
const SEGMENT: u64 = 64 * BLOCK as u64;
const CANARY_BLOCKS: u64 = 8;

/// Tells the parent. Whoever is told by nobody any more ends.
fn say(word: &str) {
    if std::io::stderr().write_all(format!("{word}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

/// What a child does until it is killed.
fn work(role: &str) {
    let (seed, socket) = role.split_once(' ').unwrap();
    let seed: u64 = seed.parse().unwrap();
    let mut random = Random::new(seed);
    let socket = PathBuf::from(socket);
    match seed % 6 {
        0 => hands_on(&socket, &mut random),
        1 => keeps_still(&socket, &mut random),
        _ => works(&socket, &mut random),
    }
}

/// Names that all share: they meet each other's segments, and the volume does not fill.
fn a_name(random: &mut Random) -> String {
    format!("shared-{}", random.below(8))
}

/// Opens and hands on, is greeted as who was handed it, and asks more than it reads.
fn hands_on(socket: &Path, random: &mut Random) {
    let mut client = Talk::connect(socket).expect("a welcome");
    let mut others = Vec::new();
    say("begun");
    loop {
        let name = a_name(random);
        let create = client.create(&name, SEGMENT);
        client.ask(&create).expect("an answer");
        let open = Question::Open {
            owner_uid: client.welcome.uid,
            name,
            access: Access::Write,
        };
        let Some((Answer::Opened { handle, .. }, _)) = client.ask(&open) else {
            continue; // Another has deleted it.
        };
        for _ in 0..random.below(3) {
            let hand_on = Question::HandOn {
                handle,
                access: Access::Read,
            };
            match client.ask(&hand_on) {
                Some((Answer::HandedOn { grant }, mut fds)) => match random.below(4) {
                    0 => drop(client.ask(&Question::Revoke { grant })),
                    1 => drop(fds),
                    _ => others.extend(Talk::greet(fds.remove(0))),
                },
                Some((Answer::Failed(_), _)) => {} // As many as one may.
                other => panic!("{other:?}"),
            }
        }
        for other in &mut others {
            let open = Question::Open {
                owner_uid: 0,
                name: String::new(),
                access: Access::Read,
            };
            other.pose(&open);
            other.pose(&Question::Size { handle });
        }
        if others.len() > 3 {
            others.clear();
        }
        client.pose(&Question::List);
        say("done");
        // Handles are closed by the ring, and this has none.
        drop(std::mem::replace(
            &mut client,
            Talk::connect(socket).expect("a welcome"),
        ));
    }
}

/// Keeps the volume still, again and again, and asks for what must wait for it.
fn keeps_still(socket: &Path, random: &mut Random) {
    let mut client = Talk::connect(socket).expect("a welcome");
    say("begun");
    loop {
        let freeze = match client.ask(&Question::Freeze) {
            Some((Answer::Frozen { freeze }, _)) => freeze,
            other => panic!("no freeze: {other:?}"),
        };
        // It would wait for its own thaw: posed only.
        let create = client.create(&a_name(random), SEGMENT);
        client.pose(&create);
        std::thread::sleep(Duration::from_micros(random.below(2000)));
        if random.below(3) == 0 {
            client.pose(&Question::Freeze);
            client.pose(&Question::List);
            return client.hears_the_end(); // Not of the broker, but its own: it is killed so.
        }
        let thawed = client.ask(&Question::Thaw { freeze });
        assert!(matches!(thawed, Some((Answer::Done, _))), "{thawed:?}");
        say("done");
    }
}

/// Does all that a link can, at random, several things at a time.
fn works(socket: &Path, random: &mut Random) {
    let volume = Remote::connect(socket).expect("a link");
    say("begun");
    // What a sibling deletes, resizes or fills is refused; the end of the service is no answer.
    let check = |error: baio::Error| assert!(!matches!(error.fault, Fault::ServiceEnded), "{error}");
    loop {
        let name = a_name(random);
        let _ = volume
            .create_segment(&name, &CreateOptions::of_size(SEGMENT))
            .wait()
            .map_err(check);
        let Ok(segment) = volume.open_segment(&name, Access::Write).wait().map_err(check) else {
            continue;
        };
        for _ in 0..1 + random.below(4) {
            let batch: Vec<_> = (0..1 + random.below(16))
                .map(|_| {
                    let mut buffer = segment.buffer(BLOCK).unwrap();
                    let offset = random.below(64) * BLOCK as u64;
                    let request = match random.below(2) {
                        0 => segment.read_at(offset, buffer),
                        _ => {
                            buffer.fill(random.below(256) as u8);
                            segment.write_at(offset, buffer)
                        }
                    };
                    match random.below(4) {
                        0 => request.direct(),
                        1 => request.cached().durable(Durability::Data),
                        2 => request.durable(Durability::Data),
                        _ => request.cached(),
                    }
                })
                .collect();
            for ended in volume.block_on(all(batch)).unwrap() {
                let _ = ended.map_err(|failed| check(failed.error));
            }
        }
        let _ = match random.below(10) {
            0 => segment.prefetch(&[0..8, 16..20]).wait().map(drop),
            1 => segment.drop_cached(0..32).wait().map(drop),
            2 => segment.keep_cached(0..2).wait(),
            3 => segment.read_pattern(baio::Pattern::Sequential).wait(),
            4 => volume.freeze().wait().map(drop),
            5 => volume.delete_segment(&name).wait(),
            6 => volume.rename_segment(&name, &a_name(random)).wait().map(drop),
            7 => {
                let size = (32 + random.below(40)) * BLOCK as u64;
                volume
                    .resize_segment(&name, &ResizeOptions::to_size(size))
                    .wait()
                    .map(drop)
            }
            8 => volume.list().wait().map(drop),
            _ => segment.sync(Durability::Full).wait().map(drop).map_err(|f| f.error),
        }
        .map_err(check);
        say("done");
    }
}

/// A child, and what it says.
struct Doomed {
    child: Child,
    told: BufReader<ChildStderr>,
}

impl Doomed {
    fn begin(test: TestName, seed: u64, socket: &Path) -> Doomed {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = as_child(&mut command, test, &format!("{seed} {}", socket.display()));
        let mut child = command.spawn().unwrap();
        let told = BufReader::new(child.stderr.take().unwrap());
        Doomed { child, told }
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line
    }

    /// Kills it; what it has said.
    fn killed(mut self) -> String {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        self.told.read_to_string(&mut said).unwrap();
        assert_eq!(status.signal(), Some(9), "it had ended before: {status}: {said}");
        said
    }
}

/// Works beside them all, in a segment that nobody else knows.
struct Canary {
    turns: Arc<AtomicU64>,
    /// Held during each turn.
    pause: Arc<Mutex<()>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

fn canary(at: u64) -> Vec<u8> {
    (0..BLOCK)
        .map(|byte| (byte * 31) as u8 ^ (byte >> 8) as u8 ^ at as u8)
        .collect()
}

impl Canary {
    fn begin(socket: &Path) -> Canary {
        let volume = Remote::connect(socket).unwrap();
        let options = CreateOptions::of_size(2 * CANARY_BLOCKS * BLOCK as u64);
        volume.create_segment("canary", &options).wait().unwrap();
        let segment = volume.open_segment("canary", Access::Write).wait().unwrap();
        let offset = |at: u64| at * BLOCK as u64;
        for at in 0..CANARY_BLOCKS {
            let written = segment.write_at(offset(at), canary(at));
            written.durable(Durability::Data).wait().unwrap();
        }
        let (turns, stop, pause) = (Arc::default(), Arc::default(), Arc::default());
        let (counted, stopped, paused): (Arc<AtomicU64>, Arc<AtomicBool>, Arc<Mutex<()>>) =
            (Arc::clone(&turns), Arc::clone(&stop), Arc::clone(&pause));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let turn = paused.lock().unwrap_or_else(PoisonError::into_inner);
                let number = counted.load(Ordering::SeqCst);
                let at = number % CANARY_BLOCKS;
                let read = segment.read_at(offset(at), vec![0; BLOCK]);
                let read = if number % 3 == 0 { read.cached() } else { read.direct() };
                assert!(
                    read.wait().unwrap().buffer == canary(at),
                    "somebody wrote over the canary"
                );
                let other = offset(CANARY_BLOCKS + at);
                segment.write_at(other, canary(number)).wait().unwrap();
                assert!(segment.read_at(other, vec![0; BLOCK]).wait().unwrap().buffer == canary(number));
                counted.fetch_add(1, Ordering::SeqCst);
                drop(turn);
                // A lock is not fair.
                std::thread::sleep(Duration::from_micros(50));
            }
            volume.close().unwrap();
        });
        Canary {
            turns,
            pause,
            stop,
            thread,
        }
    }

    /// It is served.
    fn goes_on(&self) {
        let before = self.turns.load(Ordering::SeqCst);
        until("the canary is served", || {
            assert!(!self.thread.is_finished(), "the canary is dead");
            self.turns.load(Ordering::SeqCst) > before
        });
    }
}

#[test]
fn clients_that_are_killed_leave_nothing() {
    if let Some(role) = role() {
        return work(&role);
    }
    let kills = times("BAIO_BROKER_KILLS", 100);
    let rounds = kills.div_ceil(TOGETHER);
    let place = Place::new();
    place.baio("format vol.img --size 64M").succeeds();
    let line = "serve vol.img --socket vol.sock --cache 1M --slots 32 --clients 64 --places 64 --arena 1M";
    let mut command = Command::new(BAIO);
    let command = command.args(line.split_whitespace()).current_dir(place.path(""));
    let broker = Server::begin(command).ready();
    let socket = place.path("vol.sock");
    let mut watcher = Talk::connect(&socket).unwrap();
    let canary = Canary::begin(&socket);
    canary.goes_on();
    let before = broker.holds();
    assert!(before.1 >= 2, "the memory of two sessions: {before:?}");

    let mut random = Random::new(2026);
    let (mut begun, mut done, mut warm_kib) = (0, 0, OWN_KIB);
    for round in 0..rounds {
        let seed = |at| 1 + round * TOGETHER + at;
        let mut doomed: Vec<_> = (0..TOGETHER)
            .map(|at| Doomed::begin(TestName::of(clients_that_are_killed_leave_nothing), seed(at), &socket))
            .collect();
        // By what they say, not by time alone: a busy machine kills in the midst of work, too. Sometimes before they say anything.
        if round % 8 != 7 {
            for one in &mut doomed {
                let said = one.says();
                if said != "begun\n" {
                    let mut rest = String::new();
                    one.told.read_to_string(&mut rest).unwrap();
                    panic!("a client did not begin: {said}{rest}");
                }
                begun += 1;
            }
        }
        for one in doomed {
            std::thread::sleep(Duration::from_micros(random.below(6000)));
            let said = one.killed();
            assert!(!said.contains("panicked"), "{said}");
            done += said.matches("done").count();
        }
        let turn = canary.pause.lock().unwrap_or_else(PoisonError::into_inner);
        until("the killed have gone, and all that was theirs", || {
            let row = watcher.row();
            (row.clients, row.handles, row.in_flight, row.held) == (2, 1, 0, 0) && broker.holds() == before
        });
        drop(turn);
        canary.goes_on();
        if round + 1 == WARM {
            warm_kib = broker.status("VmRSS");
        }
    }
    let row = watcher.row();
    assert_eq!(row.violations, 0, "no client was ended for what it sent");
    let (now_kib, turns) = (broker.status("VmRSS"), canary.turns.load(Ordering::SeqCst));
    println!(
        "{} clients killed, {begun} of them after they had begun; {done} rounds of work done by them, {} requests, {turns} \
         turns of the canary; {now_kib} KiB resident at the end, at most {warm_kib} after {WARM} rounds",
        rounds * TOGETHER,
        row.requests,
    );
    assert!(done > 0, "nobody has done anything");
    assert!(
        now_kib < warm_kib + GROWTH_KIB,
        "the broker grows: {warm_kib} KiB, and now {now_kib}"
    );
    canary.stop.store(true, Ordering::SeqCst);
    canary.thread.join().unwrap();
    broker.stops_well();
    let problems = baio::check(&place.path("vol.img"), false, &mut |_| {})
        .unwrap()
        .problems;
    assert!(problems.is_empty(), "{problems:?}");
}
