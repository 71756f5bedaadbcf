//! A simulated power cut takes what nothing has made durable, in part or whole, and nothing else; and what is left opens in
//! a new engine.

use std::collections::BTreeSet;

use crate::backends::{Bench, blank, buffer, bytes_of, finish, next, read, write};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Fault, Faults, Flash, Profile, Rotating, Sim, Trigger};
use baio_engine::{Durability, Engine, Errno, Error, File, Policy, Request, Wait};

const SEEDS: u64 = 200;
const BLOCK: usize = 4096;

fn engine() -> Engine {
    Engine::simulated(Sim::new(1).expect("a simulation"), &Bench::config()).expect("an engine")
}

fn machine(profile: Profile) -> (Engine, Disk, File) {
    let disk = Disk::new(1 << 20);
    disk.set_profile(profile);
    let file = File::simulated(&disk, "disk");
    (engine(), disk, file)
}

/// What a new engine reads of a block behind many power cuts: the bytes of its first and last sector.
fn found(disk: &Disk, block: u64) -> BTreeSet<(u8, u8)> {
    let mut engine = engine();
    let mut look = |seed| {
        let left = File::simulated(&disk.power_cut(seed), "what is left");
        let done = read(&mut engine, &left, block * BLOCK as u64, BLOCK, Policy::direct());
        assert_eq!(done.result, Ok(BLOCK as u32));
        let bytes = bytes_of(&done.memory);
        (bytes[0], bytes[BLOCK - 1])
    };
    (0..SEEDS).map(&mut look).collect()
}

fn start_write(engine: &mut Engine, file: &File, block: u64, byte: u8, policy: Policy) {
    let memory = buffer(engine, &[byte; BLOCK]);
    let write = Request::write(file, block * BLOCK as u64, memory, policy);
    engine.submit(write.tagged(block)).expect("a free slot");
}

fn any() -> BTreeSet<(u8, u8)> {
    [(0, 0), (0, 1), (1, 0), (1, 1)].into()
}

#[test]
fn what_is_durable_stays_and_the_rest_may_be_there_in_part() {
    for profile in [
        Profile::Instant,
        Profile::Flash(Flash::default()),
        Profile::Rotating(Rotating::default()),
    ] {
        let (mut engine, disk, file) = machine(profile);
        let durable = Policy::direct().durable(Durability::Data);
        for (block, policy) in [(0, Policy::direct()), (1, durable), (2, Policy::kernel())] {
            let done = write(&mut engine, &file, block * BLOCK as u64, &[1; BLOCK], policy);
            assert_eq!(done.result, Ok(BLOCK as u32));
        }
        assert_eq!(found(&disk, 0), any(), "{profile:?}");
        assert_eq!(found(&disk, 1), [(1, 1)].into(), "durable by itself, {profile:?}");
        assert_eq!(found(&disk, 2), any(), "{profile:?}");
        assert_eq!(
            finish(&mut engine, Request::sync(&file, Durability::Data)).result,
            Ok(0)
        );
        for block in 0..3 {
            assert_eq!(found(&disk, block), [(1, 1)].into(), "{profile:?}");
        }
        assert_eq!(found(&disk, 3), [(0, 0)].into(), "nothing else is there, {profile:?}");
    }
}

