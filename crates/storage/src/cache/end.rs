//! How requests end: each exactly once, and nothing refers to it afterwards.

use baio_engine::{Durability, Errno};

use super::Cache;
use super::ranges::pages_of;
use super::request::{CacheDone, CacheError, CacheOp, Phase, Request};
use super::wait::Wait;

impl Cache {
    /// Ends a request that is not in an iteration.
    pub(super) fn finish_slot(&mut self, slot: u32, result: Result<u32, CacheError>) {
        if let Some(request) = self.requests.take(slot) {
            self.finish(slot, request, result);
        }
    }

    pub(super) fn finish(&mut self, slot: u32, mut request: Box<Request>, mut result: Result<u32, CacheError>) {
        self.progress += 1;
        let covers = match request.op {
            CacheOp::Sync { start, end, .. } | CacheOp::WriteOut { start, end } => {
                Some(pages_of(start, end.saturating_sub(start)))
            }
            CacheOp::FlushTo { .. } => Some(0..u64::MAX),
            _ => None,
        };
        if let Some(covers) = covers.filter(|_| result.is_ok()) {
            let left_behind = self.left_behind(request.object, &covers, request.version);
            result = left_behind.map_or(result, Err);
        }
        self.let_go(&mut request, u64::MAX);
        if let Some(frame) = request.granted.take() {
            self.frames.give_free(frame);
        }
        self.durable_done_waiting(slot, &mut request);
        self.clearing -= u32::from(request.clearing.flushes);
        let at = request.object as usize;
        if let Some(object) = self.objects.get_mut(at) {
            object.requests -= 1;
            match request.op {
                CacheOp::Sync { .. } | CacheOp::WriteOut { .. } | CacheOp::FlushTo { .. } => {
                    self.forget_sync(request.object, slot);
                }
                CacheOp::Reserve { .. } | CacheOp::Cut { .. } if result.is_err() => {
                    self.forget_sync(request.object, slot); // It may wait for a flush.
                    self.unreserve(request.object, slot);
                }
                _ => {}
            }
        }
        self.debug_bound(&request, result);
        let bytes_done = request.done as u32;
        self.stats.requests += 1;
        let id = self.requests.id(slot);
        let (owner, iterations, parked, writes) = (request.owner, request.iterations, request.parked, request.writes);
        let pin = request.pin.take();
        let held_max = request.held_max;
        let memory = self.requests.retire(slot, request).give_back();
        self.done.push_back(CacheDone {
            id,
            owner,
            result,
            bytes_done,
            memory,
            iterations,
            parked,
            writes,
            pin,
            held_max,
        });
    }

    /// Iterations are bounded by the pages (seed 001 §3.1, §7.2).
    fn debug_bound(&self, request: &Request, _result: Result<u32, CacheError>) {
        if request.len == 0 {
            return;
        }
        let pages = pages_of(request.start, request.len as u64).count() as u32;
        let bound = match request.op {
            CacheOp::Write { durability, .. } if durability != Durability::None => 3 * pages + 2,
            _ => pages + 1,
        };
        debug_assert!(
            request.iterations <= bound + 2 * request.parked,
            "{} iterations for {pages} pages, parked {}: {request:?}",
            request.iterations,
            request.parked
        );
    }

    /// A write, or a flush behind it, failed: who relies on this page is told.
    pub(super) fn tell_waiters(&mut self, frame: u32, errno: Errno) {
        let mut at = self.frames.get(frame).waiters.first();
        while let Some(slot) = at {
            at = self.requests.links.after(slot);
            if let Some(request) = self.requests.get_mut(slot) {
                let relies = match request.wait {
                    Wait::WriteBackEnded(_) => request.phase == Phase::Safe,
                    Wait::Settled(..) => true,
                    _ => false,
                };
                if relies {
                    request.told = Some(CacheError::System(errno));
                }
            }
        }
    }
}
