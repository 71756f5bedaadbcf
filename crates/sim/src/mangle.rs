//! Damaged volumes, and everything that looks at them or repairs them.
//!
//! An image that a crash or a close left is changed as a broken program, a broken device or an attacker would change it:
//! fields set to invalid values, with a right checksum; pages swapped, copied, brought back from an earlier time,
//! erased; random bits; the end cut off. Then it is listed, inspected, checked, formatted without force, repaired and opened. The rules:
//!
//! - Nothing panics.
//! - A command that only looks writes nothing, reads at most [`READS_MAX`], and takes no more memory than the volume's own tables and
//!   [`MEMORY_MAX`].
//! - A volume that a repair called sound is sound: a check finds nothing, and it opens, closes, and holds the same then.

use std::path::Path;

use baio_engine::sim::{Disk, Random};
use baio_storage::Core;
use baio_storage::segment::page;

use crate::cores;
use crate::images::{self, Image, PER_WORKLOAD, Source};
use crate::memory;
use crate::report::{self, Failure, Part, Report, Sum, no_panic};
use crate::violation::{Kind, Violation};
use crate::world;

mod change;

/// What is counted beside the states.
const COUNTED: &[&str] = &[
    "listed",
    "not_listed",
    "opened",
    "not_opened",
    "repaired",
    "not_repaired",
    "formats_refused",
    "most_memory",
    "most_read",
];

/// Memory beyond a bit for each block, in bytes.
pub const MEMORY_MAX: u64 = 64 << 20;

/// So many times the device may be read by one look at it: a device is as small as volumes get, so what a damaged superblock
/// calls the metadata may be all of it; table and mirror, and both once more where claims are to be settled. And a constant.
pub const READS_MAX: (u64, u64) = (4, 1 << 20);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// From which all choices follow.
    pub seed: u64,
    /// How many images.
    pub images: u64,
    /// Where every `sample`th image is left, damaged and repaired, for another reader; also the place of the file that is formatted.
    pub folder: &'a Path,
    /// See there; 0 leaves none.
    pub sample: u64,
}

/// Runs all images on so many threads.
#[must_use]
pub fn run(plan: &Plan<'_>, threads: usize) -> Report {
    let mut sum = Sum::of(COUNTED);
    let make = |number: u64| {
        let first = number * PER_WORKLOAD;
        let numbers = first..plan.images.min(first + PER_WORKLOAD);
        (first < plan.images).then(|| run_source(plan, number, numbers))
    };
    let (mut memory, mut read) = (0, 0);
    cores::in_order(threads, make, |(part, most_memory, most_read)| {
        (memory, read) = (most_memory.max(memory), most_read.max(read));
        sum.add(part);
        true
    });
    let mut most = Part::default();
    most.add("most_memory", memory);
    most.add("most_read", read);
    sum.add(most);
    sum.done()
}

/// Runs one image alone.
#[must_use]
pub fn run_only(plan: &Plan<'_>, number: u64) -> Report {
    report::of_one(COUNTED, || {
        run_source(plan, number / PER_WORKLOAD, number..number + 1).0
    })
}

/// Images of one workload; with what came out, the most memory and the most bytes that one look took.
fn run_source(plan: &Plan<'_>, workload: u64, numbers: std::ops::Range<u64>) -> (Part, u64, u64) {
    let mut part = Part::default();
    let (mut memory, mut read) = (0, 0);
    let failure = |number, violation| Failure {
        number,
        replay: format!("mutate --seed {} --only {number}", plan.seed),
        violation,
        rotten: true,
    };
    let source = match no_panic(|| Source::new(plan.seed, workload)) {
        Ok(source) => source,
        Err(violation) => {
            part.failed(failure(numbers.start, violation));
            return (part, 0, 0);
        }
    };
    for number in numbers {
        let mut story = Vec::new();
        let mut trial = Trial {
            plan,
            number,
            part: &mut part,
            memory: 0,
            read: 0,
        };
        let outcome = no_panic(|| trial.run(&source, &mut story));
        (memory, read) = (memory.max(trial.memory), read.max(trial.read));
        if let Err(violation) = outcome {
            part.failed(failure(number, violation.after(story.join("\n  "))));
        }
    }
    (part, memory, read)
}

struct Trial<'a> {
    plan: &'a Plan<'a>,
    number: u64,
    part: &'a mut Part,
    memory: u64,
    read: u64,
}