/// As on FUSE: the flag of a write means nothing there.
#[test]
fn on_a_disk_that_ignores_durability_a_flush_follows_each_durable_write() {
    for profile in [
        Profile::Instant,
        Profile::Flash(Flash::default()),
        Profile::Rotating(Rotating::default()),
    ] {
        let (mut engine, disk, _) = machine(profile);
        disk.ignore_durability();
        let file = File::simulated(&disk, "disk");
        let durable = Policy::direct().durable(Durability::Data);
        let done = write(&mut engine, &file, 0, &[1; BLOCK], durable);
        assert_eq!(
            (done.result, done.bytes_done, done.iterations),
            (Ok(BLOCK as u32), BLOCK as u32, 2)
        );
        assert_eq!(found(&disk, 0), [(1, 1)].into(), "{profile:?}");
        // Many at once, direct and cached: each is safe when it completes, and those that end together share a flush.
        disk.record();
        for block in 1..16 {
            let caching = [Policy::direct(), Policy::kernel()][block as usize % 2];
            start_write(&mut engine, &file, block, 1, caching.durable(Durability::Full));
        }
        for _ in 1..16 {
            let done = next(&mut engine);
            assert_eq!(done.result, Ok(BLOCK as u32));
            assert_eq!(found(&disk, done.tag), [(1, 1)].into(), "{profile:?}");
        }
        let flush = |record: &&Record| matches!(record, Record::Sync | Record::LateSync { .. });
        let flushes = disk.take_record().iter().filter(flush).count();
        assert!((1..=15).contains(&flushes), "{flushes} flushes, {profile:?}");
        assert_eq!(engine.stats().durable_by_sync, 16);
    }
}

/// One flush may answer for several; if it fails, it fails for all, and proves nothing to those that come later.
#[test]
fn a_failed_flush_fails_every_durable_write_that_relied_on_it() {
    let (mut engine, disk, _) = machine(Profile::Instant);
    disk.ignore_durability();
    disk.set_faults(Faults::none().when(Trigger::nth(Fault::FailedFlush, 1)));
    let file = File::simulated(&disk, "disk");
    let durable = Policy::direct().durable(Durability::Data);
    for block in 0..8 {
        start_write(&mut engine, &file, block, 1, durable);
    }
    let told: Vec<_> = (0..8).map(|_| next(&mut engine).result).collect();
    let failed =
        |result: &Result<u32, Error>| matches!(result, Err(Error::System(Errno::EIO) | Error::Poisoned(Errno::EIO)));
    assert!(told.iter().all(failed), "{told:?}");
    let done = write(&mut engine, &file, 0, &[1; BLOCK], durable);
    assert_eq!((done.result, done.iterations), (Err(Error::Poisoned(Errno::EIO)), 0));
    assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
    let done = write(&mut engine, &file, 0, &[2; BLOCK], durable);
    assert_eq!(done.result, Ok(BLOCK as u32));
    assert_eq!(found(&disk, 0), [(2, 2)].into());
}

/// Whatever becomes of the one whose flush runs for all, the others are answered.
#[test]
fn durable_writes_that_wait_for_a_flush_are_cancelled_and_given_up_one_by_one() {
    for victim in 0..8 {
        for abandon in [false, true] {
            let (mut engine, disk, _) = machine(Profile::Rotating(Rotating::default()));
            disk.ignore_durability();
            let file = File::simulated(&disk, "disk");
            let durable = Policy::direct().durable(Durability::Data);
            let mut ids = Vec::new();
            for block in 0..8 {
                let write = Request::write(&file, block * BLOCK as u64, buffer(&engine, &[1; BLOCK]), durable);
                ids.push(engine.submit(write.tagged(block)).expect("a slot"));
            }
            // Until some wait for a flush.
            while engine.stats().durable_by_sync < victim + 1 {
                assert!(engine.in_flight() > 0, "none waited");
                engine.turn(Wait::No).expect("a turn");
            }
            let id = ids[victim as usize];
            if abandon {
                engine.abandon(id);
            } else {
                engine.cancel(id);
            }
            let mut safe = 0;
            for _ in 0..8 {
                let done = next(&mut engine);
                if done.result.is_ok() {
                    safe += 1;
                    assert_eq!(found(&disk, done.tag), [(1, 1)].into(), "write {}", done.tag);
                } else {
                    assert_eq!(done.id, id, "{:?}", done.result);
                }
            }
            assert!(safe >= 7);
            assert_eq!((engine.in_flight(), engine.queued()), (0, 0));
        }
    }
}

