//! One process on one volume: does an operation and holds the answer against the model.

use std::rc::Rc;
use std::time::Duration;

use baio_engine::sim::{Disk, Faults, Trigger};
use baio_engine::{Durability, Memory, Wait};
use baio_storage::{
    Access, Core, CreateOptions, Error, Fault, Handle, Identity, Limits, OperationId, ResizeOptions, SegmentOp,
    SegmentRequest, Ticket, Usage, Zeroing,
};

use crate::model::{BLOCK, Key, Model, Op, Segment, UIDS};
use crate::observe::{Seen, failed, observe, run, settle};
use crate::oracle::{Expectation, longest_gap};
use crate::stamp::{self, SECTOR};
use crate::violation::{Kind, Violation};
use crate::world;

/// How late a late write is: later than whatever the next operation asks of the disk.
const LATE: Duration = Duration::from_millis(10);

/// What an operation came to.
type Answer = Result<(), Error>;

/// One process on one volume.
#[derive(Debug)]
pub struct Driver {
    disk: Disk,
    pub(super) core: Option<Core>,
    pub(super) model: Model,
    /// A write that is under way, and the handle it goes through.
    late: Option<(Ticket, Handle)>,
    /// A move that goes on beside the next operation.
    moving: Option<OperationId>,
}

impl Driver {
    /// Opens the volume on `disk`, and looks whether it is as expected.
    ///
    /// # Errors
    /// It does not open, or is not what was promised.
    pub fn open(disk: Disk, expectation: &Expectation, seed: u64) -> Result<Driver, Violation> {
        let mut driver = Driver::open_unchecked(disk, seed)?;
        driver.accept(expectation, seed, |_| {})?;
        Ok(driver)
    }

    /// Opens the volume on `disk`, and does not look.
    ///
    /// # Errors
    /// It does not open.
    pub fn open_unchecked(disk: Disk, seed: u64) -> Result<Driver, Violation> {
        let core = Some(world::open(&disk, seed)?);
        Ok(Driver {
            disk,
            core,
            model: Model::default(),
            late: None,
            moving: None,
        })
    }

