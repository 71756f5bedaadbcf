//! The order of writes, read from a session's record: what a crash could show only if it fell just so is looked at directly.
//!
//! - The superblock: copies 2 and 3 are begun when copies 0 and 1 of the same update have ended. In every crash state one of
//!   the two pairs is whole, and the front is not older than the rear ([`pairs`]).
//! - Every image of a bucket and every copy of the superblock is written durably by itself.
//! - A volume that grows is flushed before its superblock says so: on a file that is what makes its length last.

use baio_engine::sim::Disk;
use baio_engine::sim::log::Record;
use baio_storage::segment::layout::Layout;
use baio_storage::segment::superblock::Superblock;

use crate::mutate::{During, What, scenes};
use crate::violation::{Kind, Violation};
use crate::workload::Session;

/// Looks at what a session added to its record. Where a page was `rotten`, copies of both pairs may be healed at a time: two others
/// hold what is current.
///
/// # Errors
/// The first write that came too early, or was not durable.
pub fn check(session: &Session, layout: &Layout, rotten: bool) -> Result<(), Violation> {
    let record = &session.record[session.inherited..];
    let scenes = scenes(record, &session.ops, layout);
    let mut flushed = false;
    for (at, (entry, scene)) in record.iter().zip(&scenes).enumerate() {
        match scene.what {
            What::Mark => flushed = false,
            What::Flush => flushed = true,
            What::Superblock(copy, _) => {
                must_be_durable(entry, at)?;
                if scene.during == During::Grow && !flushed {
                    let story = format!("record {at}: the superblock of a larger volume, and no flush before it");
                    return Err(Violation::new(Kind::Order, story));
                }
                if copy >= 2 && !rotten {
                    rear_behind_front(record, at, layout)?;
                }
            }
            What::Table | What::Mirror => must_be_durable(entry, at)?,
            What::Snapshot | What::Data => {}
        }
    }
    Ok(())
}

fn must_be_durable(entry: &Record, at: usize) -> Result<(), Violation> {
    match entry {
        Record::Write {
            durable: false, offset, ..
        } => {
            let story = format!("record {at}: metadata at {offset} is written without durability");
            Err(Violation::new(Kind::Order, story))
        }
        _ => Ok(()),
    }
}

/// A rear copy is begun when the front copies of its update, if they are written at all, have ended.
fn rear_behind_front(record: &[Record], at: usize, layout: &Layout) -> Result<(), Violation> {
    let Record::Write { bytes, under_way, .. } = &record[at] else {
        return Ok(());
    };
    let sequence = sequence_of(bytes);
    let begun = at.saturating_sub(*under_way as usize);
    let front = layout.superblocks_at();
    let is_front = |entry: &Record| {
        matches!(entry, Record::Write { offset, bytes, .. }
            if front[..2].contains(offset) && sequence_of(bytes) == sequence)
    };
    match record.iter().rposition(is_front) {
        Some(last) if last >= begun => {
            let story = format!(
                "record {at}: a rear copy of superblock {sequence} was begun before record {last}, a front copy, had ended"
            );
            Err(Violation::new(Kind::Order, story))
        }
        _ => Ok(()),
    }
}

/// The field at 64, as the format has it.
fn sequence_of(page: &[u8]) -> u64 {
    let mut word = [0; 8];
    if let Some(bytes) = page.get(64..72) {
        word.copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

/// The four copies of the superblock, those that are good.
fn copies(disk: &Disk, layout: &Layout) -> [Option<Superblock>; 4] {
    std::array::from_fn(|copy| {
        let mut page = [0; 4096];
        disk.read(layout.superblocks_at()[copy], &mut page);
        Superblock::decode(&page, copy as u8).ok()
    })
}

/// An opening leaves four good copies, all the same.
///
/// # Errors
/// The four sequences.
pub fn healed(disk: &Disk, layout: &Layout) -> Result<(), Violation> {
    let copies = copies(disk, layout);
    if copies[0].is_some() && copies.iter().all(|copy| *copy == copies[0]) {
        return Ok(());
    }
    let sequences = copies.each_ref().map(|copy| copy.as_ref().map(|copy| copy.sequence));
    let story = format!("superblock copies of sequences {sequences:?} behind an opening");
    Err(Violation::new(Kind::Order, story))
}

/// In a state that a crash alone has left, one pair of superblock copies is whole, and no rear copy is newer than a whole front
/// pair or stands beside a front pair that is broken and older.
///
/// # Errors
/// The four sequences.
pub fn pairs(disk: &Disk, layout: &Layout) -> Result<(), Violation> {
    let copies = copies(disk, layout);
    let is_whole = |one: usize, two: usize| copies[one].is_some() && copies[one] == copies[two];
    let sequences = copies.each_ref().map(|copy| copy.as_ref().map(|copy| copy.sequence));
    let (front, rear) = (is_whole(0, 1), is_whole(2, 3));
    let newest = |pair: &[Option<u64>]| pair.iter().flatten().max().copied();
    let wrong = match (front, rear) {
        (false, false) => Some("neither pair is whole"),
        (true, _) if newest(&sequences[2..]) > sequences[0] => Some("the rear is newer than the front"),
        (false, true) if sequences[..2].iter().flatten().any(|&s| Some(s) < sequences[2]) => {
            Some("a front copy is older than the rear pair")
        }
        _ => None,
    };
    wrong.map_or(Ok(()), |wrong| {
        let story = format!("superblock copies of sequences {sequences:?}: {wrong}");
        Err(Violation::new(Kind::Order, story))
    })
}
