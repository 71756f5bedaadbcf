//! Plain writes through our own cache with one sync at their end, against ext4 with one fsync and as much memory for its cache
//! as ours has: what write-back costs, from a set that fits easily to one four times as large as the cache.
//!
//! The time to the end of the sync counts on both sides. A block that is written again while it is in memory must not reach the
//! device twice: the set that fits shows it.

use std::path::Path;

use baio_console::failure::Failure;

use crate::figures::fio::{self, Amount, Engine};
use crate::figures::median;
use crate::figures::stress::Run;
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::settle;
use crate::report::memory_cgroup::MemoryCgroup;
use crate::report::places::{Place, Places};
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;
const PAGE: u64 = 4096;

/// What fio needs for itself, on top of the cache; generously, for it counts for the peer.
const FIOS_OWN: u64 = 32 << 20;

const MARKS: &[Mark] = &[Mark::at_least(Figure::Requests, 0.97)];

/// Sizes, in bytes.
struct Sizes {
    cache: u64,
    /// What is written over and over.
    set: u64,
    /// What each run writes.
    total: u64,
}

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (total, rounds) = if setting.quick {
        (setting.working_set / 2, 1)
    } else {
        (setting.working_set, 5)
    };
    let cache = total / 4;
    let places = Places::make(setting, "plain-writes", total)?;
    let cgroup = MemoryCgroup::make(cache + FIOS_OWN);
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "{} MiB of 4 KiB writes at random places of a file or a segment that is there, then one sync, whose time counts; our \
         cache has {} MiB, the peer a memory cgroup of as much and {} MiB for itself; {rounds} rounds, median of the ratios",
        total >> 20,
        cache >> 20,
        FIOS_OWN >> 20
    ));
    for (set, name) in [
        (cache / 4, "a quarter of"),
        (cache, "as much as"),
        (cache * 4, "four times"),
    ] {
        let sizes = Sizes { cache, set, total };
        // The quick report has the set that fits on the segment too.
        for place in places.chosen(!setting.quick || set < cache) {
            let comparison = Comparison {
                ours: ours(place, &sizes, name),
                peers: vec![Peer::new(kernels(places.file(), &sizes, &cgroup), MARKS)],
            };
            let runs = findings.compare_for(&comparison, rounds)?;
            let written: Vec<f64> = (runs.ours.iter())
                .map(|run| run.cache.map_or(f64::NAN, |cache| cache.pages_written as f64))
                .collect();
            let pages = set / PAGE;
            // A block rewritten in memory within a set that fits reaches the device once.
            let bound = (set < cache).then_some(Bound::AtMost(1.0));
            findings.count(
                "pages reached the device for each page of the set",
                "pages_written_per_page",
                median(&written) / pages as f64,
                bound,
            );
        }
    }
    Ok(Section::of(findings))
}

fn ours(place: &Place, sizes: &Sizes, name: &str) -> Side {
    let [cache, set, total] = [sizes.cache, sizes.set, sizes.total].map(|bytes| bytes.to_string());
    let run = Run::untimed(&place.target, "randwrite", DEPTH).with(&[
        "--mode",
        "cached",
        "--cache",
        &cache,
        "--size",
        &set,
        "--io-size",
        &total,
        "--end-sync",
    ]);
    let side = Side::stress(format!("{}, a set of {name} the cache", place.said), run);
    side.synced().after(place.settled())
}

fn kernels(file: &Path, sizes: &Sizes, cgroup: &Result<MemoryCgroup, String>) -> Side {
    let side = Side::fio(fio::Job {
        amount: Amount::Bytes(sizes.total),
        direct: false,
        end_fsync: true,
        cgroup: cgroup.as_ref().ok().map(|cgroup| cgroup.path().to_owned()),
        ..fio::Job::once(Engine::Psync, fio::Rw::RandomWrite, file.to_owned(), sizes.set, 1)
    });
    let file = file.to_owned();
    let missing = cgroup.as_ref().err().cloned();
    side.after(move || match &missing {
        None => settle(&file),
        Some(reason) => Err(reason.clone()),
    })
}
