//! SIGUSR1 and SIGINT, as GNU dd takes them: the first prints the figures, and the copy goes on; the second prints them and ends the
//! program, as by the signal.
//!
//! A thread hears them, and rings whatever the copy may be sleeping on; the copy looks after each turn. A second SIGINT, half a second
//! later, ends the program at once ([`Asked`]). So does one while a volume is being opened, or when all is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_console::failure::Failure;
use baio_process::signals::is_ignored;
use signal_hook::consts::{SIGINT, SIGUSR1};
use signal_hook::flag;

use baio_console::end_by::{Asked, end_by, end_by_if};

/// What has been heard.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Heard>);

#[derive(Default)]
struct Heard {
    /// Times that the figures were asked for, and have not been printed.
    asked: AtomicU32,
    /// Noted in the handler: a thread that hears could be too late for the last look.
    interrupted: Arc<AtomicBool>,
    /// What wakes a copy that sleeps.
    bells: Mutex<Vec<Bell>>,
}

type Bell = Box<dyn Fn() + Send>;

/// Signals are heard while it lives.
pub(super) struct Hearing {
    /// Stops the thread that hears. None: no thread could be had, and signals do what they do to any program.
    handle: Option<signal_hook::iterator::Handle>,
    interrupted: Arc<AtomicBool>,
    /// Nobody hears any more: SIGINT ends the program again.
    over: Arc<AtomicBool>,
}

impl Signals {
    /// SIGUSR1 is heard from here on. Where there is no thread to hear it, it asks for nothing, and the copy goes on without.
    ///
    /// # Errors
    /// The system has no handler for it.
    pub(super) fn hear(&self) -> Result<Hearing, Failure> {
        let refused = |error: std::io::Error| Failure::from_io("dd", &error).on("signals");
        // As GNU dd, which leaves the default to whoever wants POSIX to the letter.
        let figures = std::env::var_os("POSIXLY_CORRECT").is_none();
        let mut signals = signal_hook::iterator::Signals::new(figures.then_some(SIGUSR1)).map_err(refused)?;
        let handle = signals.handle();
        let heard = self.clone();
        let listen = move || {
            let mut interrupts = Asked::default();
            for signal in signals.forever() {
                heard.note(signal, &mut interrupts);
            }
        };
        let begun = baio_process::thread::named("signals").start(listen);
        Ok(Hearing {
            handle: begun.is_ok().then_some(handle),
            interrupted: Arc::clone(&self.0.interrupted),
            over: Arc::default(),
        })
    }

    fn note(&self, signal: i32, interrupts: &mut Asked) {
        if signal == SIGUSR1 {
            self.0.asked.fetch_add(1, Ordering::Release);
        }
        if signal == SIGINT && interrupts.is_again() {
            end_by(SIGINT);
        }
        let bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|ring| ring());
    }

    /// Something more to be rung.
    pub(super) fn ring(&self, bell: Bell) {
        self.0.bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    /// Was it asked for the figures? Once for each signal that was heard.
    pub(super) fn take_asked(&self) -> bool {
        // Mostly nobody has asked: no write to what the other thread writes.
        self.0.asked.load(Ordering::Acquire) > 0
            && self
                .0
                .asked
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |asked| asked.checked_sub(1))
                .is_ok()
    }

    /// Is the copy to end?
    pub(super) fn interrupted(&self) -> bool {
        // In the handler's order: one that has found `over` not set yet is seen by whoever looks after setting it.
        self.0.interrupted.load(Ordering::SeqCst)
    }

    /// Ends the program as SIGINT does when nobody hears it.
    pub(super) fn end(&self) {
        end_by(SIGINT);
    }
}

impl Hearing {
    /// SIGINT is heard from here on too, unless it was ignored when the program began: that is how a shell keeps it from what runs in
    /// the background.
    ///
    /// # Errors
    /// The system has no handler for it.
    pub(super) fn add_interrupts(&self) -> Result<(), Failure> {
        let Some(handle) = self.handle.as_ref().filter(|_| !is_ignored(SIGINT)) else {
            return Ok(());
        };
        // In this order: each one is noted, or ends the program.
        flag::register(SIGINT, Arc::clone(&self.interrupted))
            .and_then(|_| end_by_if(SIGINT, &self.over))
            .and_then(|()| handle.add_signal(SIGINT))
            .map_err(|error| Failure::from_io("dd", &error).on("signals"))
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        // First: there is no moment in which SIGINT does nothing.
        self.over.store(true, Ordering::SeqCst);
        if let Some(handle) = &self.handle {
            handle.close();
        }
    }
}
