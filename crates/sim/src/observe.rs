//! What is on a volume, asked through the public interface as a user asks: list, open, read.

use std::ops::Range;

use baio_engine::{Memory, Wait};
use baio_storage::segment::layout::Layout;
use baio_storage::{Access, Account, Core, Error, Identity, SegmentInfo, SegmentOp, SegmentRequest};

use crate::model::{BLOCK, Key, NAMES, UIDS};
use crate::stamp::{self, Content, SECTOR};
use crate::violation::{Kind, Violation};

const ROOT: Identity = Identity::new(0, 0);

/// What a volume turned out to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its segments.
    pub segments: Vec<SeenSegment>,
    /// Segments that the volume says it has.
    pub segments_counted: u64,
    /// Its data blocks.
    pub data_blocks: u64,
    /// Those that it says are free.
    pub free_blocks: u64,
    /// The longest run of them, as it says.
    pub largest_free: u64,
    /// What each owner is told to hold, and may.
    pub accounts: Vec<(u32, Account)>,
}

/// A segment as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSegment {
    /// Whose, and its name.
    pub key: Key,
    /// As it is told: "live", "moving" or "quarantined".
    pub state: &'static str,
    /// Where its run begins.
    pub start_block: u64,
    /// Its size.
    pub blocks: u64,
    /// Its run.
    pub reserve: u64,
    /// Its sectors, when it is served.
    pub contents: Vec<Content>,
}

impl SeenSegment {
    /// Can its bytes be had?
    #[must_use]
    pub fn is_served(&self) -> bool {
        matches!(self.state, "live" | "moving")
    }
}

impl Seen {
    /// Is a segment on its way to another place? Then blocks are held twice.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.segments.iter().any(|segment| segment.state == "moving")
    }

    /// The exploration has damaged these bytes of the disk, so what segments hold there says nothing.
    pub fn damaged(&mut self, layout: &Layout, damaged: &[Range<u64>]) {
        for segment in &mut self.segments {
            let Some(first) = layout.block_at(segment.start_block) else {
                continue;
            };
            if segment.state == "moving" && !damaged.is_empty() {
                segment.contents.fill(Content::Damaged); // Part of it is elsewhere.
            }
            for (at, content) in segment.contents.iter_mut().enumerate() {
                let sector = first + (at * SECTOR) as u64..first + ((at + 1) * SECTOR) as u64;
                if damaged
                    .iter()
                    .any(|hit| hit.start < sector.end && sector.start < hit.end)
                {
                    *content = Content::Damaged;
                }
            }
        }
    }
}

/// Looks at everything.
///
/// # Errors
/// When something that is listed cannot be read.
pub fn observe(core: &mut Core) -> Result<Seen, Violation> {
    let volume = core.volume_info().map_err(|error| failed("stat", &error))?;
    let infos = core.list(ROOT).map_err(|error| failed("list", &error))?;
    let mut segments = Vec::with_capacity(infos.len());
    for info in infos {
        segments.push(observe_segment(core, &info)?);
    }
    let mut accounts = Vec::with_capacity(UIDS.len());
    for uid in UIDS {
        accounts.push((uid, core.quota(ROOT, uid).map_err(|error| failed("quota", &error))?));
    }
    Ok(Seen {
        segments,
        segments_counted: volume.segments,
        data_blocks: volume.size_bytes / BLOCK,
        free_blocks: volume.free_bytes / BLOCK,
        largest_free: volume.largest_free_bytes / BLOCK,
        accounts,
    })
}

fn observe_segment(core: &mut Core, info: &SegmentInfo) -> Result<SeenSegment, Violation> {
    let Some(name) = NAMES.iter().position(|name| *name == info.name) else {
        let story = format!("a segment {:?} that nobody made", info.name);
        return Err(Violation::new(Kind::Leak, story));
    };
    let key = Key {
        uid: info.owner_uid,
        name,
    };
    let mut seen = SeenSegment {
        key,
        state: info.state,
        start_block: info.start_block,
        blocks: info.size_bytes / BLOCK,
        reserve: info.reserve_bytes / BLOCK,
        contents: Vec::new(),
    };
    if seen.is_served() {
        seen.contents = read_all(core, key, info.size_bytes)?;
    }
    Ok(seen)
}

fn read_all(core: &mut Core, key: Key, bytes: u64) -> Result<Vec<Content>, Violation> {
    let (handle, _) = core
        .open_segment(ROOT, key.uid, key.name(), Access::Read)
        .map_err(|error| failed("open a listed segment", &error))?;
    let buffer = core.buffer(bytes as usize).map_err(|error| failed("read", &error))?;
    let memory = run(core, SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, buffer))
        .map_err(|error| failed("read", &error))?;
    core.close_handle(handle);
    let buffer = memory
        .into_buffer()
        .ok_or_else(|| Violation::new(Kind::Failed, "a read lost its memory"))?;
    Ok(buffer.chunks(SECTOR).map(stamp::read).collect())
}

/// Drives the core until no segment is on its way any more.
///
/// # Errors
/// When that does not come about.
pub fn settle(core: &mut Core) -> Result<(), Violation> {
    const TURNS_MAX: u32 = 100_000;
    for turn in 0..TURNS_MAX {
        core.turn(Wait::one()).map_err(|error| failed("turn", &error))?;
        // To list costs more than to turn.
        if turn % 8 == 7 {
            let infos = core.list(ROOT).map_err(|error| failed("list", &error))?;
            if infos.iter().all(|info| info.state != "moving") {
                return Ok(());
            }
        }
    }
    Err(Violation::new(Kind::Failed, "a move goes on for ever"))
}

/// Runs one request to its end; gives its memory back.
///
/// # Errors
/// When it fails.
pub fn run(core: &mut Core, request: SegmentRequest) -> Result<Memory, Error> {
    let nothing = |what| Error::new("transfer", what, baio_engine::Error::Indeterminate);
    let ticket = core
        .start(request)
        .map_err(|_| nothing("no slot for the only request"))?;
    let outcome = core
        .wait(ticket)?
        .ok_or_else(|| nothing("a request without an outcome"))?;
    outcome.result?;
    Ok(outcome.memory)
}

/// An operation on an opened volume that should have worked.
pub(crate) fn failed(doing: &str, error: &Error) -> Violation {
    Violation::new(Kind::Failed, format!("{doing}: {error}"))
}
