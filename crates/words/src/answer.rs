//! What a [`Command`](crate::Command) is answered with, on every link. The kinds of a session's answers are the table below.

use crate::account::Account;
use crate::codec::{HEADER_BYTES, MESSAGE_MAX, kinds, record};
use crate::handle::Handle;
use crate::identity::Access;
use crate::refusal::Failed;
use crate::segment::SegmentInfo;
use crate::upkeep::{CheckReport, DefragReport};
use crate::usage::BrokerStatus;
use crate::volume::VolumeView;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A segment, as it is now; a deleted one as it was.
    Segment {
        /// The segment.
        info: SegmentInfo,
    },
    /// It is open.
    Opened {
        /// Its handle, for submissions.
        handle: Handle,
        /// What the handle may do.
        access: Access,
        /// The segment.
        info: SegmentInfo,
    },
    /// Segments of a list.
    Segments {
        /// Do more answers to this question follow?
        more: bool,
        /// These.
        infos: Vec<SegmentInfo>,
    },
    /// The volume.
    Volume(Box<VolumeView>),
    /// What a user holds and may hold.
    Account(Account),
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
    Status(BrokerStatus),
    /// What a defragmentation has done.
    Defragged(Box<DefragReport>),
    /// What a check has found.
    Checked(Box<CheckReport>),
    /// It is open, and this is which segment it is.
    OpenedKnown {
        /// Its handle, for submissions.
        handle: Handle,
        /// What the handle may do.
        access: Access,
        /// The segment.
        info: Box<SegmentInfo>,
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
    LogClaimed(LogClaim),
    /// It was not done, or not as asked: what a broker says of an error.
    Failed(Box<Failed>),
}

/// A segment that is for a caller's own log, until the handle is closed and its last request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogClaim {
    /// By which the log writes: by no other.
    pub handle: Handle,
    /// Bytes that the log has.
    pub size_bytes: u64,
    /// The block that the device asks for.
    pub block_bytes: u32,
    /// A durable write is followed by a flush of the device.
    pub flushes: bool,
}

record!(LogClaim {
    handle,
    size_bytes,
    block_bytes,
    flushes
});

impl Answer {
    /// The handle that it gives: to be closed when nobody takes it.
    #[must_use]
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Answer::Opened { handle, .. } | Answer::OpenedKnown { handle, .. } => Some(*handle),
            Answer::LogClaimed(claim) => Some(claim.handle),
            _ => None,
        }
    }
}

// The kinds of answers, as `docs/inside/shm-protocol.md` has them.
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

    0x0230 LogClaimed "log claimed" (claim);

    0x02ff Failed "failed" (failed);
} }

/// The answers to `List`: as many as it takes, each of which fits into a message. There is one at least; the last says
/// that no more follow.
pub fn pieces(infos: &[SegmentInfo]) -> impl Iterator<Item = Answer> {
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
