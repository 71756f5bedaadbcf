//! A log's own I/O: what it wants is started as direct requests, and it is told how they ended.

use baio_engine::{Caching, Durability, Errno};

use crate::core::lane::Lane;
use crate::core::pool::byte;
use crate::error::{Error, Fault, Result};
use crate::log::LogIoKind;
use crate::object::Target;
use crate::request::{Handle, LogIo, Mode, Outcome, Owner, SegmentOp, SegmentRequest};
use crate::slot_map::SlotKey;

impl Lane {
    /// No caller writes where a log is open; and the end of its file stays where it is, or moves up.
    pub(in crate::core) fn must_be_free(&self, owner: Owner, request: &SegmentRequest) -> Result<()> {
        if !matches!(owner, Owner::Caller) || !request.op.changes_bytes() || !self.objects.has_log(request.handle) {
            return Ok(());
        }
        let is_harmless = match request.op {
            SegmentOp::Allocate { .. } => true,
            // A caller's own log.
            SegmentOp::Write { .. } => request.mode == Mode::Direct && self.objects.is_claim(request.handle),
            SegmentOp::Truncate { len } => self.size(request.handle).is_ok_and(|size| len >= size),
            _ => false,
        };
        if is_harmless {
            return Ok(());
        }
        let object = self.objects.get(request.handle);
        let name = object.map_or("a closed handle", |object| &object.name);
        let error = Error::new(request.op.name(), name, Fault::HasLog);
        Err(match request.op.offset() {
            Some(offset) => error.at(offset),
            None => error,
        })
    }

    /// No page is pinned where a log is, of this core or of somebody with a claim: it would be changed in place, and until it is let go no
    /// batch could be written there.
    #[inline]
    pub(in crate::core) fn may_be_pinned(&self, handle: Handle, page: u64) -> Result<()> {
        if self.objects.has_log(handle) {
            return Err(Error::new("pin", self.name_of(handle), Fault::HasLog).at(byte(page)));
        }
        Ok(())
    }

    /// Nobody is at work there who would not ask again: what lands later would land over the log's batches, also when nobody waits for it
    /// any more.
    pub(super) fn must_be_let_go(&mut self, operation: &'static str, handle: Handle) -> Result<()> {
        let line = self.objects.line(handle);
        let is_there = |(other, op)| !matches!(op, SegmentOp::Allocate { .. }) && self.objects.line(other) == line;
        let has_begun = self.requests.changes_under_way().any(is_there);
        self.take_returned(); // Pins among them.
        let object = self.object_known(handle);
        let is_pinned = |object| {
            self.cached
                .as_ref()
                .is_some_and(|cached| cached.cache.is_pinned(object))
        };
        if has_begun || object.is_some_and(is_pinned) {
            return Err(Error::new(operation, self.name_of(handle), Errno::EBUSY));
        }
        Ok(())
    }

    pub(super) fn start_log_ios(&mut self, key: SlotKey) {
        // One whose claim the table has not heard of touches nothing.
        while let Some(log) = self.logs.open.get_mut(key).filter(|log| log.opens_for.is_none()) {
            let next = log.delayed.pop_front().or_else(|| {
                let (id, kind, memory) = log.part.next_io()?;
                Some((LogIo { log: key, id, kind }, memory))
            });
            let Some((io, memory)) = next else { return };
            let (handle, block) = (log.handle, log.part.block_bytes());
            let (op, durability) = match io.kind {
                LogIoKind::Read { offset, .. } => (SegmentOp::Read { offset }, Durability::None),
                LogIoKind::Write { offset, .. } => (SegmentOp::Write { offset }, Durability::Data),
                LogIoKind::Sync => (SegmentOp::Sync, Durability::Data),
                LogIoKind::Allocate { to } => (SegmentOp::Allocate { offset: 0, len: to }, Durability::Data),
            };
            let mut request = SegmentRequest {
                durability,
                mode: self.log_mode(handle, block),
                ..SegmentRequest::new(handle, op, memory)
            };
            if self.enter(Owner::Log(io), &mut request).is_none() {
                // Something is under way, then, and with its end this comes again.
                if let Some(log) = self.logs.open.get_mut(key) {
                    log.delayed.push_front((io, request.memory));
                }
                return;
            }
        }
    }

    /// A file system without direct I/O keeps the log in its own cache, and durable writes reach the device all the same. So it goes with a
    /// log that was made on a device of smaller sectors: the kernel writes whole ones.
    fn log_mode(&self, handle: Handle, block: Option<u32>) -> Mode {
        match self.objects.get(handle).map(|object| &object.target) {
            Some(Target::Plain(file)) if !file.gives(Caching::Direct) => Mode::Kernel,
            Some(Target::Plain(file)) if block.is_some_and(|block| block < file.direct_limits().offset) => Mode::Kernel,
            _ => Mode::Direct,
        }
    }

    /// A log's I/O has ended; one that the kernel still has comes without its memory, which goes back to the arena by itself.
    pub(in crate::core) fn log_io_ended(&mut self, io: LogIo, ended: Outcome) {
        let Some(log) = self.logs.open.get_mut(io.log) else {
            return;
        };
        if ended.took != Caching::Direct {
            log.part.goes_through_a_cache();
        }
        let result = ended.result.map_err(|error| error.errno().unwrap_or(Errno::EIO));
        log.part.io_ended(io.id, result, ended.memory);
        self.logs.is_told = true;
    }
}
