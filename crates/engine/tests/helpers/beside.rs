//! Helpers beside the engine's own backend: devices that it does not know, in one engine and one queue of completions, on every
//! backend (docs/inside/engine.md, "Several sorts of devices in one engine").

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use baio_engine::{
    Doorbell, Durability, Engine, Errno, Error, File, Notice, Op, Policy, Request, RequestId, Time, Wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backends::{self, Bench, FOR_EVER, Random, bytes_of, finish, next, pattern};
use crate::far::{Far, Server};

const BLOCK: usize = 4096;

fn benches() -> impl Iterator<Item = Bench> {
    Bench::each(|_| true)
}

/// Those that sleep in the kernel, and not in virtual time.
fn sleepers() -> impl Iterator<Item = Bench> {
    Bench::each(|row| !row.is_simulated())
}

fn wait(engine: &Engine, count: u32, long: Duration) -> Wait {
    wait_until(count, engine.clock().after(long))
}

fn wait_until(count: u32, deadline: Time) -> Wait {
    Wait::Until {
        count,
        min_wait: Duration::ZERO,
        deadline: Some(deadline),
    }
}

#[test]
fn files_of_two_sorts_are_read_and_written_interleaved() {
    const BLOCKS: u64 = 64;
    for bench in benches() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let zeroes = vec![0; BLOCKS as usize * BLOCK];
        let far = Far::new(&zeroes);
        far.inside().long = Duration::from_micros(200);
        // Few enough at a time that some have to wait.
        far.inside().most = 5;
        far.help(&mut engine);
        let files = [bench.file(&zeroes), far.file()];
        let mut seeds = [[None; BLOCKS as usize]; 2];
        let mut busy = [[false; BLOCKS as usize]; 2];
        let mut dice = Random(7);
        let (mut begun, mut ended) = (0_u64, 0);
        while ended < 3000 {
            while begun < 3000 && engine.in_flight() + engine.completed() < 24 {
                let (sort, at) = (dice.below(2) as usize, dice.below(BLOCKS) as usize);
                if std::mem::replace(&mut busy[sort][at], true) {
                    continue;
                }
                begun += 1;
                let offset = at as u64 * BLOCK as u64;
                let is_write = dice.below(2) == 0;
                let policy = Policy::kernel();
                let tag = (sort as u64) << 32 | (at as u64) << 1 | u64::from(is_write);
                let request = if is_write {
                    seeds[sort][at] = Some(begun);
                    Request::write(
                        &files[sort],
                        offset,
                        backends::buffer(&engine, &pattern(begun, BLOCK)),
                        policy,
                    )
                } else {
                    Request::read(&files[sort], offset, backends::blank(&engine, BLOCK), policy)
                };
                engine.submit(request.tagged(tag)).unwrap();
            }
            let patience = wait(&engine, 1 + dice.below(4) as u32, FOR_EVER);
            engine.turn(patience).unwrap();
            while let Some(done) = engine.next_completion() {
                ended += 1;
                let (sort, at) = ((done.tag >> 32) as usize, (done.tag as u32 >> 1) as usize);
                assert!(std::mem::take(&mut busy[sort][at]), "{name}: an end too many");
                assert_eq!(done.result, Ok(BLOCK as u32), "{name}");
                if done.tag & 1 == 0 {
                    let expected = seeds[sort][at].map_or(vec![0; BLOCK], |seed| pattern(seed, BLOCK));
                    assert!(bytes_of(&done.memory) == expected, "{name}: file {sort}, block {at}");
                }
            }
        }
        assert_eq!(engine.in_flight(), 0);
        // Once for each foreign file: the engine's own simulated disk is one.
        assert_eq!(far.inside().asked, 1 + usize::from(bench.is_simulated()), "{name}");
    }
}

/// The helper's thread ends its work at any moment of the turn that is about to sleep for it.
#[test]
fn no_ring_of_a_helper_is_lost() {
    for bench in sleepers() {
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        let file = far.file();
        let local = bench.file(&[1; BLOCK]);
        for round in 0..4000_u32 {
            far.inside().long = Duration::from_nanos(u64::from(round % 7) * 3000);
            engine
                .submit(Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel()))
                .unwrap();
            if round % 3 == 0 {
                engine.submit(Request::sync(&local, Durability::Data)).unwrap();
            }
            while engine.in_flight() > 0 {
                let began = Instant::now();
                engine.turn(wait(&engine, 1, FOR_EVER)).unwrap();
                assert!(
                    began.elapsed() < FOR_EVER / 2,
                    "{}: round {round} slept",
                    bench.row.name
                );
                while let Some(done) = engine.next_completion() {
                    assert!(done.result.is_ok());
                }
            }
        }
    }
}

