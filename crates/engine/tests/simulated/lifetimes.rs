//! Requests that are running, on a disk that takes its time: cancelled, overdue, given up, dropped with their engine. The
//! contract shows these with a device that is held (`contract/gate.rs`); here the device is merely slow.

use std::time::Duration;

use crate::backends::{Bench, buffer, bytes_of, next};
use baio_engine::sim::{Disk, Profile, Rotating, Sim};
use baio_engine::{Engine, Error, File, Notice, Policy, Request, RequestId, Wait};

const BLOCK: usize = 4096;

fn machine(seed: u64) -> (Engine, Disk, File) {
    let disk = Disk::new(1 << 30);
    disk.set_profile(Profile::Rotating(Rotating::default()));
    let engine = Engine::simulated(Sim::new(seed).expect("a simulation"), &Bench::config()).expect("an engine");
    let file = File::simulated(&disk, "disk");
    (engine, disk, file)
}

fn write(engine: &mut Engine, file: &File, block: u64, byte: u8, policy: Policy) -> RequestId {
    let memory = buffer(engine, &[byte; BLOCK]);
    let write = Request::write(file, block * BLOCK as u64, memory, policy);
    engine.submit(write.tagged(u64::from(byte))).expect("a free slot")
}

/// In the queue of the disk, behind another.
fn two_writes(engine: &mut Engine, file: &File) -> [RequestId; 2] {
    let first = write(engine, file, 1, 1, Policy::direct());
    let second = write(engine, file, 100_000, 2, Policy::direct());
    engine.turn(Wait::No).expect("a turn");
    assert_eq!((engine.in_flight(), engine.queued()), (2, 0), "both are running");
    [first, second]
}

#[test]
fn a_request_in_the_disks_queue_is_called_back() {
    let (mut engine, disk, file) = machine(3);
    let [_, second] = two_writes(&mut engine, &file);
    let began = engine.now();
    engine.cancel(second);
    let done = next(&mut engine);
    assert_eq!((done.tag, done.result), (2, Err(Error::Cancelled)));
    assert_eq!(bytes_of(&done.memory), [2; BLOCK]);
    assert!(
        engine.now().since(began) < Duration::from_micros(10),
        "before its turn came"
    );
    assert_eq!((next(&mut engine).tag, engine.in_flight()), (1, 0));
    let mut bytes = [9; BLOCK];
    disk.read(100_000 * BLOCK as u64, &mut bytes);
    assert_eq!(bytes, [0; BLOCK], "nothing of it happened");
}

#[test]
fn an_overdue_request_is_told_at_its_deadline_and_released_at_its_end() {
    let (mut released_later, mut called_back) = (0, 0);
    for seed in 0..40 {
        let (mut engine, disk, file) = machine(seed);
        let deadline = engine.now().after(Duration::from_micros(500));
        let policy = Policy {
            deadline: Some(deadline),
            ..Policy::direct()
        };
        let id = write(&mut engine, &file, 200_000, 1, policy);
        let told = next(&mut engine);
        assert_eq!((told.id, told.result), (id, Err(Error::Indeterminate)));
        assert!(told.memory.is_empty());
        assert_eq!(engine.now(), deadline);
        let released = next(&mut engine);
        assert_eq!((released.id, released.notice), (id, Notice::Released));
        assert_eq!(bytes_of(&released.memory), [1; BLOCK]);
        let mut bytes = [9; BLOCK];
        disk.read(200_000 * BLOCK as u64, &mut bytes);
        // It may or may not have taken effect: only when the disk gave it up, it has not.
        if engine.now().since(deadline) > Duration::from_micros(100) {
            released_later += 1;
            assert_eq!(bytes, [1; BLOCK]);
        } else {
            called_back += 1;
            assert_eq!(bytes, [0; BLOCK]);
        }
    }
    assert!(
        released_later > 10 && called_back > 0,
        "{released_later} later, {called_back} at once"
    );
}

