//! What carries the requests of this process: a ring of ours, or glibc's threads. It is decided once, before the first request.
//!
//! The answer lies in memory that the kernel wipes in a forked child (`MADV_WIPEONFORK`): requests belong to the process that made them,
//! and the child, which finds no answer, decides anew and touches nothing that it shares with its parent.

#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::context::Context;
use crate::counted;

/// All zeros: nothing is decided.
#[repr(C)]
struct Answer {
    /// Null, `GLIBC`, or a context.
    context: AtomicPtr<Context>,
    /// Somebody decides.
    deciding: AtomicU32,
}

/// No context lies there.
const GLIBC: *mut Context = ptr::without_provenance_mut(8);
const PAGE: usize = 4096;

#[derive(Clone, Copy)]
pub(crate) enum Carrier {
    Ours(&'static Context),
    Glibc,
}

static ANSWER: AtomicPtr<Answer> = AtomicPtr::new(ptr::null_mut());

fn read(answer: &Answer) -> Option<Carrier> {
    // Acquire: the context was made before.
    match answer.context.load(Ordering::Acquire) {
        context if context.is_null() => None,
        GLIBC => Some(Carrier::Glibc),
        // SAFETY: a context is never freed.
        context => Some(Carrier::Ours(unsafe { &*context })),
    }
}

/// What was decided, if it was. A signal handler may ask.
pub(crate) fn known() -> Option<Carrier> {
    // SAFETY: a page that is never unmapped, and whose zeros are valid, before and after a wipe.
    read(unsafe { ANSWER.load(Ordering::Acquire).as_ref() }?)
}

/// What is decided, at the latest now.
pub(crate) fn carrier() -> Carrier {
    match known() {
        Some(Carrier::Ours(context)) if context.is_broken() => {}
        Some(carrier) => return carrier,
        None => {}
    }
    let Some(answer) = answer() else { return Carrier::Glibc };
    while answer.deciding.swap(1, Ordering::Acquire) == 1 {
        std::thread::yield_now();
    }
    let decided = match read(answer) {
        Some(Carrier::Ours(context)) if context.is_broken() => {
            // What it has in flight still ends; nobody asks it any more.
            let _ = context.helper.be_there(context);
            decide(answer, true)
        }
        Some(carrier) => carrier,
        None => decide(answer, false),
    };
    answer.deciding.store(0, Ordering::Release);
    decided
}

fn decide(answer: &Answer, again: bool) -> Carrier {
    let context = Context::new();
    if let Some(sheet) = counted::sheet() {
        sheet.context(context.is_ok());
    }
    match context {
        Ok(context) => {
            if !again {
                explain("io_uring");
            }
            let context: &'static Context = Box::leak(context);
            answer
                .context
                .store(ptr::from_ref(context).cast_mut(), Ordering::Release);
            Carrier::Ours(context)
        }
        Err(why) => {
            explain(&format!("glibc's own threads; {why}"));
            answer.context.store(GLIBC, Ordering::Release);
            Carrier::Glibc
        }
    }
}

/// Says on standard error what carries the requests, if `BAIO_EXPLAIN=1` asks for it.
fn explain(what: &str) {
    if std::env::var_os("BAIO_EXPLAIN").is_some_and(|asked| asked == "1") {
        let text = format!("baio posix-aio: {what}\n");
        // One write, so that nothing of others comes between.
        let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    }
}

fn answer() -> Option<&'static Answer> {
    let found = ANSWER.load(Ordering::Acquire);
    // SAFETY: as in `known`.
    if let Some(answer) = unsafe { found.as_ref() } {
        return Some(answer);
    }
    // SAFETY: a mapping of our own, at an address that the kernel chooses.
    let page = unsafe {
        let page = rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        );
        let page = page.ok()?;
        rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork).ok()?;
        page
    };
    let made = page.cast::<Answer>();
    let first = ANSWER.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    if first.is_err() {
        // SAFETY: nobody else has seen this one.
        let _ = unsafe { rustix::mm::munmap(page, PAGE) };
    }
    // SAFETY: as in `known`.
    unsafe { ANSWER.load(Ordering::Acquire).as_ref() }
}