    /// Looks whether all is as expected; what is seen becomes the model. `but` may pass over some of it. Moves that go on
    /// behind the opening are waited for, or, of some seeds, left to go on beside what comes next.
    ///
    /// # Errors
    /// It is not what was promised.
    pub fn accept(
        &mut self,
        expectation: &Expectation,
        seed: u64,
        mut but: impl FnMut(&mut Seen),
    ) -> Result<(), Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        let mut seen = observe(core)?;
        but(&mut seen);
        if !seen.is_moving() {
            self.model = expectation.check(&seen)?;
            return Ok(());
        }
        let mut served = expectation.check_contents(&seen)?;
        for segment in seen.segments.iter().filter(|segment| segment.state == "moving") {
            if let Some(segment) = served.segments.get_mut(&segment.key) {
                Rc::make_mut(segment).start_block = None;
            }
        }
        // A resize that was under way is not decided yet.
        let is_resize = |op: &Op| matches!(op, Op::Resize { .. });
        let is_resized = expectation.under_way.iter().flat_map(Op::each).any(is_resize);
        if seed.is_multiple_of(3) && !is_resized {
            self.model = served;
            return Ok(());
        }
        settle(core)?;
        let mut seen = observe(core)?;
        but(&mut seen);
        let served = Expectation {
            model: served,
            under_way: expectation.under_way.clone(),
        };
        self.model = served.check(&seen)?;
        Ok(())
    }

    /// Looks around behind an error: what can still be read must be right. (It may be that nothing can.)
    ///
    /// # Errors
    /// Something is wrong and looks good.
    pub fn look_around(&mut self, expectation: &Expectation, but: impl FnOnce(&mut Seen)) -> Result<(), Violation> {
        let Some(Ok(seen)) = self.core.as_mut().map(observe) else {
            return Ok(());
        };
        Driver::compare(expectation, seen, but)
    }

    /// The same on a healthy device, where everything that is listed can be read.
    ///
    /// # Errors
    /// Something is wrong, or cannot be read.
    pub fn look(&mut self, expectation: &Expectation, but: impl FnOnce(&mut Seen)) -> Result<(), Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        Driver::compare(expectation, observe(core)?, but)
    }

    fn compare(expectation: &Expectation, mut seen: Seen, but: impl FnOnce(&mut Seen)) -> Result<(), Violation> {
        but(&mut seen);
        if let Some(Op::Rename { from, to }) = expectation.under_way {
            // Cut half-way it has both names; nothing can be changed then, and the next opening decides.
            let has_old = from != to && seen.segments.iter().any(|segment| segment.key == from);
            seen.segments.retain(|segment| !has_old || segment.key != to);
        }
        expectation.check_contents(&seen).map(drop)
    }

    /// The disk, as the process sees it.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What the user was told.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Is there a process that has the volume open?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.core.is_some()
    }

    /// Ends the process without a word; the disk stays.
    #[must_use]
    pub fn kill(mut self) -> Disk {
        drop(self.core.take());
        self.disk
    }

    /// What was under way is the volume's business now.
    fn forget(&mut self) {
        self.moving = None;
        if self.late.take().is_some() {
            self.disk.set_faults(Faults::none());
        }
    }

    /// Closes the volume, if it is open.
    ///
    /// # Errors
    /// It cannot be closed cleanly.
    pub fn close(&mut self) -> Result<(), Violation> {
        self.forget();
        let Some(core) = self.core.take() else {
            return Ok(());
        };
        core.close().map_err(|error| failed("close", &error))
    }

    /// Does it, tells the model, and returns it as it turned out. `seed` is the randomness of an opening.
    ///
    /// # Errors
    /// It fails though it should not, or does not though it should.
    pub fn perform(&mut self, op: Op, seed: u64) -> Result<Op, Violation> {
        self.perform_looking(op, seed, |_| {})
    }

    /// The same; of what an opening finds, `but` may pass over some.
    ///
    /// # Errors
    /// As [`Driver::perform`].
    pub fn perform_looking(&mut self, op: Op, seed: u64, but: impl FnMut(&mut Seen)) -> Result<Op, Violation> {
        let done = match op {
            Op::Open => {
                let expectation = Expectation::exactly(std::mem::take(&mut self.model));
                self.core = Some(world::open(&self.disk, seed)?);
                self.accept(&expectation, seed, but)?;
                Op::Open
            }
            Op::Kill => {
                self.forget();
                self.core = None;
                Op::Kill
            }
            Op::Close => {
                if !self.is_open() {
                    return Err(closed());
                }
                self.close()?;
                Op::Close
            }
            op => self.perform_on_volume(op, seed)?,
        };
        self.model.acknowledge(&done);
        self.check_sums()?;
        Ok(done)
    }

    /// Does one thing more behind an error, when nothing is wrong with the device any more. What the volume says of its room is not
    /// compared: what was in doubt may be held.
    ///
    /// # Errors
    /// As [`Driver::perform`].
    pub fn go_on(&mut self, op: Op, seed: u64) -> Result<Op, Violation> {
        let done = self.perform_on_volume(op, seed)?;
        self.model.acknowledge(&done);
        Ok(done)
    }

    /// What the volume says of its room and its owners, beside the model: nothing is read for it.
    fn check_sums(&self) -> Result<(), Violation> {
        let Some(core) = &self.core else {
            return Ok(());
        };
        let segments = &self.model.segments;
        // What is being moved is held twice, and where a resize is in doubt the model does not know its run.
        let is_settled = self.moving.is_none() && is_settled(&self.model);
        if !is_settled || self.late.is_some() {
            return Ok(());
        }
        let volume = core.volume_info().map_err(|error| failed("stat", &error))?;
        let held: u64 = segments.values().map(|segment| segment.reserve).sum();
        let (free, all) = (volume.free_bytes / BLOCK, volume.size_bytes / BLOCK);
        if free + held != all {
            let story = format!("{free} blocks are said to be free of {all}, and {held} are held");
            return Err(Violation::new(Kind::Space, story));
        }
        let runs = segments
            .values()
            .filter_map(|s| Some((s.start_block?, s.start_block? + s.reserve)));
        let (gap, largest) = (longest_gap(runs.collect(), all), volume.largest_free_bytes / BLOCK);
        if gap != largest {
            let story = format!("the longest free run is said to be {largest}, and is {gap}");
            return Err(Violation::new(Kind::Space, story));
        }
        for uid in UIDS {
            let own = segments
                .iter()
                .filter(|(key, _)| key.uid == uid)
                .map(|(_, segment)| segment.reserve);
            let account = core.quota(ROOT, uid).map_err(|error| failed("quota", &error))?;
            let (blocks, count) = (own.clone().sum(), own.count() as u64);
            if (account.used.blocks, account.used.segments) != (blocks, count) {
                let used = account.used;
                let story = format!("{uid} is charged for {used:?}, and holds {blocks} blocks in {count} segments");
                return Err(Violation::new(Kind::Space, story));
            }
        }
        Ok(())
    }

    fn perform_on_volume(&mut self, op: Op, seed: u64) -> Result<Op, Violation> {
        if let Op::Write { late: true, .. } = op {
            return self.begin_late(op);
        }
        if let Op::Move { beside: true, .. } = op {
            return self.begin_move(op, seed);
        }
        let moving = self.moving.take();
        let is_delete = matches!(op, Op::Delete { .. });
        let done = match op {
            Op::Together { ops, abandoned } => self.together(ops, abandoned, seed),
            op => self.perform_now(op),
        };
        let Some(core) = &mut self.core else {
            return done;
        };
        if let Some(moving) = moving {
            // Where there is no room it moves nothing; and the segment may be deleted meanwhile.
            if let Err(error) = answer_to(core, &moving)?
                && !matches!(
                    error.fault,
                    Fault::NoSpace { .. } | Fault::MoveStopped { .. } | Fault::NotFound
                )
            {
                return Err(failed("a move beside another operation", &error));
            }
        }
        // A write that was under way when its segment was deleted must be over; whoever gets the blocks would tell.
        if !is_delete && let Some((ticket, handle)) = self.late.take() {
            let _ = core.wait(ticket);
            core.close_handle(handle);
            self.disk.set_faults(Faults::none());
        }
        done
    }

    /// Begins a move, and lets it go so far as `seed` says.
    fn begin_move(&mut self, op: Op, seed: u64) -> Result<Op, Violation> {
        let Op::Move { key, to, .. } = op else {
            return Ok(op);
        };
        let core = self.core.as_mut().ok_or_else(closed)?;
        let moving = core
            .begin_move(who(key), key.uid, key.name(), to)
            .map_err(|error| failed("begin a move", &error))?;
        for _ in 0..seed % 24 {
            core.turn(Wait::No).map_err(|error| failed("turn", &error))?;
        }
        self.moving = Some(moving);
        Ok(op)
    }

    /// Begins a write that reaches its disk late, so that the next operation finds it under way.
    fn begin_late(&mut self, op: Op) -> Result<Op, Violation> {
        let Op::Write {
            key,
            first,
            count,
            version,
            ..
        } = op
        else {
            return Ok(op);
        };
        let core = self.core.as_mut().ok_or_else(closed)?;
        let instance = self.model.segments.get(&key).map_or(0, |segment| segment.instance);
        let failed = |error| failed("begin a write", &error);
        let mut buffer = core.buffer(count as usize * SECTOR).map_err(failed)?;
        stamp::fill(&mut buffer, instance, first, version);
        let (handle, _) = core
            .open_segment(who(key), key.uid, key.name(), Access::Write)
            .map_err(failed)?;
        let once = Trigger::nth(baio_engine::sim::Fault::Delay, 1);
        self.disk.set_faults(Faults::none().when(once).delays(LATE..2 * LATE));
        let offset = first * SECTOR as u64;
        let request = SegmentRequest::new(handle, SegmentOp::Write { offset }, Memory::Own(buffer));
        let ticket = core
            .start(request)
            .map_err(|_| Violation::new(Kind::Failed, "no slot for a second request"))?;
        core.turn(Wait::No).map_err(failed)?;
        self.late = Some((ticket, handle));
        Ok(op)
    }

    fn perform_now(&mut self, mut op: Op) -> Result<Op, Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        let must_fail = must_be_refused(&self.model, &op);
        let (under_way, memory) = (core.in_flight(), core.engine().arena().free_bytes());
        let done = attempt(core, &self.model, &mut op);
        let left = core.engine().arena().free_bytes();
        if (under_way, core.in_flight()) == (0, 0) && left != memory {
            let story = format!("{op:?} had {memory} bytes of memory free before it, and leaves {left}: {done:?}");
            return Err(Violation::new(Kind::Space, story));
        }
        match done {
            Ok(()) if must_fail => {
                let story = format!("{op:?} was done, and must be refused");
                Err(Violation::new(Kind::Lost, story))
            }
            Ok(()) => Ok(op),
            Err(error) if is_right_refusal(core, &self.model, &op, &error) => Ok(Op::Refused),
            Err(error) if states_a_fact(&error) => {
                let story = format!("answers what is not so: {error}");
                Err(Violation::new(Kind::Lost, story))
            }
            Err(error) => Err(failed("operation", &error)),
        }
    }
}

