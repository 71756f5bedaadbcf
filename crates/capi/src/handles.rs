//! The handles of C. One looks like a pointer to C code, but encodes a slot of a table and a generation: where its object is, and which one it was.
//! So one that is wrong, freed, of another kind or of another thread is an error, and never somebody else's memory.
//!
//! ```text
//!  63    60 59   56 55            36 35          18 17           0
//! | mark   | kind  | thread, 0: any | generation   | place in table |
//! ```
//!
//! The mark makes it an address that no processor of 64 bits takes. What stands on a link in the caller's thread is in a table of that
//! thread, which nobody else can reach; all else is in one table behind a lock.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio::{Errno, Link, Local, Remote};

use crate::failure::{Failure, Result};
use crate::table::{GENERATION_BITS, PLACE_BITS, Table, low};
use crate::things::{Kind, Thing};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle of baio.h needs the 64 bits of a pointer");

const THREAD_BITS: u32 = 20;
const MARK: u64 = 0xB;

/// A handle, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    kind: u64,
    thread: u64,
    generation: u64,
    place: u64,
}

impl Handle {
    fn word(self) -> u64 {
        let thread = self.thread << (PLACE_BITS + GENERATION_BITS);
        MARK << 60 | self.kind << 56 | thread | self.generation << PLACE_BITS | self.place
    }

    /// None: these bits are no handle.
    fn of_word(word: u64) -> Option<Handle> {
        (word >> 60 == MARK).then_some(Handle {
            kind: word >> 56 & 0xF,
            thread: word >> (PLACE_BITS + GENERATION_BITS) & low(THREAD_BITS),
            generation: word >> PLACE_BITS & low(GENERATION_BITS),
            place: word & low(PLACE_BITS),
        })
    }
}

pub(crate) type Things<L> = Table<Arc<Thing<L>>>;

thread_local! {
    static OF_THREAD: OfThread = const { OfThread(RefCell::new(Table::new())) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}
/// What stands on links in this thread; dropped when it ends, but in a forked child.
struct OfThread(RefCell<Things<Local>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        if baio_shim::forks::is_child() {
            std::mem::forget(std::mem::replace(self.0.get_mut(), Table::new()));
        }
    }
}

static OF_ALL: Mutex<Things<Remote>> = Mutex::new(Table::new());
static THREADS: AtomicU64 = AtomicU64::new(0);

/// A link of which objects are kept.
pub(crate) trait Home: Link {
    /// What handles of its objects say of their thread.
    fn thread() -> u64;

    /// Looks at the table. None: the thread is ending.
    fn with<R>(act: impl FnOnce(&mut Things<Self>) -> R) -> Option<R>;
}

pub(crate) fn of_this_thread<R>(act: impl FnOnce(&mut Things<Local>) -> R) -> Option<R> {
    OF_THREAD.try_with(|table| act(&mut table.0.borrow_mut())).ok()
}

pub(crate) fn of_any_thread<R>(act: impl FnOnce(&mut Things<Remote>) -> R) -> R {
    act(&mut OF_ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// This thread's number, from 1. After a million threads they are given again.
pub(crate) fn this_thread() -> u64 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(THREADS.fetch_add(1, Ordering::Relaxed) % low(THREAD_BITS) + 1);
        }
        thread.get()
    })
}

/// Keeps an object, and gives the handle that C has.
pub(crate) fn keep<L: Home, T>(thing: Arc<Thing<L>>) -> Result<*mut T> {
    let kind = thing.kind() as u64;
    let kept = L::with(|table| table.insert(thing)).ok_or_else(|| ended("keep a handle"))?;
    let (place, generation) = kept.ok_or_else(|| {
        let text = format!("keep a handle: {} are open", low(PLACE_BITS) + 1);
        Failure::new(Errno::EMFILE, text, "close what is not needed any more")
    })?;
    let handle = Handle {
        kind,
        thread: L::thread(),
        generation,
        place,
    };
    Ok(std::ptr::without_provenance_mut(handle.word() as usize))
}

