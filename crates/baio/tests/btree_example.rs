//! The example of a B-tree on the buffer pool does what it says: what a transaction has committed is there after a power cut at any
//! moment, what was not is not, and a transaction that fails leaves nothing behind.

#[path = "../examples/btree.rs"]
#[allow(dead_code, reason = "its command line is run as a program")]
mod btree;

use std::collections::BTreeMap;

use baio::{Access, CacheConfig, Config, Core, CreateOptions, Format, Identity};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use btree::{PAGE, Tree};

const PAGES: u64 = 400;
const LOG_PAGES: u64 = 150;

/// A core on two simulated disks, with a cache of a few pages.
fn open(pages: &Disk, log: &Disk) -> Tree {
    let config = Config {
        slots: 64,
        arena_bytes: 4 << 20,
        ..Config::default()
    };
    // The volume is not used: the disks stand beside it.
    let volume = Disk::new(1 << 20);
    let format = Format {
        size_bytes: Some(1 << 20),
        ..Format::default()
    };
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
    baio_storage::format_simulated(&mut engine, &File::simulated(&volume, "volume"), &format).unwrap();
    let engine = Engine::simulated(Sim::new(2).unwrap(), &config).unwrap();
    let mut core = Core::open_simulated(engine, &File::simulated(&volume, "volume"), &config).unwrap();
    core.use_cache(&CacheConfig {
        bytes: 24 * PAGE,
        ..CacheConfig::default()
    })
    .unwrap();
    let pages = core.add_file(File::simulated(pages, "tree"), Access::Write);
    let log = core.add_file(File::simulated(log, "log"), Access::Write);
    Tree::open(core, pages, log).unwrap()
}

fn check(tree: &mut Tree, model: &BTreeMap<u64, u64>, keys: impl Iterator<Item = u64>) {
    for key in keys {
        let found = tree.transact(|transaction| transaction.get(key)).unwrap();
        assert_eq!(found, model.get(&key).copied(), "key {key}");
    }
}

#[test]
fn what_was_committed_survives_power_cuts_and_nothing_else_does() {
    let (mut pages, mut log) = (Disk::new(PAGES * PAGE as u64), Disk::new(LOG_PAGES * PAGE as u64));
    let mut model = BTreeMap::new();
    let mut random = 7_u64;
    let mut next = |end: u64| {
        random = random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % end
    };
    let (mut evictions, mut flushes) = (0, 0);
    for round in 0..20 {
        let mut tree = open(&pages, &log);
        let check_from = next(20_000);
        check(&mut tree, &model, check_from..check_from + 300);
        for _ in 0..next(150) {
            let changes: Vec<(u64, u64)> = (0..1 + next(6)).map(|_| (next(20_000), next(1 << 40))).collect();
            let fails = next(5) == 0;
            let done = tree.transact(|transaction| {
                for (key, value) in &changes {
                    transaction.put(*key, *value)?;
                }
                if fails { Err("on purpose".into()) } else { Ok(()) }
            });
            assert_eq!(done.is_err(), fails, "{done:?}");
            if !fails {
                model.extend(changes.iter().copied());
            }
            let (key, _) = changes[0];
            check(&mut tree, &model, key..key + 2);
        }
        let stats = tree.core.cache_stats().unwrap();
        evictions += stats.evictions;
        flushes += stats.flushes;
        assert_eq!(stats.spurious_wakeups, 0);
        if round % 5 == 4 {
            tree.core.close().unwrap();
        }
        // Else the machine stops here: in the middle of a transaction, for what it had written was in memory.
        (pages, log) = (pages.power_cut(round), log.power_cut(round));
    }
    let mut tree = open(&pages, &log);
    check(&mut tree, &model, 0..20_000);
    assert!(
        model.len() > 2000 && evictions > 50 && flushes > 20,
        "{} {evictions} {flushes}",
        model.len()
    );
}

#[test]
fn a_power_cut_in_the_middle_of_a_transaction_undoes_it() {
    let (pages, log) = (Disk::new(PAGES * PAGE as u64), Disk::new(LOG_PAGES * PAGE as u64));
    let mut tree = open(&pages, &log);
    tree.transact(|transaction| (0..1000).try_for_each(|key| transaction.put(key, 1)))
        .unwrap();
    let mut cut = None;
    tree.transact(|transaction| {
        (0..1000).try_for_each(|key| transaction.put(key, 2))?;
        cut = Some((pages.power_cut(3), log.power_cut(3)));
        Ok(())
    })
    .unwrap();
    let (before_pages, before_log) = cut.unwrap();
    for (pages, log, value) in [(before_pages, before_log, 1), (pages.power_cut(4), log.power_cut(4), 2)] {
        let mut tree = open(&pages, &log);
        let model = (0..1000).map(|key| (key, value)).collect();
        check(&mut tree, &model, 0..1001);
    }
}

#[test]
fn the_program_puts_and_gets_on_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = Format {
        size_bytes: Some(16 << 20),
        ..Format::default()
    };
    baio::format(&path, &format).unwrap();
    let mut core = Core::open(&path, &Config::default()).unwrap();
    let me = Identity::effective();
    for name in ["tree", "log"] {
        core.create(me, me.uid, name, &CreateOptions::of_size(1 << 20)).unwrap();
    }
    core.close().unwrap();
    let run = |arguments: &[&str]| {
        let volume = path.to_str().unwrap().to_owned();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        btree::run(&std::iter::once(volume).chain(arguments).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(run(&["5"]), None);
    assert_eq!(run(&["5", "55"]), None);
    assert_eq!(run(&["6", "66"]), None);
    assert_eq!(run(&["5"]), Some(55));
    assert_eq!(run(&["6"]), Some(66));
}
