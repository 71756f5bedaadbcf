//! Requests in a line, from which any of them may go at any time.
//!
//! Who goes is not looked for: its id is stale from then on, is passed over, and is swept out with others. So to give up many
//! costs so much for each, however many they are.

use crate::request::RequestId;
use crate::slot::Slots;

#[derive(Debug, Default)]
pub(super) struct Line {
    /// In order; some have gone.
    ids: Vec<RequestId>,
    /// How many have.
    gone: usize,
    /// Who has come since [`Line::note_offer`]; some may have gone.
    new: usize,
    /// Ids gone over so far.
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Line {
    pub(super) fn with_capacity(capacity: usize) -> Line {
        Line {
            ids: Vec::with_capacity(capacity),
            ..Line::default()
        }
    }

    /// How many stand in it.
    pub(super) fn len(&self) -> usize {
        self.ids.len() - self.gone
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whoever never takes a turn does not make it longer than twice what stands in it.
    #[inline]
    pub(super) fn push(&mut self, slots: &Slots, id: RequestId) {
        if self.gone > self.ids.len() / 2 {
            self.sweep(slots);
        }
        self.ids.push(id);
        self.new += 1;
    }

    /// All that stand in it have been offered to whom they are for.
    pub(super) fn note_offer(&mut self) {
        self.new = 0;
    }

    pub(super) fn new_ones(&self) -> usize {
        self.new.min(self.len())
    }

    /// One of them is about to leave its slot.
    pub(super) fn forget_one(&mut self) {
        self.gone += 1;
    }

    /// Those that stand in it, and nobody else.
    pub(super) fn swept(&mut self, slots: &Slots) -> &[RequestId] {
        if self.gone > 0 {
            self.sweep(slots);
        }
        &self.ids
    }

    fn sweep(&mut self, slots: &Slots) {
        let left = self.len();
        self.gone = 0;
        self.retain(|id| slots.get(id).is_some());
        debug_assert_eq!(self.ids.len(), left, "who left a line said so");
    }

    /// Takes out those of which this is false. Swept before.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(RequestId) -> bool) {
        debug_assert_eq!(self.gone, 0);
        #[cfg(test)]
        {
            self.steps += self.ids.len();
        }
        self.ids.retain(|&id| stays(id));
    }

    /// Takes out the first so many. Swept before.
    pub(super) fn drop_first(&mut self, count: usize) {
        debug_assert_eq!(self.gone, 0);
        self.ids.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Durability, Policy, Time};
    use crate::request::{Op, Request, RequestId, Wait};
    use crate::sim::{Disk, Sim};
    use crate::{Engine, EngineOptions, File};

    const MANY: usize = 2000;

    fn engine() -> Engine {
        let config = EngineOptions {
            slots: 4096,
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        };
        Engine::simulated(Sim::new(1).unwrap(), &config).unwrap()
    }

    fn steps(engine: &Engine) -> usize {
        engine.queue.steps + engine.held.steps + engine.awaiting_sync.steps
    }

    fn take_all(engine: &mut Engine) -> usize {
        std::iter::from_fn(|| engine.next_completion()).count()
    }

    #[test]
    fn cancels_of_many_queued_requests_cost_the_same_each() {
        let mut engine = engine();
        for _ in 0..20 {
            let timer = || Request::bare(Op::Timer { at: Time(u64::MAX) }, None, Policy::kernel());
            let ids: Vec<RequestId> = (0..100).map(|_| engine.submit(timer()).unwrap()).collect();
            for id in ids {
                engine.cancel(id);
            }
            assert_eq!((engine.queued(), take_all(&mut engine)), (0, 100));
        }
        assert!(steps(&engine) < 2 * 20 * 100, "{}", steps(&engine));
        assert!(engine.queue.ids.len() < 300, "it does not grow for ever");
    }

    #[test]
    fn so_do_cancels_of_many_that_wait_for_a_sync() {
        let mut engine = engine();
        let file = File::simulated(&Disk::new(1 << 20), "disk");
        let mut sync = || engine.submit(Request::sync(&file, Durability::Data)).unwrap();
        let first = sync();
        let ids: Vec<RequestId> = (0..MANY).map(|_| sync()).collect();
        for id in ids {
            engine.cancel(id);
        }
        engine.cancel(first);
        assert_eq!((engine.in_flight(), take_all(&mut engine)), (0, MANY + 1));
        assert!(steps(&engine) < 3 * MANY, "{}", steps(&engine));
    }

    /// On FUSE each of them waits for one sync when its write has ended, and the next write must not look at all of them.
    #[test]
    fn durable_writes_that_share_a_sync_cost_the_same_each() {
        let mut engine = engine();
        let disk = Disk::new(16 << 20);
        disk.ignore_durability();
        let file = File::simulated(&disk, "disk");
        let policy = Policy {
            durability: Durability::Data,
            ..Policy::direct()
        };
        for block in 0..MANY as u64 {
            let memory = engine.buffer(4096).unwrap();
            engine
                .submit(Request::write(&file, block * 4096, memory, policy))
                .unwrap();
        }
        let mut ended = 0;
        while engine.in_flight() > 0 {
            engine.turn(Wait::one()).unwrap();
            ended += take_all(&mut engine);
        }
        assert_eq!((ended, engine.stats().durable_by_sync), (MANY, MANY as u64));
        assert!(steps(&engine) < 10 * MANY, "{}", steps(&engine));
    }
}
