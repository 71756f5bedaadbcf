//! The promise: whatever becomes of a log, who has asked it something is answered, and who waits is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use baio_engine::Wait;
use baio_storage::log::{LogRequest, Lsn, WaitKey};
use baio_storage::{Core, HeldLog, LogQuestion, LogReply};

use crate::harness::{create, open_with_seed, open_write, slow_volume};
use crate::held_log::{LOG_BYTES, create_log, options, wait};

/// Turns until there is an answer; not for ever.
fn answer(core: &mut Core, question: &LogQuestion) -> Option<baio_storage::Result<LogReply>> {
    for _ in 0..1000 {
        if let Poll::Ready(answer) = core.poll_log(question, None) {
            return answer;
        }
        core.turn(Wait::No).unwrap();
        if core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
    }
    panic!("it is not answered");
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn fill(core: &mut Core, log: &HeldLog) {
    let mut last = Lsn(0);
    while let Ok(lsn) = log.appender().append(&[5; 4000]) {
        last = lsn;
    }
    wait(core, log, last);
}

#[test]
fn a_read_at_the_device_is_answered_when_the_log_closes() {
    for seed in 0..20 {
        let disk = slow_volume(16 << 20);
        let mut core = open_with_seed(&disk, seed);
        create(&mut core, "log", LOG_BYTES);
        let handle = open_write(&mut core, "log");
        let log = create_log(&mut core, handle);
        fill(&mut core, &log);
        let from = log.appender().head_lsn();
        let read = core.begin_on_log(log.id(), LogRequest::Read { from }).unwrap();
        let woken = Arc::new(Woken::default());
        assert!(core.poll_log(&read, Some(Waker::from(Arc::clone(&woken)))).is_pending());
        let close = core.begin_on_log(log.id(), LogRequest::Close).unwrap();
        answer(&mut core, &close).unwrap().unwrap();
        let _ = answer(&mut core, &read).expect("it is answered once");
        let mut fired = Vec::new();
        core.take_fired(&mut fired);
        fired.into_iter().for_each(Waker::wake);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "seed {seed}");
        core.close().unwrap();
    }
}

#[test]
fn a_log_that_is_closed_while_its_opening_fails_leaves_nothing() {
    let disk = slow_volume(16 << 20);
    let mut core = open_with_seed(&disk, 1);
    for name in ["log", "none"] {
        create(&mut core, name, LOG_BYTES);
    }
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let none = open_write(&mut core, "none");
    let question = core.begin_open_log(none, &options()).unwrap();
    core.abandon_log(question);
    core.close_handle(none);
    for _ in 0..1000 {
        core.turn(Wait::No).unwrap();
        if core.in_flight() == 0 {
            break;
        }
    }
    assert_eq!(core.in_flight(), 0, "nothing is under way");
    drop(log);
    core.close().unwrap();
}

/// A core that goes in the middle of a turn, with a panic, has collected whom it was to wake.
#[test]
fn who_waits_is_told_when_the_core_goes() {
    let disk = slow_volume(16 << 20);
    let mut core = open_with_seed(&disk, 1);
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let lsn = log.appender().append(b"one").unwrap();
    let mut key = WaitKey::default();
    assert!(log.appender().poll_durable(lsn, &mut key, &waker).is_pending());
    for _ in 0..100 {
        core.turn(Wait::one()).unwrap();
        if lsn < log.appender().durable_lsn() {
            break;
        }
    }
    drop(core);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}
