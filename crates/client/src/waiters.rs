//! Tasks that wait for a place, woken in order, one for each place that comes free.
//!
//! A place that comes free wakes the task that has waited longest. That task tries to take it; if another was
//! quicker, it waits again at the same position. A woken task that does not want the place any more ([`Waiters::leave`]) passes the wake-up
//! on, or the place would stay free beside others that wait. So a wake-up costs the same however many wait.
//!
//! This is plain data and calls no code of others. Wakers are returned, to be woken or dropped when nothing is locked or borrowed, because
//! both may run any code.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use baio_words::Time;

/// Where somebody stands in a list of those who wait; kept from the first wait until it is served or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitPlace(pub(crate) u64);

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct Waiters {
    waiting: BTreeMap<WaitPlace, Waiter>,
    /// When those give up that do.
    deadlines: BTreeSet<(Time, WaitPlace)>,
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    until: Option<Time>,
}

impl Waiters {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Does nobody wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits, and is woken at `until` at the latest: at the end of the list, or where it stood before. Gives back a waker that is not needed.
    pub fn wait(&mut self, place: &mut Option<WaitPlace>, waker: Waker, until: Option<Time>) -> Option<Waker> {
        let place = *place.get_or_insert_with(|| {
            self.last += 1;
            WaitPlace(self.last)
        });
        if let Some(at) = until {
            self.deadlines.insert((at, place));
        }
        let old = self.waiting.insert(place, Waiter { waker, until })?;
        if old.until != until {
            self.forget_deadline(old.until, place);
        }
        Some(old.waker)
    }

    /// It has what it waited for. Gives back its waker, if it was not woken.
    #[must_use]
    pub fn served(&mut self, place: WaitPlace) -> Option<Waker> {
        let waiter = self.waiting.remove(&place)?;
        self.forget_deadline(waiter.until, place);
        Some(waiter.waker)
    }

    /// It waits no more. If it was woken, the next one is in its place.
    #[must_use]
    pub fn leave(&mut self, place: WaitPlace, fired: &mut Vec<Waker>) -> Option<Waker> {
        let own = self.served(place);
        if own.is_none() {
            self.wake_next(1, fired);
        }
        own
    }

    /// So many places have come free: as many are woken. Who waits several times by one waker is one, if nobody came between.
    pub fn wake_next(&mut self, count: usize, fired: &mut Vec<Waker>) {
        let mut left = count;
        let mut last: Option<Waker> = None;
        while let Some(first) = self.waiting.first_entry() {
            let is_same = last.as_ref().is_some_and(|last| last.will_wake(&first.get().waker));
            if left == 0 && !is_same {
                break;
            }
            let (place, waiter) = first.remove_entry();
            self.forget_deadline(waiter.until, place);
            left -= usize::from(!is_same);
            fired.extend(last.replace(waiter.waker));
        }
        fired.extend(last);
    }

    /// Everybody is to look again: there is no place any more, or nobody to tell of one.
    pub fn wake_all(&mut self, fired: &mut Vec<Waker>) {
        self.deadlines.clear();
        let all = std::mem::take(&mut self.waiting).into_values();
        fired.extend(all.map(|waiter| waiter.waker));
    }

    /// Who has waited long enough is woken. It takes no place.
    pub fn wake_late(&mut self, now: Time, fired: &mut Vec<Waker>) {
        while let Some((at, place)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            fired.extend(self.waiting.remove(&place).map(|waiter| waiter.waker));
        }
    }

    /// When the first of them gives up.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn forget_deadline(&mut self, until: Option<Time>, place: WaitPlace) {
        if let Some(at) = until {
            self.deadlines.remove(&(at, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Called(AtomicU32);

    impl Wake for Called {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct World {
        list: Waiters,
        tasks: Vec<Arc<Called>>,
        places: Vec<Option<WaitPlace>>,
    }

    impl World {
        fn of(count: usize) -> World {
            let mut world = World {
                list: Waiters::default(),
                tasks: (0..count).map(|_| Arc::default()).collect(),
                places: vec![None; count],
            };
            (0..count).for_each(|task| world.wait(task, None));
            world
        }

        fn wait(&mut self, task: usize, until: Option<Time>) {
            let waker = Waker::from(Arc::clone(&self.tasks[task]));
            drop(self.list.wait(&mut self.places[task], waker, until));
        }

        fn leave(&mut self, task: usize) -> Vec<usize> {
            let mut fired = Vec::new();
            if let Some(place) = self.places[task].take() {
                drop(self.list.leave(place, &mut fired));
            }
            self.woken(fired)
        }

        fn wake_next(&mut self, count: usize) -> Vec<usize> {
            let mut fired = Vec::new();
            self.list.wake_next(count, &mut fired);
            self.woken(fired)
        }

        /// Which tasks these are.
        fn woken(&self, fired: Vec<Waker>) -> Vec<usize> {
            let which = |waker: Waker| {
                waker.wake();
                let is_it = |task: &Arc<Called>| task.0.swap(0, Ordering::Relaxed) > 0;
                self.tasks.iter().position(is_it).unwrap()
            };
            fired.into_iter().map(which).collect()
        }
    }

    #[test]
    fn as_many_are_woken_as_places_came_free_and_in_order() {
        let mut world = World::of(5);
        assert_eq!(world.wake_next(2), [0, 1]);
        assert_eq!((world.wake_next(0), world.list.len()), (vec![], 3));
        assert_eq!(world.wake_next(9), [2, 3, 4]);
        assert!(world.list.is_empty());
    }

    #[test]
    fn who_was_woken_for_nothing_waits_where_it_stood() {
        let mut world = World::of(4);
        assert_eq!(world.wake_next(2), [0, 1]);
        world.wait(1, None);
        world.wait(0, None);
        assert_eq!(world.wake_next(3), [0, 1, 2]);
    }

    #[test]
    fn who_was_woken_and_leaves_hands_its_wake_on() {
        let mut world = World::of(4);
        assert_eq!(world.leave(1), [0; 0], "it was not woken");
        assert_eq!(world.wake_next(1), [0]);
        assert_eq!(world.leave(0), [2]);
        assert_eq!(world.leave(2), [3]);
        assert_eq!(world.leave(3), [0; 0], "there is nobody");
    }

    #[test]
    fn who_has_no_time_left_is_woken_beside_the_others() {
        let mut world = World::of(2);
        world.wait(1, Some(Time(20)));
        world.wait(1, Some(Time(10)));
        assert_eq!(world.list.until(), Some(Time(10)));
        let mut fired = Vec::new();
        world.list.wake_late(Time(9), &mut fired);
        assert_eq!(fired.len(), 0);
        world.list.wake_late(Time(10), &mut fired);
        assert_eq!((world.woken(fired), world.list.until()), (vec![1], None));
        assert_eq!(world.wake_next(2), [0]);
    }

    /// A task that waits for many places is one; who stands behind it is not kept from the next place.
    #[test]
    fn one_task_that_waits_many_times_is_called_for_one_place() {
        let mut world = World::of(1);
        let first = Arc::clone(&world.tasks[0]);
        for _ in 0..3 {
            let _ = world.list.wait(&mut None, Waker::from(Arc::clone(&first)), None);
        }
        world.tasks.push(Arc::default());
        world.places.push(None);
        world.wait(1, None);
        let mut fired = Vec::new();
        world.list.wake_next(2, &mut fired);
        assert_eq!((fired.len(), world.list.len()), (5, 0));
    }
}
