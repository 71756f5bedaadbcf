//! How a request comes in: what is wrong with it is told by its end, what can be done at once is.

use std::ops::Range;

use baio_engine::{Durability, Errno};

use super::Cache;
use super::caller::Caller;
use super::hit::{Looked, Started};
use super::ranges::pages_of;
use super::request::{CacheDone, CacheError, CacheOp, CacheRequest, Clearing, Phase, Request, RequestId};
use super::wait::Wait;
use super::write_through::is_durable;

impl Cache {
    /// Starts a request for `owner`, a name of the caller's own; does all of it that can be done at once. What is wrong with
    /// it is told by its end, as everything else.
    pub fn start(&mut self, owner: u64, request: CacheRequest) -> RequestId {
        match self.start_or_hit(owner, request) {
            Started::UnderWay(id) => id,
            Started::Hit(bytes, memory) => {
                let id = self.requests.spent();
                self.done.push_back(CacheDone {
                    id,
                    owner,
                    result: Ok(bytes),
                    bytes_done: bytes,
                    memory,
                    iterations: 1,
                    parked: 0,
                    writes: 0,
                    pin: None,
                    held_max: 0,
                });
                id
            }
        }
    }

    /// The same, but a read that finds all its pages here is given back done: nobody is told of its end otherwise.
    pub(crate) fn start_or_hit(&mut self, owner: u64, mut request: CacheRequest) -> Started {
        self.copy_late();
        let ahead = match self.read_hit(&mut request) {
            Looked::Hit(bytes) => return Started::Hit(bytes, request.memory),
            Looked::Not(ahead) => ahead,
        };
        let writes = matches!(request.op, CacheOp::Write { .. });
        let (caller, mut told) = match Caller::new(request.memory, writes) {
            Ok(caller) => (caller, None),
            Err((memory, error)) => (Caller::unused(memory), Some(error)),
        };
        let object = self.object(request.object);
        let (start, len) = self.extent_of(object, request.op, caller.len());
        told = match object {
            None => Some(CacheError::NoObject),
            Some(slot) => told.or_else(|| self.must_fit(slot, request.op, (start, len), caller.len()).err()),
        };
        self.arrivals += 1;
        let pages = pages_of(start, len as u64);
        let request = Request {
            owner,
            object: object.unwrap_or(u32::MAX),
            op: request.op,
            caller,
            hint: request.hint,
            arrived: self.arrivals,
            start,
            len,
            done: 0,
            phase: Phase::Copy,
            window: pages.start,
            version: 0,
            pinned: 0..0,
            ahead: 0..0,
            may_bypass: false,
            may_go_through: is_durable(request.op),
            wait: Wait::None,
            clearing: Clearing::default(),
            granted: None,
            credit: false,
            listed_at: None,
            told: None,
            iterations: 0,
            parked: 0,
            writes: 0,
            pin: None,
            held_max: 0,
        };
        let op = request.op;
        let id = self.requests.insert(request);
        if let Some(object) = object {
            self.objects[object as usize].requests += 1;
        }
        match (told, object) {
            (Some(error), _) => self.finish_slot(id.slot, Err(error)),
            (None, Some(object)) => self.begin(id, object, op, pages, ahead),
            (None, None) => {}
        }
        self.settle();
        Started::UnderWay(id)
    }

    /// The first step of a request that is not wrong.
    fn begin(&mut self, id: RequestId, object: u32, op: CacheOp, pages: Range<u64>, ahead: Option<Range<u64>>) {
        match op {
            CacheOp::Read { .. } | CacheOp::Pin { .. } => {
                let ahead = ahead.unwrap_or_else(|| self.asked(object, &pages));
                let is_alone = self.objects[object as usize].streams.is_alone();
                if let Some(request) = self.requests.get_mut(id.slot) {
                    request.ahead = ahead;
                    request.may_bypass = is_alone && matches!(op, CacheOp::Read { .. });
                }
                self.ready.push_back(id.slot);
            }
            CacheOp::Write { .. } | CacheOp::PinNew { .. } | CacheOp::Change { .. } => self.ready.push_back(id.slot),
            CacheOp::FlushTo { lsn } => self.flush_to(object, id.slot, lsn),
            CacheOp::Reserve { start, end } => {
                self.reserve(id, object, pages_of(start, end.saturating_sub(start)));
                self.ready.push_back(id.slot);
            }
            CacheOp::Cut { from } => {
                self.reserve(id, object, pages_of(from, u64::MAX - from));
                self.ready.push_back(id.slot);
            }
            CacheOp::Sync { start, end, durability } => {
                let durability = match durability {
                    Durability::None => Durability::Data,
                    some => some,
                };
                let covers = pages_of(start, end.saturating_sub(start));
                self.start_pass(object, Some(id.slot), covers, Some(durability));
            }
            CacheOp::WriteOut { start, end } => {
                let covers = pages_of(start, end.saturating_sub(start));
                self.start_pass(object, Some(id.slot), covers, None);
            }
        }
    }

    /// Where a request begins, and how many bytes it moves at most.
    fn extent_of(&self, object: Option<u32>, op: CacheOp, asked: usize) -> (u64, usize) {
        match op {
            CacheOp::Read { offset } => {
                let size = object.map_or(0, |slot| self.objects[slot as usize].size);
                let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
                (offset, asked.min(left))
            }
            CacheOp::Write { offset, .. } => (offset, asked),
            CacheOp::Pin { page } | CacheOp::PinNew { page, .. } | CacheOp::Change { page, .. } => {
                self.extent(object, page)
            }
            _ => (0, 0),
        }
    }

    /// Refuses what does not fit into its object, or is more than a result can tell.
    fn must_fit(&self, object: u32, op: CacheOp, (start, len): (u64, usize), asked: usize) -> Result<(), CacheError> {
        let object = &self.objects[object as usize];
        let end = start.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64);
        let is_inside = object.grows || end.is_some_and(|end| end <= object.size);
        match op {
            _ if u32::try_from(asked).is_err() => Err(CacheError::TooLong),
            CacheOp::Write { .. } if object.grows && end.is_none() => Err(CacheError::System(Errno::EFBIG)),
            CacheOp::Write { .. } if !is_inside => Err(CacheError::PastEnd),
            op if op.is_of_page() && len == 0 => Err(CacheError::PastEnd),
            _ => Ok(()),
        }
    }
}
