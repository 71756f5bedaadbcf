//! What the broker answers.

use super::codec::{Field, Malformed, Reader, TooLong, Writer, kinds, record};
use super::upkeep::{CheckWords, DefragWords};
use super::{HEADER_BYTES, MESSAGE_MAX, NAME_MAX, OWNERS_MAX, WARNINGS_MAX};
use crate::entry::HandleWords;
use crate::identity::Access;

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A segment, as it is now; a deleted one as it was.
    Segment {
        /// The segment.
        info: SegmentWords,
    },
    /// It is open.
    Opened {
        /// Its handle, for submissions.
        handle: HandleWords,
        /// What the handle may do.
        access: Access,
        /// The segment.
        info: SegmentWords,
    },
    /// Segments of a list.
    Segments {
        /// Do more answers to this question follow?
        more: bool,
        /// These.
        infos: Vec<SegmentWords>,
    },
    /// The volume.
    Volume(Box<VolumeWords>),
    /// What a user holds and may hold.
    Account(AccountWords),
    /// A number: of pages, of bytes.
    Count {
        /// The number.
        value: u64,
    },
    /// Changes are held back.
    Frozen {
        /// The number by which they go on.
        freeze: u64,
    },
    /// It was handed on; a connected socket comes with it.
    HandedOn {
        /// The number by which it is taken back.
        grant: u64,
    },
    /// Who uses the broker.
    Status(StatusWords),
    /// What a defragmentation has done.
    Defragged(Box<DefragWords>),
    /// What a check has found.
    Checked(Box<CheckWords>),
    /// It is open, and this is which segment it is.
    OpenedKnown {
        /// Its handle, for submissions.
        handle: HandleWords,
        /// What the handle may do.
        access: Access,
        /// The segment.
        info: SegmentWords,
        /// Which one it is: a rename keeps it.
        identity: [u8; 16],
    },
    /// Which opening of which volume this is.
    Opening {
        /// Which volume.
        volume: [u8; 16],
        /// Raised by each opening to write.
        epoch: u64,
    },
    /// A place for a log is the client's.
    LogClaimed {
        /// By which the log's writes go.
        handle: HandleWords,
        /// Bytes that the log has.
        size_bytes: u64,
        /// The block that the device asks for.
        block_bytes: u32,
        /// A durable write is followed by a flush of the device.
        flushes: bool,
    },
    /// It was not done, or not as asked.
    Failed(Box<Failed>),
}

/// A segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentWords {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_uid: u32,
    /// Its group.
    pub owner_gid: u32,
    /// The nine bits of the owner, the group and the others.
    pub mode: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The bytes up to which it grows in place.
    pub reserve_bytes: u64,
    /// "live", "moving", "quarantined".
    pub state: String,
}

/// What a user holds and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountWords {
    /// Blocks that it holds.
    pub used_blocks: u64,
    /// Segments that it holds.
    pub used_segments: u64,
    /// Blocks that it may hold; without, no limit.
    pub limit_blocks: Option<u64>,
    /// Segments that it may hold; without, no limit.
    pub limit_segments: Option<u64>,
}

/// A volume, as the client may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeWords {
    /// Version of the format on disk.
    pub format_version: u32,
    /// Unit of allocation in bytes.
    pub block_size: u32,
    /// Bytes of data that it can hold.
    pub size_bytes: u64,
    /// Bytes of data that it can hold when it has grown as far as it was formatted for.
    pub size_bytes_max: u64,
    /// Was it closed properly? Not while it is in use.
    pub clean: bool,
    /// What the client's user holds and may hold.
    pub own: AccountWords,
    /// The rest, for who may see the whole volume.
    pub whole: Option<WholeWords>,
}

/// What only those learn who may see a whole volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeWords {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Bytes of the file or device, metadata included.
    pub device_bytes: u64,
    /// Where block 0 of the data begins there, in bytes.
    pub data_at_bytes: u64,
    /// Bytes that no segment holds.
    pub free_bytes: u64,
    /// Bytes of the longest run that no segment holds.
    pub largest_free_bytes: u64,
    /// Segments that exist.
    pub segments: u64,
    /// Segments that can exist.
    pub segments_max: u64,
    /// What whoever owns the volume should know. A message carries the first [`WARNINGS_MAX`], each cut to
    /// [`TEXT_MAX`](super::TEXT_MAX) bytes.
    pub warnings: Vec<String>,
}

/// Who uses the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusWords {
    /// A row for each user: at most [`OWNERS_MAX`].
    pub owners: Vec<OwnerWords>,
    /// When the broker started: seconds since 1970.
    pub started_at_unix: u64,
    /// Sessions that have ended since.
    pub sessions_ended: u64,
}

/// How much one user uses the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerWords {
    /// The user.
    pub uid: u32,
    /// Sessions that it has.
    pub sessions: u32,
    /// Handles that are open.
    pub handles: u32,
    /// Requests under way.
    pub in_flight: u32,
    /// Requests that wait until others end.
    pub held: u32,
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes that these have read.
    pub bytes_read: u64,
    /// Bytes that these have written.
    pub bytes_written: u64,
    /// Those that failed.
    pub errors: u64,
    /// Sessions that were ended for what no correct client sends.
    pub violations: u64,
    /// The time within which half of the requests ended, in microseconds.
    pub latency_us_p50: u32,
    /// The time within which 99 of 100 ended, in microseconds.
    pub latency_us_p99: u32,
}

