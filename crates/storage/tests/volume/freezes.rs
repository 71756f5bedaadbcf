//! The promise: while a volume is frozen nothing changes on its device, and a copy of the file made then opens as after a crash, with
//! everything that was completed before. Whoever would change something waits, and goes on when it has thawed.

use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Durability, Engine, File, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{
    Access, Answer, Core, CreateOptions, Error, Handle, Mode, OperationId, ResizeOptions, SegmentOp, SegmentRequest,
    Ticket,
};

use crate::harness::{
    self, BLOCK, ME, ROOT, Random, config, create, open_with_seed, open_write, read, slow_volume, write,
};

const B: u64 = BLOCK as u64;
const BLOCKS: u64 = 40;

fn volume() -> (Core, Disk) {
    let disk = slow_volume(16 << 20);
    (open_with_seed(&disk, 9), disk)
}

fn cached_volume() -> (Core, Disk) {
    let (mut core, disk) = volume();
    core.use_cache(&CacheOptions {
        bytes: 512 << 10,
        ..CacheOptions::default()
    })
    .unwrap();
    (core, disk)
}

fn write_of(core: &Core, handle: Handle, block: u64, byte: u8, mode: Mode, durability: Durability) -> SegmentRequest {
    SegmentRequest {
        mode,
        durability,
        ..harness::write_request(core, handle, block * B, &[byte; BLOCK])
    }
}

fn turn_for(core: &mut Core, ns: u64) {
    let deadline = core.engine().now().after(Duration::from_nanos(ns));
    let wait = Wait::Until {
        count: 1,
        min_wait: Duration::ZERO,
        deadline: Some(deadline),
    };
    core.turn(wait).unwrap();
}

fn turn(core: &mut Core) {
    turn_for(core, 2_000_000);
}

fn answer(core: &mut Core, id: &OperationId) -> Result<Answer, Error> {
    for _ in 0..10_000 {
        match core.take_answer(id) {
            Some(answer) => return answer,
            None => turn(core),
        }
    }
    panic!("it does not end");
}

fn freeze(core: &mut Core) -> u64 {
    let id = core.begin_freeze(ROOT).unwrap();
    match answer(core, &id) {
        Ok(Answer::Frozen { freeze: id }) => id,
        other => panic!("{other:?}"),
    }
}

fn is_done(core: &mut Core, ticket: Ticket) -> bool {
    match core.poll(ticket, None) {
        std::task::Poll::Ready(outcome) => outcome.unwrap().result.is_ok(),
        std::task::Poll::Pending => false,
    }
}

fn open_copy(disk: &Disk) -> Core {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "copy"), &config()).unwrap()
}

/// What one block may hold: what was completed last, or what has not ended.
#[derive(Clone, Debug, Default)]
struct Known {
    now: u8,
    pending: Option<(Ticket, u8)>,
}

