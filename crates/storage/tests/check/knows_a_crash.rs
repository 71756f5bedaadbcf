//! The promise: what a crash leaves is no problem. Whatever a volume was doing when the power failed, `check` finds updates in
//! doubt at most and pages torn in the middle of a write; after the next opening nothing at all, not even in doubt. And when
//! it repairs instead, nothing that was acknowledged is gone.

use std::collections::BTreeSet;

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::{CheckReport, Core, CreateOptions, Format, Limits, Repair, ResizeOptions, check_simulated};

use crate::harness::{BLOCK, ME, ROOT, Random, config, open_simulated, simulated_disk};

fn check(disk: &Disk, repair: bool) -> CheckReport {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    check_simulated(&mut engine, &File::simulated(disk, "disk"), repair).unwrap()
}

fn open(disk: &Disk) -> Result<Core, baio_storage::Error> {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_simulated(engine, &File::simulated(disk, "disk"), &config())
}

/// What was acknowledged, and the names that something was done to when the power failed.
#[derive(Default)]
struct Told {
    names: BTreeSet<String>,
    open: Vec<String>,
}

/// Does something to a segment that is there; false if the power is off.
fn change(core: &mut Core, random: &mut Random, told: &mut Told, name: &str, size_bytes: u64) -> bool {
    let done = match random.below(6) {
        0 | 1 => {
            let options = ResizeOptions {
                reserve_bytes: None,
                ..ResizeOptions::to_size(size_bytes)
            };
            core.resize(ME, ME.uid, name, &options).map(drop)
        }
        2 => {
            let new = format!("s{}", random.below(12));
            told.open.push(new.clone());
            core.rename(ME, ME.uid, name, &new).map(|_| {
                told.names.remove(name);
                told.names.insert(new);
            })
        }
        3 => core.move_segment(ME, ME.uid, name, None).map(drop),
        4 => {
            let limits = Limits {
                blocks: (random.below(2) == 0).then_some(100),
                segments: None,
            };
            core.set_quota(ROOT, ME.uid, limits).map(drop)
        }
        _ => core.delete(ME, ME.uid, name).map(|_| {
            told.names.remove(name);
        }),
    };
    done.map_or_else(|error| is_refused(&error), |()| true)
}

/// Refused for a reason that has nothing to do with the power.
fn is_refused(error: &baio_storage::Error) -> bool {
    matches!(error.code(), "EEXIST" | "ENOSPC" | "EDQUOT" | "EINVAL")
}

/// Opens, works, closes now and then, until the power fails.
fn work(disk: &Disk, random: &mut Random, told: &mut Told) {
    let Ok(mut core) = open(disk) else { return };
    for _ in 0..200 {
        let name = format!("s{}", random.below(12));
        let size_bytes = (1 + random.below(3)) * BLOCK as u64;
        told.open = vec![name.clone()];
        if !told.names.contains(&name) {
            let options = CreateOptions {
                reserve_bytes: size_bytes + random.below(2) * BLOCK as u64,
                ..CreateOptions::of_size(size_bytes)
            };
            match core.create(ME, ME.uid, &name, &options) {
                Ok(_) => drop(told.names.insert(name)),
                Err(error) if is_refused(&error) => {}
                Err(_) => return,
            }
        } else if !change(&mut core, random, told, &name, size_bytes) {
            return;
        }
        told.open.clear();
        if random.below(8) == 0 {
            if core.close().is_err() {
                return;
            }
            let Ok(again) = open(disk) else { return };
            core = again;
        }
    }
}

fn assert_there(disk: &Disk, told: &Told, context: &str) {
    let mut core = open_simulated(disk);
    let mut names: BTreeSet<String> = core.list(ME).unwrap().into_iter().map(|info| info.name).collect();
    let mut expected = told.names.clone();
    for open in &told.open {
        names.remove(open);
        expected.remove(open);
    }
    assert_eq!(names, expected, "{context}");
    core.close().unwrap();
}

#[test]
fn what_a_crash_leaves_is_no_problem() {
    let format = Format {
        size_bytes: Some(1 << 20),
        ..Format::default()
    };
    let (mut torn, mut in_doubt, mut cuts) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut disk = simulated_disk(&format);
        let mut told = Told::default();
        for life in 0..3 {
            let context = format!("seed {seed}, life {life}");
            disk.cut_power_after(random.below(300), random.bits());
            work(&disk, &mut random, &mut told);
            let Some(left) = disk.surviving() else { break };
            cuts += 1;
            let found = check(&left, false);
            for problem in &found.problems {
                let is_torn = matches!(problem.kind, "image" | "superblock" | "image-erased" | "rename");
                assert!(
                    is_torn && problem.repair == Repair::Repairable,
                    "{context}: {problem:?}"
                );
            }
            torn += found.problems.len();
            in_doubt += found.in_doubt;
            if random.below(2) == 0 {
                let repaired = check(&left, true);
                assert_eq!(repaired.repaired, found.problems.len() as u64, "{context}");
            } else {
                drop(open_simulated(&left));
            }
            let again = check(&left, false);
            assert!(again.problems.is_empty() && again.in_doubt == 0, "{context}: {again:?}");
            assert_there(&left, &told, &context);
            disk = left;
            told.open.clear();
            told.names = open_simulated(&disk)
                .list(ME)
                .unwrap()
                .into_iter()
                .map(|info| info.name)
                .collect();
        }
    }
    println!("{cuts} cuts, {torn} torn pages and halves of renames, {in_doubt} buckets in doubt");
    assert!(cuts > 600 && torn > 20 && in_doubt > 20, "{cuts}, {torn}, {in_doubt}");
}
