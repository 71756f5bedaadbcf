//! Where a request on a handle goes: checked against its object, and translated for the engine.

use baio_engine::{Caching, Errno, File, Kind, Op, Policy, Space};

use super::lane::Lane;
use super::lane::cached::whole_sectors;
use super::wrong::{no_volume, stale};
use crate::error::{Error, Fault, Result};
use crate::holds::Touched;
use crate::identity::Access;
use crate::object::{Moving, Object, ObjectState, Route, Target};
use crate::request::{Mode, SegmentOp, SegmentRequest};
use crate::segment::probe::SlotAddress;

/// Whether a request comes from its caller, or has waited here since and counts as under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    First,
    /// Its handle may have been closed meanwhile: it is under way, and ends.
    Again,
}

/// Where a checked request goes.
pub(super) enum Way {
    Device(File, Op, Policy),
    /// An operation holds a range that it touches.
    Hold,
    /// To the cache, which asks for what it needs by requests of its own.
    Cache,
    /// A read at the end, or a range of no bytes: there is nothing to do.
    Nothing,
}

impl Lane {
    /// Checks a request against its object and translates it for the engine.
    pub(super) fn check(&self, request: &mut SegmentRequest, coming: Coming) -> Result<Way> {
        let operation = request.op.name();
        let object = self.objects.get(request.handle).ok_or_else(|| stale(operation))?;
        let offset = request.op.offset();
        let fail = |fault: Fault| {
            let error = Error::new(operation, &object.name, fault);
            match offset {
                Some(offset) => error.at(offset),
                None => error,
            }
        };
        let closed_since = coming == Coming::Again && object.state == ObjectState::Closed;
        if object.state != ObjectState::Open && !closed_since {
            return Err(fail(Fault::Stale));
        }
        if request.op.is_of_size() && !object.is_file() {
            return Err(fail(Fault::NotAFile));
        }
        let caching = self.caching_for(object, request).map_err(fail)?;
        let policy = Policy {
            caching,
            durability: request.durability,
            deadline: request.deadline,
            ..Policy::default()
        };
        let way = match &object.target {
            Target::Plain(file) => self.way_to_file(request, file, policy),
            &Target::Segment {
                address,
                start,
                size,
                moving,
                ..
            } => {
                let ground = self.ground.as_ref().ok_or_else(|| no_volume(operation))?;
                if !within(request, size).map_err(fail)? {
                    return Ok(Way::Nothing);
                }
                let at = (address, start, moving);
                self.way_to_segment(request, at, &ground.file, policy)
            }
        };
        way.map_err(fail)
    }

    fn way_to_file(
        &self,
        request: &mut SegmentRequest,
        file: &File,
        policy: Policy,
    ) -> std::result::Result<Way, Fault> {
        // What is in the cache is not looked for in the file.
        if goes_through_cache(request) {
            let end = request.range().end;
            if request.op.changes_bytes() && !file.may_end_at(end) {
                return Err(Errno::EFBIG.into()); // Its page could never be written.
            }
            if request.op.changes_bytes() && !file.gives(Caching::Kernel) {
                let size = self.plain_size(request.handle, file)?;
                whole_sectors(file, if end > size { end } else { 0 })?;
            }
            return Ok(Way::Cache);
        }
        if request.mode == Mode::Cached && request.op.names_its_range() && !request.op.is_of_size() {
            // Through the cache only writes make a file longer.
            let size = self.plain_size(request.handle, file)?;
            within(request, size)?;
        }
        if !has_space(request, file, policy.caching)? {
            return Ok(Way::Nothing);
        }
        let op = on_file(request.op, file, 0);
        Ok(Way::Device(file.clone(), op, policy))
    }

