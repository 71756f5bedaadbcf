//! The end of the program by a signal that was heard: whoever waits for it sees that signal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::low_level::emulate_default_handler;

/// Ends the program as the signal does when nobody hears it.
pub(crate) fn end_by(signal: i32) {
    if is_first_process() {
        std::process::exit(status_of(signal));
    }
    let _ = emulate_default_handler(signal);
}

/// From here on the signal ends the program if the flag is set when it comes.
pub(crate) fn end_by_if(signal: i32, flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    let flag = Arc::clone(flag);
    let set = match is_first_process() {
        true => signal_hook::flag::register_conditional_shutdown(signal, status_of(signal), flag),
        false => signal_hook::flag::register_conditional_default(signal, flag),
    };
    set.map(drop)
}

/// The first process of a container cannot die of a signal: the kernel keeps from it those that have no handler.
fn is_first_process() -> bool {
    std::process::id() == 1
}

/// As shells tell it.
fn status_of(signal: i32) -> i32 {
    128 + signal
}