/// What a pointer from C names, on whichever link.
pub(crate) enum Found {
    Here(Handle),
    Anywhere(Handle),
}

/// Takes a handle apart, and says what is wrong with it.
pub(crate) fn find<T>(pointer: *const T, kind: Kind) -> Result<Found> {
    let word = pointer.addr() as u64;
    if word == 0 {
        let text = format!("use a {}: the handle is null", kind.name());
        return Err(Failure::new(
            Errno::EINVAL,
            text,
            "pass one that a call of baio has given",
        ));
    }
    let Some(handle) = Handle::of_word(word) else {
        let text = format!("use a {}: {word:#x} is not a handle of baio", kind.name());
        return Err(Failure::new(
            Errno::EBADF,
            text,
            "pass one that a call of baio has given",
        ));
    };
    if handle.kind != kind as u64 {
        let text = format!("use a {}: the handle is of another kind", kind.name());
        let cure = "pass the handle that the call's declaration names";
        return Err(Failure::new(Errno::EBADF, text, cure));
    }
    match handle.thread {
        0 => Ok(Found::Anywhere(handle)),
        thread if thread == this_thread() => Ok(Found::Here(handle)),
        _ => {
            let text = format!("use a {}: it belongs to another thread", kind.name());
            let cure = "call from the thread that opened its link, or open a link of kind BAIO_LINK_SERVICE";
            Err(Failure::new(Errno::EPERM, text, cure))
        }
    }
}

/// The table of this thread has gone: when the main thread ends, that is before the handlers of atexit(3).
pub(crate) fn ended(what: &str) -> Failure {
    let text = format!("{what}: the thread of its link has ended");
    let cure = "close links of kind BAIO_LINK_THREAD before their thread ends, and not in atexit";
    Failure::new(Errno::ESRCH, text, cure)
}

fn gone(kind: Kind) -> Failure {
    let text = format!("use a {}: it was closed or freed", kind.name());
    Failure::new(Errno::EBADF, text, "use no handle after it was given back")
}

/// The object of a handle.
pub(crate) fn look<L: Home>(handle: Handle, kind: Kind) -> Result<Arc<Thing<L>>> {
    let found = L::with(|table| table.get(handle.place, handle.generation).cloned());
    found
        .ok_or_else(|| ended(&format!("use a {}", kind.name())))?
        .filter(|thing| thing.kind() as u64 == kind as u64)
        .ok_or_else(|| gone(kind))
}

/// The handle is of no use from now on. The object is dropped by whoever asked, outside of the table.
pub(crate) fn forget<L: Home>(handle: Handle, kind: Kind) -> Result<Arc<Thing<L>>> {
    look::<L>(handle, kind)?;
    let taken = L::with(|table| table.remove(handle.place, handle.generation)).flatten();
    taken.ok_or_else(|| gone(kind))
}

/// The object of a pointer from C on this link, as a part of a call on the link.
pub(crate) fn on_link<L: Home, T>(pointer: *const T, kind: Kind) -> Result<Arc<Thing<L>>> {
    match find(pointer, kind)? {
        Found::Here(handle) | Found::Anywhere(handle) if handle.thread == L::thread() => look::<L>(handle, kind),
        _ => {
            let text = format!("use a {}: it is of another link", kind.name());
            Err(Failure::new(
                Errno::EXDEV,
                text,
                "use what was opened on the link of the call",
            ))
        }
    }
}

/// Runs `$act` on what a pointer names, whichever link it is on: as a generic function of the link.
macro_rules! on_either {
    ($pointer:expr, $kind:expr, $act:ident $(, $more:expr)*) => {
        match $crate::handles::find($pointer, $kind)? {
            $crate::handles::Found::Here(handle) => $act::<baio::Local>(handle $(, $more)*),
            $crate::handles::Found::Anywhere(handle) => $act::<baio::Remote>(handle $(, $more)*),
        }
    };
}
pub(crate) use on_either;
