//! What a client asks by a message, because it is too rare or too large for the ring.

use std::ops::Range;

use super::codec::{Field, Malformed, Reader, TooLong, Writer, choice, kinds, record};
use super::{FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, GOES_ON, RANGES_MAX};
use crate::entry::HandleWords;
use crate::identity::{Access, OwnershipChange};
use crate::operation_name::OperationName;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Make a segment. Answered by `Segment`.
    Create {
        /// What the client calls it.
        operation: OperationName,
        /// In whose name.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The bytes up to which it can grow in place.
        reserve_bytes: u64,
        /// The nine bits of the owner, the group and the others.
        mode: u32,
        /// Its group; without, the client's.
        group: Option<u32>,
        /// How its blocks are made zero.
        zero: ZeroWords,
    },
    /// Delete a segment. Answered by `Segment`, as it was.
    Delete {
        /// What the client calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
    },
    /// Give a segment another size. Answered by `Segment`.
    Resize {
        /// What the client calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// Its new size in bytes.
        size_bytes: u64,
        /// The bytes up to which it can then grow in place; without, as before.
        reserve_bytes: Option<u64>,
    },
    /// With the feature [`FEATURE_GROW`](super::FEATURE_GROW): as `Resize`, and refused where that would cut off anything. Answered by
    /// `Segment`.
    Grow {
        /// What the client calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// Its new size in bytes.
        size_bytes: u64,
        /// The bytes up to which it can then grow in place; without, as before.
        reserve_bytes: Option<u64>,
    },
    /// Give a segment another name. Answered by `Segment`.
    Rename {
        /// What the client calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        old: String,
        /// Its new name.
        new: String,
    },
    /// With the feature [`FEATURE_OWNERSHIP`](super::FEATURE_OWNERSHIP): give a segment another owner, group or mode. Answered by
    /// `Segment`.
    ChangeOwnership {
        /// What the client calls it.
        operation: OperationName,
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// What becomes another.
        change: OwnershipChange,
    },
    /// Open a segment. Answered by `Opened`. The ring closes the handle.
    Open {
        /// Whose it is.
        owner_uid: u32,
        /// Its name.
        name: String,
        /// For what.
        access: Access,
    },
    /// The segments that the client may see. Answered by one `Segments` or more.
    List,
    /// The volume. Answered by `Volume`.
    Info,
    /// What a user holds and may hold. Answered by `Account`.
    Quota {
        /// The user.
        uid: u32,
    },
    /// Set what a user may hold. Answered by `Account`.
    SetQuota {
        /// The user.
        uid: u32,
        /// Blocks; without, no limit.
        blocks: Option<u64>,
        /// Segments; without, no limit.
        segments: Option<u64>,
    },
    /// Tell the page cache what will be read. Answered by `Count`.
    Hint {
        /// Of which segment.
        handle: HandleWords,
        /// What.
        hint: HintWords,
    },
    /// Hold all changes of the volume back. Answered by `Frozen`.
    Freeze,
    /// Let them go on. Answered by `Done`.
    Thaw {
        /// The number that `Frozen` told.
        freeze: u64,
    },
    /// Size of what is behind a handle, in bytes. Answered by `Count`.
    Size {
        /// The handle.
        handle: HandleWords,
    },
    /// Give another process what this handle opens. Answered by `HandedOn`, with a connected socket.
    HandOn {
        /// The handle.
        handle: HandleWords,
        /// At most this.
        access: Access,
    },
    /// Take back what was handed on. Answered by `Done`.
    Revoke {
        /// The number that `HandedOn` told.
        grant: u64,
    },
    /// Who uses the broker, and how much. Answered by `Status`.
    Status,
    /// With the feature [`GOES_ON`](super::GOES_ON): open a segment, and tell which one it is. Answered by `OpenedKnown`.
    OpenKnown {
        /// Its owner.
        owner_uid: u32,
        /// Its name, or the one that it had.
        name: String,
        /// To do what.
        access: Access,
        /// This segment and no other, whatever its name is now; without, the one that has the name.
        identity: Option<[u8; 16]>,
    },
    /// With the same feature: which opening of which volume this is. Answered by `Opening`.
    Opening,
    /// End the question with that id early, if it can be. Has no answer of its own.
    Cancel {
        /// The other question's id.
        question: u32,
    },
    /// Move segments together. Answered by `Defragged`, for who may see the whole volume.
    Defrag,
    /// Read all metadata and compare. Answered by `Checked`, for who may see the whole volume.
    Check,
    /// Have what is behind a handle for a log of the client's own: nobody else writes there. Answered by `LogClaimed`. With
    /// [`FEATURE_LOGS`](super::FEATURE_LOGS).
    ClaimLog {
        /// A handle to write.
        handle: HandleWords,
    },
    /// Give it back. Answered by `Done`.
    ReleaseLog {
        /// The handle that `LogClaimed` told.
        handle: HandleWords,
    },
}

/// How the blocks of a new segment are made zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroWords {
    /// By writing zeroes.
    Written,
    /// By the device, where it can.
    Lazy,
}

