//! Databases with logs of their own on one core: the pages of each wait for its log, whether the caller says that it has gone on or
//! the core's own logs do, and a log that fails costs its own database only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio_engine::sim::Disk;
use baio_engine::{Durability, File, Memory, Wait};
use baio_storage::cache::{CacheError, CacheOptions, GateId};
use baio_storage::{Access, Core, Error, Fault, FormatOptions, Handle, Mode, SegmentOp, SegmentRequest};

use crate::harness::{self, BLOCK, open_simulated, read_request, simulated_disk, start, sync_request, write_request};

const PAGES: usize = 64;

/// A core with a cache, and a database under a gate of its own on each disk.
fn databases(disks: &[&Disk]) -> (Core, Vec<(Handle, GateId)>) {
    let volume = simulated_disk(&FormatOptions::of_size(1 << 20));
    let mut core = open_simulated(&volume);
    let bytes = 16 * BLOCK;
    core.use_cache(&CacheOptions {
        bytes,
        ..CacheOptions::default()
    })
    .unwrap();
    let all = disks.iter().map(|disk| {
        let handle = core.add_file(File::simulated(disk, "disk"), Access::Write);
        let gate = core.add_gate(u64::MAX).unwrap();
        core.set_gate(handle, gate).unwrap();
        (handle, gate)
    });
    let all = all.collect();
    (core, all)
}

fn disk() -> Disk {
    Disk::new((PAGES * BLOCK) as u64)
}

fn on_disk(disk: &Disk, page: u64) -> u8 {
    let mut bytes = [0; BLOCK];
    disk.read(page * BLOCK as u64, &mut bytes);
    bytes[0]
}

fn change(core: &mut Core, handle: Handle, page: u64, lsn: u64, byte: u8) {
    let pin = core.pin_now(handle, page).unwrap();
    core.change_now(&pin, lsn).unwrap().fill(byte);
    core.unpin(pin);
}

fn cause<T: std::fmt::Debug>(result: Result<T, Error>) -> CacheError {
    match result.unwrap_err().into_fault() {
        Fault::Cache(error) => error,
        other => panic!("{other:?}"),
    }
}

fn turns(core: &mut Core) {
    for _ in 0..100 {
        core.turn(Wait::No).unwrap();
    }
}

#[test]
fn each_database_waits_for_its_own_log() {
    let (one, two) = (disk(), disk());
    let (mut core, all) = databases(&[&one, &two]);
    let [(a, log_a), (b, log_b)] = all[..] else {
        unreachable!()
    };
    change(&mut core, a, 1, 500, 1);
    change(&mut core, b, 1, 7, 2);
    let syncs = [a, b].map(|handle| start(&mut core, sync_request(handle)));
    core.set_durable_lsn(9999).unwrap();
    turns(&mut core);
    assert_eq!((on_disk(&one, 1), on_disk(&two, 1)), (0, 0));
    assert_eq!(core.lsn_awaited_of(log_a), Some(500));
    assert_eq!((core.lsn_wanted_of(log_b), core.lsn_wanted()), (Some(7), None));
    core.set_durable_lsn_of(log_b, 7).unwrap();
    let [first, second] = syncs;
    core.wait(second).unwrap().unwrap().result.unwrap();
    assert_eq!((on_disk(&one, 1), on_disk(&two, 1)), (0, 2));
    assert_eq!(
        (core.oldest_recovery_lsn_of(log_a), core.oldest_recovery_lsn_of(log_b)),
        (Some(500), None)
    );
    // Nobody drives that log so far.
    core.log_durable(log_a, 501);
    assert!(!core.has_news());
    core.drive_gate(log_a, || 1000).unwrap();
    // What a log of the core publishes is the end of what is safe: 500 itself is not, so far.
    core.log_durable(log_a, 500);
    turns(&mut core);
    assert_eq!(on_disk(&one, 1), 0);
    core.log_durable(log_a, 501);
    core.wait(first).unwrap().unwrap().result.unwrap();
    assert_eq!(on_disk(&one, 1), 1);
    // To say again what is known is nothing to do, so nobody who turns the core is kept from sleeping.
    turns(&mut core);
    core.log_durable(log_a, 501);
    core.log_durable(log_a, 0);
    assert!(!core.has_news());
}