/// Turns the core until an operation has ended.
pub(super) fn answer_to(core: &mut Core, id: &OperationId) -> Result<Result<baio_storage::Answer, Error>, Violation> {
    loop {
        match core.take_answer(id) {
            Some(answer) => return Ok(answer),
            None => core.turn(Wait::one()).map_err(|error| failed("turn", &error))?,
        };
    }
}

pub(super) fn create_options(blocks: u64, reserve: u64, lazily: bool) -> CreateOptions {
    CreateOptions {
        reserve_bytes: reserve * BLOCK,
        zero: if lazily { Zeroing::Lazy } else { Zeroing::Written },
        ..CreateOptions::of_size(blocks * BLOCK)
    }
}

pub(super) fn resize_options(blocks: u64, reserve: Option<u64>) -> ResizeOptions {
    ResizeOptions {
        reserve_bytes: reserve.map(|reserve| reserve * BLOCK),
        ..ResizeOptions::to_size(blocks * BLOCK)
    }
}

/// Does it say how things are, and not only that something went wrong?
pub(super) fn states_a_fact(error: &Error) -> bool {
    matches!(
        error.fault,
        Fault::Exists
            | Fault::NotFound
            | Fault::NoSpace { .. }
            | Fault::TableFull { .. }
            | Fault::OverQuota { .. }
            | Fault::Access { .. }
            | Fault::Beyond { .. }
            | Fault::BadSize(_)
            | Fault::WouldCut { .. }
    )
}