/// Why something was not done. It always fits into a message: longer texts are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// The word that stands for it: "EACCES", "EINDETERMINATE".
    pub code: String,
    /// The nearest error number of Linux.
    pub errno: u32,
    /// What was asked.
    pub operation: String,
    /// Of what.
    pub object: String,
    /// At which byte of it.
    pub offset: Option<u64>,
    /// What went wrong.
    pub what: String,
    /// What was needed instead.
    pub need: Option<String>,
    /// What to do about it.
    pub cure: Option<String>,
}

kinds! { Answer {
    0x0201 Done "done";
    0x0202 Segment "segment" { info };
    0x0203 Opened "opened" { handle, access, info };
    0x0204 Segments "segments" { more, infos };
    0x0205 Volume "volume" (volume);
    0x0206 Account "account" (account);
    0x0207 Count "count" { value };
    0x0208 Frozen "frozen" { freeze };
    0x0209 HandedOn "handed on" { grant };
    0x020a Status "status" (status);
    0x020b Defragged "defragged" (defragged);
    0x020c Checked "checked" (checked);

    0x0220 OpenedKnown "opened known" { handle, access, info, identity };
    0x0221 Opening "opening" { volume, epoch };

    0x0230 LogClaimed "log claimed" { handle, size_bytes, block_bytes, flushes };

    0x02ff Failed "failed" (failed);
} }

record!(SegmentWords {
    name,
    owner_uid,
    owner_gid,
    mode,
    size_bytes,
    reserve_bytes,
    state
});
record!(AccountWords {
    used_blocks,
    used_segments,
    limit_blocks,
    limit_segments
});
record!(VolumeWords {
    format_version,
    block_size,
    size_bytes,
    size_bytes_max,
    clean,
    own,
    whole
});
record!(OwnerWords {
    uid,
    sessions,
    handles,
    in_flight,
    held,
    requests,
    bytes_read,
    bytes_written,
    errors,
    violations,
    latency_us_p50,
    latency_us_p99,
});

impl Field for WholeWords {
    fn put(&self, writer: &mut Writer) {
        self.uuid.put(writer);
        self.device_bytes.put(writer);
        self.data_at_bytes.put(writer);
        self.free_bytes.put(writer);
        self.largest_free_bytes.put(writer);
        self.segments.put(writer);
        self.segments_max.put(writer);
        let warnings = &self.warnings[..self.warnings.len().min(WARNINGS_MAX)];
        (warnings.len() as u32).put(writer);
        for warning in warnings {
            writer.text(warning);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<WholeWords, Malformed> {
        Ok(WholeWords {
            uuid: Field::take(reader)?,
            device_bytes: Field::take(reader)?,
            data_at_bytes: Field::take(reader)?,
            free_bytes: Field::take(reader)?,
            largest_free_bytes: Field::take(reader)?,
            segments: Field::take(reader)?,
            segments_max: Field::take(reader)?,
            warnings: {
                let count = reader.count(WARNINGS_MAX, "more than 8 warnings")?;
                let warnings: Result<_, _> = (0..count).map(|_| reader.text()).collect();
                warnings?
            },
        })
    }
}

impl Field for StatusWords {
    fn put(&self, writer: &mut Writer) {
        writer.check("a list of users", self.owners.len(), OWNERS_MAX);
        self.owners.put(writer);
        self.started_at_unix.put(writer);
        self.sessions_ended.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<StatusWords, Malformed> {
        let count = reader.count(OWNERS_MAX, "more than 960 users")?;
        let owners: Result<_, _> = (0..count).map(|_| Field::take(reader)).collect();
        Ok(StatusWords {
            owners: owners?,
            started_at_unix: Field::take(reader)?,
            sessions_ended: Field::take(reader)?,
        })
    }
}

impl Field for Failed {
    fn put(&self, writer: &mut Writer) {
        writer.cut(&self.code, NAME_MAX);
        self.errno.put(writer);
        writer.text(&self.operation);
        writer.text(&self.object);
        self.offset.put(writer);
        writer.text(&self.what);
        writer.opt_text(self.need.as_deref());
        writer.opt_text(self.cure.as_deref());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Failed, Malformed> {
        Ok(Failed {
            code: Field::take(reader)?,
            errno: Field::take(reader)?,
            operation: reader.text()?,
            object: reader.text()?,
            offset: Field::take(reader)?,
            what: reader.text()?,
            need: reader.opt_text()?,
            cure: reader.opt_text()?,
        })
    }
}

impl SegmentWords {
    /// Bytes that it takes in a message.
    fn encoded_bytes(&self) -> usize {
        // Two lengths of strings, three words of 32 bits, two of 64.
        2 + self.name.len() + 3 * 4 + 2 * 8 + 2 + self.state.len()
    }
}

/// The answers to `List`: as many as it takes, each of which fits into a message. There is one at least; the last says
/// that no more follow.
pub fn pieces(infos: &[SegmentWords]) -> impl Iterator<Item = Answer> {
    // Beside the segments a message has its header, `more` and their count.
    const ROOM: usize = MESSAGE_MAX - HEADER_BYTES - 1 - 4;
    let mut rest = Some(infos);
    std::iter::from_fn(move || {
        let infos = rest.take()?;
        let mut bytes = 0;
        let fit = infos.iter().take_while(|info| {
            bytes += info.encoded_bytes();
            bytes <= ROOM
        });
        // What cannot be sent at all goes alone, and its encoding says so.
        let (now, later) = infos.split_at(fit.count().max(1).min(infos.len()));
        let more = !later.is_empty();
        rest = more.then_some(later);
        Some(Answer::Segments {
            more,
            infos: now.to_vec(),
        })
    })
}