/// A volume on which everything goes on at once: direct and cached writes, durable or not, a segment that grows, one that moves, one that is
/// made.
struct Busy {
    core: Core,
    random: Random,
    handles: Vec<Handle>,
    /// By segment and block.
    known: Vec<Vec<Known>>,
    begun: Vec<OperationId>,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl Busy {
    fn new(mut core: Core, seed: u64) -> Busy {
        let handles = NAMES.map(|name| {
            create(&mut core, name, BLOCKS * B);
            open_write(&mut core, name)
        });
        let begun = vec![
            core.begin_create(ME, ME.uid, "new", &CreateOptions::of_size(2 << 20))
                .unwrap(),
            core.begin_move(ME, ME.uid, "two", Some(2000)).unwrap(),
            core.begin_resize(ME, ME.uid, "three", &ResizeOptions::to_size(3 << 20))
                .unwrap(),
        ];
        Busy {
            core,
            random: Random(seed),
            handles: handles.to_vec(),
            known: vec![vec![Known::default(); BLOCKS as usize]; 3],
            begun,
        }
    }

    /// Writes somewhere, turns, and notes what has ended.
    fn go_on(&mut self) {
        let (segment, block) = (self.random.below(3) as usize, self.random.below(BLOCKS));
        let one = &mut self.known[segment][block as usize];
        if one.pending.is_none() {
            let byte = 1 + self.random.below(250) as u8;
            let mode = if segment == 0 { Mode::Direct } else { Mode::Cached };
            let durability = [Durability::None, Durability::Data][self.random.below(2) as usize];
            let request = write_of(&self.core, self.handles[segment], block, byte, mode, durability);
            one.pending = self.core.start(request).ok().map(|ticket| (ticket, byte));
        }
        turn_for(&mut self.core, self.random.below(200_000));
        for one in self.known.iter_mut().flatten() {
            if let Some((ticket, byte)) = one.pending
                && is_done(&mut self.core, ticket)
            {
                *one = Known {
                    now: byte,
                    pending: None,
                };
            }
        }
        let core = &mut self.core;
        self.begun
            .retain(|id| core.take_answer(id).map(|answer| answer.unwrap()).is_none());
    }

    /// Goes on for some turns, and then until the volume is frozen.
    fn freeze(&mut self) -> u64 {
        for _ in 0..20 + self.random.below(60) {
            self.go_on();
        }
        let freezing = self.core.begin_freeze(ROOT).unwrap();
        for _ in 0..20_000 {
            self.go_on();
            if let Some(Answer::Frozen { freeze }) = self.core.take_answer(&freezing).map(Result::unwrap) {
                return freeze;
            }
        }
        panic!("it never is frozen");
    }

    /// Asks for a write of each kind. Those that wait may have every slot, so it may be fewer.
    fn ask_for_writes(&mut self) -> Vec<Ticket> {
        let mut waiting = Vec::new();
        for handle in &self.handles {
            for mode in [Mode::Direct, Mode::Cached] {
                if mode == Mode::Cached && *handle == self.handles[0] {
                    continue;
                }
                let request = write_of(&self.core, *handle, 39, 255, mode, Durability::None);
                waiting.extend(self.core.start(request).ok());
            }
        }
        waiting
    }

    fn end(mut self, mut waiting: Vec<Ticket>) {
        let core = &mut self.core;
        while !self.begun.is_empty() || !waiting.is_empty() {
            turn(core);
            self.begun
                .retain(|id| core.take_answer(id).map(|answer| answer.unwrap()).is_none());
            waiting.retain(|ticket| !is_done(core, *ticket));
        }
        for (ticket, _) in self.known.iter().flatten().filter_map(|one| one.pending) {
            while !is_done(core, ticket) {
                turn(core);
            }
        }
        self.core.close().unwrap();
    }

    /// A copy is as good as a volume after a crash.
    fn assert_holds(&self, copy: &Disk, seed: u64) {
        let mut opened = open_copy(copy);
        for (known, name) in self.known.iter().zip(NAMES) {
            let handle = open_write(&mut opened, name);
            for (block, one) in (0..).zip(known) {
                let found = read(&mut opened, handle, block * B, BLOCK).unwrap();
                let is_all = |byte: u8| found.iter().all(|found| *found == byte);
                let may_be_pending = |(_, pending)| found.iter().all(|byte| *byte == one.now || *byte == pending);
                assert!(
                    is_all(one.now) || one.pending.is_some_and(may_be_pending),
                    "seed {seed}: block {block} of {name}: {} and not {one:?}",
                    found[0]
                );
            }
        }
        assert!(opened.list(ME).unwrap().iter().all(|segment| segment.name != "late"));
        opened.close().unwrap();
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
        let report = baio_storage::check_on(&mut engine, &File::simulated(copy, "copy"), false).unwrap();
        assert_eq!(report.problems, [], "seed {seed}");
    }
}

#[test]
fn a_write_that_the_device_has_ends_before_it_is_frozen() {
    let (mut core, _disk) = volume();
    create(&mut core, "data", 1 << 20);
    let handle = open_write(&mut core, "data");
    // It takes longer than a flush.
    let request = harness::write_request(&core, handle, 0, &vec![1; 1 << 20]);
    let ticket = harness::start(&mut core, request);
    turn_for(&mut core, 1000);
    freeze(&mut core);
    assert!(is_done(&mut core, ticket));
}

#[test]
fn a_copy_made_meanwhile_has_everything_that_was_completed() {
    for seed in 0..40 {
        let (core, disk) = cached_volume();
        let mut busy = Busy::new(core, seed);
        let frozen = busy.freeze();
        let print = disk.fingerprint();
        let copy = disk.power_cut(seed);
        // Nothing changes, whatever is asked and however long it takes.
        let late = busy
            .core
            .begin_create(ME, ME.uid, "late", &CreateOptions::of_size(B))
            .unwrap();
        let waiting = busy.ask_for_writes();
        for _ in 0..300 {
            turn_for(&mut busy.core, 50_000_000);
        }
        assert_eq!(disk.fingerprint(), print, "seed {seed}");
        assert!(!waiting.iter().any(|ticket| is_done(&mut busy.core, *ticket)));
        assert!(busy.core.take_answer(&late).is_none());
        busy.assert_holds(&copy, seed);
        // It thaws, and all goes on.
        busy.core.thaw(frozen);
        busy.begun.push(late);
        busy.end(waiting);
    }
}

#[test]
fn reads_opens_and_lists_go_on() {
    let (mut core, _disk) = cached_volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    let id = freeze(&mut core);
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [7; BLOCK]);
    let cached = SegmentRequest {
        mode: Mode::Cached,
        ..harness::read_request(&core, handle, 0, BLOCK)
    };
    harness::run(&mut core, cached).result.unwrap();
    assert_eq!(core.list(ME).unwrap().len(), 1);
    core.open_segment(ME, ME.uid, "data", Access::Write).unwrap();
    let refused = core.resize_volume(ROOT, 16 << 20).unwrap_err();
    assert_eq!(refused.code(), "EBUSY", "{refused}");
    core.thaw(id);
    create(&mut core, "more", B);
    core.close().unwrap();
}