#[test]
fn a_helpers_ring_ends_no_callers_turn_and_a_callers_does() {
    for bench in sleepers() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        let file = far.file();
        let read = |engine: &Engine, file: &File| Request::read(file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        for _ in 0..3 {
            engine.submit(read(&engine, &file)).unwrap();
        }
        engine.submit(Request::event()).unwrap();
        let bell = engine.doorbell();
        far.inside().long = Duration::from_millis(10);
        let until = engine.clock().after(Duration::from_millis(200));
        let mut came = engine.turn(wait_until(4, until)).unwrap();
        assert!(engine.clock() >= until, "{name}: a helper's ring ended the turn");
        // The helper may have had no processor for so long.
        while came < 3 {
            came += engine.turn(wait(&engine, 1, FOR_EVER)).unwrap();
        }
        assert_eq!(came, 3, "{name}");
        engine.submit(read(&engine, &file)).unwrap();
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            bell.ring();
        });
        let began = Instant::now();
        let many = wait(&engine, 50, FOR_EVER);
        engine.turn(many).unwrap();
        assert!(
            began.elapsed() < FOR_EVER / 2,
            "{name}: the caller's ring was not heard"
        );
        ringer.join().unwrap();
    }
}

#[test]
fn cancels_deadlines_and_ends_reach_the_helper() {
    for bench in benches() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        let file = far.file();
        far.inside().holds = true;
        let read = |engine: &Engine| Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        let id = engine.submit(read(&engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        engine.cancel(id);
        assert_eq!(next(&mut engine).result, Err(Error::Cancelled), "{name}");

        let mut late = read(&engine);
        late.policy.deadline = Some(engine.now().after(Duration::from_millis(5)));
        let late = engine.submit(late).unwrap();
        let done = next(&mut engine);
        assert_eq!((done.id, done.result), (late, Err(Error::Indeterminate)), "{name}");
        let released = next(&mut engine);
        assert_eq!(
            (released.id, released.notice, released.memory.len()),
            (late, Notice::Released, 16)
        );

        let given_up = engine.submit(read(&engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        engine.abandon(given_up);
        let released = next(&mut engine);
        assert_eq!((released.id, released.notice), (given_up, Notice::Released), "{name}");

        for _ in 0..3 {
            engine.submit(read(&engine)).unwrap();
        }
        engine.turn(Wait::No).unwrap();
        assert_eq!(engine.shutdown(FOR_EVER), 0, "{name}");
        assert!((0..3).all(|_| engine.next_completion().unwrap().result == Err(Error::Cancelled)));
        engine.submit(read(&engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        let began = Instant::now();
        drop(engine);
        assert!(began.elapsed() < FOR_EVER / 2, "{name}: the drop waited");
    }
}

/// What waits for its turn at a slow device is in nobody's way.
#[test]
fn a_helper_that_is_full_holds_nobody_up() {
    for bench in benches() {
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        (far.inside().holds, far.inside().most) = (true, 1);
        let (file, local) = (far.file(), bench.file(&[1; BLOCK]));
        for tag in 0..3 {
            let memory = engine.buffer(16).unwrap();
            engine
                .submit(Request::read(&file, 0, memory, Policy::kernel()).tagged(tag))
                .unwrap();
        }
        for tag in 10..13 {
            let memory = engine.buffer(16).unwrap();
            engine
                .submit(Request::read(&local, 0, memory, Policy::kernel()).tagged(tag))
                .unwrap();
        }
        let done: Vec<_> = (0..3).map(|_| next(&mut engine).tag).collect();
        assert!(done.iter().all(|tag| *tag >= 10), "{}: {done:?}", bench.row.name);
        far.inside().holds = false;
        let done: Vec<_> = (0..3).map(|_| next(&mut engine).tag).collect();
        assert_eq!(done, [0, 1, 2], "{}: in their order", bench.row.name);
    }
}

/// Its room may come back in a second or an hour.
#[test]
fn a_helper_that_is_full_keeps_nobody_awake() {
    for bench in sleepers() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        (far.inside().holds, far.inside().most) = (true, 1);
        let file = far.file();
        let read = |engine: &Engine| Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        for _ in 0..3 {
            engine.submit(read(&engine)).unwrap();
        }
        let until = engine.clock().after(Duration::from_millis(100));
        assert_eq!(engine.turn(wait_until(1, until)), Ok(0), "{name}");
        assert!(engine.clock() >= until, "{name}");
        assert!(
            far.inside().offered < 5,
            "{name}: offered {} times",
            far.inside().offered
        );
        assert_eq!(engine.queued(), 0, "{name}: nothing that a turn would submit");
        if engine.ready_fd(true).is_some() {
            for _ in 0..3 {
                engine.turn(Wait::No).unwrap();
            }
            let ready = engine.ready_fd(true).unwrap();
            let short = Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            };
            assert_eq!(
                poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&short)),
                Ok(0),
                "{name}: a loop outside"
            );
            engine.ready_fd(false);
        }
        // One that comes meanwhile is offered at once, and so is the kernel's.
        let offered = far.inside().offered;
        engine.submit(read(&engine)).unwrap();
        assert_eq!(engine.queued(), 4 - 1, "{name}");
        engine.turn(Wait::No).unwrap();
        assert_eq!(far.inside().offered, offered + 1, "{name}");
        // Room without a result.
        far.inside().most = 2;
        let bell = far.inside().bell.clone().unwrap();
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            bell.ring();
        });
        // Whoever rings may be late.
        while far.inside().taken.len() < 2 {
            let patience = wait(&engine, 1, Duration::from_millis(100));
            assert_eq!(engine.turn(patience), Ok(0), "{name}");
        }
        ringer.join().unwrap();
        assert_eq!(far.inside().taken.len(), 2, "{name}");
        far.inside().holds = false;
        let many = wait(&engine, 4, FOR_EVER);
        assert_eq!(engine.turn(many), Ok(4), "{name}");
        assert!(
            far.inside().offered < 20,
            "{name}: offered {} times",
            far.inside().offered
        );
    }
}