/// Does it; a create tells where it was put.
fn attempt(core: &mut Core, model: &Model, op: &mut Op) -> Answer {
    match op {
        Op::Create {
            key,
            blocks,
            reserve,
            lazily,
            start_block,
            ..
        } => {
            let options = create_options(*blocks, *reserve, *lazily);
            let info = core.create(who(*key), key.uid, key.name(), &options)?;
            *start_block = Some(info.start_block);
            Ok(())
        }
        Op::Resize {
            key,
            blocks,
            reserve,
            start_block,
        } => {
            let options = resize_options(*blocks, *reserve);
            let info = core.resize(who(*key), key.uid, key.name(), &options)?;
            *start_block = Some(info.start_block);
            Ok(())
        }
        Op::Rename { from, to } => core.rename(who(*from), from.uid, from.name(), to.name()).map(drop),
        Op::Move {
            key, to, start_block, ..
        } => {
            let info = core.move_segment(who(*key), key.uid, key.name(), *to)?;
            *start_block = Some(info.start_block);
            Ok(())
        }
        Op::Quota { uid, limits } => core.set_quota(ROOT, *uid, *limits).map(drop),
        Op::Defrag => core.defrag(ROOT, &mut |_| {}).map(drop),
        Op::Grow { blocks } => {
            let data_at = core.volume_info()?.data_at_bytes;
            core.resize_volume(ROOT, data_at + *blocks * BLOCK).map(drop)
        }
        Op::Delete { key } => core.delete(who(*key), key.uid, key.name()).map(drop),
        Op::Write {
            key,
            first,
            count,
            version,
            durable,
            ..
        } => {
            let segment = model.segments.get(key);
            let (instance, sectors) = segment.map_or((0, u64::MAX), |s| (s.instance, s.sectors.len() as u64));
            *count = (*count).min(sectors.saturating_sub(*first));
            let mut buffer = core.buffer(*count as usize * SECTOR)?;
            stamp::fill(&mut buffer, instance, *first, *version);
            let durability = if *durable { Durability::Data } else { Durability::None };
            let offset = *first * SECTOR as u64;
            on_segment(core, *key, SegmentOp::Write { offset }, Memory::Own(buffer), durability)
        }
        Op::Sync { key } => on_segment(core, *key, SegmentOp::Sync, Memory::None, Durability::Data),
        Op::Close | Op::Kill | Op::Open | Op::Refused | Op::Together { .. } => Ok(()),
    }
}

