//! Who waits for a place: woken one for one, in order.
//!
//! A place that comes free is kept for the one that has waited longest, who is called to take it. Nobody else gets it meanwhile
//! ([`Waiters::may_enter`]): not the task that gave it back and wants the next, or who was called would come in vain each time, and wait for ever
//! beside tasks that loop. Who was called and wants it no more ([`Waiters::leave`]) hands it on. So a wake costs the same however many wait.
//!
//! Who was called may not come: its task polls other futures, and perhaps one of them waits for a place too. So a place is kept for a moment
//! ([`PATIENCE`]), or until whoever knows that every task was polled says so ([`Waiters::lapse`]); then others are called. Who
//! comes later waits where it stood.
//!
//! Plain data: nobody is called here. Wakers are given out, to be woken or dropped when nothing is locked or borrowed, because either may run
//! anybody's code.

use std::collections::{BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use baio_words::Time;

/// For so long a place is kept for who was called: longer than a task that was woken waits for its processor, as a rule.
const PATIENCE: Duration = Duration::from_micros(250);

/// Where somebody stands in a list of those who wait; kept from the first wait until it is served or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitPlace(u64);

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The line, from the place `first` on.
    line: VecDeque<Stand>,
    first: u64,
    /// Nobody waits in front of this place.
    next: u64,
    waiting: usize,
    /// A place is kept for each of so many.
    called: usize,
    /// Where these stand, among others that stood there.
    were_called: Vec<WaitPlace>,
    /// Until when; nothing, while nobody has looked at the clock since they were called.
    called_until: Option<Time>,
    /// When those give up that do.
    deadlines: BTreeSet<(Time, WaitPlace)>,
}