#[test]
fn a_write_in_flight_may_be_there_in_part_and_before_its_start_is_not() {
    let (mut engine, disk, file) = machine(Profile::Rotating(Rotating::default()));
    start_write(&mut engine, &file, 1, 1, Policy::direct().durable(Durability::Data));
    assert_eq!(found(&disk, 1), [(0, 0)].into());
    engine.turn(Wait::No).expect("a turn");
    assert_eq!(engine.in_flight(), 1, "the arm is on its way");
    assert_eq!(found(&disk, 1), any());
    assert_eq!(next(&mut engine).result, Ok(BLOCK as u32));
    assert_eq!(found(&disk, 1), [(1, 1)].into());
}

/// What ends while the flush runs had not ended when it was submitted.
#[test]
fn a_flush_promises_a_write_in_flight_nothing() {
    let flash = Flash {
        jitter_percent: 0,
        ..Flash::default()
    };
    let (mut engine, disk, file) = machine(Profile::Flash(flash));
    disk.record();
    start_write(&mut engine, &file, 0, 1, Policy::direct());
    assert_eq!(next(&mut engine).tag, 0);
    start_write(&mut engine, &file, 1, 1, Policy::direct());
    let sync = Request::sync(&file, Durability::Data);
    engine.submit(sync.tagged(9)).expect("a free slot");
    assert_eq!((next(&mut engine).tag, next(&mut engine).tag), (1, 9));
    assert_eq!(found(&disk, 0), [(1, 1)].into());
    assert_eq!(found(&disk, 1), any());
    let record = disk.take_record();
    let [Record::Write { .. }, Record::Write { .. }, ref sync] = record[..] else {
        panic!("{record:?}")
    };
    assert_eq!(*sync, Record::LateSync { late: 1 });
}

#[test]
fn a_cancelled_write_that_is_given_up_leaves_nothing() {
    let (mut cancelled, mut ended) = (0, 0);
    for seed in 0..100 {
        let disk = Disk::new(1 << 20);
        disk.set_profile(Profile::Rotating(Rotating::default()));
        let mut engine = Engine::simulated(Sim::new(seed).expect("a simulation"), &Bench::config()).expect("an engine");
        let file = File::simulated(&disk, "disk");
        let memory = blank(&engine, BLOCK);
        let id = engine
            .submit(Request::write(&file, 0, memory, Policy::direct()))
            .expect("a free slot");
        engine.turn(Wait::No).expect("a turn");
        engine.cancel(id);
        match next(&mut engine).result {
            Err(Error::Cancelled) => {
                cancelled += 1;
                assert_eq!(disk.power_cut(seed).fingerprint(), Disk::new(1 << 20).fingerprint());
                // The arm is still busy with it.
                assert_eq!(
                    read(&mut engine, &file, 0, BLOCK, Policy::direct()).result,
                    Ok(BLOCK as u32)
                );
                assert_eq!(disk.fingerprint(), Disk::new(1 << 20).fingerprint());
            }
            other => {
                ended += 1;
                assert_eq!(other, Ok(BLOCK as u32));
            }
        }
    }
    assert!(cancelled > 10 && ended > 50, "{cancelled} cancelled, {ended} ended");
}

#[test]
fn a_planned_cut_ends_everything_and_leaves_a_disk() {
    let eio = Err(Error::System(Errno::EIO));
    let (mut engine, disk, file) = machine(Profile::Instant);
    // Start and end of the first write, the start of the second; its end does not come.
    disk.cut_power_after(3, 1);
    let durable = Policy::direct().durable(Durability::Data);
    assert_eq!(
        write(&mut engine, &file, 0, &[1; BLOCK], durable).result,
        Ok(BLOCK as u32)
    );
    assert!(disk.surviving().is_none());
    assert_eq!(write(&mut engine, &file, 4096, &[1; BLOCK], durable).result, eio);
    assert_eq!(read(&mut engine, &file, 0, BLOCK, Policy::direct()).result, eio);
    assert_eq!(finish(&mut engine, Request::sync(&file, Durability::Data)).result, eio);
    let left = disk.surviving().expect("what is left");
    let first = read(&mut engine, &File::simulated(&left, "left"), 0, BLOCK, Policy::direct());
    assert_eq!(bytes_of(&first.memory), [1; BLOCK]);
}