fn on_segment(core: &mut Core, key: Key, op: SegmentOp, memory: Memory, durability: Durability) -> Answer {
    let (handle, _) = core.open_segment(who(key), key.uid, key.name(), Access::Write)?;
    let request = SegmentRequest {
        durability,
        ..SegmentRequest::new(handle, op, memory)
    };
    let outcome = run(core, request);
    core.close_handle(handle);
    outcome.map(drop)
}

/// Is there a reason in the model why this cannot be done?
fn must_be_refused(model: &Model, op: &Op) -> bool {
    let exists = |key: &Key| model.segments.contains_key(key);
    let is_taken = match op {
        Op::Create { key, .. } => exists(key),
        Op::Rename { from, to } => from != to && exists(to),
        _ => false,
    };
    let is_too_much = match op {
        // What an operation that is under way or in doubt has taken, the model does not know.
        Op::Create { key, .. } | Op::Resize { key, .. } if is_settled(model) => {
            let own = model.segments.iter().filter(|(other, _)| other.uid == key.uid);
            let used = Usage {
                blocks: own.clone().map(|(_, segment)| segment.reserve).sum(),
                segments: own.count() as u64,
            };
            let limits = model.limits.get(&key.uid).copied().unwrap_or_default();
            asked(model, op).exceeds(used, limits)
        }
        _ => false,
    };
    is_taken || is_too_much || op.needs().is_some_and(|key| !exists(&key))
}

/// Does the model know where each segment lies?
fn is_settled(model: &Model) -> bool {
    model.segments.values().all(|segment| segment.start_block.is_some())
}

/// What an operation asks for.
struct Asked {
    /// The run, in blocks.
    reserve: u64,
    /// How many blocks that is more than its owner has.
    more: u64,
    /// How many segments more.
    segments: u64,
}

impl Asked {
    /// Is it more than an owner may have who has so much?
    fn exceeds(&self, used: Usage, limits: Limits) -> bool {
        let exceeds =
            |used: u64, more: u64, limit: Option<u64>| more > 0 && limit.is_some_and(|limit| used + more > limit);
        exceeds(used.blocks, self.more, limits.blocks) || exceeds(used.segments, self.segments, limits.segments)
    }
}

fn asked(model: &Model, op: &Op) -> Asked {
    let (reserve, more, segments) = match op {
        Op::Create { reserve, .. } => (*reserve, *reserve, 1),
        Op::Resize {
            key, blocks, reserve, ..
        } => model.segments.get(key).map_or((0, 0, 0), |segment| {
            let asked = segment.reserve_of(*blocks, *reserve);
            (asked, asked.saturating_sub(segment.reserve), 0)
        }),
        Op::Move { key, .. } => (model.segments.get(key).map_or(0, |s| s.reserve), 0, 0),
        _ => (0, 0, 0),
    };
    Asked {
        reserve,
        more,
        segments,
    }
}