impl Trial<'_> {
    fn run(&mut self, source: &Source, story: &mut Vec<String>) -> Result<(), Violation> {
        let nth = self.number % PER_WORKLOAD;
        let image = source.image(nth)?;
        let earlier = source.image(self.number / 7 % PER_WORKLOAD)?;
        let mut random = Random::from(&[self.plan.seed, 11, self.number]);
        story.push(format!("an image of origin {:?}", image.origin));
        for _ in 0..1 + random.below(3) {
            story.push(change::choose(&image, &earlier.disk, &mut random));
        }
        self.part.state(image.disk.fingerprint());
        self.leave(&image.disk, "damaged")?;
        self.look(&image.disk, "list", |disk| world::inspect(disk, 1).map(drop))
            .map(|seen| self.part.add(if seen { "listed" } else { "not_listed" }, 1))?;
        self.look(&image.disk, "stat", |disk| world::inspect_volume(disk, 1).map(drop))?;
        self.look(&image.disk, "check", |disk| world::check(disk, 1, false).map(drop))?;
        if self.number.is_multiple_of(4) {
            self.format(&image)?;
        }
        self.open(&image.disk)?;
        self.repair(&image.disk)
    }

    /// Leaves an image for another reader, if it is one of the sample.
    fn leave(&self, disk: &Disk, what: &str) -> Result<(), Violation> {
        // Image 0 of no sample at all is not wanted either.
        if self.plan.sample == 0 || !self.number.is_multiple_of(self.plan.sample) {
            return Ok(());
        }
        let path = self.plan.folder.join(format!("{:06}-{what}.img", self.number));
        images::write(disk, &path).map_err(|error| Violation::new(Kind::Failed, format!("{}: {error}", path.display())))
    }

    /// Who only looks writes nothing, and reads and takes no more than it must. Was it read?
    fn look(
        &mut self,
        disk: &Disk,
        what: &str,
        look: impl FnOnce(&Disk) -> Result<(), Violation>,
    ) -> Result<bool, Violation> {
        let copy = disk.copy();
        let (outcome, memory) = memory::most(|| look(&copy));
        let (read, size) = (copy.bytes_read(), copy.size());
        (self.memory, self.read) = (self.memory.max(memory), self.read.max(read));
        let wrong = |story: String| Err(Violation::new(Kind::Failed, format!("{what}: {story}")));
        if copy.fingerprint() != disk.fingerprint() {
            return wrong("it has written".into());
        }
        if memory > MEMORY_MAX + size / 4096 / 8 {
            return wrong(format!("it took {memory} bytes of memory"));
        }
        if read > READS_MAX.0 * size + READS_MAX.1 {
            return wrong(format!("it read {read} bytes of a device of {size}"));
        }
        Ok(outcome.is_ok())
    }

    /// What can be listed is not formatted unasked.
    fn format(&mut self, image: &Image) -> Result<(), Violation> {
        let path = self.plan.folder.join(format!("format-{}.img", self.number));
        let failed = |error: std::io::Error| Violation::new(Kind::Failed, format!("{}: {error}", path.display()));
        images::write(&image.disk, &path).map_err(failed)?;
        let before = std::fs::read(&path).map_err(failed)?;
        let outcome = Core::format(&path, &baio_storage::FormatOptions::default());
        let after = std::fs::read(&path).map_err(failed)?;
        std::fs::remove_file(&path).map_err(failed)?;
        if outcome.is_err() {
            self.part.add("formats_refused", 1);
        }
        let is_volume = world::inspect(&image.disk, 1).is_ok();
        if before != after && (is_volume || outcome.is_err()) {
            let story = format!("a format unasked has overwritten it, and said {outcome:?}");
            return Err(Violation::new(Kind::Lost, story));
        }
        Ok(())
    }

    /// It opens or is refused; what opens can be listed, used and closed.
    fn open(&mut self, disk: &Disk) -> Result<(), Violation> {
        let disk = disk.copy();
        // After a clean close the snapshot says what is free, whatever was made of the inodes.
        let clean = world::inspect_volume(&disk, 1).is_ok_and(|volume| volume.clean);
        let Ok(mut core) = world::open(&disk, 2) else {
            self.part.add("not_opened", 1);
            return Ok(());
        };
        self.part.add("opened", 1);
        let failed = |doing: &'static str| move |error| crate::observe::failed(doing, &error);
        // Opened by its snapshot, it may have a bucket that cannot be read.
        let Ok(before) = core.list(world::ROOT) else {
            return core.close().map_err(failed("close"));
        };
        let options = baio_storage::CreateOptions::of_size(4096);
        // There may be no room, or the name may be taken; and nobody else's blocks are.
        if let Ok(info) = core.create(world::ROOT, 0, "made on a damaged volume", &options) {
            let touches = |other: &&baio_storage::SegmentInfo| {
                let blocks = other.reserve_bytes / 4096;
                // One that is being moved may have arrived meanwhile.
                other.state != "moving" && (other.start_block..other.start_block + blocks).contains(&info.start_block)
            };
            if let Some(other) = before.iter().find(touches).filter(|_| !clean) {
                let story = format!("a new segment has a block of {other:?}");
                return Err(Violation::new(Kind::Overlap, story));
            }
        }
        core.close().map_err(failed("close"))
    }

    /// What a repair called sound is sound.
    fn repair(&mut self, disk: &Disk) -> Result<(), Violation> {
        let disk = disk.copy();
        if world::check(&disk, 3, true).is_err() {
            self.part.add("not_repaired", 1);
            return Ok(());
        }
        self.part.add("repaired", 1);
        let report = world::check(&disk, 4, false)?;
        if !report.problems.is_empty() {
            let story = format!("behind a repair a check finds {:?}", report.problems);
            return Err(Violation::new(Kind::Failed, story));
        }
        let (_, before) = world::inspect(&disk, 5)?;
        self.leave(&disk, "repaired")?;
        let core = world::open(&disk, 6)?;
        drop(core);
        let (_, after) = world::inspect(&disk, 7)?;
        // A move goes on; nothing else changes.
        let without_moves = |segments: &[baio_storage::SegmentInfo]| {
            let rows = segments.iter().filter(|segment| segment.state != "moving");
            rows.map(|s| (s.owner_uid, s.name.clone(), s.size_bytes))
                .collect::<Vec<_>>()
        };
        let moving = before.iter().chain(&after).any(|segment| segment.state == "moving");
        if !moving && without_moves(&before) != without_moves(&after) {
            let story = format!("after an opening it holds {after:?}, before {before:?}");
            return Err(Violation::new(Kind::Lost, story));
        }
        Ok(())
    }
}

/// Makes the checksum of a page right: its field is at this byte.
pub(crate) fn seal(page: &mut [u8; 4096], checksum_at: usize) {
    page[checksum_at..checksum_at + 4].fill(0);
    let checksum = page::checksum(page, checksum_at);
    page[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
}
