//! The promise: a page that cannot be read is not damage. The device may read it a second later, when a path or a server is
//! back; until then nobody decides without it, and nobody writes over it. Reads fail one by one, in rows, and for good in both
//! copies of one image, or in one while the other is rotten: during an open after a crash, during every operation, and during a
//! repair. Then the device is well again, and everything that was acknowledged is there, and `check` finds nothing.

use std::collections::{BTreeMap, BTreeSet};

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{Layout, Parity, Place};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{CheckReport, Core, CreateOptions, Error, FormatOptions, Problem, Repair, ResizeOptions, check_on};

use crate::harness::{BLOCK, ME, config, create, open_simulated, open_write, read, simulated_disk, write};

/// What the callers were told: the segments that are there with the byte that fills them, and names of which nobody knows.
#[derive(Clone, Default)]
struct Told {
    there: BTreeMap<String, u8>,
    maybe: BTreeSet<String>,
}

impl Told {
    /// The outcome of an operation that makes or moves a segment from one name to another.
    fn hear<T>(&mut self, done: Result<T, Error>, from: Option<&str>, to: Option<(&str, u8)>) {
        let kept = from.and_then(|from| self.there.remove(from).map(|byte| (from, byte)));
        match done {
            Ok(_) => {
                let to = to.map(|(to, byte)| (to.to_owned(), kept.map_or(byte, |(_, kept)| kept)));
                self.there.extend(to);
            }
            Err(error) if is_refused(&error) => self.there.extend(kept.map(|(from, byte)| (from.to_owned(), byte))),
            Err(_) => {
                let names = [from, to.map(|(to, _)| to)];
                self.maybe.extend(names.into_iter().flatten().map(str::to_owned));
            }
        }
    }
}

/// Nothing was begun.
fn is_refused(error: &Error) -> bool {
    matches!(error.code(), "EPOISONED" | "ENOENT" | "EEXIST")
}

fn layout(disk: &Disk) -> Layout {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    *Superblock::decode(&page, 0).unwrap().layout()
}

fn fill(core: &mut Core, name: &str, byte: u8) {
    create(core, name, BLOCK as u64);
    let handle = open_write(core, name);
    write(core, handle, 0, &[byte; BLOCK]).unwrap();
    core.close_handle(handle);
}

/// A volume with a history: most buckets were written several times.
fn volume(clean: bool) -> (Disk, Told) {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    let mut told = Told::default();
    let mut core = open_simulated(&disk);
    for round in 0..2 {
        for number in 0..10 {
            let name = format!("s{number}");
            if round > 0 {
                core.delete(ME, ME.uid, &name).unwrap();
            }
            fill(&mut core, &name, number + 1);
            told.there.insert(name, number + 1);
        }
    }
    core.delete(ME, ME.uid, "s9").unwrap();
    told.there.remove("s9");
    if clean {
        core.close().unwrap();
    }
    (disk, told)
}

fn try_open(disk: &Disk) -> Result<Core, Error> {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "disk"), &config())
}

fn check(disk: &Disk, repair: bool) -> Result<CheckReport, Error> {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair)
}

/// The device is well again.
fn assert_all_there(disk: &Disk, told: &Told, what: &str) {
    disk.set_faults(Faults::none());
    let mut core = try_open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let names: BTreeSet<String> = core.list(ME).unwrap().into_iter().map(|info| info.name).collect();
    for (name, byte) in &told.there {
        assert!(names.contains(name), "{what}: {name} is gone; there are {names:?}");
        let handle = open_write(&mut core, name);
        let bytes = read(&mut core, handle, 0, BLOCK).unwrap();
        assert!(bytes.iter().all(|found| found == byte), "{what}: bytes of {name}");
        core.close_handle(handle);
    }
    for name in &names {
        let known = told.there.contains_key(name) || told.maybe.contains(name);
        assert!(known, "{what}: {name} is back");
    }
    core.close().unwrap();
    let report = check(disk, false).unwrap();
    // What is rotten beside the device's illness stays so where no open had a reason to look.
    let of_the_rot = |problem: &Problem| what.contains("rotten") && problem.repair == Repair::Repairable;
    assert!(report.problems.iter().all(of_the_rot), "{what}: {:?}", report.problems);
}

/// Which reads fail; what is rotten beside that.
#[derive(Clone, Debug)]
struct Illness {
    faults: Faults,
    rot: Option<u64>,
    what: String,
}

/// Both copies of an image; or one, while the other is rotten. For every image of the table.
fn lost_images(disk: &Disk) -> Vec<Illness> {
    let layout = layout(disk);
    let mut all = Vec::new();
    for bucket in 0..layout.buckets() {
        for parity in Parity::BOTH {
            let [table, mirror] =
                [Place::Table, Place::Mirror].map(|place| layout.image_at(bucket, parity, place).unwrap());
            let unread = |at: u64| Trigger::always(Sick::ReadError).within(at..at + BLOCK as u64);
            let both = Faults::none().when(unread(table)).when(unread(mirror));
            let one = |at| Faults::none().when(unread(at));
            for (faults, rot, which) in [
                (both, None, "both copies unread"),
                (one(table), Some(mirror), "table unread, mirror rotten"),
                (one(mirror), Some(table), "mirror unread, table rotten"),
            ] {
                let what = format!("bucket {bucket}, {parity}: {which}");
                all.push(Illness { faults, rot, what });
            }
        }
    }
    all
}

