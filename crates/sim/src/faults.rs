//! One fault of the device under the metadata, during a session: a write that is acknowledged and lost, or lands elsewhere; a bit
//! that turns over in what is read; a read, write or flush that fails, a write that is torn and fails.
//!
//! A volume that was used before is opened and used on the failing disk until an operation answers with an error, or the
//! session ends; then it is closed or killed, and opened again on a healthy disk. Every answer on the way must be right
//! or an error, and what the last opening finds must be what was acknowledged; the operation that answered with an error
//! may have happened or not.
//!
//! Not claimed: bytes of users, of which there is one copy. A metadata write that lands among them destroys them unseen,
//! so the sectors that it hit are passed over ([`Content::Damaged`](crate::stamp::Content)). Nor what `docs/inside/disk-format.md`
//! calls the limit: a page of the table that is all zeroes looks as if it had never been written. The rear of a superblock
//! is zeroes, and put over a bucket's image some sectors too early it makes one; what is wrong then is counted apart.

use std::ops::Range;

use baio_engine::sim::{Disk, Fault, Faults, Random, Trigger};
use baio_storage::segment::layout::Layout;

use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::{Kind, Violation};
use crate::workload::{ByChance, Driver, Guide, Ids, State, run_session};
use crate::world::World;

/// What goes wrong, and how it is counted.
const FAULTS: [(Fault, &str); 7] = [
    (Fault::LostWrite, "lost_write"),
    (Fault::Misdirected, "misdirected"),
    (Fault::Rot, "rot"),
    (Fault::ReadError, "read_error"),
    (Fault::WriteError, "write_error"),
    (Fault::TornWrite, "torn_write"),
    (Fault::FailedFlush, "failed_flush"),
];

/// What is counted beside the states.
const COUNTED: &[&str] = &[
    "answered_with_an_error",
    "passed_unseen",
    "not_struck",
    "zeroed_a_page",
    "moved_damage",
];

/// Operations before the disk begins to fail, and after.
const OPS_BEFORE: usize = 10;
const OPS_FAILING: usize = 10;

/// The fault strikes one of so many of the iterations that it can strike, the first ones more often.
const PLACES: u64 = 64;

/// Trials that are one piece of work.
const PER_PIECE: u64 = 32;

/// Runs so many trials on so many threads.
#[must_use]
pub fn run(seed: u64, trials: u64, threads: usize) -> Report {
    report::of_all(COUNTED, threads, |piece| {
        let first = piece * PER_PIECE;
        (first < trials).then(|| run_trials(seed, first..trials.min(first + PER_PIECE)))
    })
}

/// Runs one trial alone.
#[must_use]
pub fn run_only(seed: u64, trial: u64) -> Report {
    report::of_one(COUNTED, || run_trials(seed, trial..trial + 1))
}

fn run_trials(seed: u64, trials: Range<u64>) -> Part {
    let mut part = Part::default();
    trials.for_each(|trial| run_trial(seed, trial, &mut part));
    part
}

fn run_trial(seed: u64, number: u64, part: &mut Part) {
    let mut trial = Trial {
        random: Random::from(&[seed, 6, number]),
        ids: Ids::default(),
        story: Vec::new(),
        part,
    };
    let (fault, word) = FAULTS[(number % FAULTS.len() as u64) as usize];
    let outcome = no_panic(|| trial.run(fault, word));
    let story = trial.story.join("\n  ");
    if let Err(violation) = outcome {
        part.failed(Failure {
            number,
            replay: format!("faults --seed {seed} --only {number}"),
            violation: violation.after(format!("{word}: {story}")),
            rotten: fault == Fault::Rot,
        });
    }
}

struct Trial<'a> {
    random: Random,
    ids: Ids,
    story: Vec<String>,
    part: &'a mut Part,
}