#[test]
fn what_waits_can_be_cancelled_and_be_overdue() {
    let (mut core, _disk) = cached_volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    let id = freeze(&mut core);
    for mode in [Mode::Direct, Mode::Cached] {
        let cancelled = core
            .start(write_of(&core, handle, 1, 1, mode, Durability::None))
            .unwrap();
        let overdue = SegmentRequest {
            deadline: Some(core.engine().now().after(Duration::from_millis(20))),
            ..write_of(&core, handle, 2, 2, mode, Durability::None)
        };
        let overdue = core.start(overdue).unwrap();
        let discard = SegmentRequest::new(
            handle,
            SegmentOp::Discard { offset: 0, len: B },
            baio_engine::Memory::None,
        );
        let discard = core.start(discard).unwrap();
        core.abandon(discard);
        turn(&mut core);
        core.cancel(cancelled);
        for ticket in [cancelled, overdue] {
            let outcome = core.wait(ticket).unwrap().unwrap();
            assert_eq!(outcome.result.unwrap_err().code(), "ECANCELED", "{mode:?}");
        }
    }
    core.thaw(id);
    assert_eq!(read(&mut core, handle, 0, 3 * BLOCK).unwrap(), [0; 3 * BLOCK]);
    core.close().unwrap();
}

/// A page whose change the log does not have stays in memory; the log's own write may be one that waits.
#[test]
fn a_page_that_waits_for_its_log_keeps_nobody_from_freezing() {
    let (mut core, disk) = cached_volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    let (gated, plain) = (
        core.pin_new_now(handle, 3, 9).unwrap(),
        core.pin_new_now(handle, 4, 0).unwrap(),
    );
    core.change_now(&gated, 9).unwrap().fill(3);
    core.change_now(&plain, 0).unwrap().fill(4);
    let id = freeze(&mut core);
    let print = disk.fingerprint();
    // Changed while it is frozen.
    core.change_now(&plain, 0).unwrap().fill(5);
    core.set_durable_lsn(9).unwrap();
    let sync = core
        .start(SegmentRequest {
            mode: Mode::Cached,
            ..harness::sync_request(handle)
        })
        .unwrap();
    for _ in 0..300 {
        turn_for(&mut core, 50_000_000);
    }
    assert_eq!(disk.fingerprint(), print);
    let mut copy = open_copy(&disk.power_cut(1));
    let copied = open_write(&mut copy, "data");
    assert_eq!(read(&mut copy, copied, 3 * B, BLOCK).unwrap(), [0; BLOCK]);
    assert_eq!(read(&mut copy, copied, 4 * B, BLOCK).unwrap(), [4; BLOCK]);
    core.thaw(id);
    core.wait(sync).unwrap().unwrap().result.unwrap();
    assert_eq!(read(&mut core, handle, 3 * B, BLOCK).unwrap(), [3; BLOCK]);
    assert_eq!(read(&mut core, handle, 4 * B, BLOCK).unwrap(), [5; BLOCK]);
    core.unpin(gated);
    core.unpin(plain);
    core.close().unwrap();
}