/// Who stands at a place of the line.
#[derive(Debug)]
enum Stand {
    /// Nobody: it was served, or left, or did not come when it was called.
    Nobody,
    /// It waits.
    Waiting(Waiter),
    /// It was called, and has not come yet.
    Called,
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
        self.waiting
    }

    /// Does nobody wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Of `free` places, is there one for who stands here, or for a newcomer?
    #[must_use]
    pub fn may_enter(&self, place: Option<WaitPlace>, free: usize) -> bool {
        let is_called = place.is_some_and(|place| matches!(self.stand(place), Some(Stand::Called)));
        free > if is_called { 0 } else { self.called }
    }

    /// Waits, and is woken at `until` at the latest: at the end of the list, or where it stood before. Gives back a waker that is not needed.
    pub fn wait(&mut self, place: &mut Option<WaitPlace>, waker: Waker, until: Option<Time>) -> Option<Waker> {
        let place = *place.get_or_insert(WaitPlace(self.first + self.line.len() as u64));
        while self.first > place.0 {
            self.line.push_front(Stand::Nobody); // It was called long ago.
            self.first -= 1;
        }
        if place.0 - self.first == self.line.len() as u64 {
            self.line.push_back(Stand::Nobody);
        }
        let left = self.take(place);
        if let Some(at) = until {
            self.deadlines.insert((at, place));
        }
        self.waiting += 1;
        self.next = self.next.min(place.0);
        if let Some(stand) = self.line.get_mut((place.0 - self.first) as usize) {
            *stand = Stand::Waiting(Waiter { waker, until });
        }
        left
    }

    /// It has what it waited for. Gives back its waker, if it was not woken.
    #[must_use]
    pub fn served(&mut self, place: WaitPlace) -> Option<Waker> {
        let left = self.take(place);
        while let Some(Stand::Nobody) = self.line.front() {
            self.line.pop_front();
            self.first += 1;
        }
        self.next = self.next.max(self.first);
        left
    }

    /// It waits no more. If a place is kept for it, that is the next one's.
    #[must_use]
    pub fn leave(&mut self, place: WaitPlace, fired: &mut Vec<Waker>) -> Option<Waker> {
        let was_called = matches!(self.stand(place), Some(Stand::Called));
        let own = self.served(place);
        if was_called {
            self.wake_next(1, fired);
        }
        own
    }

    /// So many more places have come free: one is kept for each of as many, who are woken.
    pub fn wake_next(&mut self, count: usize, fired: &mut Vec<Waker>) {
        let mut left = count.min(self.waiting);
        while left > 0 {
            left -= usize::from(self.call(WaitPlace(self.next), fired));
            self.next += 1;
        }
    }

    /// So many places are free now.
    pub fn offer(&mut self, free: usize, fired: &mut Vec<Waker>) {
        self.wake_next(free.saturating_sub(self.called), fired);
    }

    /// How many places are kept for those who were called.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.called
    }

    /// Who was called and has not come does not come soon: the next are called. And so is the last one, out of its turn, for it is perhaps
    /// what those who do not come wait for: the task that polls no others awaits it.
    pub fn lapse(&mut self, fired: &mut Vec<Waker>) {
        let count = self.called;
        self.forget_called();
        self.wake_next(count, fired);
        if count > 0 && self.waiting > 0 {
            let is_waiting = |stand: &Stand| matches!(stand, Stand::Waiting(_));
            let last = self.line.iter().rposition(is_waiting).unwrap_or(0);
            self.call(WaitPlace(self.first + last as u64), fired);
        }
    }

    fn forget_called(&mut self) {
        for place in std::mem::take(&mut self.were_called) {
            if matches!(self.stand(place), Some(Stand::Called)) {
                self.take(place);
            }
        }
        self.called_until = None;
    }

    /// Calls who waits there, if anybody does.
    fn call(&mut self, place: WaitPlace, fired: &mut Vec<Waker>) -> bool {
        let Some(waker) = self.take(place) else {
            return false;
        };
        fired.push(waker);
        if self.were_called.len() > 2 * self.called + 64 {
            let mut were_called = std::mem::take(&mut self.were_called);
            were_called.retain(|place| matches!(self.stand(*place), Some(Stand::Called)));
            self.were_called = were_called;
        }
        self.were_called.push(place);
        self.called += 1;
        if let Some(stand) = self.line.get_mut((place.0 - self.first) as usize) {
            *stand = Stand::Called;
        }
        true
    }

    /// Everybody is to look again: there is no place any more, or nobody to tell of one.
    pub fn wake_all(&mut self, fired: &mut Vec<Waker>) {
        self.forget_called();
        self.wake_next(self.waiting, fired);
        self.forget_called();
    }

    /// Must the clock be looked at?
    #[must_use]
    pub fn has_late(&self) -> bool {
        !self.deadlines.is_empty() || self.called > 0
    }

    /// Who has waited long enough is woken. It takes no place. What is kept for who was called and does not come is the next one's.
    pub fn wake_late(&mut self, now: Time, fired: &mut Vec<Waker>) {
        while let Some((at, place)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            fired.extend(self.take(place));
            self.deadlines.remove(&(at, place));
        }
        match self.called_until {
            _ if self.called == 0 => self.called_until = None,
            None => self.called_until = Some(now.after(PATIENCE)),
            Some(until) if now >= until => self.lapse(fired),
            Some(_) => {}
        }
    }

    /// When to look again: then the first of them gives up, or is not waited for any longer.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        let called = self.called_until.filter(|_| self.called > 0);
        let first = self.deadlines.first().map(|(at, _)| *at);
        called.into_iter().chain(first).min()
    }

    fn stand(&self, place: WaitPlace) -> Option<&Stand> {
        self.line.get(usize::try_from(place.0.checked_sub(self.first)?).ok()?)
    }

    /// Nobody stands there any more. Gives the waker of who did.
    fn take(&mut self, place: WaitPlace) -> Option<Waker> {
        let at = usize::try_from(place.0.checked_sub(self.first)?).ok()?;
        match std::mem::replace(self.line.get_mut(at)?, Stand::Nobody) {
            Stand::Nobody => None,
            Stand::Called => {
                self.called -= 1;
                None
            }
            Stand::Waiting(waiter) => {
                self.waiting -= 1;
                if let Some(until) = waiter.until {
                    self.deadlines.remove(&(until, place));
                }
                Some(waiter.waker)
            }
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

    #[test]
    fn a_place_is_kept_for_who_was_called() {
        let mut world = World::of(2);
        assert!(world.list.may_enter(None, 1) && !world.list.may_enter(None, 0));
        assert_eq!(world.wake_next(1), [0]);
        assert!(!world.list.may_enter(None, 1), "it is not a newcomer's");
        assert!(!world.list.may_enter(world.places[1], 1), "nor the next one's");
        assert!(world.list.may_enter(None, 2) && world.list.may_enter(world.places[0], 1));
        drop(world.list.served(world.places[0].unwrap()));
        assert!(world.list.may_enter(None, 1));
    }

    #[test]
    fn who_was_called_and_does_not_come_is_not_waited_for() {
        let mut world = World::of(4);
        assert_eq!(world.wake_next(1), [0]);
        let late = |world: &mut World, now: u64| {
            let mut fired = Vec::new();
            world.list.wake_late(Time(now), &mut fired);
            world.woken(fired)
        };
        assert_eq!(late(&mut world, 1000), [0; 0], "from now on");
        let until = world.list.until().unwrap().0;
        assert_eq!(until, 1000 + PATIENCE.as_nanos() as u64);
        assert_eq!(late(&mut world, until - 1), [0; 0]);
        assert_eq!(
            late(&mut world, until),
            [1, 3],
            "the next, and what its task may wait for"
        );
        assert!(!world.list.may_enter(world.places[0], 1), "it came too late");
        world.wait(0, None);
        assert_eq!(world.leave(1), [0], "and waits where it stood");
        for served in [3, 0] {
            assert!(world.list.may_enter(world.places[served], 1));
            drop(world.list.served(world.places[served].unwrap()));
        }
        assert_eq!((world.list.until(), late(&mut world, u64::MAX)), (None, vec![]));
        assert_eq!(world.leave(0), [0; 0], "nothing is kept for it");
        assert_eq!(world.wake_next(1), [2]);
    }
}