/// Reads that fail in a row.
fn rows(first: u64) -> impl Iterator<Item = Illness> {
    [1, 2, 3, 5, 20].into_iter().map(move |times| Illness {
        faults: Faults::none().when(Trigger::nth(Sick::ReadError, first).times(times)),
        rot: None,
        what: format!("{times} reads from the {first}. on"),
    })
}

impl Illness {
    fn strike(&self, disk: &Disk) {
        if let Some(at) = self.rot {
            let mut page = [0; BLOCK];
            disk.read(at, &mut page);
            // What was never written has nothing to rot.
            if page != [0; BLOCK] {
                page[100] ^= 1;
                disk.poke(at, &page);
            }
        }
        disk.set_faults(self.faults.clone());
    }
}

/// Every row of failing reads until none is reached any more, then every image of the table; on a copy of the disk each.
fn with_every_illness(disk: &Disk, mut run: impl FnMut(&Disk, &Illness)) -> u64 {
    let mut runs = 0;
    for first in 1.. {
        let mut reached = false;
        for illness in rows(first) {
            let copy = disk.copy();
            illness.strike(&copy);
            run(&copy, &illness);
            reached |= copy.faults_injected().total() > disk.faults_injected().total();
            runs += 1;
        }
        if !reached {
            break;
        }
    }
    for illness in lost_images(disk) {
        let copy = disk.copy();
        illness.strike(&copy);
        run(&copy, &illness);
        runs += 1;
    }
    runs
}

/// Whatever an open that succeeded beside failing reads lets its users do.
fn use_it(core: &mut Core, told: &mut Told) {
    let made = core.create(ME, ME.uid, "new", &CreateOptions::of_size(BLOCK as u64));
    told.hear(made, None, Some(("new", 0)));
    told.hear(core.delete(ME, ME.uid, "s1"), Some("s1"), None);
    told.hear(core.rename(ME, ME.uid, "s2", "other"), Some("s2"), Some(("other", 0)));
}

#[test]
fn an_open_after_a_crash_buries_nothing_that_it_could_not_read() {
    for clean in [false, true] {
        let (disk, told) = volume(clean);
        let (mut failed, mut opened) = (0, 0);
        let runs = with_every_illness(&disk, |disk, illness| {
            let mut told = told.clone();
            match try_open(disk) {
                Ok(mut core) => {
                    opened += 1;
                    use_it(&mut core, &mut told);
                }
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.code(), "EIO", "{}: {error}", illness.what);
                }
            }
            assert_all_there(disk, &told, &format!("clean {clean}, {}", illness.what));
        });
        println!("clean {clean}: {runs} illnesses, {failed} opens failed");
        assert!(runs > 100 && opened > 0 && (clean || failed > 0));
    }
}

/// What an operation does to a volume, and tells.
type Operate = fn(&mut Core, &mut Told);

#[test]
fn no_operation_goes_on_from_an_image_that_may_be_old() {
    let operations: [(&str, Operate); 5] = [
        ("create", |core, told| {
            let made = core.create(ME, ME.uid, "new", &CreateOptions::of_size(BLOCK as u64));
            told.hear(made, None, Some(("new", 0)));
        }),
        ("delete", |core, told| {
            for number in 0..9 {
                let name = format!("s{number}");
                told.hear(core.delete(ME, ME.uid, &name), Some(&name), None);
            }
        }),
        ("rename", |core, told| {
            for number in 0..4 {
                let (old, new) = (format!("s{number}"), format!("r{number}"));
                told.hear(core.rename(ME, ME.uid, &old, &new), Some(&old), Some((&new, 0)));
            }
        }),
        ("resize", |core, told| {
            for number in 0..9 {
                let name = format!("s{number}");
                let grown = core.resize(ME, ME.uid, &name, &ResizeOptions::to_size(2 * BLOCK as u64));
                // A segment of whatever size is the segment.
                let byte = told.there.get(&name).copied().unwrap_or(0);
                let _ = grown;
                told.there.insert(name, byte);
            }
        }),
        ("create many", |core, told| {
            for number in 0..6 {
                let name = format!("n{number}");
                let made = core.create(ME, ME.uid, &name, &CreateOptions::of_size(BLOCK as u64));
                told.hear(made, None, Some((&name, 0)));
            }
        }),
    ];
    let (disk, told) = volume(true);
    for (name, operate) in operations {
        let mut refused = 0;
        // Only the images: an open must not meet the failures.
        let mut illnesses = lost_images(&disk);
        illnesses.extend((1..40).flat_map(rows));
        for illness in illnesses {
            let disk = disk.copy();
            let mut told = told.clone();
            let mut core = open_simulated(&disk);
            illness.strike(&disk);
            let before = told.maybe.len();
            operate(&mut core, &mut told);
            refused += usize::from(told.maybe.len() > before);
            drop(core);
            assert_all_there(&disk, &told, &format!("{name}, {}", illness.what));
        }
        assert!(
            refused > 0 || name == "resize",
            "{name}: nothing failed, nothing is shown"
        );
    }
}