#[test]
fn it_stays_frozen_until_the_last_has_thawed_it() {
    let (mut core, _disk) = volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    let [one, other] = [(); 2].map(|()| core.begin_freeze(ROOT).unwrap());
    let Ok(Answer::Frozen { freeze: one }) = answer(&mut core, &one) else {
        panic!()
    };
    let Ok(Answer::Frozen { freeze: other }) = answer(&mut core, &other) else {
        panic!()
    };
    let waits = core
        .start(write_of(&core, handle, 0, 1, Mode::Direct, Durability::None))
        .unwrap();
    core.thaw(one);
    for _ in 0..10 {
        turn(&mut core);
    }
    assert!(!is_done(&mut core, waits));
    core.thaw(other);
    core.wait(waits).unwrap().unwrap().result.unwrap();
}

#[test]
fn only_who_sees_the_whole_volume_may() {
    let (mut core, disk) = volume();
    create(&mut core, "data", B);
    let handle = open_write(&mut core, "data");
    let writes = core
        .start(write_of(&core, handle, 0, 1, Mode::Direct, Durability::None))
        .unwrap();
    let may = core.begin_freeze(ROOT).unwrap();
    let id = core.begin_freeze(ME).unwrap();
    assert_eq!(answer(&mut core, &id).unwrap_err().code(), "EACCES");
    // One on its way is not disturbed by that.
    let Ok(Answer::Frozen { freeze: may }) = answer(&mut core, &may) else {
        panic!()
    };
    assert!(is_done(&mut core, writes));
    let print = disk.fingerprint();
    let waits = core
        .start(write_of(&core, handle, 0, 2, Mode::Direct, Durability::None))
        .unwrap();
    for _ in 0..10 {
        turn(&mut core);
    }
    assert_eq!(disk.fingerprint(), print);
    core.thaw(may);
    core.wait(waits).unwrap().unwrap().result.unwrap();
}

/// Given up at every turn of its way, and after it: the others go on.
#[test]
fn whoever_gives_it_up_thaws_it() {
    for turns in 0..40 {
        let (mut core, _disk) = cached_volume();
        create(&mut core, "data", BLOCKS * B);
        let handle = open_write(&mut core, "data");
        for block in 0..20 {
            let mode = if block % 2 == 0 { Mode::Direct } else { Mode::Cached };
            let write = write_of(&core, handle, block, 1, mode, Durability::None);
            core.start(write).unwrap();
        }
        let new = core
            .begin_create(ME, ME.uid, "new", &CreateOptions::of_size(1 << 20))
            .unwrap();
        let id = core.begin_freeze(ROOT).unwrap();
        for _ in 0..turns {
            turn_for(&mut core, 20_000);
        }
        let waits = core
            .start(write_of(&core, handle, 30, 1, Mode::Cached, Durability::Data))
            .unwrap();
        core.abandon_operation(id);
        answer(&mut core, &new).unwrap();
        core.wait(waits).unwrap().unwrap().result.unwrap();
        core.delete(ME, ME.uid, "new").unwrap();
        core.close().unwrap();
    }
}