impl Trial<'_> {
    fn run(&mut self, fault: Fault, word: &'static str) -> Result<(), Violation> {
        let world = World::new(self.random.bits())?;
        let (disk, expectation) = self.used(&world)?;
        let metadata = 0..world.layout.data_at();
        let places = 1 + self.random.below(PLACES);
        let nth = 1 + self.random.below(places);
        let trigger = Trigger::nth(fault, nth);
        // A flush touches no bytes.
        let trigger = match fault {
            Fault::FailedFlush => trigger,
            _ => trigger.within(metadata),
        };
        disk.set_faults(Faults::none().when(trigger).listed());
        let mut hits = Hits::default();
        let outcome = self.use_and_look(&disk, expectation, &world.layout, &mut hits);
        // Also where it is passed over: it has run, and what looks at the end looks at a copy.
        self.part.state(disk.fingerprint());
        match disk.faults_injected().total() {
            0 => self.part.add("not_struck", 1),
            _ => self.part.add(word, 1),
        }
        hits.take(&disk, &world.layout);
        match outcome {
            Err(_) if hits.zeroed_a_page => self.part.add("zeroed_a_page", 1),
            // Where the hit bytes were moved to since, is not followed.
            Err(violation) if hits.destroyed_data && violation.story.contains(" sector ") => {
                self.part.add("moved_damage", 1);
            }
            outcome => return outcome,
        }
        Ok(())
    }

    fn use_and_look(
        &mut self,
        disk: &Disk,
        before: Expectation,
        layout: &Layout,
        hits: &mut Hits,
    ) -> Result<(), Violation> {
        let expectation = self.use_failing(disk, before, layout, hits)?;
        hits.take(disk, layout);
        let healthy = disk.copy();
        let model = self.look(&healthy, &expectation, layout, hits)?;
        // What was served once stays.
        self.look(&healthy, &Expectation::exactly(model), layout, hits)
            .map(drop)
    }

    /// A volume that was used, then closed or killed.
    fn used(&mut self, world: &World) -> Result<(Disk, Expectation), Violation> {
        let state = State::after_power_cut(world.disk.copy(), Expectation::default());
        let mut guide = ByChance::new(&mut self.random, &mut self.ids, OPS_BEFORE, false);
        let end = run_session(state, &mut guide, self.part.operations())?.end();
        Ok((end.disk, end.expectation))
    }

    /// Uses the volume on the failing disk until something answers with an error. Returns what must be there then.
    fn use_failing(
        &mut self,
        disk: &Disk,
        before: Expectation,
        layout: &Layout,
        hits: &mut Hits,
    ) -> Result<Expectation, Violation> {
        // `ids` and `random` are borrowed by the guide, and the story is told meanwhile.
        let Trial {
            random,
            ids,
            story,
            part,
        } = self;
        let mut guide = ByChance::new(random, ids, OPS_FAILING, false);
        let struck = || disk.faults_injected().total() > 0;
        let seed = guide.seed();
        let mut driver = match Driver::open_unchecked(disk.clone(), seed) {
            Ok(driver) => driver,
            Err(violation) => {
                return answered(violation, struck(), story, part).map(|()| before);
            }
        };
        hits.take(disk, layout);
        if let Err(violation) = driver.accept(&before, seed, |seen| seen.damaged(layout, &hits.ranges)) {
            return answered(violation, struck(), story, part).map(|()| before);
        }
        while let Some(op) = guide.next(driver.model(), driver.is_open()) {
            let model = driver.model().clone();
            story.push(format!("{op:?}"));
            let done = driver.perform_looking(op.clone(), guide.seed(), |seen| {
                hits.take(disk, layout);
                seen.damaged(layout, &hits.ranges);
            });
            hits.take(disk, layout);
            match done {
                Ok(done) => part.operations().count(&done),
                Err(violation) => {
                    answered(violation, struck(), story, part)?;
                    let in_doubt = Expectation {
                        model,
                        under_way: Some(op),
                    };
                    driver.look_around(&in_doubt, |seen| seen.damaged(layout, &hits.ranges))?;
                    let _ = driver.close();
                    return Ok(in_doubt);
                }
            }
        }
        if struck() {
            part.add("passed_unseen", 1);
        }
        let model = driver.model().clone();
        drop(driver.kill());
        Ok(Expectation::exactly(model))
    }

    fn look(
        &mut self,
        disk: &Disk,
        expectation: &Expectation,
        layout: &Layout,
        hits: &Hits,
    ) -> Result<crate::model::Model, Violation> {
        let seed = self.random.bits();
        let mut driver = Driver::open_unchecked(disk.clone(), seed)?;
        driver.accept(expectation, seed, |seen| seen.damaged(layout, &hits.ranges))?;
        let model = driver.model().clone();
        drop(driver.kill());
        Ok(model)
    }
}

/// An error is an answer, if anything was wrong with the disk at all; a wrong answer is not.
fn answered(violation: Violation, struck: bool, story: &mut Vec<String>, part: &mut Part) -> Result<(), Violation> {
    if !struck || !matches!(violation.kind, Kind::Failed | Kind::Refused) {
        return Err(violation);
    }
    story.push(format!("answered {violation}"));
    part.add("answered_with_an_error", 1);
    Ok(())
}

/// Where misdirected writes have landed.
#[derive(Debug, Default)]
struct Hits {
    ranges: Vec<Range<u64>>,
    /// One of them left zeroes where an image of a bucket was, or was to be.
    zeroed_a_page: bool,
    /// One of them fell among the users' bytes.
    destroyed_data: bool,
}

impl Hits {
    /// Takes in what has been injected since the last time.
    fn take(&mut self, disk: &Disk, layout: &Layout) {
        let images = layout.table_at()..layout.mirror_at() + layout.table_bytes();
        for injected in disk.take_injected() {
            if injected.fault != Fault::Misdirected {
                continue;
            }
            let hit = injected.what..injected.what + injected.len;
            let pages = [hit.start / 4096, (hit.end - 1) / 4096];
            self.zeroed_a_page |= pages
                .into_iter()
                .any(|page| images.contains(&(page * 4096)) && is_zero(disk, page * 4096));
            self.destroyed_data |= hit.end > layout.data_at();
            self.ranges.push(hit);
        }
    }
}

fn is_zero(disk: &Disk, page_at: u64) -> bool {
    let mut page = [0; 4096];
    disk.read(page_at, &mut page);
    page == [0; 4096]
}
