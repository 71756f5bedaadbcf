//! The experiments, each in a line.

use baio_console::failure::Failure;

use crate::report::findings::Findings;
use crate::report::setting::Setting;
use crate::report::target::Target;
use crate::report::{
    brokers, buffered_writes, drop_ins, log_appends, main_job, mixed_paths, one_queue, page_cleaners, pipelining,
    posted_writes, request_size, streaming, this_disk, versus, volume_scale,
};

/// An experiment: what it is called, when it runs, what runs it, and what it shows.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) when: When,
    pub(super) run: fn(&Setting, &mut Findings) -> Result<(), Failure>,
    pub(super) shows: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Also on what `--target` names: it needs nothing but a file to read.
    OnTarget,
    /// Only when it is asked for: it takes long, or much room.
    OnRequest,
}

/// What the experiments of a report work on.
pub(super) struct Work {
    pub(super) working_set: u64,
    /// Bytes that are carried, where a file is named.
    pub(super) input: Option<u64>,
    /// Of the volume that has many.
    pub(super) segments: u64,
    pub(super) only_reads: bool,
}

impl Experiment {
    /// Bytes that it may need at most at a time. What is only read needs next to none.
    pub(super) fn room(&self, work: &Work) -> u64 {
        // A volume beside a file, and what its metadata and a log take.
        let spare: u64 = 128 << 20;
        match self.name {
            _ if work.only_reads => 0,
            // It looks itself, and chooses less work where there is less room.
            "buffered-writes" => 0,
            "log-appends" => spare + (256 << 20),
            "segments" => spare.saturating_add(work.input.unwrap_or(spare)),
            "volume-scale" => volume_scale::room(work.segments).saturating_add(spare),
            _ => spare.saturating_add(work.working_set.saturating_mul(2)),
        }
    }

    /// What makes it need less room.
    pub(super) fn needs_less_by(&self) -> &'static str {
        match self.name {
            "segments" => "a smaller file by --input",
            "volume-scale" => "fewer --segments",
            "log-appends" => "free some space",
            _ => "a smaller --working-set",
        }
    }
}

/// One line an experiment.
macro_rules! experiments {
    ($($name:literal $when:ident $run:path: $shows:literal)*) => {
        &[$(Experiment { name: $name, when: When::$when, run: $run, shows: $shows },)*]
    };
}

pub(super) const EXPERIMENTS: &[Experiment] = experiments! {
    "disk" OnTarget this_disk::run: "the disk alone: random and sequential reads, durable writes, reads from baio's cache; and advice"
    "segments" Always main_job::run: "a file is copied into a segment and back; a second user is refused access to it"
    "mixed-paths" Always mixed_paths::run: "direct and cached requests on the same data: does each read return what was written last?"
    "random-read" OnTarget versus::random_read: "4 KiB random direct reads of a file and of a segment, by each backend of baio, against fio"
    "random-write" Always versus::random_write:
        "4 KiB random direct writes, 64 in flight, to one file: against eight files, and against fio"
    "cached-reads" OnTarget versus::cached_reads:
        "random reads through baio's cache, empty at first: against the kernel's cache, and against direct reads"
    "sequential-reads" OnTarget versus::sequential_reads:
        "sequential reads through baio's cache, one or 64 in flight: against the kernel's cache, and direct reads"
    "cache-hits" Always versus::cache_hits: "4 KiB reads of what is in baio's cache, against pread of what is in the kernel's"
    "durable-writes" Always versus::durable_writes:
        "durable writes through baio's cache: against the kernel's cache, and against direct writes"
    "plain-writes" Always versus::plain_writes:
        "random writes through baio's cache and one sync at the end, against ext4 with as much memory"
    "aio-stress-table" Always streaming::table:
        "64 KiB reads and writes like those of aio-stress: through baio's cache, the kernel's cache, and direct"
    "streaming-figures" Always streaming::figures:
        "random reads and O_SYNC writes of 4 to 64 KiB: through baio's cache, the kernel's cache, and direct"
    "page-cleaners" Always page_cleaners::run:
        "transactions on a buffer pool: one asynchronous writer of dirty pages, against 1 to 64 blocking threads"
    "service" Always versus::service:
        "4 KiB random direct reads of a segment through a service thread, against the same in the caller's thread"
    "broker" Always brokers::run:
        "4 KiB random direct reads of a segment through a broker, against a volume open in the caller's process"
    "posted-writes" Always posted_writes::run:
        "a thousand writes submitted at once: does the call wait for a slow device? How late is each known to be complete?"
    "buffered-writes" Always buffered_writes::run:
        "64 KiB writes through the kernel's cache: does the submitting call block, and how many threads are needed?"
    "buffered-reads" Always versus::buffered_reads: "4 KiB reads of what is in the kernel's cache, against a loop of pread"
    "one-queue" Always one_queue::run: "one thread waits for a pipe and a disk in one queue, against blocking threads"
    "pipelining" Always pipelining::run:
        "8 KiB requests, each followed by processing: against one caller that blocks, and against threads"
    "request-size" OnTarget request_size::run: "a file read in sequence by baio dd and by GNU dd, in blocks of 512 bytes to 1 MiB"
    "drop-ins" Always drop_ins::run: "fio, unchanged, on baio's libraries for libaio and POSIX AIO, against the original ones"
    "batches" OnTarget versus::batches: "4 KiB random direct reads, 1 to 64 of them submitted by one call, against fio"
    "log-appends" Always log_appends::run:
        "small durable records: appended to baio's log, against a thread that writes and syncs them"
    "volume-scale" OnRequest volume_scale::run: "a sparse volume of 4 TiB with many segments: the time of opens and creates, and the memory"
};

