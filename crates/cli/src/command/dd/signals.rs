//! SIGUSR1 and SIGINT, as GNU dd takes them: the first prints the figures, and the copy goes on; the second prints them and ends the
//! program, as by the signal.
//!
//! A thread hears them, notes them, and rings whatever the copy may be sleeping on; the copy looks after each turn. A second SIGINT, half a
//! second later, ends the program at once ([`Asked`]): so does one while a volume is being opened.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use baio_console::failure::Failure;
use baio_process::signals::is_ignored;
use signal_hook::consts::{SIGINT, SIGUSR1};

use baio_console::end_by::{Asked, end_by};

/// What has been heard.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Heard>);

#[derive(Default)]
struct Heard {
    /// Times that the figures were asked for, and have not been printed.
    asked: AtomicU32,
    interrupted: AtomicBool,
    /// What wakes a copy that sleeps.
    bells: Mutex<Vec<Bell>>,
}

type Bell = Box<dyn Fn() + Send>;

/// Stops the thread that hears. None: no thread could be had, and signals do what they do to any program.
pub(super) struct Hearing(Option<signal_hook::iterator::Handle>);

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
        let heard = baio_process::thread::named("signals").start(listen);
        Ok(Hearing(heard.is_ok().then_some(handle)))
    }

    fn note(&self, signal: i32, interrupts: &mut Asked) {
        if signal == SIGUSR1 {
            self.0.asked.fetch_add(1, Ordering::Release);
        }
        if signal == SIGINT {
            if interrupts.is_again() {
                end_by(SIGINT);
            }
            self.0.interrupted.store(true, Ordering::Release);
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
        self.0.interrupted.load(Ordering::Acquire)
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
        let Some(handle) = self.0.as_ref().filter(|_| !is_ignored(SIGINT)) else {
            return Ok(());
        };
        handle
            .add_signal(SIGINT)
            .map_err(|error| Failure::from_io("dd", &error).on("signals"))
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.close();
        }
    }
}
