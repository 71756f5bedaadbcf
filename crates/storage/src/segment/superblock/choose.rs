//! Which of the four copies is believed, and how they are found.
//!
//! # Update
//!
//! The next sequence goes to copies 0 and 1, which are flushed, then to copies 2 and 3, which are flushed; then it is
//! acknowledged. **The newest sequence with two equal valid copies is current**; the others are healed (copies 0 and 1
//! first, then 2 and 3) before the next update.
//!
//! Why two: a sequence with a single copy was never flushed as a pair, so nobody was told about it, and if it were believed,
//! the loss of that one page would silently take the volume back. Why equal: two different pages with one sequence are the
//! remains of two attempts, and only the one that reached a pair can have been acknowledged. Whatever one crash tears,
//! one pair is whole; whatever single page rots, three others agree.
//!
//! ```text
//! crash while writing   0      1      2   3      current   heal
//! copies 0 and 1        s+1    torn   s   s      s         0, 1
//! between the pairs     s+1    s+1    s   s      s+1       2, 3
//! copies 2 and 3        s+1    s+1    ?   ?      s+1       2, 3
//! ```
//!
//! # Opening
//!
//! Read copies 0 and 1; one that is valid names the place of 2 and 3 ([`rear_copies_at`]); [`choose`] decides. When both are
//! gone, scan upward in steps of 64 KiB from byte 131072 for the first page that is a superblock and stands where it claims
//! to stand ([`recognise`]). Copies 2 and 3 come before the first data block, so the first hit is real as long as one of
//! them is: behind them an owner's data could imitate anything.

use super::{RawSuperblock, Superblock, SuperblockError};
use crate::segment::layout::{SUPERBLOCK_COPIES, SUPERBLOCK_STEP};
use crate::segment::page::PageRead;

/// What [`choose`] decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The current superblock.
    pub current: Superblock,
    /// Numbers of the copies that do not hold it, ascending: to be written before the next update.
    pub heal: Vec<u8>,
    /// Set where the two pairs are of different ages as no crash leaves them.
    pub mixed: Option<Mixed>,
}

/// Copies that are not of one moment, and the update that ends this. Its copies are written one after the other, so that it
/// stays to be seen until it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// In this order: the pair that is not current first, and of a pair first the copy that shows nothing.
    pub order: [u8; SUPERBLOCK_COPIES],
    /// The newest sequence and epoch of any copy. Those of the update are later.
    pub newest: (u64, u64),
}

impl Chosen {
    /// What an opening may believe: of a volume of mixed ages neither the note of a clean close, nor the snapshot, nor that any
    /// bucket was whole.
    pub fn believed(&self) -> Superblock {
        let mut found = self.current.clone();
        if let Some(mixed) = &self.mixed {
            (found.clean_epoch, found.healed_epoch, found.snapshot) = (0, 0, None);
            found.epoch = mixed.newest.1;
        }
        found
    }

    /// The superblock of the epoch that begins now, with no snapshot; of mixed ages, with no bucket that counts as whole.
    pub fn next_epoch(&self) -> Result<Superblock, SuperblockError> {
        let mut next = self.believed().next_epoch()?;
        next.parent_checksum = self.current.checksum();
        next.snapshot = None;
        if let Some(mixed) = &self.mixed {
            // Two later, so that of the copies that are left and this one a reader sees mixed ages as well.
            next.sequence = mixed.newest.0.checked_add(2).ok_or(SuperblockError::Exhausted)?;
        }
        // Who begins must be able to end: what is opened is healed, grown and closed by further updates.
        match next.sequence.max(next.epoch) <= u64::MAX - UPDATES_LEFT_MIN {
            true => Ok(next),
            false => Err(SuperblockError::Exhausted),
        }
    }
}

