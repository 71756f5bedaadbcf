//! Without a race, on a device that is held: fences wait for what was written before them and for nothing else; syncs of
//! one file share one, and none of them is forgotten, whatever becomes of the one that runs.

use std::time::Duration;

use baio_engine::sim::Disk;
use baio_engine::{Durability, Engine, Errno, Error, File, Notice, Op, Policy, Request, RequestId, Space, Wait};

use crate::backends::{Bench, Case, Stop, blank, next};
use crate::gate::{Gate, gated};

const EIO: Error = Error::System(Errno::EIO);

pub(crate) fn fence(file: &File) -> Request {
    Request::bare(Op::Fence, Some(file), Policy::direct().durable(Durability::Data))
}

pub(crate) fn sync(file: &File) -> Request {
    Request::sync(file, Durability::Data)
}

fn write(engine: &Engine, file: &File) -> Request {
    Request::write(file, 0, blank(engine, 4096), Policy::kernel())
}

/// What completes, in order, until nothing is in flight.
pub(crate) fn told(engine: &mut Engine) -> Vec<(u64, Result<u32, Error>)> {
    let mut told = Vec::new();
    while engine.in_flight() > 0 || engine.completed() > 0 {
        let done = next(engine);
        told.push((done.tag, done.result));
    }
    told
}

/// One request is out and does not end; what is submitted now meets it there.
struct Held {
    engine: Engine,
    gate: Gate,
    disk: Disk,
    file: File,
    id: RequestId,
}

impl Held {
    fn new(bench: &Bench, request: impl FnOnce(&Engine, &File) -> Request) -> Result<Held, Stop> {
        let (mut engine, gate, disk, file) = gated(bench, 65536)?;
        gate.close();
        let request = request(&engine, &file).tagged(1);
        let id = engine.submit(request).expect("a slot");
        engine.turn(Wait::No).expect("a turn");
        gate.pass_others();
        Ok(Held {
            engine,
            gate,
            disk,
            file,
            id,
        })
    }

    /// Submits it under this tag; it must not end while the first is out.
    fn waits(&mut self, request: Request, tag: u64) -> RequestId {
        let id = self.engine.submit(request.tagged(tag)).expect("a slot");
        for _ in 0..3 {
            self.engine.turn(Wait::No).expect("a turn");
        }
        assert_eq!(self.engine.completed(), 0, "request {tag} did not wait");
        id
    }

    fn passes(&mut self, request: Request, tag: u64) {
        self.engine.submit(request.tagged(tag)).expect("a slot");
        let done = next(&mut self.engine);
        assert_eq!((done.tag, done.result.is_ok()), (tag, true), "it had no reason to wait");
    }

    fn let_go(&mut self) -> Vec<(u64, Result<u32, Error>)> {
        self.gate.open();
        told(&mut self.engine)
    }
}

pub(crate) fn a_fence_waits_for_writes_through_another_description(bench: &Bench) -> Case {
    let mut held = Held::new(bench, write)?;
    let again = File::simulated(&held.disk, "the same disk");
    held.waits(fence(&again), 2);
    assert_eq!(held.let_go(), [(1, Ok(4096)), (2, Ok(0))]);
    Ok(())
}

pub(crate) fn a_fence_waits_for_an_allocation(bench: &Bench) -> Case {
    let zero = Op::Allocate {
        offset: 0,
        len: 4096,
        space: Space::Zero,
    };
    let mut held = Held::new(bench, |_, file| Request::bare(zero, Some(file), Policy::kernel()))?;
    let file = held.file.clone();
    held.waits(fence(&file), 2);
    assert_eq!(held.let_go(), [(1, Ok(0)), (2, Ok(0))]);
    Ok(())
}

pub(crate) fn a_fence_waits_for_no_read(bench: &Bench) -> Case {
    let mut held = Held::new(bench, |engine, file| {
        Request::read(file, 0, blank(engine, 4096), Policy::kernel())
    })?;
    let file = held.file.clone();
    held.passes(fence(&file), 2);
    assert_eq!(held.let_go(), [(1, Ok(4096))]);
    Ok(())
}

pub(crate) fn a_failed_write_lets_its_fence_go(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = gated(bench, 65536)?;
    gate.fail_behind(0, Errno::EIO);
    let request = write(&engine, &file).tagged(1);
    engine.submit(request).expect("a slot");
    engine.submit(fence(&file).tagged(2)).expect("a slot");
    assert_eq!(
        told(&mut engine),
        [(1, Err(EIO)), (2, Ok(0))],
        "the write has told its own failure"
    );
    Ok(())
}

pub(crate) fn a_fence_that_waits_is_cancelled_at_once(bench: &Bench) -> Case {
    let mut held = Held::new(bench, write)?;
    let file = held.file.clone();
    let id = held.waits(fence(&file), 2);
    held.engine.cancel(id);
    let done = held.engine.next_completion().expect("known at once");
    assert_eq!((done.tag, done.result, done.iterations), (2, Err(Error::Cancelled), 0));
    held.passes(sync(&file), 3);
    assert_eq!(held.let_go(), [(1, Ok(4096))]);
    Ok(())
}

