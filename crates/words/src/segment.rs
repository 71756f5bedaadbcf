//! A segment: what it is to be like, and how it is shown.

use crate::codec::{Field, Malformed, Reader, Writer, record, words};

/// Options for a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Size in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Bytes up to which it can later grow in place; 0 for no more than its size.
    pub reserve_bytes: u64,
    /// How its blocks become zero.
    pub zero: Zeroing,
    /// Permission bits.
    pub mode: u32,
    /// The group of the segment. `None` takes the caller's; a segment that is made for another owner then has no group, and nobody has the
    /// rights of the mode's group bits. Only uid 0 may name a group that the caller is not in.
    pub group: Option<u32>,
}

impl CreateOptions {
    /// A private segment of this size.
    #[must_use]
    pub fn of_size(size_bytes: u64) -> CreateOptions {
        CreateOptions {
            size_bytes,
            reserve_bytes: 0,
            zero: Zeroing::Written,
            mode: 0o600,
            group: None,
        }
    }
}

/// How blocks are zeroed before anybody can read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeroing {
    /// Zeroes are written: later writes find their place and need no metadata of the file system below.
    #[default]
    Written,
    /// The device or file system makes the zeroes (`FALLOC_FL_ZERO_RANGE`, else `FALLOC_FL_PUNCH_HOLE`); they are written only where it
    /// cannot. This is done at once, but the first durable write to each block may cost more.
    Lazy,
}

/// Options for resizing a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeOptions {
    /// Size in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Bytes up to which it can grow in place. `None`: a segment that shrinks gives back everything behind its new end, and one that
    /// grows keeps its reserve if that is large enough.
    pub reserve_bytes: Option<u64>,
    /// Cut nothing off: fail with `Fault::WouldCut` if the segment is larger than that when the resize begins, even if another caller has just
    /// made it so.
    pub grows_only: bool,
}

impl ResizeOptions {
    /// This size, and no decision about the reserve. What lies behind it is cut off.
    #[must_use]
    pub fn to_size(size_bytes: u64) -> ResizeOptions {
        ResizeOptions {
            size_bytes,
            reserve_bytes: None,
            grows_only: false,
        }
    }

    /// This size, and no decision about the reserve; refused where anything would be cut off.
    #[must_use]
    pub fn grown_to(size_bytes: u64) -> ResizeOptions {
        ResizeOptions {
            grows_only: true,
            ..ResizeOptions::to_size(size_bytes)
        }
    }
}

/// A segment, as `list` and `stat` show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_uid: u32,
    /// Its owner's group.
    pub owner_gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes, whole blocks.
    pub size_bytes: u64,
    /// Length of its run of blocks in bytes: it grows in place up to this.
    pub reserve_bytes: u64,
    /// First block of the run. A broker does not say where segments lie: it gives 0.
    pub start_block: u64,
    /// "live", "moving", "quarantined"; "unknown" where a newer broker says another word.
    pub state: &'static str,
    /// Identifies the segment, whatever its name: a rename keeps it, and a new segment of the same name has another. All zero if a broker does
    /// not say it.
    pub uuid: [u8; 16],
}

impl SegmentInfo {
    /// What a segment that is shown can be.
    pub const STATES: [&'static str; 3] = ["live", "moving", "quarantined"];

    /// Bytes that it takes in a message.
    pub(crate) fn encoded_bytes(&self) -> usize {
        // Two lengths of strings, three words of 32 bits, two of 64.
        2 + self.name.len() + 3 * 4 + 2 * 8 + 2 + self.state.len()
    }
}

record!(CreateOptions {
    size_bytes,
    reserve_bytes,
    mode,
    group,
    zero
});

words!(Zeroing, "an unknown way to make zero" { 0 Written, 1 Lazy });

/// Whether it only grows, the kind of the question says.
impl Field for ResizeOptions {
    fn put(&self, writer: &mut Writer) {
        self.size_bytes.put(writer);
        self.reserve_bytes.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<ResizeOptions, Malformed> {
        Ok(ResizeOptions {
            size_bytes: Field::take(reader)?,
            reserve_bytes: Field::take(reader)?,
            grows_only: false,
        })
    }
}

/// Where it lies is the broker's business; which it is, an answer says beside it.
impl Field for SegmentInfo {
    fn put(&self, writer: &mut Writer) {
        self.name.put(writer);
        self.owner_uid.put(writer);
        self.owner_gid.put(writer);
        self.mode.put(writer);
        self.size_bytes.put(writer);
        self.reserve_bytes.put(writer);
        writer.name(self.state);
    }

    fn take(reader: &mut Reader<'_>) -> Result<SegmentInfo, Malformed> {
        Ok(SegmentInfo {
            name: Field::take(reader)?,
            owner_uid: Field::take(reader)?,
            owner_gid: Field::take(reader)?,
            mode: Field::take(reader)?,
            size_bytes: Field::take(reader)?,
            reserve_bytes: Field::take(reader)?,
            state: reader.one_of(&SegmentInfo::STATES)?,
            ..SegmentInfo::default()
        })
    }
}
