//! Is this still the process in which something was made?
//!
//! A forked child has copies of its parent's memory, but not its threads. So work of these threads is never done, a lock that one of them held
//! is never released, and shared memory still belongs to the parent. A value that needs a thread or shares memory therefore remembers the
//! [`Life`] that it was made in, and refuses to work in another one. The test costs one load: the word lies in a page that the kernel wipes
//! in a child (`MADV_WIPEONFORK`, madvise(2), Linux 4.14). Where the kernel cannot do that, the process id is compared.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The number of this process's life, 0 in one that has just been forked; null before anybody has asked.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Numbers given so far. A child has its parent's, and goes on from there.
static LIVES: AtomicU32 = AtomicU32::new(0);

/// A process's, from its fork to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u32);

impl Life {
    /// That of this process.
    pub fn now() -> Life {
        let Some(word) = word() else {
            return Life(std::process::id());
        };
        // Relaxed: only numbers are compared, and nobody writes but who finds 0, and the kernel between two lives.
        let known = word.load(Ordering::Relaxed);
        if known != 0 {
            return Life(known);
        }
        let next = LIVES.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread of this process may have been first.
        let first = word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        Life(first.map_or_else(|other| other, |_| next))
    }

    /// Is this another process than the one that it was asked for in?
    pub fn is_over(self) -> bool {
        self != Life::now()
    }
}

/// A value that is made once, for whoever asks for it first. Threads that ask at the same time make several, and all but one are dropped: nobody waits for
/// another, who in a forked child is not there (as one would who finds a `OnceLock` that is being filled).
#[derive(Debug)]
pub struct Once<T>(AtomicPtr<T>, PhantomData<Box<T>>);

impl<T: Send + Sync> Once<T> {
    /// Without a value yet.
    #[must_use]
    pub const fn new() -> Once<T> {
        Once(AtomicPtr::new(null_mut()), PhantomData)
    }

    /// The value.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        // Acquire: it was made by another thread.
        let mut at = self.0.load(Ordering::Acquire);
        if at.is_null() {
            let made = Box::into_raw(Box::new(make()));
            at = match self
                .0
                .compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => made,
                Err(first) => {
                    // SAFETY: it was made just now, and nobody knows it.
                    drop(unsafe { Box::from_raw(made) });
                    first
                }
            };
        }
        // SAFETY: a box that is given up by nobody but the drop of this.
        unsafe { &*at }
    }
}

impl<T: Send + Sync> Default for Once<T> {
    fn default() -> Once<T> {
        Once::new()
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        let at = *self.0.get_mut();
        if !at.is_null() {
            // SAFETY: a box of `get_or_make`, to which nobody refers any more.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

fn word() -> Option<&'static AtomicU32> {
    // Acquire: the page was made by another thread.
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        page = make();
    }
    // SAFETY: a page that is never unmapped, whose zeros are valid before and after a wipe; or nothing.
    (!page.is_null() && page != NONE).then(|| unsafe { &*page })
}

/// The kernel does not wipe pages.
const NONE: *mut AtomicU32 = ptr::without_provenance_mut(usize::MAX & !3);

fn make() -> *mut AtomicU32 {
    let (len, new) = (rustix::param::page_size(), wiped());
    match PAGE.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            if new != NONE {
                // SAFETY: the page was made just now, and nobody knows it.
                let _ = unsafe { rustix::mm::munmap(new.cast(), len) };
            }
            other
        }
    }
}

fn wiped() -> *mut AtomicU32 {
    if cfg!(miri) {
        return NONE; // It knows no such advice, and no fork.
    }
    let len = rustix::param::page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at a place of the kernel's choice.
    let Ok(page) = (unsafe { rustix::mm::mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) }) else {
        return NONE;
    };
    // SAFETY: that mapping, which nobody refers to yet.
    match unsafe { rustix::mm::madvise(page, len, Advice::LinuxWipeOnFork) } {
        Ok(()) => page.cast(),
        Err(_) => {
            // SAFETY: as above.
            let _ = unsafe { rustix::mm::munmap(page, len) };
            NONE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn one_value_is_for_all_and_the_others_are_dropped() {
        let counted = Arc::new(());
        let (cell, all) = (Once::new(), Barrier::new(4));
        let ask = || {
            let value = cell.get_or_make(|| {
                all.wait(); // Each of them has found none.
                Arc::clone(&counted)
            });
            ptr::from_ref(value).addr()
        };
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|at| *at == seen[0]));
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(cell);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
