//! How much memory a thread has taken at most: what reads a damaged volume must not take as much as its bytes ask for.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken and not given back, and the most that there were.
    static TAKEN: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, counting for each thread.
#[derive(Debug)]
pub struct Counting;

fn count(more: i64) {
    // A thread that ends has no counter any more, and nobody asks.
    let _ = TAKEN.try_with(|taken| {
        let (now, most) = taken.get();
        taken.set((now + more, most.max(now + more)));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does something; returns with it how many bytes more than before this thread had at most meanwhile.
pub fn most<T>(body: impl FnOnce() -> T) -> (T, u64) {
    let before = TAKEN.with(|taken| {
        let (now, _) = taken.get();
        taken.set((now, now));
        now
    });
    let done = body();
    let most = TAKEN.with(|taken| taken.get().1) - before;
    (done, u64::try_from(most).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_told_and_not_the_sum() {
        let (_, most) = most(|| {
            for _ in 0..10 {
                drop(vec![1_u8; 1 << 20]);
            }
        });
        assert!((1 << 20..2 << 20).contains(&most), "{most}");
    }
}
