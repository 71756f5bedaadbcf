//! The four images of a bucket: which of them is the bucket, what is wrong with the others, and how they become whole.
//!
//! The bucket is the newest valid image of all four. In its own place it must stand in table and mirror; in the other place
//! both must hold the image before it, of which one copy is enough to restore both. Where that is lost in both, the bucket is
//! written once more as its next generation, so that again two generations are there. Where something may be lost with it, that is left
//! to the end of the repair ([`WrittenOff`]).

use crate::error::Result;
use crate::segment::bucket::{
    BucketError, BucketId, Image, ImageError, NextImage, Pair, Reading, newest_by_generation, newest_of_four,
};
use crate::segment::layout::{Layout, Parity, Place, SLOTS_PER_BUCKET, is_used_up};
use crate::segment::page::{self, PAGE_BYTES, Page, PageRead};
use crate::segment::probe::SlotAddress;
use crate::segment::salvage::Salvage;
use crate::segment::superblock::Superblock;
use crate::volume::bucket_write::Home;
use crate::volume::check::inodes::Seen;
use crate::volume::check::repair::WrittenOff;
use crate::volume::check::{CheckReport, Problem, ProblemPlace, Repair};
use crate::volume::device::Device;
use crate::volume::table::{self, Undecodable};

/// What judges the buckets of one volume.
pub(super) struct Judge<'a> {
    superblock: &'a Superblock,
    device: &'a Device,
    /// Updates of this epoch or later may have been cut by a crash.
    doubt_from: u64,
    /// The volume's epoch as it was found: no image can be of a later one.
    newest_epoch: u64,
    /// What a repair has to give up.
    pub(super) written_off: WrittenOff,
}

/// What to write where.
pub(super) type Writes = Vec<(Home, Page)>;

type Visit<'v> = &'v mut dyn FnMut(SlotAddress, &Seen);