#[test]
fn a_repair_repairs_nothing_that_it_could_not_read() {
    for clean in [false, true] {
        let (disk, told) = volume(clean);
        let mut failed = 0;
        let runs = with_every_illness(&disk, |disk, illness| {
            let repaired = check(disk, true);
            if let Err(error) = &repaired {
                failed += 1;
                assert_eq!(error.code(), "EIO", "{}: {error}", illness.what);
            }
            assert_all_there(disk, &told, &format!("clean {clean}, repair, {}", illness.what));
        });
        println!("clean {clean}: {runs} illnesses, {failed} repairs failed");
        assert!(failed > 0 && failed < runs);
    }
}

/// Random read errors all through a repair, and again through the next: sooner or later each pair of reads fails together.
#[test]
fn repairs_that_fail_again_and_again_lose_nothing() {
    for clean in [false, true] {
        let (disk, told) = volume(clean);
        let mut failed = 0;
        for seed in 0..60 {
            let disk = disk.copy();
            for round in 0..4 {
                disk.set_faults(Faults::none().chance(Sick::ReadError, 0.1 + 0.1 * f64::from(round)));
                let mut engine = Engine::simulated(Sim::new(100 + seed).unwrap(), &config()).unwrap();
                failed += u32::from(check_on(&mut engine, &File::simulated(&disk, "disk"), true).is_err());
            }
            assert_all_there(&disk, &told, &format!("clean {clean}, seed {seed}"));
        }
        assert!(failed > 60, "{failed}");
    }
}

/// One bucket that nobody can read: the volume serves the others, and says where and why it does not serve this one.
#[test]
fn a_bucket_that_cannot_be_read_is_refused_and_the_others_serve() {
    let (disk, told) = volume(true);
    let mut core = open_simulated(&disk);
    let (mut served, mut refused) = (0, 0);
    for illness in lost_images(&disk).into_iter().filter(|illness| illness.rot.is_none()) {
        disk.set_faults(illness.faults.clone());
        for name in told.there.keys() {
            match core.open_segment(ME, ME.uid, name, baio_storage::Access::Write) {
                Ok((handle, _)) => {
                    served += 1;
                    core.close_handle(handle);
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.code(), "EIO", "{error}");
                    let text = error.to_string();
                    assert!(text.contains("at byte ") && text.contains("dmesg"), "{text}");
                    assert!(!text.contains("format") && !text.contains("--repair"), "{text}");
                }
            }
        }
    }
    assert!(served > refused && refused > 0, "{served} served, {refused} refused");
    disk.set_faults(Faults::none());
    core.close().unwrap();
    assert_all_there(&disk, &told, "after it");
}

/// Reads fail at random, on a device that is sound else: an open finds all or says the device's error, a check judges nothing that it
/// could not read, and a repair refuses.
#[test]
fn reads_that_fail_at_random_are_never_a_judgement() {
    let (mut opened, mut told, mut repaired, mut refused) = (0, 0, 0, 0);
    for (clean, round) in [true, false]
        .into_iter()
        .flat_map(|clean| (0..60).map(move |round| (clean, round)))
    {
        let (disk, there) = volume(clean);
        let what = format!("clean {clean}, round {round}");
        let chance = [0.02, 0.1, 0.4][round % 3];
        disk.set_faults(Faults::none().chance(Sick::ReadError, chance));
        let engine = Engine::simulated(Sim::new(round as u64).unwrap(), &config()).unwrap();
        let file = File::simulated(&disk, "disk");
        match round % 4 {
            0 | 1 => match Core::open_on(engine, &file, &config()) {
                Ok(_) => opened += 1,
                Err(error) => {
                    assert_eq!(error.code(), "EIO", "{what}: {error}");
                    told += 1;
                }
            },
            kind => {
                let mut engine = engine;
                let checked = check_on(&mut engine, &file, kind == 2);
                let has_failed = disk.faults_injected().total() > 0;
                match checked {
                    Ok(report) if kind == 2 => {
                        assert!(!has_failed, "{what}: repaired while reads fail: {:?}", report.problems);
                        repaired += 1;
                    }
                    Ok(report) => {
                        let is_unread = |one: &Problem| one.repair == Repair::Unread && one.what.contains("EIO");
                        assert!(report.problems.iter().all(is_unread), "{what}: {:?}", report.problems);
                    }
                    Err(error) => {
                        assert_eq!(error.code(), "EIO", "{what}: {error}");
                        refused += u64::from(kind == 2);
                    }
                }
            }
        }
        assert_all_there(&disk, &there, &what);
    }
    assert!(
        opened > 5 && told > 5 && refused > 5,
        "{opened} {told} {repaired} {refused}"
    );
}
