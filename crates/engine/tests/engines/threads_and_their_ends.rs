//! What ends with a thread and what does not: an engine kept in a thread's own storage ends with it, and a device's word is not taken
//! for the end of a thread.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use baio_engine::backend::Done;
use baio_engine::{
    Affinity, Backend, Choice, Doorbell, Engine, EngineOptions, Errno, Error, Explain, File, Op, Patience, Policy,
    Request, RequestId, Slots, Wait,
};

thread_local! {
    static MINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

fn config(affinity: Affinity) -> EngineOptions {
    EngineOptions {
        backend: Choice::Auto,
        affinity,
        slots: 16,
        arena_bytes: 1 << 20,
        ..EngineOptions::default()
    }
}

/// Its destructor runs among those of the thread's other values, some of which have gone. A panic there would end the process.
#[test]
fn an_engine_of_a_thread_ends_with_it() {
    const CHILD: &str = "BAIO_ENGINE_OF_A_THREAD";
    if std::env::var_os(CHILD).is_some() {
        let begin = || {
            MINE.with(|mine| {
                mine.borrow_mut()
                    .get_or_insert_with(|| Engine::new(&config(Affinity::OneThread)).unwrap());
            });
        };
        thread::spawn(begin).join().unwrap();
        return;
    }
    let told = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "threads_and_their_ends::an_engine_of_a_thread_ends_with_it",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{:?} {said}", told.status);
}

/// It answers everything, or the first so many, with the number that io_uring has for what a thread leaves behind.
struct Cancels {
    doorbell: Doorbell,
    most: usize,
    loses_orphans: bool,
    ended: Vec<(RequestId, i32)>,
    begun: Arc<AtomicUsize>,
}

impl Backend for Cancels {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            slots.begin(id);
            let begun = self.begun.fetch_add(1, Ordering::Relaxed);
            let cancelled = -Errno::ECANCELED.raw();
            self.ended.push((id, if begun < self.most { cancelled } else { 4096 }));
        }
        queue.len()
    }

    fn turn(&mut self, _: &mut Slots, _: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        done.raw.append(&mut self.ended);
        Ok(())
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("cancels")
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }

    fn loses_orphans(&self) -> bool {
        self.loses_orphans
    }
}

/// One write, and how often it was begun.
fn write_on(most: usize, loses_orphans: bool, affinity: Affinity, policy: Policy) -> (Result<u32, Error>, usize) {
    let begun = Arc::new(AtomicUsize::new(0));
    let backend = Cancels {
        doorbell: Doorbell::new().unwrap(),
        most,
        loses_orphans,
        ended: Vec::new(),
        begun: Arc::clone(&begun),
    };
    let mut engine = Engine::with_backend(Box::new(backend), &config(affinity)).unwrap();
    let kept = tempfile::tempfile().unwrap();
    let file = File::from_fd(kept.into(), "a file").unwrap();
    let memory = engine.buffer(4096).unwrap();
    let told = engine.run(Request::write(&file, 0, memory, policy)).result;
    (told, begun.load(Ordering::Relaxed))
}

#[test]
fn what_a_device_cancels_is_not_begun_again() {
    for affinity in [Affinity::OneThread, Affinity::AnyThread] {
        let (told, begun) = write_on(usize::MAX, false, affinity, Policy::kernel());
        assert!(told.is_err(), "{affinity:?}: {told:?}");
        assert_eq!(begun, 1, "{affinity:?}");
    }
}

/// Where it may be a thread's end that speaks, a device that always says so is believed in the end.
#[test]
fn what_a_device_cancels_is_not_begun_again_for_ever() {
    let (told, begun) = write_on(usize::MAX, true, Affinity::AnyThread, Policy::kernel());
    assert_eq!((told, begun), (Err(Error::Cancelled), 8));
}

/// Nothing of it has happened: that a request does not want to wait is no reason to end it.
#[test]
fn what_a_thread_leaves_behind_is_begun_again_also_when_it_would_not_wait() {
    for patience in [Patience::Wait, Patience::NoWait] {
        let policy = Policy {
            patience,
            ..Policy::kernel()
        };
        assert_eq!(
            write_on(3, true, Affinity::AnyThread, policy),
            (Ok(4096), 4),
            "{patience:?}"
        );
    }
}
