//! Weaker devices and weaker volumes, made by editing a record.
//!
//! The device is run honestly; then its record is changed as if one promise had not been kept: a flush left out, a durable
//! write that stays in the device's cache, two writes in the other order. If the explorer finds nothing wrong with that,
//! then either the promise is not needed, or the explorer is blind. `tests/promises/the_explorer_bites.rs` tells the two apart.

use baio_engine::sim::log::Record;
use baio_storage::segment::layout::Layout;

use crate::model::Op;

/// During which part of a session something was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// An opening of the volume.
    Opening,
    /// A create.
    Create,
    /// A delete.
    Delete,
    /// A plain write.
    Write,
    /// A data-durable write.
    WriteDurable,
    /// The user's sync.
    Sync,
    /// A clean close.
    Close,
    /// Another size.
    Resize,
    /// Another name.
    Rename,
    /// Another place.
    Move,
    /// A limit.
    Quota,
    /// A larger volume.
    Grow,
    /// Several operations at a time.
    Together,
    /// Nothing that writes.
    Idle,
}

/// For what the superblock is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Copies that a crash left behind are made equal.
    Heal,
    /// The epoch is raised.
    Raise,
    /// The healed epoch is noted.
    Note,
    /// A clean close is noted.
    Clean,
    /// The volume's size is changed.
    Size,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A copy of the superblock.
    Superblock(u8, Role),
    /// An image of a bucket, in the table.
    Table,
    /// The same in the mirror.
    Mirror,
    /// A page of the snapshot of a clean close.
    Snapshot,
    /// Bytes of segments.
    Data,
    /// A flush.
    Flush,
    /// A mark.
    Mark,
}

/// One record, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// When.
    pub during: During,
    /// What.
    pub what: What,
    /// The how-manieth of its kind in its operation, from 0.
    pub nth: usize,
    /// Is it the last of its kind in its operation?
    pub is_last: bool,
}

/// How a promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is not done at all.
    Dropped,
    /// It is done, but not durable: a later power cut may lose it, as any one write that no flush covers.
    Volatile,
    /// It is not durable, and the device keeps all of these writes in its cache until the next flush: lost together.
    Held,
    /// It changes places with the write behind it.
    Swapped,
    /// It is done at the end of its operation.
    Late,
}

/// One promise less.
#[derive(Clone, Copy, Debug)]
pub struct Weakening {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is different.
    pub story: &'static str,
    /// Which records it concerns.
    pub concerns: fn(Scene) -> bool,
    /// What happens to them.
    pub how: How,
}

impl Weakening {
    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Weakening> {
        ALL.iter().find(|weakening| weakening.name == name)
    }

    /// Does a process that goes on without a power cut see what the honest one saw?
    #[must_use]
    pub fn keeps_contents(&self) -> bool {
        match self.how {
            How::Volatile => true,
            How::Dropped => self.concerns_flushes_only(),
            How::Held | How::Swapped | How::Late => false,
        }
    }

    fn concerns_flushes_only(&self) -> bool {
        let writes = [What::Table, What::Mirror, What::Data, What::Snapshot]
            .into_iter()
            .chain((0..4).flat_map(|copy| ROLES.map(|role| What::Superblock(copy, role))));
        !writes
            .flat_map(|what| DURING.map(|during| (what, during)))
            .flat_map(|(what, during)| {
                [(0, true), (0, false), (1, true), (1, false)].map(|(nth, is_last)| Scene {
                    during,
                    what,
                    nth,
                    is_last,
                })
            })
            .any(self.concerns)
    }

    /// The record as the weaker device or volume would have left it. `ops` are the session's, whose opening comes first.
    #[must_use]
    pub fn apply(&self, record: Vec<Record>, ops: &[Op], layout: &Layout) -> Vec<Record> {
        let scenes = scenes(&record, ops, layout);
        let mut weaker = Vec::with_capacity(record.len());
        let mut held = Vec::new();
        let mut late = Vec::new();
        let mut swapped = None;
        for (record, scene) in record.into_iter().zip(scenes) {
            if !(self.concerns)(scene) {
                if matches!(record, Record::Sync | Record::LateSync { .. }) {
                    weaker.append(&mut held);
                }
                if matches!(record, Record::Mark(_)) {
                    weaker.append(&mut late);
                }
                weaker.push(record);
                weaker.extend(swapped.take());
                continue;
            }
            match self.how {
                How::Dropped => {}
                How::Volatile => weaker.push(volatile(record)),
                How::Held => held.push(volatile(record)),
                How::Swapped => swapped = Some(record),
                How::Late => late.push(record),
            }
        }
        weaker.extend(swapped);
        weaker.append(&mut late);
        weaker
    }
}

const ROLES: [Role; 5] = [Role::Heal, Role::Raise, Role::Note, Role::Clean, Role::Size];
const DURING: [During; 14] = [
    During::Together,
    During::Grow,
    During::Resize,
    During::Rename,
    During::Move,
    During::Quota,
    During::Opening,
    During::Create,
    During::Delete,
    During::Write,
    During::WriteDurable,
    During::Sync,
    During::Close,
    During::Idle,
];