/// Decides which superblock is current.
///
/// The newest sequence with two equal valid copies wins. Two equal copies of a newer version or on unknown features
/// refuse the volume, even if an older pair could be read: an older program must not heal over a newer one's work.
pub fn choose(copies: [PageRead<'_>; SUPERBLOCK_COPIES]) -> Result<Chosen, SuperblockError> {
    let decoded: [Result<Superblock, SuperblockError>; SUPERBLOCK_COPIES] =
        std::array::from_fn(|copy| decode(copies[copy], copy as u8));
    if let Some(error) = agreed_newer(copies) {
        return Err(error);
    }
    let same: [[bool; SUPERBLOCK_COPIES]; SUPERBLOCK_COPIES] = std::array::from_fn(|a| {
        std::array::from_fn(|b| decoded[a].is_ok() && decoded[b].is_ok() && same_content(copies[a], copies[b]))
    });
    let paired = |copy: usize| same[copy].iter().filter(|same| **same).count() >= 2;
    let newest = (0..SUPERBLOCK_COPIES)
        .filter(|copy| paired(*copy))
        .filter_map(|copy| decoded[copy].as_ref().ok().map(|superblock| (copy, superblock)))
        .rev() // of equal ones max_by_key takes the last: make it the lowest copy
        .max_by_key(|(_, superblock)| superblock.sequence);
    let Some((winner, current)) = newest else {
        return Err(no_pair(&decoded));
    };
    let conflicts = |copy: usize| {
        paired(copy) && !same[winner][copy] && decoded[copy].as_ref().is_ok_and(|s| s.sequence == current.sequence)
    };
    if (0..SUPERBLOCK_COPIES).any(conflicts) {
        return Err(SuperblockError::Conflict {
            sequence: current.sequence,
        });
    }
    let heal = (0..SUPERBLOCK_COPIES as u8)
        .filter(|copy| !same[winner][usize::from(*copy)])
        .collect();
    Ok(Chosen {
        current: current.clone(),
        heal,
        mixed: mixed(&decoded, current),
    })
}

/// Where fewer updates than this are left, none is begun.
const UPDATES_LEFT_MIN: u64 = 1 << 32;

/// No volume comes to a sequence or an epoch beyond this.
const COUNTER_MAX: u64 = u64::MAX >> 1;

/// Whether the copies are not of one moment, as a crash leaves them: the rear pair never ahead of the front pair, and behind by
/// one update at most. Those of a file that was copied while its volume was in use need not be, and what lies between them is
/// then of any age.
fn mixed(decoded: &[Result<Superblock, SuperblockError>; SUPERBLOCK_COPIES], current: &Superblock) -> Option<Mixed> {
    // A single copy that says that no update could be later than it is would keep everybody out: it is of no moment at all.
    let is_reached = |found: &&Superblock| found.sequence.max(found.epoch) <= COUNTER_MAX && found.uuid == current.uuid;
    let valid = |copy: usize| decoded[copy].as_ref().ok().filter(is_reached);
    let sequence = |copy: usize| valid(copy).map(|found| found.sequence);
    let front = sequence(0).max(sequence(1))?;
    let rear = sequence(2).max(sequence(3))?;
    if (rear..=rear.saturating_add(1)).contains(&front) {
        return None;
    }
    let [a, b] = if sequence(1).is_some() { [0, 1] } else { [1, 0] };
    let [c, d] = if sequence(3).is_some() { [2, 3] } else { [3, 2] };
    let is_in_front = [0, 1].into_iter().any(|copy| sequence(copy) == Some(current.sequence));
    let epoch = (0..SUPERBLOCK_COPIES)
        .filter_map(|copy| valid(copy).map(|found| found.epoch))
        .max();
    Some(Mixed {
        order: if is_in_front { [c, d, a, b] } else { [a, b, c, d] },
        newest: (front.max(rear), epoch.unwrap_or(current.epoch)),
    })
}

/// The same for a repair: where no two copies agree, the newest valid one. All others are to be written.
///
/// An opening does not believe it: the loss of that one page would silently take the volume back.
pub fn choose_single(copies: [PageRead<'_>; SUPERBLOCK_COPIES]) -> Result<Chosen, SuperblockError> {
    let no_pair = match choose(copies) {
        Err(error @ SuperblockError::NoPair { .. }) => error,
        chosen => return chosen,
    };
    let valid = (0u8..)
        .zip(copies)
        .filter_map(|(copy, page)| Some((copy, decode(page, copy).ok()?)));
    let (single, current) = valid.max_by_key(|(_, superblock)| superblock.sequence).ok_or(no_pair)?;
    let heal = (0..SUPERBLOCK_COPIES as u8).filter(|copy| *copy != single).collect();
    Ok(Chosen {
        current,
        heal,
        mixed: None,
    })
}

/// What a copy says, if it was read.
pub fn decode(page: PageRead<'_>, copy: u8) -> Result<Superblock, SuperblockError> {
    match page {
        PageRead::Read(bytes) => Superblock::decode(bytes, copy),
        PageRead::Unread(errno) => Err(SuperblockError::Unread { errno }),
    }
}

fn view(page: PageRead<'_>) -> Result<&RawSuperblock, SuperblockError> {
    match page {
        PageRead::Read(bytes) => RawSuperblock::view(bytes),
        PageRead::Unread(errno) => Err(SuperblockError::Unread { errno }),
    }
}

fn same_content(a: PageRead<'_>, b: PageRead<'_>) -> bool {
    match (view(a), view(b)) {
        (Ok(a), Ok(b)) => a.same_content(b),
        _ => false,
    }
}

/// The newer version, or the features unknown to this program, that two equal copies agree on. Their checksums are right: one
/// page, or two damaged ones, keep nobody out.
pub fn agreed_newer(copies: [PageRead<'_>; SUPERBLOCK_COPIES]) -> Option<SuperblockError> {
    let newer = |copy: usize| match view(copies[copy]).and_then(RawSuperblock::verify) {
        Err(error @ (SuperblockError::Version { .. } | SuperblockError::Features { .. })) => Some(error),
        _ => None,
    };
    (0..SUPERBLOCK_COPIES).find_map(|one| {
        let agrees = |other: usize| newer(other).is_some() && same_content(copies[one], copies[other]);
        newer(one).filter(|_| (one + 1..SUPERBLOCK_COPIES).any(agrees))
    })
}

/// The error that tells the user most when no two copies agree.
fn no_pair(decoded: &[Result<Superblock, SuperblockError>; SUPERBLOCK_COPIES]) -> SuperblockError {
    let sequences = std::array::from_fn(|copy| decoded[copy].as_ref().ok().map(|superblock| superblock.sequence));
    if sequences.iter().any(Option::is_some) {
        return SuperblockError::NoPair { sequences };
    }
    let telling = decoded
        .iter()
        .filter_map(|copy| copy.as_ref().err())
        .max_by_key(|error| error.tells());
    telling.cloned().unwrap_or(SuperblockError::NotVolume)
}

/// Where copies 2 and 3 stand according to copies 0 and 1: nothing if neither is valid, two answers if they disagree.
pub fn rear_copies_at(front: [PageRead<'_>; 2]) -> Vec<[u64; 2]> {
    let mut found: Vec<[u64; 2]> = Vec::with_capacity(2);
    for (copy, page) in (0u8..).zip(front) {
        if let Ok(superblock) = decode(page, copy) {
            let [_, _, second, third] = superblock.layout().superblocks_at();
            if !found.contains(&[second, third]) {
                found.push([second, third]);
            }
        }
    }
    found
}

/// Whether the page read at byte `at` is a valid superblock that claims to stand there; which copy it is, and what it says.
pub fn recognise(page: PageRead<'_>, at: u64) -> Option<(u8, Superblock)> {
    if at % SUPERBLOCK_STEP != 0 {
        return None;
    }
    let raw = view(page).ok()?;
    let copy = u8::try_from(raw.copy()).ok()?;
    let superblock = raw.verify().ok()?;
    let claimed = *superblock.layout().superblocks_at().get(usize::from(copy))?;
    (claimed == at).then_some((copy, superblock))
}
