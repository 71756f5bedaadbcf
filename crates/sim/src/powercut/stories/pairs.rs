//! The two examples that keep pairs: `kv`, whose only durability is a log, and `btree`, whose pages follow one. What `put`,
//! `delete` and a transaction acknowledged is there; a transaction is there as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use baio::{Access, CreateOptions, FormatOptions, Link, LinkOptions, Remote, Segment};
use baio_engine::sim::Random;

use super::{PLAIN_LOST, Seen, Story, count};
use crate::powercut::place::Place;
use crate::powercut::registers::{Found, Registers};
use crate::powercut::worker::{self, Failure, Worker};
use btree::Tree;
use kv::Store;

#[path = "../../../../baio/examples/btree.rs"]
#[allow(dead_code, reason = "its command line is run as a program")]
mod btree;
#[path = "../../../../baio/examples/kv.rs"]
#[allow(dead_code, reason = "its command line is run as a program")]
mod kv;

const THREADS: u64 = 4;
/// Of a thread.
const KEYS: u64 = 40;
/// The second key of a transaction is that of the first, and this.
const TWIN: u64 = 1 << 32;
const TABLE: u64 = 1;

fn format(place: &dyn Place, segments: &[(&str, u64)]) -> Result<Remote, Failure> {
    let format = FormatOptions {
        force: true,
        ..FormatOptions::default()
    };
    baio::format(place.device(), &format)?;
    let link = Remote::open(place.device())?;
    for (name, bytes) in segments {
        link.create_segment(name, &CreateOptions::of_size(*bytes)).wait()?;
    }
    Ok(link)
}

fn open(link: &Remote, name: &str) -> Result<Segment<Remote>, Failure> {
    Ok(link.open_segment(name, Access::Write).wait()?)
}

/// What both judge by.
#[derive(Debug, Default)]
struct Table {
    registers: Registers,
    keys: BTreeSet<u64>,
}

impl Table {
    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        let known = self.registers.hear(line);
        known.ok_or_else(|| format!("a line that says nothing: {line}"))?;
        let mut words = line.split(' ');
        if let (Some("w" | "x"), Some(key)) = (words.next(), words.nth(1)) {
            self.keys.insert(key.parse()?);
        }
        Ok(())
    }

    fn judge(&mut self, key: u64, value: u64, seen: &mut Seen) -> Result<(), Failure> {
        let may = self.registers.told(TABLE, key);
        count(seen, "pairs", 1);
        match self.registers.judge(TABLE, key, value) {
            Found::Right => {}
            Found::PlainLost => count(seen, PLAIN_LOST, 1),
            Found::Wrong => return Err(format!("key {key} has {value}, not {may}").into()),
        }
        Ok(())
    }
}

// The key-value store.

pub(super) fn work_on_kv(worker: &Worker) -> Result<(), Failure> {
    let link = Remote::open_with(worker.device(), &worker::options(&mut worker.random(99)))?;
    let store = Store::open(&open(&link, "kv")?)?;
    worker.in_threads(THREADS, |thread| {
        let mut random = worker.random(thread);
        loop {
            let key = thread * KEYS + random.below(KEYS);
            let version = worker.number();
            if random.percent(20) {
                worker.say(&format!("x {TABLE} {key} 1 {version}"));
                store.delete(&key.to_le_bytes())?;
            } else {
                worker.say(&format!("w {TABLE} {key} 1 {version}"));
                let value = version.to_le_bytes().repeat(1 + random.below(250) as usize);
                store.put(&key.to_le_bytes(), &value)?;
            }
            worker.wrote(version, true);
        }
    })
}

#[derive(Debug, Default)]
pub(super) struct KvStory(Table);

impl Story for KvStory {
    fn prepare(&mut self, place: &dyn Place, _: &mut Random) -> Result<(), Failure> {
        let link = format(place, &[("kv", 2 << 20)])?;
        drop(Store::open(&open(&link, "kv")?)?);
        link.close()?;
        Ok(())
    }

    fn first(&self) -> u64 {
        self.0.registers.last + 1
    }

    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        self.0.hear(line)
    }

    fn judge(&mut self, place: &mut dyn Place, random: &mut Random, seen: &mut Seen) -> Result<(), Failure> {
        let link = Remote::open_with(place.device(), &worker::options(random))?;
        let store = Store::open(&open(&link, "kv")?)?;
        for key in self.0.keys.clone() {
            let value = store.get(&key.to_le_bytes()).unwrap_or_default();
            let (words, _) = value.as_chunks::<8>();
            let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
            if words.iter().any(|word| u64::from_le_bytes(*word) != first) {
                return Err(format!("the value of key {key} is of two writes").into());
            }
            self.0.judge(key, first, seen)?;
        }
        self.0.registers.settle();
        drop(store);
        if random.percent(50) {
            link.close()?;
        }
        Ok(())
    }
}

// The B-tree.

fn options(random: &mut Random) -> LinkOptions {
    worker::options(random).with_cache(1 << 20)
}

fn tree(link: &Remote) -> Result<Tree, Failure> {
    let (pages, log) = (open(link, "tree")?, open(link, "log")?);
    link.block_on(Tree::open(pages, log))?
}

pub(super) fn work_on_btree(worker: &Worker) -> Result<(), Failure> {
    let link = Remote::open_with(worker.device(), &options(&mut worker.random(99)))?;
    let tree = tree(&link)?;
    worker.in_threads(THREADS, |thread| {
        let mut random = worker.random(thread);
        loop {
            let key = random.below(KEYS * 50) * THREADS + thread;
            let version = worker.number();
            worker.say(&format!("w {TABLE} {key} 1 {version}"));
            let put = tree.transact(Arc::new(move |run: &mut btree::Transaction<'_, '_>| {
                run.put(key, version)?;
                run.put(key + TWIN, version)
            }));
            link.block_on(put)??;
            worker.wrote(version, true);
        }
    })
}

#[derive(Debug, Default)]
pub(super) struct BtreeStory(Table);

impl Story for BtreeStory {
    fn prepare(&mut self, place: &dyn Place, _: &mut Random) -> Result<(), Failure> {
        format(place, &[("tree", 8 << 20), ("log", 2 << 20)])?.close()?;
        // The example makes its log when it finds none.
        let link = Remote::open_with(place.device(), &LinkOptions::default().with_cache(1 << 20))?;
        drop(tree(&link)?);
        link.close()?;
        Ok(())
    }

    fn first(&self) -> u64 {
        self.0.registers.last + 1
    }

    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        self.0.hear(line)
    }

    fn judge(&mut self, place: &mut dyn Place, random: &mut Random, seen: &mut Seen) -> Result<(), Failure> {
        let link = Remote::open_with(place.device(), &options(random))?;
        let tree = tree(&link)?;
        for key in self.0.keys.clone() {
            let [value, twin] = [key, key + TWIN].map(|key| link.block_on(tree.get(key)));
            let (value, twin) = (value??.unwrap_or(0), twin??.unwrap_or(0));
            if value != twin {
                return Err(format!("half a transaction: key {key} has {value}, and its twin {twin}").into());
            }
            self.0.judge(key, value, seen)?;
        }
        self.0.registers.settle();
        drop(tree);
        if random.percent(50) {
            link.close()?;
        }
        Ok(())
    }
}
