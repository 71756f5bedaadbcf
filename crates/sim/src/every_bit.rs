//! Every bit of every metadata page of reference images, turned over one at a time.
//!
//! The images hold segments that were created, written, deleted and made again, in three endings ([`Ending`]). With one bit
//! wrong the volume must open, have four good copies of the superblock again, hold exactly what it held, and still do so when it was used further and opened again: each page
//! is in at least two places, so one wrong bit is repaired or passed over. A page of a clean close's snapshot may cost
//! the snapshot, and nothing else.

use baio_engine::sim::Disk;
use baio_engine::sim::crash::{Crash, Replay};
use baio_storage::segment::layout::Layout;

use crate::cores;
use crate::model::{Key, UIDS};
use crate::mutate::{What, is_write_of};
use crate::oracle::Expectation;
use crate::order;
use crate::report::{self, Failure, Part, Report, Sum, no_panic};
use crate::rot::{Damage, Rot, Victim};
use crate::violation::Violation;
use crate::workload::{Counts, Driver, Ids, Script, State, Step, run_session};
use crate::world::World;

/// How the image came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The volume was closed.
    Closed,
    /// The power failed while nothing was under way.
    Idle,
    /// The power failed between the table's image of a delete and the mirror's.
    HalfDone,
}

impl Ending {
    const ALL: [Ending; 3] = [Ending::Closed, Ending::Idle, Ending::HalfDone];
}

const SEED: u64 = 11;
const PAGE_BITS: u64 = 4096 * 8;

/// What is counted beside the states.
const COUNTED: &[&str] = &["images", "pages", "bits"];

/// An image to be damaged, and what it holds.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) disk: Disk,
    pub(crate) expectation: Expectation,
    pub(crate) ids: Ids,
    pages: Vec<Victim>,
    pub(crate) layout: Layout,
}

impl Reference {
    pub(crate) fn make(ending: Ending) -> Result<Reference, Violation> {
        let World { disk, layout, .. } = World::new(SEED)?;
        let mut ids = Ids::default();
        let mut steps = history();
        steps.push(match ending {
            Ending::Closed => Step::Close,
            Ending::Idle => Step::Sync(key(0, 0)),
            Ending::HalfDone => Step::Delete(key(0, 0)),
        });
        let mut script = Script::new(&steps, &mut ids, SEED);
        let state = State::after_power_cut(disk, Expectation::default());
        let session = run_session(state, &mut script, &mut Counts::default())?;
        let prefix = match ending {
            Ending::Closed | Ending::Idle => session.record.len(),
            Ending::HalfDone => {
                let is_mirror = |record| is_write_of(record, What::Mirror, &layout);
                session.record.iter().rposition(is_mirror).unwrap_or(0)
            }
        };
        let disk = Replay::new(&session.base, &session.record).disk(Crash::clean(prefix));
        Ok(Reference {
            pages: pages(&disk, &layout),
            disk,
            expectation: session.expectation(prefix),
            ids,
            layout,
        })
    }
}

/// Segments of two owners, made, written, deleted and made again, over two openings.
fn history() -> Vec<Step> {
    let mut steps = Vec::new();
    for name in 0..4 {
        for (at, _) in UIDS.iter().enumerate() {
            steps.push(Step::Create(key(at, name), 1 + name as u64));
        }
    }
    steps.extend([
        Step::WriteDurable(key(0, 1)),
        Step::Delete(key(0, 2)),
        Step::Delete(key(1, 0)),
        Step::Reopen,
        Step::Create(key(0, 2), 5),
        Step::WriteDurable(key(0, 2)),
        Step::Delete(key(1, 3)),
        Step::Create(key(0, 4), 2),
        Step::Write(key(0, 0)),
        Step::Sync(key(0, 0)),
    ]);
    steps
}

pub(crate) fn key(uid: usize, name: usize) -> Key {
    Key { uid: UIDS[uid], name }
}

/// Every page that has a meaning on this image: superblock copies, the images of all buckets, used or not, and what is
/// written of the snapshot.
fn pages(disk: &Disk, layout: &Layout) -> Vec<Victim> {
    let superblocks = (0..4).map(Victim::Superblock);
    let images = crate::rot::images(layout);
    let [_, _, second, third] = layout.superblocks_at();
    let bitmap = layout.bitmap_at()..layout.bitmap_at() + layout.bitmap_pages() * 4096;
    let snapshot = (second + 4096..third).chain(bitmap).step_by(4096);
    let is_written = |at: &u64| {
        let mut page = [0; 4096];
        disk.read(*at, &mut page);
        page.iter().any(|&byte| byte != 0)
    };
    superblocks
        .chain(images)
        .chain(snapshot.filter(is_written).map(Victim::Page))
        .collect()
}