/// At every turn of its way too.
#[test]
fn a_close_thaws_it() {
    for turns in 0..40 {
        let (mut core, disk) = cached_volume();
        create(&mut core, "data", BLOCKS * B);
        let handle = open_write(&mut core, "data");
        for block in 0..20 {
            let write = write_of(&core, handle, block, 1, Mode::Cached, Durability::None);
            core.start(write).unwrap();
        }
        let _new = core
            .begin_create(ME, ME.uid, "new", &CreateOptions::of_size(1 << 20))
            .unwrap();
        let _id = core.begin_freeze(ROOT).unwrap();
        for _ in 0..turns {
            turn_for(&mut core, 20_000);
        }
        let _waits = core
            .start(write_of(&core, handle, 30, 2, Mode::Direct, Durability::None))
            .unwrap();
        core.close().unwrap();
        let mut core = harness::open_simulated(&disk);
        assert!(core.volume_info().unwrap().warnings.is_empty());
        let handle = open_write(&mut core, "data");
        assert_eq!(
            read(&mut core, handle, 30 * B, BLOCK).unwrap(),
            [2; BLOCK],
            "{turns} turns"
        );
        assert_eq!(core.list(ME).unwrap().len(), 2, "{turns} turns");
    }
}

/// A freeze fails when the device does not say that all is safe.
#[test]
fn a_sync_that_fails_freezes_nothing() {
    let (mut core, disk) = volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    disk.set_faults(Faults::none().when(Trigger::always(Sick::FailedFlush)));
    let id = core.begin_freeze(ROOT).unwrap();
    assert_eq!(answer(&mut core, &id).unwrap_err().code(), "EIO");
    disk.set_faults(Faults::none());
    write(&mut core, handle, 0, &[8; BLOCK]).unwrap();
}

/// Zeroes and copies stand still wherever they are.
#[test]
fn a_large_create_and_a_move_are_not_waited_for() {
    let (mut core, disk) = volume();
    create(&mut core, "data", 2 << 20);
    let handle = open_write(&mut core, "data");
    let begun = [
        core.begin_create(ME, ME.uid, "large", &CreateOptions::of_size(10 << 20))
            .unwrap(),
        core.begin_move(ME, ME.uid, "data", Some(3200)).unwrap(),
    ];
    for _ in 0..20 {
        turn_for(&mut core, 20_000);
    }
    let id = freeze(&mut core);
    let progress: Vec<_> = begun.iter().map(|id| core.operation_progress(id)).collect();
    let print = disk.fingerprint();
    for _ in 0..50 {
        turn(&mut core);
    }
    assert_eq!(disk.fingerprint(), print);
    let now: Vec<_> = begun.iter().map(|id| core.operation_progress(id)).collect();
    assert_eq!(now, progress);
    assert!(progress.iter().all(Option::is_some), "{progress:?}: both are under way");
    core.thaw(id);
    for id in begun {
        answer(&mut core, &id).unwrap();
    }
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [0; BLOCK]);
    core.close().unwrap();
}

/// A segment is deleted while the page cache writes it back for a freeze, at whatever moment: there is nothing left to be written.
#[test]
fn a_segment_that_goes_meanwhile_keeps_nobody_from_freezing() {
    for delay_ns in (0..60).map(|step| step * 10_000) {
        let (mut core, _disk) = cached_volume();
        for name in ["goes", "stays"] {
            create(&mut core, name, BLOCKS * B);
            let handle = open_write(&mut core, name);
            for block in 0..BLOCKS {
                let request = write_of(&core, handle, block, 7, Mode::Cached, Durability::None);
                harness::run(&mut core, request).result.unwrap();
            }
        }
        let id = core.begin_freeze(ROOT).unwrap();
        turn_for(&mut core, delay_ns);
        let delete = core.begin_delete(ME, ME.uid, "goes").unwrap();
        match answer(&mut core, &id) {
            Ok(Answer::Frozen { freeze: id }) => core.thaw(id),
            other => panic!("{delay_ns} ns after the freeze: {other:?}"),
        }
        answer(&mut core, &delete).unwrap();
        core.close().unwrap();
    }
}

