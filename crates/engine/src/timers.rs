//! Moments that something waits for, by slot: the deadlines of an engine's requests, the timers of a backend that the
//! kernel gives none. A binary heap, soonest first, and for each slot its place in the heap, so that a timer is cancelled in
//! O(log n) and nothing is left behind. A slot has at most one timer, so the heap never grows beyond the slots.

use crate::policy::Time;
use crate::request::RequestId;

pub(crate) struct Timers {
    heap: Vec<Entry>,
    /// Where in the heap the timer of a slot is; [`NOWHERE`] without one.
    places: Box<[u32]>,
    /// Timers of one moment fire in the order in which they were set.
    set: u64,
    /// Comparisons made so far.
    #[cfg(test)]
    steps: std::cell::Cell<u64>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Time,
    order: u64,
    id: RequestId,
}

const NOWHERE: u32 = u32::MAX;

impl Timers {
    pub(crate) fn new(slots: usize) -> Timers {
        Timers {
            heap: Vec::with_capacity(slots),
            places: vec![NOWHERE; slots].into(),
            set: 0,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    pub(crate) fn set(&mut self, id: RequestId, at: Time) {
        self.set += 1;
        let order = self.set;
        self.heap.push(Entry { at, order, id });
        self.rise(self.heap.len() - 1);
    }

    /// Takes a timer back; false when it has fired.
    pub(crate) fn cancel(&mut self, id: RequestId) -> bool {
        let place = self.places.get(id.slot as usize).copied().unwrap_or(NOWHERE) as usize;
        let found = self.heap.get(place).is_some_and(|entry| entry.id == id);
        if found {
            self.remove(place);
        }
        found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The moment of the soonest.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Takes one that is due.
    pub(crate) fn fire(&mut self, now: Time) -> Option<RequestId> {
        let soonest = self.heap.first().filter(|entry| entry.at <= now)?.id;
        self.remove(0);
        Some(soonest)
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.places[gone.id.slot as usize] = NOWHERE;
        if place < self.heap.len() {
            // What came from the end may belong above or below.
            let place = self.rise(place);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.sooner(place, (place - 1) / 2) {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let inside = children.into_iter().filter(|&child| child < self.heap.len());
            let Some(child) = inside.reduce(|one, two| if self.sooner(two, one) { two } else { one }) else {
                break;
            };
            if !self.sooner(child, place) {
                break;
            }
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }

    fn sooner(&self, one: usize, two: usize) -> bool {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        let key = |place: usize| (self.heap[place].at, self.heap[place].order);
        key(one) < key(two)
    }

    fn note(&mut self, place: usize) {
        let slot = self.heap[place].id.slot as usize;
        self.places[slot] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_among_many_costs_a_few_steps() {
        const SLOTS: u32 = 65536;
        let mut timers = Timers::new(SLOTS as usize);
        for slot in 0..SLOTS {
            timers.set(id(slot), Time(1 + u64::from(slot ^ 0x5555)));
        }
        let before = timers.steps.get();
        assert!(timers.cancel(id(77)));
        timers.set(id(77), Time(0));
        assert_eq!(timers.fire(Time(0)), Some(id(77)));
        let steps = timers.steps.get() - before;
        assert!(steps < 4 * 17 * 2, "{steps} steps");
    }

    fn id(slot: u32) -> RequestId {
        RequestId { slot, generation: 3 }
    }

    /// Against a sorted list, with every timer set, cancelled or fired at times that a generator picks.
    #[test]
    fn they_fire_in_order_and_cancelled_ones_never() {
        let mut timers = Timers::new(64);
        let mut model: Vec<(u64, u64, u32)> = Vec::new();
        let (mut random, mut now, mut order) = (1_u64, 0, 0);
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        for _ in 0..20_000 {
            let slot = below(64) as u32;
            let known = model.iter().position(|&(_, _, other)| other == slot);
            match (below(3), known) {
                (0, None) => {
                    let at = now + below(50);
                    order += 1;
                    timers.set(id(slot), Time(at));
                    model.push((at, order, slot));
                }
                (1, _) => {
                    assert!(!timers.cancel(RequestId { slot, generation: 4 }), "another's timer");
                    assert_eq!(timers.cancel(id(slot)), known.is_some());
                    known.map(|at| model.remove(at));
                }
                _ => {
                    now += below(10);
                    model.sort_unstable();
                    let due = model.iter().take_while(|(at, ..)| *at <= now).count();
                    let expected: Vec<_> = model.drain(..due).map(|(_, _, slot)| id(slot)).collect();
                    let fired: Vec<_> = std::iter::from_fn(|| timers.fire(Time(now))).collect();
                    assert_eq!(fired, expected);
                }
            }
            let soonest = model.iter().map(|&(at, ..)| Time(at)).min();
            assert_eq!(timers.next(), soonest);
        }
    }
}