impl Judge<'_> {
    /// `found` is the superblock as it was, `superblock` the one that repairs are made under.
    /// While the volume `is_served` its owner has written everything, or nothing yet.
    pub(super) fn new<'a>(
        device: &'a Device,
        found: &Superblock,
        superblock: &'a Superblock,
        is_served: bool,
    ) -> Judge<'a> {
        Judge {
            superblock,
            device,
            newest_epoch: found.epoch,
            doubt_from: match found.is_clean() || is_served {
                true => u64::MAX,
                false => found.healed_epoch,
            },
            written_off: WrittenOff::default(),
        }
    }

    fn layout(&self) -> &Layout {
        self.superblock.layout()
    }

    /// Judges a bucket, notes what is wrong with its images, shows its inodes, and says what to write where, in order.
    pub(super) fn bucket(
        &mut self,
        bucket: u64,
        table: [PageRead<'_>; 2],
        mirror: [PageRead<'_>; 2],
        repair: bool,
        report: &mut CheckReport,
        visit: Visit<'_>,
    ) -> Result<Writes> {
        if [table, mirror].as_flattened().iter().all(|page| is_zero(*page)) {
            visit(SlotAddress { bucket, slot: 0 }, &Seen::Untouched);
            return Ok(Vec::new());
        }
        let id = BucketId {
            uuid: self.superblock.uuid,
            bucket,
        };
        let whatever_epoch = [table, mirror].map(|pages| Pair::read(pages[0], pages[1], id));
        let [table, mirror] = whatever_epoch.map(|pair| pair.up_to(self.newest_epoch));
        let status = if repair { Repair::Repaired } else { Repair::Repairable };
        let winner = match newest_of_four(&table, &mirror, id) {
            Ok(winner) => winner,
            Err(error @ BucketError::Unread { .. }) => return self.unreadable(error, bucket, repair, report, visit),
            Err(error @ BucketError::TooNew { .. }) => {
                return self.too_new(error, whatever_epoch, id, status, report, visit);
            }
            Err(_) => {
                let what = "no valid image in table and mirror: up to four segments, their names and where they were, are \
                            gone; a repair leaves four empty slots";
                report
                    .problems
                    .push(self.problem("bucket-lost", bucket, what.into(), Repair::Lost));
                visit(SlotAddress { bucket, slot: 0 }, &Seen::Lost);
                self.written_off.lost.push(bucket);
                return Ok(Vec::new());
            }
        };
        show(&winner, self.superblock, visit);
        let begins_anew = is_used_up(winner.generation());
        if begins_anew {
            let what = format!("generation {}: it can hardly change any more", winner.generation());
            report
                .problems
                .push(self.problem("image-generation", bucket, what, status));
        }
        if is_unknown([&table, &mirror], &winner) {
            let writes = self.copies([&table, &mirror], &winner, None, status, report);
            report.problems.push(self.unknown(&winner));
            self.written_off.unknown.insert(bucket);
            return Ok(writes);
        }
        if begins_anew {
            return Ok(self.twice_more(&winner));
        }
        let older = older(&table, &mirror, &winner);
        let mut writes = self.copies([&table, &mirror], &winner, older, status, report);
        if older.is_none() {
            writes.extend(self.once_more(&winner));
        }
        Ok(writes)
    }

    /// Notes each image that is not as the winner wants it, and says what to write there.
    fn copies(
        &self,
        [table, mirror]: [&Pair<'_>; 2],
        winner: &Image<'_>,
        older: Option<&[u8; PAGE_BYTES]>,
        status: Repair,
        report: &mut CheckReport,
    ) -> Writes {
        let bucket = winner.id().bucket;
        let mut writes = Vec::new();
        for (place, pair) in [(Place::Table, table), (Place::Mirror, mirror)] {
            for parity in [winner.parity().other(), winner.parity()] {
                let wanted = if parity == winner.parity() {
                    Some(winner.bytes())
                } else {
                    older
                };
                let reading = pair.at(parity);
                if holds(reading, wanted) {
                    continue;
                }
                let home = Home::of(self.layout(), bucket, parity, place);
                let at = home.as_ref().map_or(0, |home| home.at);
                if let (Some(bytes), Ok(home)) = (wanted, home) {
                    writes.push((home, Page::copy_of(bytes)));
                }
                if self.is_cut_by_a_crash(place, parity, reading, winner) {
                    report.in_doubt += 1;
                    continue;
                }
                let (kind, what) = describe(reading, winner, parity);
                report.problems.push(Problem {
                    kind,
                    place: ProblemPlace {
                        object: format!("bucket {bucket}, {parity} image of the {}", noun(place)),
                        offset: at,
                    },
                    what,
                    repair: match reading {
                        Reading::Invalid(ImageError::Unread { .. }) => Repair::Unread,
                        _ => status,
                    },
                });
            }
        }
        writes
    }

    /// Of the two generations the last is not known.
    fn unknown(&self, winner: &Image<'_>) -> Problem {
        let generation = winner.generation();
        let what = format!(
            "no copy of the image beside generation {generation} is valid: it was the one before, and nothing is lost; or it was the \
             last, and a segment may be gone, or an earlier state of up to four segments be back. Nobody can know. A repair \
             goes on from generation {generation}"
        );
        self.problem("image-unknown", winner.id().bucket, what, Repair::Lost)
    }

    fn problem(&self, kind: &'static str, bucket: u64, what: String, repair: Repair) -> Problem {
        let object = format!("bucket {bucket}");
        let offset = self.layout().bucket_at(bucket, Place::Table).unwrap_or(0);
        let place = ProblemPlace { object, offset };
        Problem {
            kind,
            place,
            what,
            repair,
        }
    }

    /// A page that cannot be read now may be read again, or may have been the newest: what is there is not written over.
    fn unreadable(
        &self,
        error: BucketError,
        bucket: u64,
        repair: bool,
        report: &mut CheckReport,
        visit: Visit<'_>,
    ) -> Result<Writes> {
        if repair {
            return Err(table::undecided(self.device, self.superblock, bucket, error));
        }
        let what = format!(
            "{error}: up to four segments may be there; a repair writes nothing here before it can be read, or the volume was \
             copied to a sound device with zeroes in the place of what cannot"
        );
        report
            .problems
            .push(self.problem("bucket-unreadable", bucket, what, Repair::Unread));
        visit(SlotAddress { bucket, slot: 0 }, &Seen::Lost);
        Ok(Vec::new())
    }

    /// An image of an epoch that the volume has not reached is whole, but would win over every later update. Some may have been
    /// made: the last generation is the bucket. Its inodes are written as the next two generations, of this epoch.
    fn too_new(
        &self,
        error: BucketError,
        [table, mirror]: [Pair<'_>; 2],
        id: BucketId,
        status: Repair,
        report: &mut CheckReport,
        visit: Visit<'_>,
    ) -> Result<Writes> {
        let bucket = id.bucket;
        let winner = newest_by_generation(&table, &mirror, id);
        let winner = winner.map_err(|error| table::undecided(self.device, self.superblock, bucket, error))?;
        let what = format!("{error}: a later update of this bucket would not count");
        report.problems.push(self.problem("image-epoch", bucket, what, status));
        if is_unknown([&table, &mirror], &winner) {
            report.problems.push(self.unknown(&winner));
        }
        show(&winner, self.superblock, visit);
        Ok(self.twice_more(&winner))
    }

    /// The same inodes as two more generations, the first of them in the place that the winner is not in; from the first
    /// generations on, where there are none behind it.
    fn twice_more(&self, winner: &Image<'_>) -> Writes {
        let epoch = self.superblock.epoch;
        let first = match is_used_up(winner.generation()) {
            true => winner.begun_anew(epoch),
            false => winner.next_with(&[], epoch),
        };
        let mut writes = Vec::new();
        if let Ok(first) = first {
            if let Ok(second) = first.image().next_with(&[], epoch) {
                writes.extend(self.at_home(&first));
                writes.extend(self.at_home(&second));
            }
        }
        writes
    }

    /// A crash leaves the newest generation in the table and an older one, or nothing, in the mirror.
    fn is_cut_by_a_crash(&self, place: Place, parity: Parity, reading: &Reading<'_>, winner: &Image<'_>) -> bool {
        place == Place::Mirror
            && parity == winner.parity()
            && winner.epoch() >= self.doubt_from
            && !reading.is_invalid()
    }

    /// The same inodes as the next generation, to table and mirror: then the winner is the image before it.
    fn once_more(&self, winner: &Image<'_>) -> Writes {
        let next = winner.next_with(&[], self.superblock.epoch);
        next.map_or(Vec::new(), |next| self.at_home(&next))
    }

    fn at_home(&self, next: &NextImage) -> Writes {
        let bucket = next.image().id().bucket;
        let home = |place| Home::of(self.layout(), bucket, next.parity(), place).ok();
        [Place::Table, Place::Mirror]
            .into_iter()
            .filter_map(|place| Some((home(place)?, next.page().clone())))
            .collect()
    }
}

/// The bytes that belong in the winner's other place; nothing if they are lost. Zeroes, where nothing can have been written
/// there yet.
fn older<'a>(table: &Pair<'a>, mirror: &Pair<'a>, winner: &Image<'_>) -> Option<&'a [u8; PAGE_BYTES]> {
    let Some(before) = winner.generation().checked_sub(1).filter(|before| *before > 0) else {
        return Some(page::zero_page());
    };
    let parity = winner.parity().other();
    let images = [table.at(parity).image(), mirror.at(parity).image()];
    let older = images.into_iter().flatten().find(|image| image.generation() == before);
    older.map(|image| image.bytes())
}

/// Is there no copy of the image in the winner's other place that says which generation it was, but one that is damaged?
fn is_unknown(pairs: [&Pair<'_>; 2], winner: &Image<'_>) -> bool {
    let copies = pairs.map(|pair| *pair.at(winner.parity().other()));
    let before = winner.generation().checked_sub(1);
    let says = |copy: &Reading<'_>| match copy {
        Reading::Valid(image) => Some(image.generation()) == before,
        Reading::Never => true,
        Reading::Invalid(_) => false,
    };
    copies.iter().any(Reading::is_invalid) && !copies.iter().any(says)
}

fn holds(reading: &Reading<'_>, wanted: Option<&[u8; PAGE_BYTES]>) -> bool {
    match reading {
        Reading::Valid(image) => wanted.is_some_and(|wanted| wanted == image.bytes()),
        Reading::Never => wanted.is_some_and(page::is_zero),
        Reading::Invalid(_) => false,
    }
}

fn describe(reading: &Reading<'_>, winner: &Image<'_>, parity: Parity) -> (&'static str, String) {
    let generation = if parity == winner.parity() {
        winner.generation()
    } else {
        winner.generation().saturating_sub(1)
    };
    match reading {
        Reading::Invalid(ImageError::Erased) => (
            "image-erased",
            format!("zeroes in the place of generation {generation}"),
        ),
        Reading::Invalid(error) => ("image", error.to_string()),
        Reading::Valid(image) if image.generation() > 0 => (
            "image-stale",
            format!(
                "generation {} in the place of generation {generation}: a write was lost",
                image.generation()
            ),
        ),
        Reading::Valid(_) | Reading::Never => (
            "image-erased",
            format!("zeroes in the place of generation {generation}"),
        ),
    }
}

fn show(winner: &Image<'_>, superblock: &Superblock, visit: Visit<'_>) {
    let geometry = superblock.geometry();
    let bucket = winner.id().bucket;
    for slot in 0..SLOTS_PER_BUCKET {
        let (Some(inode), Some(bytes)) = (winner.slot(slot, geometry), winner.slot_bytes(slot)) else {
            continue;
        };
        let found = inode.map_err(|error| Undecodable {
            error,
            salvage: Salvage::of(bytes, geometry),
        });
        visit(SlotAddress { bucket, slot }, &Seen::Slot(found));
    }
}

fn is_zero(page: PageRead<'_>) -> bool {
    page.whole().is_ok_and(page::is_zero)
}

fn noun(place: Place) -> &'static str {
    match place {
        Place::Table => "table",
        Place::Mirror => "mirror",
    }
}
