//! Signals: one asks the broker to end, a second one ends the process. SIGHUP ends nothing.

use std::io;

use baio_broker::host::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::notify::Manager;
use super::say;

/// SIGHUP ends nothing from here on; the others still end the process.
///
/// # Errors
/// The system has no handler or no socket for it.
pub(super) fn begin() -> io::Result<Signals> {
    Signals::new([SIGHUP])
}

/// From here on signals are heard, by a thread of their own.
///
/// # Errors
/// The system has no handler or no thread for them.
pub(super) fn on_signals(mut signals: Signals, stop: Stop, manager: Manager) -> io::Result<()> {
    let handle = signals.handle();
    handle.add_signal(SIGTERM)?;
    handle.add_signal(SIGINT)?;
    let hear = move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            match signal {
                // For settings that may change while it serves. There are none yet.
                SIGHUP => {}
                _ if is_ending => {
                    let _ = emulate_default_handler(signal);
                }
                _ => {
                    is_ending = true;
                    let _ = manager.tell("STOPPING=1");
                    say("ending: what is under way ends first; a second signal ends it at once");
                    stop.ask();
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(hear)?;
    Ok(())
}
