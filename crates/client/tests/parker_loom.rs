//! A thread's place to sleep under the model checker: every interleaving of one who sleeps and those who wake him, with every value
//! that the memory model lets a load return. Promises: a wake-up is never lost, on the bell or beside it, whatever was done before
//! it is seen, and a place that another thread used before is as good.
//!
//! The product's file is included as it is. The model takes `SeqCst` loads, stores and swaps for acquire and release, so a fence
//! stands on either side of each here, as on a machine that knows fences only. The last test weakens them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::AtomicU32;
use loom::thread;
use sync::Ordering;

/// What is weaker than the file says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weak {
    Nothing,
    /// The access on this line is relaxed.
    Line(u32),
    /// Every `SeqCst` is acquire and release.
    Fences,
}

thread_local! {
    // The model runs all its threads on one thread of the system, each test on another.
    static WEAK: Cell<Weak> = const { Cell::new(Weak::Nothing) };
}

mod sync {
    use std::panic::Location;
    use std::sync::LockResult;
    use std::time::{Duration, Instant};

    use loom::sync::atomic::fence;

    use super::{WEAK, Weak};

    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
    pub(crate) use std::sync::atomic::Ordering;

    /// Does the access, with fences around it where it is `SeqCst`.
    fn ordered<T>(order: Ordering, at: &Location<'_>, act: impl FnOnce(Ordering) -> T) -> T {
        let weak = WEAK.get();
        if order != Ordering::SeqCst || weak == Weak::Line(at.line()) {
            return act(Ordering::Relaxed);
        }
        if weak == Weak::Fences {
            return act(Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        let result = act(Ordering::AcqRel);
        fence(Ordering::SeqCst);
        result
    }

    macro_rules! atomic {
        ($name:ident $value:ty) => {
            pub(crate) struct $name(loom::sync::atomic::$name);

            #[allow(dead_code)]
            impl $name {
                pub(crate) fn new(value: $value) -> $name {
                    $name(loom::sync::atomic::$name::new(value))
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    ordered(order, Location::caller(), |order| match order {
                        Ordering::Relaxed => self.0.load(order),
                        _ => self.0.load(Ordering::Acquire),
                    })
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    ordered(order, Location::caller(), |order| match order {
                        Ordering::Relaxed => self.0.store(value, order),
                        _ => self.0.store(value, Ordering::Release),
                    });
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    ordered(order, Location::caller(), |order| self.0.swap(value, order))
                }
            }
        };
    }

    atomic!(AtomicBool bool);
    atomic!(AtomicU8 u8);

    /// Nobody in here has a limit.
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait<'a>(&self, guard: MutexGuard<'a, ()>) -> LockResult<MutexGuard<'a, ()>> {
            self.0.wait(guard)
        }

        pub(crate) fn wait_timeout<'a>(
            &self,
            guard: MutexGuard<'a, ()>,
            _: Duration,
        ) -> LockResult<(MutexGuard<'a, ()>, ())> {
            Ok((self.wait(guard).unwrap(), ()))
        }
    }

    pub(crate) fn now() -> Instant {
        unreachable!("nobody in here has a limit")
    }
}

mod carrier {
    use std::time::Duration;

    pub(crate) trait Carrier: Send + Sync + Sized + 'static {}

    impl Carrier for () {}

    pub(crate) struct Between<K> {
        pub(crate) bell: Bell,
        pub(crate) kind: std::marker::PhantomData<K>,
    }

    /// As futex(2) behaves; its lock orders no more than the word does.
    pub(crate) struct Bell {
        pub(crate) rung: loom::sync::Mutex<bool>,
        pub(crate) heard: loom::sync::Condvar,
    }

    impl Bell {
        pub(crate) fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.heard.notify_one();
        }

        pub(crate) fn sleep(&self, _: Option<Duration>) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.heard.wait(rung).unwrap();
            }
            *rung = false;
        }
    }
}

#[path = "../src/parker.rs"]
#[allow(dead_code)]
mod parker;

use carrier::{Bell, Between};
use parker::Parker;

fn parker() -> Arc<Parker<()>> {
    let bell = Bell {
        rung: loom::sync::Mutex::new(false),
        heard: loom::sync::Condvar::new(),
    };
    let kind = std::marker::PhantomData;
    Parker::new(&Arc::new(Between { bell, kind }))
}

/// One sleeps until he is woken, `times` times; another does something and wakes him.
fn check(on_bell: bool, times: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let sleeper = parker();
        let rings = Arc::clone(&sleeper);
        // Relaxed: the ring alone must order what was done, and the model returns every older value where it does not.
        let done = Arc::new(AtomicU32::new(0));
        let does = Arc::clone(&done);
        let waker = thread::spawn(move || {
            for time in 1..=times {
                does.store(time, Ordering::Relaxed);
                rings.ring();
            }
        });
        let mut seen = 0;
        while seen < times {
            if sleeper.take() {
                seen = done.load(Ordering::Relaxed);
                assert!(seen > 0, "woken before it was done");
            } else if on_bell {
                sleeper.sleep_on_bell(None);
            } else {
                sleeper.park(None);
            }
        }
        waker.join().unwrap();
    });
}

#[test]
fn who_sleeps_on_the_bell_is_woken() {
    check(true, 1);
    check(true, 2);
}

#[test]
fn who_is_parked_is_woken() {
    check(false, 1);
    check(false, 2);
}

fn all() {
    for on_bell in [true, false] {
        check(on_bell, 1);
        check(on_bell, 2);
    }
}

/// Does the model fail with this?
fn bites(weak: Weak) -> bool {
    WEAK.set(weak);
    let ended = catch_unwind(AssertUnwindSafe(all));
    WEAK.set(Weak::Nothing);
    let Err(why) = ended else { return false };
    let literal = why.downcast_ref::<&str>().copied();
    let why = why
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(literal)
        .unwrap_or_default();
    assert!(
        why.contains("deadlock") || why.contains("woken before it was done"),
        "{why}"
    );
    true
}

#[test]
fn the_model_bites() {
    assert!(
        bites(Weak::Fences),
        "either sees the other: without that a wake-up is lost"
    );
    let text = include_str!("../src/parker.rs");
    let swaps: Vec<u32> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.contains(".swap("))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(swaps.len(), 2, "one rings, one hears: {swaps:?}");
    for line in swaps {
        assert!(
            bites(Weak::Line(line)),
            "parker.rs:{line} can be relaxed and no model notices"
        );
    }
}
