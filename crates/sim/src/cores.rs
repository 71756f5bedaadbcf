//! Uses all processors: numbered pieces of work are done by any thread, and their results are taken in the order of the numbers. So the
//! result does not depend on how many threads there are, or which is faster.
//!
//! A simulated world stays with the thread that made it; only its result goes to another.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

/// As many threads as the machine has cores for this process.
#[must_use]
pub fn all() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// What has been made and not been taken yet, at most, beside what waits for an earlier piece.
const AHEAD: usize = 64;

/// Calls `make` for 0, 1, 2 ... on so many threads until it gives `None`, and `take` with each piece in order until that
/// says no. Pieces that were begun and are not wanted any more are dropped.
///
/// # Panics
/// When `make` does.
pub fn in_order<T: Send>(threads: usize, make: impl Fn(u64) -> Option<T> + Sync, mut take: impl FnMut(T) -> bool) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, made) = sync_channel(AHEAD);
        for _ in 0..threads.max(1) {
            let (sender, next, stop, make) = (sender.clone(), &next, &stop, &make);
            scope.spawn(move || {
                let _end = StopOnPanic(stop);
                // Relaxed: the numbers and the stop carry no other data; the pieces go through the channel.
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let piece = make(number);
                    let is_last = piece.is_none();
                    if sender.send((number, piece)).is_err() || is_last {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        'taking: for (number, piece) in &made {
            early.insert(number, piece);
            while let Some(piece) = early.remove(&wanted) {
                wanted += 1;
                if !piece.is_some_and(&mut take) {
                    break 'taking;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// If one thread panics, the others do not go on for ever without it.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_whoever_makes_them() {
        for threads in [1, 2, 5] {
            let mut taken = Vec::new();
            in_order(
                threads,
                |number| {
                    if number % 7 == 0 {
                        std::thread::yield_now();
                    }
                    (number < 500).then_some(number * number)
                },
                |piece| {
                    taken.push(piece);
                    true
                },
            );
            assert_eq!(taken, (0..500).map(|n| n * n).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn nothing_is_taken_behind_the_end() {
        let mut taken = Vec::new();
        in_order(3, Some, |piece| {
            taken.push(piece);
            piece < 10
        });
        assert_eq!(taken, (0..=10).collect::<Vec<u64>>());
    }
}
