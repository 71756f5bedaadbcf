//! The example of a B-tree on the buffer pool does what it says: what a transaction has committed is there after a power cut at any
//! moment, what was not is not, and a transaction that fails leaves nothing behind.

#[path = "../../examples/btree.rs"]
#[allow(dead_code, reason = "its command line is run as a program")]
mod btree;

use std::collections::BTreeMap;
use std::sync::Arc;

use baio::{Access, CacheOptions, Core, CreateOptions, EngineOptions, FormatOptions, Link, LinkOptions, PAGE, Remote};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use btree::Tree;

const PAGES: u64 = 400;
const LOG_PAGES: u64 = 150;

fn config() -> EngineOptions {
    EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

/// An empty volume with the two segments.
fn formatted() -> Disk {
    let disk = Disk::new(4 << 20);
    let file = File::simulated(&disk, "volume");
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config()).unwrap();
    baio_storage::format_on(&mut engine, &file, &FormatOptions::default()).unwrap();
    let engine = Engine::simulated(Sim::new(2).unwrap(), &config()).unwrap();
    let core = Core::open_on(engine, &file, &config()).unwrap();
    let link = baio::Local::around(core, baio::Identity::effective());
    for (name, pages) in [("tree", PAGES), ("log", LOG_PAGES)] {
        let size = CreateOptions::of_size(pages * PAGE as u64);
        link.create_segment(name, &size).wait().unwrap();
    }
    link.close().unwrap();
    disk
}

/// The tree in a service on a simulated disk, with a cache of a few pages.
fn open(disk: &Disk) -> (Remote, Tree) {
    let disk = disk.clone();
    let make = move || {
        let engine = Engine::simulated(Sim::new(2).unwrap(), &config()).unwrap();
        let mut core = Core::open_on(engine, &File::simulated(&disk, "volume"), &config())?;
        core.use_cache(&CacheOptions {
            bytes: 24 * PAGE,
            ..CacheOptions::default()
        })?;
        Ok(core)
    };
    let options = LinkOptions {
        engine: config(),
        ..LinkOptions::default()
    };
    let link = Remote::around(make, &options).unwrap();
    let tree = link.block_on(async {
        let pages = link.open_segment("tree", Access::Write).await.unwrap();
        let log = link.open_segment("log", Access::Write).await.unwrap();
        Tree::open(pages, log).await.unwrap()
    });
    (link.clone(), tree.unwrap())
}

async fn check(tree: &Tree, model: &BTreeMap<u64, u64>, keys: impl Iterator<Item = u64>) {
    for key in keys {
        let found = tree.get(key).await.unwrap();
        assert_eq!(found, model.get(&key).copied(), "key {key}");
    }
}

#[test]
fn what_was_committed_survives_power_cuts_and_nothing_else_does() {
    let mut disk = formatted();
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
        let (link, tree) = open(&disk);
        let work = async {
            let check_from = next(20_000);
            check(&tree, &model, check_from..check_from + 300).await;
            for _ in 0..next(150) {
                let changes: Vec<(u64, u64)> = (0..1 + next(6)).map(|_| (next(20_000), next(1 << 40))).collect();
                let fails = next(5) == 0;
                let mine = changes.clone();
                let done = tree.transact(Arc::new(move |transaction| {
                    for (key, value) in &mine {
                        transaction.put(*key, *value)?;
                    }
                    if fails { Err("on purpose".into()) } else { Ok(()) }
                }));
                let done = done.await;
                assert_eq!(done.is_err(), fails, "{done:?}");
                if !fails {
                    model.extend(changes.iter().copied());
                }
                let (key, _) = changes[0];
                check(&tree, &model, key..key + 2).await;
            }
        };
        link.block_on(work).unwrap();
        let stats = link.cache_stats().wait().unwrap().unwrap();
        evictions += stats.evictions;
        flushes += stats.flushes;
        assert_eq!(stats.spurious_wakeups, 0);
        assert_eq!(stats.frames_gated, 0, "pages hear of the log by themselves");
        drop(tree);
        if round % 5 == 4 {
            link.close().unwrap();
        }
        // Else the machine stops here: in the middle of a transaction, for what it had written was in memory.
        disk = disk.power_cut(round);
    }
    let (link, tree) = open(&disk);
    link.block_on(check(&tree, &model, 0..20_000)).unwrap();
    assert!(
        model.len() > 2000 && evictions > 50 && flushes > 20,
        "{} {evictions} {flushes}",
        model.len()
    );
}

#[test]
fn a_power_cut_in_the_middle_of_a_transaction_undoes_it() {
    let disk = formatted();
    let (link, tree) = open(&disk);
    let put = |value| {
        move |transaction: &mut btree::Transaction<'_, '_>| (0..1000).try_for_each(|key| transaction.put(key, value))
    };
    link.block_on(tree.transact(Arc::new(put(1)))).unwrap().unwrap();
    let (running, cut) = (disk.clone(), Arc::new(std::sync::Mutex::new(None)));
    let then = Arc::clone(&cut);
    let second = tree.transact(Arc::new(move |transaction| {
        put(2)(transaction)?;
        *then.lock().unwrap() = Some(running.power_cut(3));
        Ok(())
    }));
    link.block_on(second).unwrap().unwrap();
    let before = cut.lock().unwrap().take().unwrap();
    for (disk, value) in [(before, 1), (disk.power_cut(4), 2)] {
        let (link, tree) = open(&disk);
        let model = (0..1000).map(|key| (key, value)).collect();
        link.block_on(check(&tree, &model, 0..1001)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_tasks_use_it_at_once() {
    const KEYS: u64 = 200;
    let disk = formatted();
    let (_link, tree) = open(&disk);
    let tree = Arc::new(tree);
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let tree = Arc::clone(&tree);
            tokio::spawn(async move {
                for key in (0..KEYS).map(|nth| nth * 8 + task) {
                    // Each moves one from a common pair to its own: nobody ever sees another sum.
                    let taken = tree.transact(Arc::new(move |transaction| {
                        let left = transaction.get(u64::MAX - 1)?.unwrap_or(8 * KEYS);
                        transaction.put(u64::MAX - 1, left - 1)?;
                        transaction.put(key, left)?;
                        Ok(left)
                    }));
                    let taken = taken.await.unwrap();
                    assert_eq!(tree.get(key).await.unwrap(), Some(taken));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(tree.get(u64::MAX - 1).await.unwrap(), Some(0));
    let mut taken = Vec::new();
    for key in 0..8 * KEYS {
        taken.push(tree.get(key).await.unwrap().unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=8 * KEYS).collect::<Vec<_>>(), "each took another");
}

#[test]
fn the_program_puts_and_gets_on_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = FormatOptions {
        size_bytes: Some(16 << 20),
        ..FormatOptions::default()
    };
    baio::format(&path, &format).unwrap();
    let link = Remote::open(&path).unwrap();
    for name in ["tree", "log"] {
        link.create_segment(name, &CreateOptions::of_size(1 << 20))
            .wait()
            .unwrap();
    }
    link.close().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let run = |key, value| {
        runtime
            .block_on(btree::run(path.to_str().unwrap(), key, value))
            .unwrap()
    };
    assert_eq!(run(5, None), None);
    assert_eq!(run(5, Some(55)), None);
    assert_eq!(run(6, Some(66)), None);
    assert_eq!(run(5, None), Some(55));
    assert_eq!(run(6, None), Some(66));
}
