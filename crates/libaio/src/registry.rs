//! Which contexts this process has, by the address that the program holds.
//!
//! A program may pass any address, from any thread, even while another thread destroys the context. So an address is looked up before it is
//! used, without a lock, in a table that is never moved. A thread that finds a context counts itself in, checks that the context is still
//! there, and counts itself out when done. A thread that destroys a context marks its address first, so that nobody finds it, and then waits for
//! the others to leave. Until they have, whoever destroys it too is told that there is none: the kernel, which still has a context of its own by
//! this address, would take our memory away under the first.
//!
//! The table lies in memory that the kernel wipes in a forked child (`MADV_WIPEONFORK`): contexts belong to the process that made
//! them, as the kernel's own do, and the child, whose table is empty, touches nothing that it shares with its parent. Whoever makes the table
//! holds up nobody: a child of another thread's would wait for it for ever.

#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use baio_memory::Mapping;
use rustix::mm::Advice;

use crate::context::Context;
use crate::patience::pause;
use crate::users::Users;

/// Contexts at most; a power of two.
const PLACES: usize = 8192;

/// An address that was there: it ends no search.
const GONE: usize = 1;
/// A place that is about to get an address. With one, it is that of a context that is being destroyed: contexts lie at pages.
const TAKEN: usize = 2;
/// No context lies lower.
const LOWEST: usize = 4096;

#[repr(C)]
struct Place {
    /// 0 if there never was one.
    address: AtomicUsize,
    users: Users,
    context: AtomicPtr<Context>,
}

/// A context in use.
pub(crate) struct Using {
    place: &'static Place,
    context: *const Context,
}

impl Using {
    /// Who is in a call on it, this one among them.
    pub(crate) fn users(&self) -> &Users {
        &self.place.users
    }
}

impl std::ops::Deref for Using {
    type Target = Context;

    fn deref(&self) -> &Context {
        // SAFETY: it is not freed while we are counted in.
        unsafe { &*self.context }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.place.users.leave();
    }
}

/// The table's first place.
static TABLE: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// The table, if it has been made.
fn table() -> Option<&'static [Place]> {
    // Acquire: by then the kernel has been told to wipe it in a child.
    let first = TABLE.load(Ordering::Acquire);
    // SAFETY: the mapping is never dropped, is page-aligned and as long as this, and zeros are valid atomics, before and after a wipe.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, PLACES) })
}

/// Makes it, if it is not there and there is memory for it. All zeros is a table with nothing in it.
fn make_table() {
    if table().is_some() {
        return;
    }
    let Ok(mapping) = Mapping::anonymous(PLACES * size_of::<Place>()) else {
        return;
    };
    // SAFETY: the range is a mapping of our own, which nobody refers to yet.
    let told = unsafe { rustix::mm::madvise(mapping.at(0).cast(), mapping.len(), Advice::LinuxWipeOnFork) };
    if told.is_err() {
        return;
    }
    let made = mapping.at(0).cast();
    // Release: see `table`.
    let won = TABLE.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Relaxed);
    if won.is_ok() {
        // It stays for ever. Where another thread has come first, ours goes.
        std::mem::forget(mapping);
    }
}

fn first(address: usize) -> usize {
    (address >> 12).wrapping_mul(0x9e37_79b1) % PLACES
}

/// The places that an address may have, the likeliest first.
fn places(address: usize) -> impl Iterator<Item = &'static Place> {
    let table = table().unwrap_or(&[]);
    let (behind, before) = table.split_at(first(address).min(table.len()));
    before.iter().chain(behind)
}

fn find(address: usize) -> Option<&'static Place> {
    if address < LOWEST || address & TAKEN != 0 {
        return None;
    }
    let likeliest = table()?.get(first(address))?;
    // Acquire: as below.
    if likeliest.address.load(Ordering::Acquire) == address {
        return Some(likeliest);
    }
    for place in places(address) {
        // Acquire: the context is in its place before its address.
        match place.address.load(Ordering::Acquire) {
            0 => return None,
            here if here == address => return Some(place),
            _ => {}
        }
    }
    None
}

