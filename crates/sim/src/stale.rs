//! Two faults at a time: the newest image of a bucket is lost in the table and in the mirror, so the image before it is
//! served again. Its own segments may have an old state then, but no other segment may lose a byte.
//!
//! If two inodes claim one block, the later allocation has it. So every way in which a segment gets blocks (created, grown, moved) must give
//! it a later number than the segment that had them before. Only a stale inode that comes back shows whether it does.

use std::collections::BTreeSet;

use baio_engine::sim::{Disk, Random};
use baio_storage::segment::bucket::{BucketId, Pair};
use baio_storage::segment::layout::{Layout, Parity, Place};
use baio_storage::segment::page::{PAGE_BYTES, PageRead};
use baio_storage::segment::superblock::Superblock;

use crate::model::{Model, NAMES, Op};
use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::{Kind, Violation};
use crate::workload::{ByChance, Driver, Ids, Script, State, run_session};
use crate::world::{self, World};

/// What is counted beside the states.
const COUNTED: &[&str] = &["buckets", "overlaps_settled", "repaired"];

/// Operations of a workload: few blocks, so that they are soon used again.
const WORKLOAD_OPS: usize = 40;

/// Runs so many workloads, each with every bucket in turn, on so many threads. With `moving` the workload is cut inside a
/// move.
#[must_use]
pub fn run(seed: u64, workloads: u64, moving: bool, threads: usize) -> Report {
    report::of_all(COUNTED, threads, |number| {
        (number < workloads).then(|| run_workload(seed, number, moving))
    })
}

/// Runs one workload alone.
#[must_use]
pub fn run_only(seed: u64, number: u64, moving: bool) -> Report {
    report::of_one(COUNTED, || run_workload(seed, number, moving))
}

fn run_workload(seed: u64, number: u64, moving: bool) -> Part {
    let mut part = Part::default();
    let failure = |violation: Violation| Failure {
        number,
        replay: format!(
            "stale --seed {seed} --only {number}{}",
            if moving { " --moving" } else { "" }
        ),
        violation,
        rotten: true,
    };
    let made = no_panic(|| used(seed, number, moving, &mut part));
    let (disk, expectation, layout) = match made {
        Ok(made) => made,
        Err(violation) => return part.ended_by(failure(violation)),
    };
    for bucket in 0..layout.buckets() {
        let outcome = no_panic(|| bring_back(&disk, &expectation, &layout, bucket, &mut part));
        if let Err(violation) = outcome {
            let violation = violation.after(format!("the newest image of bucket {bucket} is gone in both places"));
            part.failed(failure(violation));
        }
    }
    part
}

/// A volume that was used and killed, everything on the medium.
fn used(seed: u64, number: u64, moving: bool, part: &mut Part) -> Result<(Disk, Expectation, Layout), Violation> {
    let mut random = Random::from(&[seed, 8, number]);
    let world = World::new(random.bits())?;
    let mut ids = Ids::default();
    let mut guide = ByChance::new(&mut random, &mut ids, WORKLOAD_OPS, false);
    let state = State::after_power_cut(world.disk.copy(), Expectation::default());
    let session = run_session(state, &mut guide, part.operations())?;
    let records = session.record.len();
    if moving {
        let is_moving = |end: &usize| matches!(session.expectation(*end).under_way, Some(Op::Move { .. } | Op::Defrag));
        let inside: Vec<usize> = (0..=records).filter(is_moving).collect();
        if let Some(&end) = random.pick(&inside) {
            return Ok((session.disk_at(end), session.expectation(end), world.layout));
        }
    }
    // Opened once more and killed: after a clean close no inode would be read.
    let mut nothing = Script::new(&[], &mut ids, seed);
    let end = run_session(session.end(), &mut nothing, part.operations())?.end();
    Ok((end.disk, end.expectation, world.layout))
}

fn bring_back(
    disk: &Disk,
    before: &Expectation,
    layout: &Layout,
    bucket: u64,
    part: &mut Part,
) -> Result<(), Violation> {
    let Some(stale) = Stale::of(disk, layout, bucket) else {
        return Ok(());
    };
    let model = &before.model;
    part.add("buckets", 1);
    let disk = disk.copy();
    for place in [Place::Table, Place::Mirror] {
        if let Some(at) = layout.image_at(bucket, stale.newest, place) {
            let mut byte = [0];
            disk.read(at + 100, &mut byte);
            disk.poke(at + 100, &[byte[0] ^ 1]);
        }
    }
    part.state(disk.fingerprint());
    let mut expectation = before.clone();
    expectation.model = Model {
        segments: model
            .segments
            .iter()
            .filter(|(key, _)| !stale.names.contains(&(key.uid, key.name().to_owned())))
            .map(|(key, segment)| (*key, segment.clone()))
            .collect(),
        ..model.clone()
    };
    match look(&disk, &expectation, &stale, bucket, part) {
        // An older image may have a free slot where names went on to the next bucket: they are listed and not found. A repair
        // puts that right.
        Err(violation) if violation.kind == Kind::Failed => {
            part.add("repaired", 1);
            world::check(&disk, bucket, true)?;
            look(&disk, &expectation, &stale, bucket, part)
        }
        looked => looked,
    }
}

/// Opens it, and compares what is there but for the segments whose inodes are old.
fn look(disk: &Disk, expectation: &Expectation, stale: &Stale, seed: u64, part: &mut Part) -> Result<(), Violation> {
    let limits = &expectation.model.limits;
    let mut driver = Driver::open_unchecked(disk.clone(), seed)?;
    let mut overlaps = 0;
    driver.look(expectation, |seen| {
        overlaps = seen.segments.iter().filter(|segment| !segment.is_served()).count();
        let is_stale = |uid: u32, name: usize| {
            let name = NAMES.get(name).copied().unwrap_or_default().to_owned();
            stale.names.contains(&(uid, name))
        };
        seen.segments
            .retain(|segment| !is_stale(segment.key.uid, segment.key.name));
        for (uid, account) in &mut seen.accounts {
            account.limits = limits.get(uid).copied().unwrap_or_default();
        }
    })?;
    part.add("overlaps_settled", overlaps as u64);
    Ok(())
}

/// What the two images of a bucket say.
struct Stale {
    newest: Parity,
    /// Owners and names of which one image or both have an inode.
    names: BTreeSet<(u32, String)>,
}

impl Stale {
    /// Nothing where there is no image before the newest.
    fn of(disk: &Disk, layout: &Layout, bucket: u64) -> Option<Stale> {
        let mut page = [0; PAGE_BYTES];
        disk.read(0, &mut page);
        let superblock = Superblock::decode(&page, 0).ok()?;
        let id = BucketId {
            uuid: superblock.uuid,
            bucket,
        };
        let read = |parity| {
            let mut page = [0; PAGE_BYTES];
            disk.read(layout.image_at(bucket, parity, Place::Table)?, &mut page);
            Some(page)
        };
        let (even, odd) = (read(Parity::Even)?, read(Parity::Odd)?);
        let pair = Pair::read(PageRead::Read(&even), PageRead::Read(&odd), id);
        let newest = pair.newest()?;
        let older = pair.at(newest.parity().other()).image()?;
        let mut stale = Stale {
            newest: newest.parity(),
            names: BTreeSet::new(),
        };
        for inode in [newest, older]
            .iter()
            .flat_map(|image| image.slots(superblock.geometry()))
            .flatten()
        {
            if let Some(name) = &inode.name {
                stale.names.insert((inode.owner_uid, name.as_str().to_owned()));
            }
        }
        Some(stale)
    }
}