/// What each is called.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name)
}

impl When {
    /// Of the experiment of this name.
    pub(super) fn of(name: &str) -> Option<When> {
        EXPERIMENTS.iter().find(|one| one.name == name).map(|one| one.when)
    }
}

/// Those that are asked for, or all that a report runs by itself; and in a sentence those that a target leaves out.
///
/// # Errors
/// No experiment has a name that is given, or it is not for what is only read.
pub(super) fn choose(only: &[String], target: Option<&Target>) -> Result<(Vec<&'static Experiment>, String), Failure> {
    let chosen = named(only)?;
    if target.is_none() {
        return Ok((chosen, String::new()));
    }
    let names = |of: &mut dyn Iterator<Item = &Experiment>| of.map(|one| one.name).collect::<Vec<_>>().join(", ");
    let (could, left): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|one| one.when == When::OnTarget);
    match left.first() {
        None => Ok((could, String::new())),
        Some(one) if !only.is_empty() => Err(Failure::usage(
            "report",
            format!("`{}` is not for what is only read", one.name),
        )
        .on("--only")
        .needing(format!(
            "an experiment that --target is for: {}",
            names(&mut EXPERIMENTS.iter().filter(|one| one.when == When::OnTarget))
        ))
        .cured_by("name one of these, or leave --target out")),
        Some(_) => {
            let left = names(&mut left.into_iter());
            let said = format!("left out, because they write, or work on files of their own: {left}");
            Ok((could, said))
        }
    }
}

fn named(only: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    if only.is_empty() {
        return Ok(EXPERIMENTS.iter().filter(|e| e.when != When::OnRequest).collect());
    }
    let find = |name: &String| {
        let known = || EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
        let missing = || {
            Failure::usage("report", format!("no experiment is called `{name}`"))
                .on("--only")
                .needing(known())
                .cured_by("name one of these, or leave --only out")
        };
        EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(missing)
    };
    let named = only.iter().enumerate().filter(|(at, name)| !only[..*at].contains(name));
    named.map(|(_, name)| find(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_runs_only_when_it_is_named() {
        let (all, _) = choose(&[], None).unwrap();
        assert!(all.len() > 1 && all.iter().all(|e| e.name != "volume-scale"));
        assert_eq!(choose(&["volume-scale".into()], None).unwrap().0.len(), 1);
    }

    #[test]
    fn room_is_counted_for_whatever_is_asked_for() {
        let room = |name: &str, work: &Work| EXPERIMENTS.iter().find(|one| one.name == name).unwrap().room(work);
        let work = Work {
            working_set: 1 << 30,
            input: None,
            segments: 2_000,
            only_reads: false,
        };
        assert_eq!(room("random-read", &work), (2 << 30) + (128 << 20));
        let usual = room("volume-scale", &work);
        assert!(usual > 2_000 * 4096 && usual < 1 << 30, "{usual}");
        let much = Work {
            working_set: 1 << 63,
            input: Some(u64::MAX),
            segments: 100_000_000,
            ..work
        };
        assert_eq!(room("random-read", &much), u64::MAX);
        assert_eq!(room("segments", &much), u64::MAX);
        assert!(room("volume-scale", &much) > 100_000_000 * 4096);
        let only_reads = Work {
            only_reads: true,
            ..much
        };
        assert!(EXPERIMENTS.iter().all(|one| one.room(&only_reads) == 0));
    }

    #[test]
    fn what_writes_is_left_out_and_refused_by_name() {
        let target = Target {
            path: "/f".into(),
            is_device: true,
            bytes: 1 << 30,
        };
        let (run, left) = choose(&[], Some(&target)).unwrap();
        let names: Vec<&str> = run.iter().map(|one| one.name).collect();
        assert_eq!(
            names,
            [
                "disk",
                "random-read",
                "cached-reads",
                "sequential-reads",
                "request-size",
                "batches"
            ]
        );
        assert!(left.contains("durable-writes") && !left.contains("batches"), "{left}");
        assert!(choose(&["durable-writes".into()], Some(&target)).is_err());
        assert_eq!(choose(&["batches".into()], Some(&target)).unwrap().0.len(), 1);
    }
}