/// Is a run free of all but its own segment? Not where the model does not know each segment's place.
fn is_known_free(model: &Model, start: u64, blocks: u64, own: Option<&Key>) -> bool {
    let is_in_the_way = |segment: &Segment| {
        let run = segment.start_block.map(|at| (at, at + segment.reserve));
        run.is_none_or(|(from, to)| from < start + blocks && start < to)
    };
    let others = model.segments.iter().filter(|(key, _)| own != Some(*key));
    let is_inside = model.data_blocks.is_some_and(|all| start + blocks <= all);
    is_inside && is_settled(model) && !others.map(|(_, segment)| segment).any(|segment| is_in_the_way(segment))
}

/// Is the reason true?
fn is_right_refusal(core: &Core, model: &Model, op: &Op, error: &Error) -> bool {
    let exists = |key: &Key| model.segments.contains_key(key);
    let room = core.volume_info().map_or(0, |info| info.largest_free_bytes / BLOCK);
    let asked = asked(model, op);
    match (&error.fault, op) {
        (Fault::Exists, Op::Create { key, .. }) => exists(key),
        (Fault::Exists, Op::Rename { to, .. }) => exists(to),
        (Fault::NotFound, op) => op.needs().is_some_and(|key| !exists(&key)),
        (Fault::NoSpace { .. }, Op::Move { to: Some(to), .. }) => !is_known_free(model, *to, asked.reserve, None),
        // It grows where it is if the blocks behind it are free, and else goes where there is a run for all of it.
        (Fault::NoSpace { .. }, Op::Resize { key, .. }) => {
            let start = model.segments.get(key).and_then(|segment| segment.start_block);
            let fits = start.is_some_and(|start| is_known_free(model, start, asked.reserve, Some(key)));
            room < asked.reserve && !fits
        }
        (Fault::NoSpace { .. }, Op::Create { .. } | Op::Move { .. }) => room < asked.reserve,
        (Fault::OverQuota { uid, .. }, Op::Create { key, .. } | Op::Resize { key, .. }) if *uid == key.uid => {
            let account = core.quota(ROOT, *uid);
            account.is_ok_and(|account| asked.exceeds(account.used, account.limits))
        }
        _ => false,
    }
}

pub(super) const ROOT: Identity = Identity::new(0, 0);

pub(super) fn who(key: Key) -> Identity {
    Identity::new(key.uid, key.uid)
}

pub(super) fn closed() -> Violation {
    Violation::new(Kind::Failed, "the volume is not open")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: usize) -> Key {
        Key { uid: UIDS[0], name }
    }

    fn create(name: usize, reserve: u64, start_block: Option<u64>) -> Op {
        Op::Create {
            key: key(name),
            instance: 1 + name as stamp::Instance,
            blocks: 1,
            reserve,
            lazily: false,
            start_block,
        }
    }

    #[test]
    fn a_run_is_free_but_for_its_own_segment() {
        let mut model = Model {
            data_blocks: Some(40),
            ..Model::default()
        };
        model.acknowledge(&create(0, 4, Some(10)));
        model.acknowledge(&create(1, 4, Some(20)));
        let (first, second) = (key(0), key(1));
        assert!(is_known_free(&model, 10, 10, Some(&first)), "up to the next one");
        assert!(!is_known_free(&model, 10, 11, Some(&first)));
        assert!(!is_known_free(&model, 10, 4, None));
        assert!(is_known_free(&model, 20, 20, Some(&second)), "up to the end");
        assert!(!is_known_free(&model, 20, 21, Some(&second)));
        assert!(is_known_free(&model, 14, 6, None));
        model.acknowledge(&create(2, 1, None));
        assert!(!is_known_free(&model, 14, 6, None), "nobody knows where the third lies");
    }
}
