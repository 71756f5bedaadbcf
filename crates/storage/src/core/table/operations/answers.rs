//! Answers of operations, for those who poll for them and for those who do not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use super::tests::{ME, core};
use super::*;
use crate::identity::Access;
use crate::operation::create::CreateOptions;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn waker() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (count.clone(), Waker::from(count))
}

/// Wakes those whom the core has collected; how many.
fn wake_fired(core: &mut Core) -> usize {
    let mut fired = Vec::new();
    core.take_fired(&mut fired);
    let count = fired.len();
    fired.into_iter().for_each(Waker::wake);
    count
}

fn displaced(core: &mut Core) -> usize {
    let mut displaced = Vec::new();
    core.take_displaced(&mut displaced);
    displaced.len()
}

fn begin_open(core: &mut Core) -> OperationId {
    core.begin_open(ME, ME.uid, "data", Access::Read).unwrap()
}

#[test]
fn the_last_waker_is_woken_once_and_the_others_are_given_back() {
    let mut core = core();
    let id = begin_open(&mut core);
    let [(first, one), (last, other)] = [waker(), waker()];
    assert!(core.poll_answer(&id, Some(one)).is_pending());
    assert!(core.poll_answer(&id, Some(other)).is_pending());
    assert!(
        core.poll_answer(&id, None).is_pending(),
        "who only looks changes nothing"
    );
    assert_eq!(displaced(&mut core), 1);
    let mut woken = 0;
    while woken == 0 {
        core.turn(Wait::one()).unwrap();
        woken = wake_fired(&mut core);
    }
    assert_eq!((woken, wake_fired(&mut core)), (1, 0));
    let counts = [first, last].map(|count| count.0.load(Ordering::Relaxed));
    assert_eq!(counts, [0, 1]);
    let (_, late) = waker();
    let Poll::Ready(Some(Ok(Answer::Opened { handle, .. }))) = core.poll_answer(&id, Some(late)) else {
        panic!("it has ended");
    };
    assert_eq!(displaced(&mut core), 1);
    assert!(core.size(handle).is_ok());
    assert!(
        matches!(core.poll_answer(&id, None), Poll::Ready(None)),
        "its id is used up"
    );
}

#[test]
fn what_ends_as_it_begins_is_ready() {
    let mut core = core();
    let nothing = CreateOptions::of_size(0);
    let id = core.begin_create(ME, ME.uid, "new", &nothing).unwrap();
    let Poll::Ready(Some(Err(error))) = core.poll_answer(&id, None) else {
        panic!("it was refused");
    };
    assert!(matches!(error.fault, Fault::BadSize(_)), "{error}");
}

#[test]
fn whoever_stops_driving_gets_the_wakers_of_operations_too() {
    let mut core = core();
    let id = begin_open(&mut core);
    assert!(core.poll_answer(&id, Some(waker().1)).is_pending());
    let mut wakers = Vec::new();
    core.take_wakers(&mut wakers);
    assert_eq!(wakers.len(), 1);
}

#[test]
fn an_abandoned_open_leaves_no_handle() {
    let mut core = core();
    // A place that was given back is the next to be taken.
    let place = |core: &mut Core| {
        let (handle, _) = core.open_segment(ME, ME.uid, "other", Access::Read).unwrap();
        core.close_handle(handle);
        handle.index
    };
    let free = place(&mut core);
    // Once before it has ended, once after.
    for ends_first in [false, true] {
        let id = begin_open(&mut core);
        assert!(core.poll_answer(&id, Some(waker().1)).is_pending());
        while ends_first && core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        core.abandon_operation(id);
        assert_eq!(displaced(&mut core), usize::from(!ends_first));
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        assert_eq!(place(&mut core), free, "{ends_first}");
        assert!(core.table.running.iter().next().is_none());
        wake_fired(&mut core);
    }
}
