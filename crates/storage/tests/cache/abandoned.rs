//! The promise: a request that nobody waits for any more keeps nobody waiting, wherever in the cache it was when it was
//! abandoned: moves, shrinks and closes end, and so do the requests behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use baio_engine::Wait;
use baio_storage::{Core, Handle, Mode, OperationId, ResizeOptions};

use crate::harness::through_cache::{B, begin_durable, begin_read, begin_write, end, get, got, open_cached, slow_disk};
use crate::harness::{BLOCK, ME, create, open_write};

fn opened() -> (Core, Handle) {
    let mut core = open_cached(&slow_disk(), 32);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    (core, handle)
}

/// Page 3 is changed, and waits for its log.
fn gated(core: &mut Core, handle: Handle) {
    let pin = core.pin_now(handle, 3).unwrap();
    core.change(&pin, 5).unwrap().fill(7);
    core.unpin(pin);
}

fn answer(core: &mut Core, id: &OperationId) {
    for _ in 0..2_000 {
        if let Some(answer) = core.take_answer(id) {
            answer.unwrap();
            return;
        }
        core.turn(Wait::one()).unwrap();
    }
    panic!("it never ends");
}

/// Moves count what the device may be at work on, and wait for its end: what only the cache has is not on the device.
#[test]
fn a_move_ends_though_a_durable_write_that_waited_for_the_log_was_abandoned() {
    let (mut core, handle) = opened();
    gated(&mut core, handle);
    let waits = begin_durable(&mut core, handle, 3, &[9; 10]);
    core.turn(Wait::No).unwrap();
    core.abandon(waits);
    let moving = core.begin_move(ME, ME.uid, "data", Some(200)).unwrap();
    // The chunk is held; then what the request waited for happens.
    for _ in 0..200 {
        core.turn(Wait::one()).unwrap();
    }
    core.set_durable_lsn(5).unwrap();
    answer(&mut core, &moving);
    let shrunk = ResizeOptions::to_size(2 * B);
    core.resize(ME, ME.uid, "data", &shrunk).unwrap();
    get(&mut core, handle, 0, 2, Mode::Direct);
    core.close().unwrap();
}

/// Its slot and its memory are free at once: what it waited for may never come.
#[test]
fn an_abandoned_request_gives_everything_back_while_what_it_waited_for_has_not_come() {
    let (mut core, handle) = opened();
    gated(&mut core, handle);
    let free = core.engine().arena().free_bytes();
    let waiting = [
        begin_durable(&mut core, handle, 3, &[9; 10]),
        begin_write(&mut core, handle, 3, &[4; BLOCK], Mode::Direct),
        begin_read(&mut core, handle, 3, 1, Mode::Direct),
        begin_read(&mut core, handle, 2, 4, Mode::Cached),
    ];
    core.turn(Wait::No).unwrap();
    waiting.into_iter().for_each(|ticket| core.abandon(ticket));
    for _ in 0..200 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(core.in_flight(), 0);
    assert_eq!(core.engine().arena().free_bytes(), free);
    // The direct write's range is nobody's any more.
    let read = begin_read(&mut core, handle, 2, 4, Mode::Cached);
    assert_eq!(got(end(&mut core, read))[BLOCK + 10..2 * BLOCK], [7; BLOCK - 10]);
    core.set_durable_lsn(5).unwrap();
    core.close().unwrap();
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What an abandon lets end is told by the next turn, which does not sleep over it.
#[test]
fn who_goes_on_because_of_an_abandon_is_woken_before_anybody_sleeps() {
    let (mut core, handle) = opened();
    gated(&mut core, handle);
    let direct = begin_write(&mut core, handle, 3, &[4; 2 * BLOCK], Mode::Direct);
    let waits = begin_write(&mut core, handle, 4, &[5; BLOCK], Mode::Cached);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let context = Context::from_waker(&waker);
    assert!(core.poll(waits, Some(context.waker().clone())).is_pending());
    // Something slow is under way, for whose end a sleep would wait.
    let slow = begin_read(&mut core, handle, 40, 1, Mode::Direct);
    core.turn(Wait::No).unwrap();
    core.abandon(direct);
    core.turn(Wait::one()).unwrap();
    assert!(core.poll(slow, None).is_pending(), "it slept");
    let mut fired = Vec::new();
    core.take_fired(&mut fired);
    fired.into_iter().for_each(Waker::wake);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(core.poll(waits, None), Poll::Ready(Some(outcome)) if outcome.result.is_ok()));
    end(&mut core, slow).result.unwrap();
    core.set_durable_lsn(5).unwrap();
    core.close().unwrap();
}