#[test]
fn a_write_waits_for_an_abandoned_one_that_is_running() {
    for seed in 0..20 {
        let (mut engine, disk, file) = machine(seed);
        let old = write(&mut engine, &file, 7, 1, Policy::direct());
        engine.turn(Wait::No).expect("a turn");
        engine.abandon(old);
        write(&mut engine, &file, 7, 2, Policy::direct());
        let (first, second) = (next(&mut engine), next(&mut engine));
        assert_eq!((first.id, first.notice), (old, Notice::Released));
        assert_eq!((second.tag, second.result), (2, Ok(BLOCK as u32)));
        let mut bytes = [9; BLOCK];
        disk.read(7 * BLOCK as u64, &mut bytes);
        assert_eq!(bytes, [2; BLOCK], "the old write landed behind the new one");
    }
}

#[test]
fn an_engine_dropped_in_flight_ends_or_calls_back_everything() {
    let (mut engine, disk, file) = machine(3);
    for block in 0..20 {
        write(&mut engine, &file, block * 1000, block as u8 + 1, Policy::direct());
    }
    engine.turn(Wait::No).expect("a turn");
    drop(engine);
    let mut bytes = [9; BLOCK];
    for block in 0..20 {
        disk.read(block * 1000 * BLOCK as u64, &mut bytes);
        assert!(bytes == [0; BLOCK] || bytes == [block as u8 + 1; BLOCK]);
    }
}

#[test]
fn a_stuck_disk_is_given_up_after_the_patience_of_shutdown() {
    let (mut engine, _, file) = machine(3);
    let hour = Duration::from_secs(3600);
    write(&mut engine, &file, 0, 1, Policy::direct());
    engine.turn(Wait::No).expect("a turn");
    assert_eq!(engine.shutdown(hour), 0, "slow is not stuck");
    // A disk that seeks for an hour.
    let slow = Disk::new(1 << 30);
    slow.set_profile(Profile::Rotating(Rotating {
        rpm: 1,
        average_seek: hour,
        track_seek: hour,
        ..Rotating::default()
    }));
    let file = File::simulated(&slow, "slow");
    let mut stuck = 0;
    for seed in 0..8 {
        let mut engine = Engine::simulated(Sim::new(seed).expect("a simulation"), &Bench::config()).expect("an engine");
        write(&mut engine, &file, 200_000, 1, Policy::direct());
        engine.turn(Wait::No).expect("a turn");
        stuck += engine.shutdown(Duration::from_secs(1));
        engine.shutdown(hour * 10);
    }
    assert!(stuck > 0);
}

/// Who was told that a disk is stuck does not wait for it again by dropping the engine; who asks for something more does, and
/// who had no patience.
#[test]
fn a_drop_remembers_what_shutdown_has_found() {
    let hour = Duration::from_secs(3600);
    let slow = Disk::new(1 << 30);
    slow.set_profile(Profile::Rotating(Rotating {
        rpm: 1,
        average_seek: hour,
        track_seek: hour,
        ..Rotating::default()
    }));
    let file = File::simulated(&slow, "slow");
    let patience = Duration::from_millis(100);
    let (mut found, mut waits) = (0, [0; 3]);
    for seed in 0..24 {
        let sim = Sim::new(seed).expect("a simulation");
        let clock = sim.handle();
        let mut engine = Engine::simulated(sim, &Bench::config()).expect("an engine");
        write(&mut engine, &file, 200_000, 1, Policy::direct());
        engine.turn(Wait::No).expect("a turn");
        const ONCE: usize = 0;
        const MORE: usize = 1;
        const IMPATIENT: usize = 2;
        let way = seed as usize % 3;
        let patience = if way == IMPATIENT { Duration::ZERO } else { patience };
        if engine.shutdown(patience) == 0 {
            continue;
        }
        if way == MORE {
            let healthy = File::simulated(&Disk::new(1 << 20), "healthy");
            write(&mut engine, &healthy, 0, 2, Policy::direct());
        }
        let told = clock.now();
        drop(engine);
        let waited = clock.now().since(told) > Duration::from_secs(1);
        assert!(way != ONCE || !waited, "it waited again");
        // Cancelled once more, the disk may give the write up.
        waits[way] += u32::from(waited);
        found += 1;
    }
    assert!(found > 8 && waits[1] > 0 && waits[2] > 0, "{found}, {waits:?}");
}
