//! A policy of the program's own, on the page cache's buffer pool, against LRU on the same and against the kernel's cache in a
//! memory cgroup of the same size: a cyclic scan over somewhat more than the cache, and scattered blocks that the program
//! knows beforehand (Cao, Felten, Karlin and Li 1996, which seed 004 refers to).

use baio_console::failure::Failure;

use crate::figures::worker;
use crate::figures::worker::own_policy::{Job, Pattern, Who};
use crate::report::Setting;
use crate::report::comparison::{Findings, Peer, Side, ratio};
use crate::report::marks::{Bound, Figure};
use crate::report::memory_cgroup::MemoryCgroup;
use crate::report::places::Site;

/// What the process on the kernel's side needs for itself.
const ITS_OWN: u64 = 4 << 20;

/// How often each page is added up.
const WORK: u32 = 1;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (cache, rounds) = setting.either((setting.working_set / 16, 1), (setting.working_set / 16, 3));
    let scan = cache / 4 * 5;
    let spread = cache * 4;
    let file = Site::file(setting, "own-policy", spread)?;
    let cgroup = MemoryCgroup::make(cache + ITS_OWN);
    findings.lines.push(format!(
        "the cache has {} MiB, the kernel's as much and {} MiB for the process; what is read is added up; {rounds} rounds",
        cache >> 20,
        ITS_OWN >> 20
    ));
    let blocks = spread / 4096 / 4;
    let patterns = [
        (
            format!("five scans of {} MiB, 64 KiB at a time", scan >> 20),
            scan,
            Pattern::Cyclic { passes: 5 },
        ),
        (
            format!("{blocks} scattered blocks of {} MiB", spread >> 20),
            spread,
            Pattern::Scattered { blocks },
        ),
    ];
    for (name, bytes, pattern) in patterns {
        let side = |name: String, who: Who| {
            let job = worker::Job::OwnPolicy(Job {
                path: file.path.clone(),
                bytes,
                cache_bytes: cache,
                who,
                pattern,
                work: WORK,
            });
            Side::worker(name, job).after(file.settled())
        };
        let joined = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
        let kernels = side(
            "the kernel's cache".into(),
            Who::Kernel {
                cgroup: joined.clone().unwrap_or_default(),
            },
        );
        let kernels = kernels.unless(joined.err());
        let runs = findings.compare(
            rounds,
            side(format!("{name}: a policy of its own"), Who::Own),
            vec![Peer::new(side("LRU".into(), Who::Lru), []), Peer::new(kernels, [])],
        )?;
        // All do the same work, so times are as rates the other way round.
        let better = runs
            .best()
            .map_or(0.0, |(_, best)| ratio(Figure::Requests, best, &runs.ours));
        findings.count(
            "time, of the better one's",
            "elapsed",
            better,
            Some(Bound::AtMost(0.75)),
        );
    }
    Ok(())
}