/// Turns over every `stride`-th bit of every image, on so many threads.
///
/// # Errors
/// An image cannot be made.
pub fn run(stride: u64, threads: usize) -> Result<Report, Violation> {
    let mut sum = Sum::of(COUNTED);
    let mut pieces = Vec::new();
    for ending in Ending::ALL {
        let pages = Reference::make(ending)?.pages.len();
        pieces.extend((0..pages).map(|page| (ending, page)));
        let mut part = Part::default();
        part.add("images", 1);
        part.add("pages", pages as u64);
        sum.add(part);
    }
    let make = |number: u64| {
        let &(ending, page) = pieces.get(number as usize)?;
        // Other bits of every page, so that a stride that divides a byte still meets all eight.
        let bits = (number % stride.max(1)..PAGE_BITS).step_by(stride.max(1) as usize);
        Some(run_page(ending, page, bits))
    };
    cores::in_order(threads, make, |part| {
        sum.add(part);
        true
    });
    Ok(sum.done())
}

/// Turns over one bit.
#[must_use]
pub fn run_only(ending: Ending, page: usize, bit: u64) -> Report {
    report::of_one(COUNTED, || run_page(ending, page, [bit].into_iter()))
}

fn run_page(ending: Ending, page: usize, bits: impl Iterator<Item = u64>) -> Part {
    let mut part = Part::default();
    let failure = |bit, violation| Failure {
        number: bit,
        replay: format!("rot --image {} --page {page} --bit {bit}", ending.name()),
        violation,
        rotten: true,
    };
    let reference = match no_panic(|| Reference::make(ending)) {
        Ok(reference) => reference,
        Err(violation) => return part.ended_by(failure(0, violation)),
    };
    let Some(&victim) = reference.pages.get(page) else {
        return part;
    };
    for bit in bits {
        part.add("bits", 1);
        let damage = Damage::Bit(bit);
        let rot = Rot { victim, damage };
        if let Err(violation) = no_panic(|| turn_over(&reference, rot, bit, &mut part)) {
            part.failed(failure(bit, violation.after(format!("{ending:?}: bit {bit} of {rot}"))));
        }
    }
    part
}

fn turn_over(reference: &Reference, rot: Rot, bit: u64, part: &mut Part) -> Result<(), Violation> {
    let disk = reference.disk.copy();
    rot.strike(&disk, &reference.layout);
    part.state(disk.fingerprint());
    if let Victim::Superblock(_) = rot.victim {
        let opened = Driver::open(disk.copy(), &reference.expectation, SEED)?;
        order::healed(&opened.kill(), &reference.layout)?;
    }
    let mut ids = reference.ids;
    let steps: &[Step] = match bit % 4 {
        0 => &[Step::Create(Key { uid: UIDS[1], name: 4 }, 1), Step::Reopen],
        1 => &[Step::Kill, Step::Reopen],
        2 => &[Step::Delete(Key { uid: UIDS[1], name: 1 }), Step::Kill, Step::Reopen],
        _ => &[Step::Reopen],
    };
    let mut script = Script::new(steps, &mut ids, SEED + 1);
    let state = State::after_power_cut(disk, reference.expectation.clone());
    run_session(state, &mut script, part.operations()).map(drop)
}

impl Ending {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ending::Closed => "closed",
            Ending::Idle => "idle",
            Ending::HalfDone => "half-done",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Ending> {
        Ending::ALL.into_iter().find(|ending| ending.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rot;
    use baio_storage::segment::layout::Place;

    /// What is damaged must matter: the half-done delete is in the table and not in the mirror.
    #[test]
    fn the_images_are_what_they_are_called() {
        let half = Reference::make(Ending::HalfDone).unwrap();
        assert!(half.expectation.under_way.is_some());
        let closed = Reference::make(Ending::Closed).unwrap();
        assert!(closed.expectation.under_way.is_none() && closed.expectation.model.segments.len() >= 6);
        let differ = |reference: &Reference| {
            let images = rot::images(&reference.layout).filter_map(|victim| match victim {
                Victim::Image(bucket, parity, Place::Table) => Some((bucket, parity)),
                _ => None,
            });
            let page = |victim| {
                let mut page = [0; 4096];
                reference
                    .disk
                    .read(rot::place(&reference.layout, victim).unwrap(), &mut page);
                page
            };
            images
                .filter(|&(bucket, parity)| {
                    page(Victim::Image(bucket, parity, Place::Table))
                        != page(Victim::Image(bucket, parity, Place::Mirror))
                })
                .count()
        };
        assert_eq!((differ(&closed), differ(&half)), (0, 1));
    }
}