/// The same write without its durability.
#[must_use]
pub fn volatile(record: Record) -> Record {
    match record {
        Record::Write {
            offset,
            bytes,
            under_way,
            ..
        } => Record::Write {
            offset,
            bytes,
            durable: false,
            under_way,
        },
        other => other,
    }
}

/// Understands every record of a session.
pub(crate) fn scenes(record: &[Record], ops: &[Op], layout: &Layout) -> Vec<Scene> {
    let mut during = During::Opening;
    let mut scenes = Vec::with_capacity(record.len());
    for record in record {
        let what = match record {
            Record::Write { offset, .. } => what_is_at(*offset, during, layout),
            Record::Sync | Record::LateSync { .. } => What::Flush,
            Record::Mark(_) => What::Mark,
        };
        scenes.push(Scene {
            during,
            what,
            nth: 0,
            is_last: false,
        });
        if let Record::Mark(mark) = record {
            during = ops.get(*mark as usize).map_or(During::Idle, during_of);
        }
    }
    tell_roles(&mut scenes);
    count(&mut scenes);
    scenes
}

/// Numbers what is of one kind in each operation.
fn count(scenes: &mut [Scene]) {
    for operation in scenes.split_mut(|scene| scene.what == What::Mark) {
        for kind in [What::Table, What::Mirror, What::Data, What::Snapshot, What::Flush] {
            let of_kind = operation.iter_mut().filter(|scene| scene.what == kind);
            let mut last = None;
            for (nth, scene) in of_kind.enumerate() {
                scene.nth = nth;
                last = Some(scene);
            }
            if let Some(last) = last {
                last.is_last = true;
            }
        }
    }
}

fn during_of(op: &Op) -> During {
    match op {
        Op::Create { .. } => During::Create,
        Op::Resize { .. } => During::Resize,
        Op::Rename { .. } => During::Rename,
        Op::Move { .. } | Op::Defrag => During::Move,
        Op::Grow { .. } => During::Grow,
        Op::Quota { .. } => During::Quota,
        Op::Delete { .. } => During::Delete,
        Op::Write { durable: false, .. } => During::Write,
        Op::Write { durable: true, .. } => During::WriteDurable,
        Op::Sync { .. } => During::Sync,
        Op::Close => During::Close,
        Op::Open => During::Opening,
        Op::Together { .. } => During::Together,
        Op::Kill | Op::Refused => During::Idle,
    }
}

/// Is this record a write of that?
pub(crate) fn is_write_of(record: &Record, what: What, layout: &Layout) -> bool {
    matches!(record, Record::Write { offset, .. } if what_is_at(*offset, During::Idle, layout) == what)
}

fn what_is_at(offset: u64, during: During, layout: &Layout) -> What {
    if let Some(copy) = layout.superblocks_at().iter().position(|&at| at == offset) {
        let role = match during {
            During::Close => Role::Clean,
            During::Grow => Role::Size,
            _ => Role::Raise,
        };
        return What::Superblock(copy as u8, role);
    }
    match offset {
        at if at >= layout.data_at() => What::Data,
        at if at >= layout.superblocks_at()[2] => What::Snapshot,
        at if at >= layout.mirror_at() => What::Mirror,
        _ => What::Table,
    }
}

/// An opening writes the superblock up to three times: what is to be healed (at most two copies), the raised epoch (four),
/// and the healed epoch (four, unless the volume was clean). So the count tells which write is which.
fn tell_roles(scenes: &mut [Scene]) {
    let mut from = 0;
    while from < scenes.len() {
        let is_opening = |scene: &Scene| scene.during == During::Opening;
        let len = scenes[from..].iter().take_while(|scene| is_opening(scene)).count();
        let copies: Vec<usize> = (from..from + len)
            .filter(|&at| matches!(scenes[at].what, What::Superblock(..)))
            .collect();
        let healed = copies.len() % 4;
        for (nth, at) in copies.into_iter().enumerate() {
            if let What::Superblock(_, role) = &mut scenes[at].what {
                *role = match nth {
                    nth if nth < healed => Role::Heal,
                    nth if nth < healed + 4 => Role::Raise,
                    _ => Role::Note,
                };
            }
        }
        from += len.max(1);
    }
}

use During::{Close, Create, Delete, Move, Opening, Quota, Rename, Resize, Sync, Write, WriteDurable};
use What::{Data, Flush, Mirror, Snapshot, Superblock, Table};

/// A row: its name, what is different, how that comes about, and which records it concerns.
macro_rules! weakenings {
    ($($name:literal, $story:literal: $how:ident, |$scene:ident| $concerns:expr;)*) => {
        &[$(Weakening {
            name: $name,
            story: $story,
            concerns: |$scene: Scene| $concerns,
            how: How::$how,
        }),*]
    };
}