#[test]
fn a_fence_comes_after_writes_that_a_helper_has() {
    for bench in benches() {
        let mut engine = bench.engine();
        let far = Far::new(&[0; BLOCK]);
        far.help(&mut engine);
        far.inside().holds = true;
        let file = far.file();
        let write = Request::write(&file, 0, backends::buffer(&engine, b"words"), Policy::kernel());
        engine.submit(write).unwrap();
        engine
            .submit(Request::bare(Op::Fence, Some(&file), Policy::kernel()))
            .unwrap();
        for _ in 0..5 {
            engine.turn(Wait::No).unwrap();
        }
        assert_eq!(far.inside().taken, ["write"]);
        far.inside().holds = false;
        assert_eq!(next(&mut engine).result, Ok(5));
        assert_eq!(next(&mut engine).result, Ok(0));
        assert_eq!(far.inside().taken, ["write", "sync"]);
        assert_eq!(&far.inside().bytes[..5], b"words");
    }
}

#[test]
fn refusals_registrations_and_explanations_are_the_right_ones() {
    for bench in sleepers() {
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        let file = far.file();
        // Nobody knows it yet.
        let read = |engine: &Engine| Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        let request = read(&engine);
        assert_eq!(finish(&mut engine, request).result, Err(Error::System(Errno::EBADF)));
        far.help(&mut engine);
        let request = read(&engine);
        assert_eq!(finish(&mut engine, request).result, Ok(16));
        let refused = Err(Error::Unsupported {
            operation: "poll",
            backend: "far",
        });
        let polled = Request::bare(Op::Poll { events: 1 }, Some(&file), Policy::kernel());
        assert_eq!(finish(&mut engine, polled).result, refused);
        assert!(engine.attach(&file));
        engine.detach(&file);
        assert_eq!(far.inside().told, ["attach", "detach"]);
        let explained = engine.explain();
        assert_eq!(explained.backend, bench.row.name);
        assert!(explained.features.contains(&("far", Ok(()))));
        let own_bell = engine.add_helper(|_| Ok(Server::start(&far, Doorbell::new().unwrap())));
        assert_eq!(own_bell.unwrap_err().errno, Errno::EINVAL);
        let another = bench.engine().doorbell();
        assert!(engine.add_helper(|_| Ok(Server::start(&far, another))).is_err());
    }
}

