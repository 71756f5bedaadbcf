//! The thread that moves results while the program makes no call, and starts the threads that requests ask for (SIGEV_THREAD).
//!
//! It is started with the first request that asks for a notification, or that has to wait for another request. A program that has no such
//! request never has this thread. It rests while none is in flight, and while a thread of the program waits, which then does the work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use baio_engine::Errno;
use rustix::thread::futex;

use crate::inside::Inside;

/// It runs only what is in this library.
const STACK_BYTES: usize = 128 << 10;

/// For what it works.
pub(crate) trait Helped: Sync {
    fn helper(&self) -> &Helper;

    /// Its ring is gone.
    fn is_over(&self) -> bool;

    /// Moves results as long as nobody waits and somebody is to be told. True when it is to rest.
    fn help(&self) -> bool;

    /// Has the kernel a request?
    fn has_begun(&self) -> bool;
}

#[derive(Default)]
pub(crate) struct Helper {
    there: AtomicBool,
    /// Held by whoever makes it.
    making: Mutex<()>,
    /// What it rests on; moved to wake it.
    word: AtomicU32,
    rests: AtomicBool,
}

impl Helper {
    /// Makes it, if it is not there.
    pub(crate) fn be_there(&self, context: &'static impl Helped) -> Result<(), Errno> {
        if self.there.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _inside = Inside::enter();
        // Whoever comes meanwhile must not go on before it is known whether there is one.
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.there.load(Ordering::Relaxed) {
            return Ok(());
        }
        let thread = baio_process::thread::named("baio-posix-aio").stack_bytes(STACK_BYTES);
        let made = thread.start(move || run(context));
        self.there.store(made.is_ok(), Ordering::SeqCst);
        drop(making);
        made.map(drop).map_err(|_| Errno::EAGAIN)
    }

    /// There is work. A signal handler may call it.
    pub(crate) fn wake(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        // SeqCst, here and in `run`: either it sees the word moved, or we see that it rests.
        if self.rests.load(Ordering::SeqCst) {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

fn run(context: &impl Helped) {
    let helper = context.helper();
    while !context.is_over() {
        let word = helper.word.load(Ordering::SeqCst);
        if !context.help() {
            continue;
        }
        helper.rests.store(true, Ordering::SeqCst);
        let _ = futex::wait(&helper.word, futex::Flags::PRIVATE, word, None);
        helper.rests.store(false, Ordering::SeqCst);
    }
    // What is left of a ring that is gone: what the kernel still has, and whom to tell.
    while !context.help() || context.has_begun() {}
}
