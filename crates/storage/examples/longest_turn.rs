//! How long one turn of a core holds its thread, in processor time, while an operation is under way: a create and a resize of a large
//! segment, a list of many, a defragmentation, a check.
//!
//! ```sh
//! cargo run -p baio-storage --example longest_turn -- /tmp/longest.vol 64 100
//! ```
//!
//! It takes `PATH [MIB] [SEGMENTS] [BACKEND]`; to measure, add `--release`.
//! PATH is made, and deleted at the end: twice so many MiB, for the segment and for its growth.

use std::path::Path;
use std::time::Duration;

use baio_engine::{Choice, EngineOptions, Wait};
use baio_storage::{Answer, Core, CreateOptions, FormatOptions, Identity, OperationId, ResizeOptions, Zeroing};

const ME: Identity = Identity::new(0, 0);
/// Creates under way at a time while the volume is filled.
const UNDER_WAY: usize = 32;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: longest_turn PATH [MIB] [SEGMENTS] [BACKEND]")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (mib, segments) = (number(1024)?, number(1000)?);
    let backend = arguments.next().map_or(Ok(Choice::Auto), |word| word.parse())?;
    let path = Path::new(&path);
    let done = measure(path, (mib << 20, segments), backend);
    std::fs::remove_file(path)?;
    done
}

fn measure(path: &Path, (bytes, segments): (u64, u64), backend: Choice) -> Result<(), Failure> {
    let format = FormatOptions {
        segments: Some(segments + 100),
        ..FormatOptions::of_size(bytes * 2 + segments * 3 * 8192 + (1 << 30))
    };
    Core::format(path, &format)?;
    let config = EngineOptions {
        backend,
        ..EngineOptions::default()
    };
    let mut core = Core::open(path, &config)?;
    let lazy = CreateOptions {
        zero: Zeroing::Lazy,
        ..CreateOptions::of_size(bytes)
    };
    timed(&mut core, "create, zeroes written", |core| {
        core.begin_create(ME, 0, "large", &CreateOptions::of_size(bytes))
    })?;
    timed(&mut core, "resize to twice that", |core| {
        core.begin_resize(ME, 0, "large", &ResizeOptions::to_size(bytes * 2))
    })?;
    timed(&mut core, "resize to a tenth", |core| {
        core.begin_resize(ME, 0, "large", &ResizeOptions::to_size(bytes / 10))
    })?;
    timed(&mut core, "create, the device zeroes", |core| {
        core.begin_create(ME, 0, "lazy", &lazy)
    })?;
    timed(&mut core, "delete", |core| core.begin_delete(ME, 0, "lazy"))?;
    fill(&mut core, segments)?;
    let answer = timed(&mut core, "list", |core| core.begin_list(ME))?;
    if let Answer::Segments { infos: listed, .. } = answer {
        println!("  {} segments", listed.len());
    }
    if let Answer::Frozen { freeze: id } = timed(&mut core, "freeze", |core| core.begin_freeze(ME))? {
        core.thaw(id);
    }
    timed(&mut core, "check", |core| core.begin_check(ME))?;
    for nth in 0..20 {
        timed_quietly(&mut core, |core| core.begin_delete(ME, 0, &format!("s{nth}")))?;
    }
    timed(&mut core, "defragmentation", |core| core.begin_defrag(ME))?;
    core.close()?;
    Ok(())
}

fn fill(core: &mut Core, segments: u64) -> Result<(), Failure> {
    let mut under_way: Vec<OperationId> = Vec::new();
    let mut next = 0;
    while next < segments || !under_way.is_empty() {
        while next < segments && under_way.len() < UNDER_WAY {
            let name = format!("s{next}");
            under_way.push(core.begin_create(ME, 0, &name, &CreateOptions::of_size(4096))?);
            next += 1;
        }
        core.turn(Wait::one())?;
        let mut left = Vec::new();
        for id in under_way {
            match core.take_answer(&id) {
                Some(answer) => drop(answer?),
                None => left.push(id),
            }
        }
        under_way = left;
    }
    Ok(())
}

/// Runs an operation to its end, and says how long its beginning and its longest turn have held the thread.
fn timed(
    core: &mut Core,
    what: &str,
    begin: impl FnOnce(&mut Core) -> baio_storage::Result<OperationId>,
) -> Result<Answer, Failure> {
    let (answer, turns, longest, total) = run(core, begin)?;
    println!("{what:28} {turns:7} turns, the longest {longest:>12?}, all {total:>12?}");
    Ok(answer)
}

fn timed_quietly(
    core: &mut Core,
    begin: impl FnOnce(&mut Core) -> baio_storage::Result<OperationId>,
) -> Result<(), Failure> {
    run(core, begin).map(drop)
}

fn run(
    core: &mut Core,
    begin: impl FnOnce(&mut Core) -> baio_storage::Result<OperationId>,
) -> Result<(Answer, u64, Duration, Duration), Failure> {
    let from = used();
    let id = begin(core)?;
    let mut longest = used() - from;
    for turns in 1.. {
        let begun = used();
        core.turn(Wait::one())?;
        let answer = core.take_answer(&id);
        longest = longest.max(used() - begun);
        if let Some(answer) = answer {
            return Ok((answer?, turns, longest, used() - from));
        }
    }
    unreachable!("it counts for longer than anybody waits")
}

/// Processor time of this thread.
fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