/// Two engines that share a file do not take one another's answer for theirs.
#[test]
fn engines_with_and_without_the_helper_share_a_file() {
    for bench in sleepers() {
        let far = Far::new(&[7; BLOCK]);
        let file = far.file();
        let mut engines = [bench.engine(), bench.engine(), bench.engine()];
        far.help(&mut engines[0]);
        let other = Far::new(&[]);
        other.help(&mut engines[1]);
        far.help(&mut engines[1]);
        for _ in 0..3 {
            for (engine, expected) in engines
                .iter_mut()
                .zip([Ok(16), Ok(16), Err(Error::System(Errno::EBADF))])
            {
                let read = Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
                assert_eq!(finish(engine, read).result, expected);
            }
        }
    }
}

/// A helper cannot end what another backend runs, nor touch its memory, and the number that it reports is no descriptor.
#[test]
fn a_helper_is_believed_only_about_what_it_runs() {
    for bench in sleepers().filter(|bench| bench.row.name != "sync") {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        let file = far.file();
        let (pipe, writer) = bench.pipe().unwrap();
        let mut writer = std::fs::File::from(writer);
        let memory = backends::blank(&engine, 5);
        let id = engine.submit(Request::read_stream(&pipe, memory).tagged(1)).unwrap();
        engine.turn(Wait::No).unwrap();
        far.inside().lie = Some((id, 5));
        let read = Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        engine.submit(read.tagged(2)).unwrap();
        assert_eq!(next(&mut engine).tag, 2, "{name}");
        assert_eq!((engine.in_flight(), engine.completed()), (1, 0), "{name}");
        far.inside().lie = None;
        writer.write_all(b"tr").unwrap();
        let done = next(&mut engine);
        assert_eq!((done.tag, done.result), (1, Ok(2)));
        assert_eq!(bytes_of(&done.memory), [b't', b'r', 0xa5, 0xa5, 0xa5], "{name}");

        let mine = tempfile::tempfile().unwrap();
        far.inside().holds = true;
        let id = engine.submit(Request::accept(&file)).unwrap();
        engine.turn(Wait::No).unwrap();
        far.inside().lie = Some((id, mine.as_raw_fd()));
        engine.turn(Wait::No).unwrap();
        far.inside().lie = None;
        far.inside().holds = false;
        let done = next(&mut engine);
        assert_eq!(
            (done.result, done.accepted.is_some()),
            (Err(Error::System(Errno::EOPNOTSUPP)), false)
        );
        drop(engine);
        let mut nothing = Vec::new();
        (&mine).read_to_end(&mut nothing).expect("it is open still");
    }
}