#[test]
fn what_cannot_be_put_under_a_gate_is_told() {
    let one = disk();
    let (mut core, all) = databases(&[&one]);
    let (a, log) = all[0];
    let other = core.add_gate(8).unwrap();
    change(&mut core, a, 1, 5, 1);
    let error = core.set_gate(a, other).unwrap_err();
    assert!(error.to_string().contains("sync"), "{error}");
    assert_eq!(cause(core.set_gate(a, GateId::default())), CacheError::OtherGate);
    assert_eq!(cause(core.remove_gate(log)), CacheError::Busy);
    core.remove_gate(other).unwrap();
    assert_eq!(cause(core.remove_gate(other)), CacheError::NoGate);
    assert_eq!(cause(core.set_gate(a, other)), CacheError::NoGate);
    assert_eq!(cause(core.set_durable_lsn_of(other, 1)), CacheError::NoGate);
    assert_eq!(cause(core.drive_gate(other, || 1)), CacheError::NoGate);
    core.log_durable(other, 9);
    core.drive_gate(log, || 1).unwrap();
    assert_eq!(cause(core.drive_gate(log, || 1)), CacheError::Busy);
    core.log_durable(log, 6);
    let sync = start(&mut core, sync_request(a));
    core.wait(sync).unwrap().unwrap().result.unwrap();
    core.set_gate(a, GateId::default()).unwrap();
    core.remove_gate(log).unwrap();
    assert!(core.set_gate(a, log).is_err());
    core.close().unwrap();
    let mut none = Core::new(&harness::config()).unwrap();
    assert!(matches!(none.add_gate(1).unwrap_err().fault, Fault::NoCache));
    assert!(matches!(none.remove_gate(log).unwrap_err().fault, Fault::NoCache));
    none.log_durable(log, 9);
    none.log_ended(log);
    assert_eq!(none.oldest_recovery_lsn_of(log), None);
}

/// A page that its sync waits for is changed again: of a log that the core drives only what was never appended is the caller's.
#[test]
fn only_what_a_driven_log_cannot_come_to_is_the_callers() {
    let one = disk();
    let (mut core, all) = databases(&[&one]);
    let (a, log) = all[0];
    let next = Arc::new(AtomicU64::new(10));
    let appended = Arc::clone(&next);
    core.drive_gate(log, move || appended.load(Ordering::Relaxed)).unwrap();
    // Nothing of this log has LSN 50.
    change(&mut core, a, 1, 50, 1);
    let sync = start(&mut core, sync_request(a));
    let pin = core.pin_now(a, 1).unwrap();
    assert_eq!(cause(core.change_now(&pin, 51).map(|_| ())), CacheError::LogFirst(50));
    // Now it has, and whoever waits is served as it goes on.
    next.store(52, Ordering::Relaxed);
    let later = core.change_later(&pin, 51).unwrap();
    turns(&mut core);
    assert!(!core.has_outcomes());
    core.log_durable(log, 51);
    core.wait(sync).unwrap().unwrap().result.unwrap();
    core.wait(later).unwrap().unwrap().result.unwrap();
    core.change_now(&pin, 51).unwrap().fill(2);
    core.unpin(pin);
    core.log_durable(log, 52);
    core.close().unwrap();
    assert_eq!(on_disk(&one, 1), 2);
}