/// The context of this address, if this process has it.
pub(crate) fn enter(address: usize) -> Option<Using> {
    let place = find(address)?;
    place.users.come();
    let mut using = Using {
        place,
        context: ptr::null(),
    };
    // SeqCst, here and in `remove`, as who comes is counted: either we see that the address is gone, or who takes it out sees us.
    if place.address.load(Ordering::SeqCst) != address {
        return None;
    }
    // Only now: before, it might have been that of an earlier context, which is freed.
    using.context = place.context.load(Ordering::Acquire);
    Some(using)
}

/// A context that the kernel has just made. One that finds no place stays the kernel's for ever.
pub(crate) fn begin(address: usize, requests: u32) {
    make_table();
    // The program has moved the live ring of an earlier one away from here, and goes by its new address.
    drop(remove(address));
    let context = Arc::new(Context::new(address, requests));
    for place in places(address) {
        let free = place.address.load(Ordering::SeqCst);
        // Who is counted in for a moment, and finds its address gone, has read nothing yet, but may look once more.
        if free > GONE || !place.users.is_nobody() {
            continue;
        }
        // First with an address that nobody looks for, since the context has to be there before its address.
        if place
            .address
            .compare_exchange(free, TAKEN, Ordering::SeqCst, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        place
            .context
            .store(Arc::into_raw(context).cast_mut(), Ordering::Release);
        place.address.store(address, Ordering::SeqCst);
        return;
    }
}

/// Takes an address out, for whoever comes first; from here on nobody finds it. The context is the caller's when `alone` says so.
pub(crate) fn remove(address: usize) -> Option<Removed> {
    let place = find(address)?;
    // SeqCst: see `enter`. Not `GONE` yet: the next context here would have its users waited for as if they were of this one.
    let won = place
        .address
        .compare_exchange(address, address | TAKEN, Ordering::SeqCst, Ordering::SeqCst);
    won.ok()?;
    // SAFETY: the pointer came from `Arc::into_raw`, only who has taken the address out takes it back, and nobody puts another into a
    // place that is taken.
    let context = unsafe { Arc::from_raw(place.context.load(Ordering::Acquire)) };
    Some(Removed { place, context })
}

/// Is another thread destroying it?
pub(crate) fn is_leaving(address: usize) -> bool {
    let addresses = places(address).map(|place| place.address.load(Ordering::SeqCst));
    address >= LOWEST
        && addresses
            .take_while(|&here| here != 0)
            .any(|here| here == address | TAKEN)
}

/// A context that nobody finds any more. Others may still be at work in it.
pub(crate) struct Removed {
    place: &'static Place,
    pub(crate) context: Arc<Context>,
}

impl Removed {
    /// Have all others left?
    pub(crate) fn is_alone(&self) -> bool {
        self.place.users.is_nobody()
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // Who found the place before its address was gone may come in for a moment and look once more: `enter` reads nothing of
        // the context before that, but a counted one may still be inside.
        while !self.is_alone() {
            pause(Duration::from_micros(50));
        }
        self.place.address.store(GONE, Ordering::SeqCst);
    }
}

/// Every context there is now.
pub(crate) fn all() -> impl Iterator<Item = Using> {
    let addresses = places(0).map(|place| place.address.load(Ordering::Relaxed));
    addresses.filter_map(enter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that was forked while its parent made the table has none, and looks for contexts when it exits.
    #[test]
    fn who_looks_for_contexts_makes_no_table() {
        assert_eq!(all().count(), 0);
        assert!(enter(LOWEST).is_none() && remove(LOWEST).is_none() && !is_leaving(LOWEST));
        assert!(table().is_none());
        // Nor does another test here: they make contexts of the kernel's alone.
        make_table();
        assert!(table().is_some_and(|table| table.len() == PLACES));
        assert_eq!(all().count(), 0);
    }
}