/// A segment that is being deleted is not written back: its writes would be refused.
#[test]
fn a_segment_that_is_going_keeps_nobody_from_freezing() {
    for turns in 1..40 {
        let (mut core, _disk) = cached_volume();
        create(&mut core, "goes", BLOCKS * B);
        let handle = open_write(&mut core, "goes");
        let write_of = |core: &Core, block, mode| write_of(core, handle, block, 7, mode, Durability::None);
        for block in 0..BLOCKS / 2 {
            let request = write_of(&core, block, Mode::Cached);
            harness::run(&mut core, request).result.unwrap();
        }
        // The delete waits for these.
        for block in BLOCKS / 2..BLOCKS {
            let request = write_of(&core, block, Mode::Direct);
            core.start(request).unwrap();
        }
        let delete = core.begin_delete(ME, ME.uid, "goes").unwrap();
        for _ in 0..turns {
            turn_for(&mut core, 10_000);
        }
        let id = core.begin_freeze(ROOT).unwrap();
        match answer(&mut core, &id) {
            Ok(Answer::Frozen { freeze: id }) => core.thaw(id),
            other => panic!("{turns} turns after the delete: {other:?}"),
        }
        answer(&mut core, &delete).unwrap();
        core.close().unwrap();
    }
}

/// A freeze that waited for another begins while the resize turns the core.
#[test]
fn a_volume_does_not_grow_under_a_freeze_that_begins_meanwhile() {
    let (mut core, _disk) = volume();
    let [one, other] = [(); 2].map(|()| core.begin_freeze(ROOT).unwrap());
    let Ok(Answer::Frozen { freeze: one }) = answer(&mut core, &one) else {
        panic!("not frozen")
    };
    assert!(core.take_answer(&other).is_none(), "it is told at the next turn");
    let options = CreateOptions::of_size(1 << 20);
    let new = core.begin_create(ME, ME.uid, "new", &options).unwrap();
    core.thaw(one);
    let refused = core.resize_volume(ROOT, 16 << 20).unwrap_err();
    assert_eq!(refused.code(), "EBUSY", "{refused}");
    let Ok(Answer::Frozen { freeze: other }) = answer(&mut core, &other) else {
        panic!("not frozen")
    };
    core.thaw(other);
    answer(&mut core, &new).unwrap();
    core.close().unwrap();
}

/// A write begins to wait for its log in the very turn that would sleep.
#[test]
fn a_freeze_does_not_sleep_over_what_its_turn_brought_about() {
    let (mut core, _disk) = cached_volume();
    create(&mut core, "data", BLOCKS * B);
    let handle = open_write(&mut core, "data");
    let pin = core.pin_now(handle, 3).unwrap();
    let write = write_of(&core, handle, 3, 1, Mode::Cached, Durability::Data);
    let waits = core.start(write).unwrap();
    core.change(&pin, 9).unwrap().fill(3);
    let began = core.engine().now();
    let id = core.begin_freeze(ROOT).unwrap();
    let frozen = loop {
        match core.take_answer(&id) {
            Some(Ok(Answer::Frozen { freeze })) => break freeze,
            Some(other) => panic!("{other:?}"),
            None => turn_for(&mut core, 100_000_000_000),
        }
    };
    assert!(
        core.engine().now() < began.after(Duration::from_secs(1)),
        "simulated time"
    );
    core.thaw(frozen);
    core.set_durable_lsn(9).unwrap();
    core.wait(waits).unwrap().unwrap().result.unwrap();
    core.unpin(pin);
    core.close().unwrap();
}