#[test]
fn a_log_that_ends_costs_its_own_database_only() {
    let (one, two) = (disk(), disk());
    let (mut core, all) = databases(&[&one, &two]);
    let [(a, log_a), (b, log_b)] = all[..] else {
        unreachable!()
    };
    for (gate, handle) in [(log_a, a), (log_b, b)] {
        core.drive_gate(gate, || 1000).unwrap();
        change(&mut core, handle, 1, 10, 1);
        change(&mut core, handle, 2, 20, 2);
    }
    let syncs = [a, b].map(|handle| start(&mut core, sync_request(handle)));
    turns(&mut core);
    core.log_durable(log_a, 15);
    core.log_ended(log_a);
    // Opened again, it counts on behind what was lost: nothing of that is let out.
    assert_eq!(cause(core.drive_gate(log_a, || 9000)), CacheError::Busy);
    core.log_durable(log_a, 9000);
    let [first, second] = syncs;
    assert_eq!(
        cause(core.wait(first).unwrap().unwrap().result),
        CacheError::LogFirst(20)
    );
    let pin = core.pin_now(a, 2).unwrap();
    assert_eq!(core.page(&pin).unwrap()[0], 2);
    core.unpin(pin);
    core.log_durable(log_b, 21);
    core.wait(second).unwrap().unwrap().result.unwrap();
    assert_eq!([1, 2].map(|page| on_disk(&two, page)), [1, 2]);
    core.log_ended(log_b);
    // A close makes safe what it may, tells of the rest, and ends.
    let error = core.close().unwrap_err();
    assert!(matches!(error.fault, Fault::Cache(CacheError::LogFirst(20))), "{error}");
    assert_eq!([1, 2].map(|page| on_disk(&one, page)), [1, 0]);
}

/// While the core is closed its own logs go on: what they still make durable is written.
#[test]
fn a_close_waits_for_the_logs_that_the_core_drives() {
    let (one, two) = (disk(), disk());
    let (mut core, all) = databases(&[&one, &two]);
    let [(a, log_a), (b, log_b)] = all[..] else {
        unreachable!()
    };
    core.drive_gate(log_a, || 1000).unwrap();
    change(&mut core, a, 1, 10, 1);
    change(&mut core, b, 1, 10, 1);
    core.wind_down();
    let sync = start(&mut core, sync_request(a));
    turns(&mut core);
    assert!(!core.has_outcomes());
    core.log_durable(log_a, 11);
    core.wait(sync).unwrap().unwrap().result.unwrap();
    assert_eq!(on_disk(&one, 1), 1);
    let sync = start(&mut core, sync_request(b));
    let ended = core.wait(sync).unwrap().unwrap();
    assert_eq!(cause(ended.result), CacheError::LogFirst(10));
    assert_eq!(core.oldest_recovery_lsn_of(log_b), Some(10));
    core.log_ended(log_a);
    assert!(core.close().is_err());
}

/// Nothing is at the device, and only the doorbell or a time can end the wait. A turn that came back at once would be made again, for ever.
#[test]
fn a_turn_sleeps_while_everybody_waits_for_a_log() {
    let asked: [fn(&Core, Handle) -> SegmentRequest; 6] = [
        |_, handle| sync_request(handle),
        |_, handle| SegmentRequest {
            op: SegmentOp::Fence,
            ..sync_request(handle)
        },
        |core, handle| read_request(core, handle, BLOCK as u64, BLOCK),
        |core, handle| write_request(core, handle, BLOCK as u64, &[2; BLOCK]),
        |core, handle| SegmentRequest {
            durability: Durability::Data,
            mode: Mode::Cached,
            ..write_request(core, handle, BLOCK as u64, &[2; BLOCK])
        },
        |_, handle| {
            let (offset, len) = (BLOCK as u64, BLOCK as u64);
            SegmentRequest::new(handle, SegmentOp::Zero { offset, len }, Memory::None)
        },
    ];
    for asked in asked {
        let disk = disk();
        let (mut core, all) = databases(&[&disk]);
        let (handle, gate) = all[0];
        change(&mut core, handle, 1, 500, 1);
        let request = asked(&core, handle);
        let op = request.op;
        let ticket = start(&mut core, request);
        turns(&mut core);
        let until = core.engine().now().after(Duration::from_secs(10));
        let mut made = 0;
        while core.engine().now() < until {
            let wait = Wait::Until {
                count: 1,
                min_wait: Duration::ZERO,
                deadline: Some(until),
            };
            core.turn(wait).unwrap();
            made += 1;
            assert!(made < 100, "{op:?}: {made} turns, and it is {:?}", core.engine().now());
        }
        assert!(core.poll(ticket, None).is_pending(), "{op:?}");
        core.set_durable_lsn_of(gate, 500).unwrap();
        assert!(core.wait(ticket).unwrap().unwrap().result.is_ok(), "{op:?}");
    }
}