/// Every weakening that is tried: one for each flush and durable write of the volume, and some of order.
pub const ALL: &[Weakening] = weakenings! {
    "create-without-flush", "a create does not flush its zeroes before its record":
        Dropped, |s| s.during == Create && s.what == Flush;
    "create-without-zeroes", "a create does not zero its blocks":
        Dropped, |s| s.during == Create && s.what == Data;
    "volatile-table", "table images are written without durability":
        Volatile, |s| matches!(s.during, Create | Delete) && s.what == Table;
    "volatile-mirror", "mirror images are written without durability":
        Volatile, |s| matches!(s.during, Create | Delete) && s.what == Mirror;
    "volatile-tombstone", "the table image of a delete is written without durability":
        Volatile, |s| s.during == Delete && s.what == Table;
    "mirror-before-table", "the mirror is written before the table":
        Swapped, |s| matches!(s.during, Create | Delete) && s.what == Table;
    "user-sync-ignored", "the user's sync does not flush":
        Dropped, |s| s.during == Sync && s.what == Flush;
    "user-durable-write-volatile", "the user's data-durable write is written without durability":
        Volatile, |s| s.during == WriteDurable && s.what == Data;
    "user-write-dropped", "the user's plain write never reaches the device":
        Dropped, |s| s.during == Write && s.what == Data;
    "close-without-flush", "a clean close does not flush":
        Dropped, |s| s.during == Close && s.what == Flush;
    "open-without-flush", "an opening reads what a killed process wrote, and does not flush it":
        Dropped, |s| s.during == Opening && s.what == Flush;
    "healing-dropped", "an opening decides what a crash left in doubt, and does not write it down":
        Dropped, |s| s.during == Opening && matches!(s.what, Table | Mirror);
    "healing-held", "an opening's healing stays in the device's cache when the healed epoch is noted":
        Held, |s| s.during == Opening && matches!(s.what, Table | Mirror);
    "epoch-held", "the raised epoch stays in the device's cache":
        Held, |s| matches!(s.what, Superblock(_, Role::Raise));
    "epoch-volatile", "the copies of the raised epoch are written without durability":
        Volatile, |s| matches!(s.what, Superblock(_, Role::Raise));
    "epoch-front-held", "copies 0 and 1 of the raised epoch stay in the device's cache":
        Held, |s| matches!(s.what, Superblock(0 | 1, Role::Raise));
    "epoch-rear-held", "copies 2 and 3 of the raised epoch, and of healing, stay in the device's cache":
        Held, |s| matches!(s.what, Superblock(2 | 3, Role::Raise | Role::Heal));
    "superblock-healing-dropped", "superblock copies that a crash left behind are not made equal before the next update":
        Dropped, |s| matches!(s.what, Superblock(_, Role::Heal));
    "healed-epoch-held", "the healed epoch stays in the device's cache":
        Held, |s| matches!(s.what, Superblock(_, Role::Note));
    "clean-note-held", "the note of a clean close stays in the device's cache":
        Held, |s| matches!(s.what, Superblock(_, Role::Clean));
    "resize-volatile", "the table image of a resize is written without durability":
        Volatile, |s| s.during == Resize && s.what == Table && s.is_last;
    "grow-without-zeroes", "a segment that grows in place is not zeroed there":
        Dropped, |s| s.during == Resize && s.what == Data && s.nth == 0;
    "grow-without-flush", "a segment that grows does not flush its zeroes before its record":
        Dropped, |s| s.during == Resize && s.what == Flush;
    "rename-volatile", "the table images of a rename are written without durability":
        Volatile, |s| s.during == Rename && s.what == Table;
    "rename-old-name-first", "a rename gives up the old name before the new one is written":
        Late, |s| s.during == Rename && matches!(s.what, Table | Mirror) && s.nth == 0 && !s.is_last;
    "move-begins-volatile", "the record that a move begins with is written without durability":
        Volatile, |s| s.during == Move && s.what == Table && s.nth == 0;
    "move-copy-volatile", "a move copies without durability, and records that it has":
        Volatile, |s| s.during == Move && s.what == Data;
    "move-mark-before-copy", "a move records that a chunk is copied before it is":
        Swapped, |s| s.during == Move && s.what == Data;
    "move-end-before-copy", "a move ends before its last chunk is copied":
        Late, |s| s.during == Move && s.what == Data && s.is_last;
    "move-end-volatile", "the record that ends a move is written without durability":
        Volatile, |s| s.during == Move && s.what == Table && s.is_last;
    "quota-volatile", "the table image of a quota is written without durability":
        Volatile, |s| s.during == Quota && s.what == Table;
    "volume-growth-held", "the larger size of the volume stays in the device's cache":
        Held, |s| matches!(s.what, Superblock(_, Role::Size));
    "snapshot-held", "the snapshot of a clean close is noted before it is durable":
        Held, |s| s.during == Close && s.what == Snapshot;
};

#[cfg(test)]
mod tests;