/// A device behind a broken connection is lost, and what was on its way to it. A file of the kernel's beside it is as good as before.
#[test]
fn a_helper_that_fails_takes_nobody_with_it() {
    for bench in benches() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        (far.inside().holds, far.inside().most) = (true, 4);
        let (file, local) = (far.file(), bench.file(&[1; BLOCK]));
        let read = |engine: &Engine, file: &File| Request::read(file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        let given_up = engine.submit(read(&engine, &file)).unwrap();
        engine.submit(read(&engine, &file).tagged(1)).unwrap();
        let write = Request::write(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        engine.submit(write.tagged(2)).unwrap();
        engine.submit(Request::sync(&file, Durability::Data).tagged(3)).unwrap();
        // It has no room for this one, and the last two wait for others.
        engine.submit(read(&engine, &file).tagged(4)).unwrap();
        engine.submit(Request::sync(&file, Durability::Data).tagged(5)).unwrap();
        engine
            .submit(Request::bare(Op::Fence, Some(&file), Policy::kernel()).tagged(6))
            .unwrap();
        engine.turn(Wait::No).unwrap();
        assert_eq!(far.inside().taken, ["read", "read", "write", "sync"]);
        engine.abandon(given_up);
        far.inside().fails = Some(Errno::ENODEV);
        let request = read(&engine, &local);
        assert_eq!(engine.run(request).result, Ok(16), "{name}: the kernel's");

        let lost = Error::DeviceLost {
            device: "far",
            errno: Errno::ENODEV,
        };
        let mut told = vec![None; 7];
        while engine.in_flight() + engine.completed() > 0 {
            let done = next(&mut engine);
            if done.notice == Notice::Released {
                assert_eq!((done.id, done.memory.len()), (given_up, 16), "{name}");
                continue;
            }
            assert_eq!(done.memory.len(), if [1, 2, 4].contains(&done.tag) { 16 } else { 0 });
            assert_eq!(
                told[done.tag as usize].replace(done.result),
                None,
                "{name}: one end each"
            );
        }
        let poisoned = Error::Poisoned(Errno::ENODEV);
        assert_eq!(told[1..5], [Some(Err(lost)); 4], "{name}");
        assert!(
            told[5..]
                .iter()
                .all(|told| [Some(Err(lost)), Some(Err(poisoned))].contains(told)),
            "{name}: {told:?}"
        );

        let request = read(&engine, &file);
        assert_eq!(engine.run(request).result, Err(lost), "{name}: from now on");
        assert!(
            engine
                .explain()
                .features
                .iter()
                .any(|(name, had)| *name == "far" && had.is_err())
        );
        assert_eq!(lost.errno(), Errno::ENODEV);

        // Another that serves the device: but what was to be made durable may not be.
        far.inside().fails = None;
        far.inside().holds = false;
        far.help(&mut engine);
        let request = read(&engine, &file);
        assert_eq!(engine.run(request).result, Ok(16), "{name}: served again");
        let sync = Request::sync(&file, Durability::Data);
        assert_eq!(engine.run(sync).result, Err(poisoned));
        assert_eq!(engine.shutdown(FOR_EVER), 0);
    }
}

#[test]
fn a_helper_that_fails_holds_no_shutdown_up() {
    for bench in benches() {
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        far.inside().holds = true;
        let file = far.file();
        for _ in 0..3 {
            let memory = engine.buffer(16).unwrap();
            engine
                .submit(Request::read(&file, 0, memory, Policy::kernel()))
                .unwrap();
        }
        engine.turn(Wait::No).unwrap();
        far.inside().fails = Some(Errno::EIO);
        let began = Instant::now();
        assert_eq!(engine.shutdown(FOR_EVER), 0, "{}", bench.row.name);
        assert!(began.elapsed() < FOR_EVER / 2 && engine.completed() == 3);
    }
}

/// More bytes than it was asked for, somebody it was never given, one end twice.
#[test]
fn what_a_helper_makes_up_is_not_believed() {
    for bench in sleepers() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let far = Far::new(&[7; BLOCK]);
        far.help(&mut engine);
        let file = far.file();
        let read = |engine: &Engine| Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
        far.inside().holds = true;
        let id = engine.submit(read(&engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        far.inside().lie = Some((id, 17));
        let done = next(&mut engine);
        let eio = Err(Error::System(Errno::EIO));
        assert_eq!((done.id, done.result, done.memory.len()), (id, eio, 16), "{name}");
        // What it reports of it now has another's slot, or nobody's.
        for stranger in [id, RequestId::default()] {
            far.inside().lie = Some((stranger, 5));
            let kept = engine.submit(read(&engine)).unwrap();
            for _ in 0..3 {
                engine.turn(Wait::No).unwrap();
            }
            assert_eq!((engine.in_flight(), engine.completed()), (1, 0), "{name}");
            engine.cancel(kept);
            assert_eq!(next(&mut engine).result, Err(Error::Cancelled), "{name}");
        }
        far.inside().lie = None;
        far.inside().holds = false;
        let again = read(&engine);
        assert_eq!(engine.run(again).result, Ok(16), "{name}: as good as before");
    }
}

#[test]
fn an_outside_loop_is_woken_by_a_helper() {
    for bench in sleepers() {
        let mut engine = bench.engine();
        if engine.ready_fd(false).is_none() {
            continue;
        }
        let far = Far::new(&[7; BLOCK]);
        far.inside().long = Duration::from_millis(2);
        far.help(&mut engine);
        let file = far.file();
        for round in 0..200 {
            let read = Request::read(&file, 0, engine.buffer(16).unwrap(), Policy::kernel());
            engine.submit(read).unwrap();
            while engine.next_completion().is_none() {
                let fd = engine.ready_fd(true).unwrap().try_clone_to_owned().unwrap();
                if engine.turn(Wait::No).unwrap() == 0 {
                    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                    let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
                    assert_eq!(woken, Ok(1), "{}: round {round}", bench.row.name);
                }
                engine.ready_fd(false);
                engine.turn(Wait::No).unwrap();
            }
        }
    }
}
