//! SIGINT and SIGTERM of a command that measures: the first one ends the measuring, and what was measured until then is told. One that
//! asks again ends the program at once, as if nobody heard it. So does the first one, after three seconds, where the measuring has not
//! begun.
//!
//! A signal wakes nothing: a command that measures looks ([`came`]) whenever a request has ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baio_process::signals::is_ignored;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::came::{CAME, LOOKED};
pub use crate::came::{Interrupt, came};
use crate::end_by::{Asked, end_by, end_by_if};
use crate::failure::Failure;

/// Whoever has not looked for so long connects, or waits for what does not come: nobody could end it otherwise by one signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// A pause is looked up from as often.
const LOOKS_EACH: Duration = Duration::from_millis(50);

impl Interrupt {
    /// For a command that has no figures to tell: when it came, and what is there now.
    pub fn failure(self, operation: &str, when: &str) -> Failure {
        Failure::new(operation, "EINTR", format!("{self} {when}"))
    }
}

/// Both are heard from now on; one that was ignored when the program began stays so, as a shell has it for what runs in the background.
///
/// # Errors
/// The system has no handler for them.
pub fn hear(operation: &str) -> Result<(), Failure> {
    hear_and(operation, || {})
}

/// The same, and `then` is done beside each time that one has come.
///
/// # Errors
/// As there.
pub fn hear_and(operation: &str, then: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::from_io(operation, &error).on("signals");
    let came = CAME.get_or_init(Arc::default);
    let heard: Vec<_> = [SIGINT, SIGTERM]
        .into_iter()
        .filter(|&signal| !is_ignored(signal))
        .collect();
    let mut signals = Signals::new(&heard).map_err(failed)?;
    let note = Arc::clone(came);
    let listen = move || {
        let mut asked = Asked::default();
        let mut again = |signal: i32| {
            if asked.is_again() {
                end_by(signal);
            }
            let _ = note.compare_exchange(0, signal as usize, Ordering::Relaxed, Ordering::Relaxed);
            then();
        };
        let Some(first) = signals.forever().next() else { return };
        again(first);
        let until = Instant::now() + PATIENCE;
        while !LOOKED.load(Ordering::Relaxed) {
            if Instant::now() >= until {
                end_by(first);
            }
            signals.pending().for_each(&mut again);
            std::thread::sleep(LOOKS_EACH);
        }
        signals.forever().for_each(again);
    };
    if baio_process::thread::named("signals").start(listen).is_ok() {
        return Ok(());
    }
    // Where no thread can be had: the second one ends the program however soon it comes.
    let again = Arc::new(AtomicBool::new(false));
    for signal in heard {
        // In this order: the first one passes by a flag that is not set yet.
        end_by_if(signal, &again)
            .and_then(|()| flag::register(signal, Arc::clone(&again)))
            .and_then(|_| flag::register_usize(signal, Arc::clone(came), signal as usize))
            .map_err(failed)?;
    }
    Ok(())
}

/// Sleeps, or until one comes.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    while came().is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOKS_EACH));
    }
}
