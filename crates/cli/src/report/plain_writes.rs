//! Plain writes through our own cache with one sync at their end, against ext4 with one fsync and as much memory for its cache
//! as ours has: what write-back costs, from a set that fits easily to one four times as large as the cache.
//!
//! The time to the end of the sync counts on both sides. A block that is written again while it is in memory must not reach the
//! device twice: the set that fits shows it.

use crate::failure::Failure;
use crate::measure::fio::{self, Amount, Engine};
use crate::measure::median;
use crate::measure::stress::Run;
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::{settle, written_file};
use crate::report::memory_cgroup::MemoryCgroup;
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;
const PAGE: u64 = 4096;

/// What fio needs for itself, on top of the cache; generously, for it counts for the peer.
const FIOS_OWN: u64 = 32 << 20;

const MARKS: &[Mark] = &[Mark::at_least(Figure::Requests, 0.97)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (total, rounds) = if setting.quick {
        (setting.working_set / 2, 1)
    } else {
        (setting.working_set, 5)
    };
    let cache = total / 4;
    let file = setting.dir.join("plain-writes.file");
    written_file(&file, total)?;
    let cgroup = MemoryCgroup::make(cache + FIOS_OWN);
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "{} MiB of 4 KiB writes at random places of a file that is there, then one sync, whose time counts; our cache has {} \
         MiB, the peer a memory cgroup of as much and {} MiB for itself; {rounds} rounds, median of the ratios",
        total >> 20,
        cache >> 20,
        FIOS_OWN >> 20
    ));
    for (set, name) in [
        (cache / 4, "a quarter of"),
        (cache, "as much as"),
        (cache * 4, "four times"),
    ] {
        let settled = |side: Side| {
            let file = file.clone();
            side.after(move || settle(&file))
        };
        let [cache_words, set_words, total_words] = [cache, set, total].map(|bytes| bytes.to_string());
        let ours = Run::untimed(&file.display().to_string(), "randwrite", DEPTH).with(&[
            "--mode",
            "cached",
            "--cache",
            &cache_words,
            "--size",
            &set_words,
            "--io-size",
            &total_words,
            "--end-sync",
        ]);
        let ours = settled(Side::stress(format!("a set of {name} the cache"), ours).synced());
        let kernels = Side::fio(fio::Job {
            amount: Amount::Bytes(total),
            direct: false,
            end_fsync: true,
            cgroup: cgroup.as_ref().ok().map(|cgroup| cgroup.path().to_owned()),
            ..fio::Job::once(Engine::Psync, fio::Rw::RandomWrite, file.clone(), set, 1)
        });
        let kernels = match &cgroup {
            Ok(_) => settled(kernels),
            Err(reason) => {
                let reason = reason.clone();
                kernels.after(move || Err(reason.clone()))
            }
        };
        let comparison = Comparison {
            ours,
            peers: vec![Peer::new(kernels, MARKS)],
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
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&file);
    Ok(Section::of(findings))
}