pub(crate) fn a_fence_that_waits_is_released_at_once(bench: &Bench) -> Case {
    let mut held = Held::new(bench, write)?;
    let file = held.file.clone();
    let id = held.waits(fence(&file), 2);
    held.engine.abandon(id);
    let done = held.engine.next_completion().expect("known at once");
    assert_eq!((done.tag, done.notice), (2, Notice::Released));
    assert_eq!(held.let_go(), [(1, Ok(4096))]);
    Ok(())
}

pub(crate) fn an_overdue_fence_that_never_ran_is_cancelled(bench: &Bench) -> Case {
    let mut held = Held::new(bench, write)?;
    let mut request = fence(&held.file);
    request.policy.deadline = Some(held.engine.now().after(Duration::from_millis(1)));
    held.engine.submit(request.tagged(2)).expect("a slot");
    let done = next(&mut held.engine);
    assert_eq!((done.tag, done.result, done.iterations), (2, Err(Error::Cancelled), 0));
    assert_eq!(held.let_go(), [(1, Ok(4096))]);
    Ok(())
}

pub(crate) fn syncs_wait_for_the_one_that_runs_and_share_the_next(bench: &Bench) -> Case {
    let mut held = Held::new(bench, |_, file| sync(file))?;
    let file = held.file.clone();
    for tag in 2..6 {
        held.waits(sync(&file), tag);
    }
    let other = File::simulated(&Disk::new(4096), "another disk");
    held.passes(sync(&other), 9);
    let before = held.engine.stats().iterations;
    let told = held.let_go();
    assert_eq!(told[0], (1, Ok(0)));
    assert!(
        told.len() == 5 && told.iter().all(|(_, result)| *result == Ok(0)),
        "{told:?}"
    );
    assert_eq!(held.engine.stats().iterations - before, 1, "one sync answers for four");
    Ok(())
}

pub(crate) fn a_failed_sync_proves_nothing_to_those_who_waited(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = gated(bench, 65536)?;
    gate.close();
    gate.fail_behind(0, Errno::EIO);
    engine.submit(sync(&file).tagged(1)).expect("a slot");
    engine.submit(sync(&file).tagged(2)).expect("a slot");
    engine.turn(Wait::No).expect("a turn");
    engine.submit(sync(&file).tagged(3)).expect("a slot");
    gate.open();
    let mut told = told(&mut engine);
    told.sort_unstable_by_key(|(tag, _)| *tag);
    assert!(told.iter().all(|(_, result)| result.is_err()), "{told:?}");
    assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
    assert_eq!(finish!(engine, sync(&file)).result, Ok(0));
    Ok(())
}

/// The one that runs is given up; those behind it are not.
fn gives_up(bench: &Bench, how: impl FnOnce(&mut Held)) -> Case {
    let mut held = Held::new(bench, |_, file| sync(file))?;
    let file = held.file.clone();
    for tag in 2..5 {
        held.waits(sync(&file), tag);
    }
    how(&mut held);
    let mut told = held.let_go();
    told.retain(|(tag, _)| *tag > 1);
    told.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(told, [(2, Ok(0)), (3, Ok(0)), (4, Ok(0))]);
    Ok(())
}

pub(crate) fn an_abandoned_sync_takes_no_other_with_it(bench: &Bench) -> Case {
    gives_up(bench, |held| held.engine.abandon(held.id))
}

pub(crate) fn a_running_sync_that_is_cancelled_takes_no_other_with_it(bench: &Bench) -> Case {
    gives_up(bench, |held| held.engine.cancel(held.id))
}

pub(crate) fn one_of_those_that_wait_may_be_cancelled_or_abandoned(bench: &Bench) -> Case {
    let mut held = Held::new(bench, |_, file| sync(file))?;
    let file = held.file.clone();
    let ids = [2, 3, 4, 5].map(|tag| held.waits(sync(&file), tag));
    held.engine.cancel(ids[0]);
    held.engine.abandon(ids[2]);
    let mut told = held.let_go();
    told.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(
        (told[1], told[2], told[4]),
        ((2, Err(Error::Cancelled)), (3, Ok(0)), (5, Ok(0))),
        "{told:?}"
    );
    Ok(())
}

pub(crate) fn a_sync_that_is_overdue_takes_no_other_with_it(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = gated(bench, 65536)?;
    gate.close();
    let mut first = sync(&file).tagged(1);
    first.policy.deadline = Some(engine.now().after(Duration::from_millis(1)));
    engine.submit(first).expect("a slot");
    engine.turn(Wait::No).expect("a turn");
    engine.submit(sync(&file).tagged(2)).expect("a slot");
    let done = next(&mut engine);
    assert_eq!((done.tag, done.result), (1, Err(Error::Indeterminate)));
    gate.open();
    let told: Vec<_> = (0..2)
        .map(|_| next(&mut engine))
        .map(|done| (done.tag, done.notice))
        .collect();
    assert_eq!(told, [(1, Notice::Released), (2, Notice::Completed)]);
    Ok(())
}