/// A hint to the page cache. Ranges are of pages, from the first one to before the last number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintWords {
    /// Read them in: at most [`RANGES_MAX`] ranges.
    Prefetch(Vec<Range<u64>>),
    /// Let them go.
    Drop(Range<u64>),
    /// Keep them in memory.
    Keep(Range<u64>),
    /// They need not be kept any more.
    KeepNoMore(Range<u64>),
    /// How this handle reads from now on.
    Pattern(PatternWords),
}

/// In which order a handle reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternWords {
    /// Nothing is said: sequential reading is detected.
    Unknown,
    /// In order.
    Sequential,
    /// At random.
    Random,
}

kinds! { Question {
    0x0101 Create "create" { operation, owner_uid, name, size_bytes, reserve_bytes, mode, group, zero };
    0x0102 Delete "delete" { operation, owner_uid, name };
    0x0103 Resize "resize" { operation, owner_uid, name, size_bytes, reserve_bytes };
    0x0104 Rename "rename" { operation, owner_uid, old, new };
    0x0105 Open "open" { owner_uid, name, access };
    0x0106 List "list";
    0x0107 Info "info";
    0x0108 Quota "quota" { uid };
    0x0109 SetQuota "set quota" { uid, blocks, segments };
    0x010a Hint "hint" { handle, hint };
    0x010b Freeze "freeze";
    0x010c Thaw "thaw" { freeze };
    0x010d Size "size" { handle };
    0x010e HandOn "hand on" { handle, access };
    0x010f Revoke "revoke" { grant };
    0x0110 Status "status";
    0x0111 Cancel "cancel" { question };
    0x0112 Defrag "defrag";
    0x0113 Check "check";

    0x0120 OpenKnown "open known" { owner_uid, name, access, identity };
    0x0121 Opening "opening";

    0x0128 ChangeOwnership "change ownership" { operation, owner_uid, name, change };
    0x0129 Grow "grow" { operation, owner_uid, name, size_bytes, reserve_bytes };

    0x0130 ClaimLog "claim log" { handle };
    0x0131 ReleaseLog "release log" { handle };
} }

impl Question {
    /// The feature that it comes with, which a session must have; 0 for those of the protocol's first version.
    #[must_use]
    pub fn feature(&self) -> u64 {
        match self {
            Question::OpenKnown { .. } | Question::Opening => GOES_ON,
            Question::ClaimLog { .. } | Question::ReleaseLog { .. } => FEATURE_LOGS,
            Question::ChangeOwnership { .. } => FEATURE_OWNERSHIP,
            Question::Grow { .. } => FEATURE_GROW,
            _ => 0,
        }
    }
}

record!(OperationName { id, is_repeat });
record!(OwnershipChange {
    owner_uid,
    owner_gid,
    mode
});

impl Field for ZeroWords {
    fn put(&self, writer: &mut Writer) {
        let word: u8 = match self {
            ZeroWords::Written => 0,
            ZeroWords::Lazy => 1,
        };
        word.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<ZeroWords, Malformed> {
        let known = |byte| match byte {
            0 => Some(ZeroWords::Written),
            1 => Some(ZeroWords::Lazy),
            _ => None,
        };
        choice(reader, known, "an unknown way to make zero")
    }
}

impl Field for PatternWords {
    fn put(&self, writer: &mut Writer) {
        let word: u8 = match self {
            PatternWords::Unknown => 0,
            PatternWords::Sequential => 1,
            PatternWords::Random => 2,
        };
        word.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<PatternWords, Malformed> {
        let known = |byte| match byte {
            0 => Some(PatternWords::Unknown),
            1 => Some(PatternWords::Sequential),
            2 => Some(PatternWords::Random),
            _ => None,
        };
        choice(reader, known, "an unknown pattern")
    }
}

impl Field for Range<u64> {
    fn put(&self, writer: &mut Writer) {
        self.start.put(writer);
        self.end.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Range<u64>, Malformed> {
        let start = u64::take(reader)?;
        Ok(start..u64::take(reader)?)
    }
}

impl Field for HintWords {
    fn put(&self, writer: &mut Writer) {
        let mut one = |word: u8, range: &Range<u64>| {
            word.put(writer);
            range.put(writer);
        };
        match self {
            HintWords::Prefetch(ranges) => {
                writer.check("a list of ranges", ranges.len(), RANGES_MAX);
                0u8.put(writer);
                ranges.put(writer);
            }
            HintWords::Drop(range) => one(1, range),
            HintWords::Keep(range) => one(2, range),
            HintWords::KeepNoMore(range) => one(3, range),
            HintWords::Pattern(pattern) => {
                4u8.put(writer);
                pattern.put(writer);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<HintWords, Malformed> {
        let known = |byte| (byte <= 4).then_some(byte);
        Ok(match choice(reader, known, "an unknown hint")? {
            0 => {
                let count = reader.count(RANGES_MAX, "more than 1024 ranges")?;
                let ranges: Result<_, _> = (0..count).map(|_| Field::take(reader)).collect();
                HintWords::Prefetch(ranges?)
            }
            1 => HintWords::Drop(Field::take(reader)?),
            2 => HintWords::Keep(Field::take(reader)?),
            3 => HintWords::KeepNoMore(Field::take(reader)?),
            _ => HintWords::Pattern(Field::take(reader)?),
        })
    }
}