    /// Of a request whose range lies in it.
    fn way_to_segment(
        &self,
        request: &SegmentRequest,
        (address, start, moving): (SlotAddress, u64, Option<Moving>),
        file: &File,
        policy: Policy,
    ) -> std::result::Result<Way, Fault> {
        if goes_through_cache(request) {
            return Ok(Way::Cache);
        }
        if !has_space(request, file, policy.caching)? {
            return Ok(Way::Nothing);
        }
        if !self.holds.is_empty() && self.holds.touch(&Touched::of(address, request)) {
            return Ok(Way::Hold);
        }
        let start = match moving {
            None => start,
            Some(moving) => match moving.route(start, &request.range()) {
                Route::At(start) => start,
                // While the move runs the block at the mark is held, so it has stopped.
                Route::Across => return Err(Fault::MoveStopped { mark: moving.mark }),
                Route::Unknown => return Err(Fault::Latched),
            },
        };
        Ok(Way::Device(file.clone(), on_file(request.op, file, start), policy))
    }

    fn caching_for(&self, object: &Object, request: &SegmentRequest) -> std::result::Result<Caching, Fault> {
        let ground = self.ground.as_ref();
        let volume = ground.map_or(Caching::Direct, |ground| ground.caching);
        if request.op.is_sync() {
            return Ok(volume); // A sync covers the file, whatever cache its writes went through.
        }
        if request.op.changes_bytes() && object.access == Access::Read {
            return Err(Fault::ReadOnly);
        }
        object.route(request.mode, volume)
    }
}

/// Is it the page cache that moves its bytes? What moves none goes beside it, when the range has been cleared.
fn goes_through_cache(request: &SegmentRequest) -> bool {
    request.mode == Mode::Cached && matches!(request.op, SegmentOp::Read { .. } | SegmentOp::Write { .. })
}

/// May the space of the range be changed, if that is what is asked, and is there any? Aligned as a direct write, also of what is
/// cached: the device is asked for it in both cases, and what is no whole sector would have to be written.
fn has_space(request: &SegmentRequest, file: &File, caching: Caching) -> std::result::Result<bool, Fault> {
    match request.op {
        SegmentOp::Discard { offset, len } | SegmentOp::Zero { offset, len } => {
            file.check_space(caching, offset, len)?;
            Ok(len > 0)
        }
        // No byte changes, so none has to be aligned.
        SegmentOp::Allocate { len, .. } => Ok(len > 0),
        _ => Ok(true),
    }
}

/// Does a range lie in a segment of this size, and is there anything to do? Reads are cut at the end of the segment, as at
/// the end of a device; what changes bytes and crosses it is refused whole.
fn within(request: &mut SegmentRequest, size: u64) -> std::result::Result<bool, Fault> {
    let len = request.op.bytes(request.memory.len() as u64);
    match request.op {
        SegmentOp::Sync | SegmentOp::Fence | SegmentOp::Truncate { .. } | SegmentOp::Allocate { .. } => Ok(true),
        SegmentOp::Write { offset } | SegmentOp::Discard { offset, .. } | SegmentOp::Zero { offset, .. } => {
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err(Fault::Beyond { len, size, write: true });
            }
            Ok(true)
        }
        SegmentOp::Read { offset } if offset >= size => Ok(false),
        SegmentOp::Read { offset } => {
            let left = size - offset;
            if len > left {
                request.memory.show(left as usize);
                // Not so of what is shared, nor beyond 32 bits.
                if request.memory.len() as u64 > left {
                    return Err(Fault::Beyond {
                        len,
                        size,
                        write: false,
                    });
                }
            }
            Ok(true)
        }
    }
}

/// What a request is for the engine, on the file where its object begins at byte `start`. It was found to lie inside.
fn on_file(op: SegmentOp, file: &File, start: u64) -> Op {
    // Streams have no offsets.
    let position = |offset| (file.kind() != Kind::Stream).then(|| start + offset);
    match op {
        SegmentOp::Read { offset } => Op::Read {
            offset: position(offset),
        },
        SegmentOp::Write { offset } => Op::Write {
            offset: position(offset),
        },
        // A fence comes here when the writes before it are over.
        SegmentOp::Sync | SegmentOp::Fence => Op::Sync,
        SegmentOp::Discard { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Discard,
        },
        SegmentOp::Zero { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Zero,
        },
        SegmentOp::Truncate { len } => Op::Truncate { len },
        SegmentOp::Allocate { offset, len } => Op::Allocate {
            offset: start + offset,
            len,
            space: Space::Reserve,
        },
    }
}
