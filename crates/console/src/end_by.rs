//! The end of the program by a signal that was heard: whoever waits for it sees that signal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::low_level::emulate_default_handler;

/// `timeout` and many a service manager send one signal to a process and to its group, which is twice to the process. Nobody asks twice
/// in so short a time.
const INSTANT: Duration = Duration::from_millis(500);

/// Tells a signal that asks again from another copy of the first one.
#[derive(Debug, Default)]
pub struct Asked(Option<Instant>);

impl Asked {
    /// A signal has come: does it ask again?
    pub fn is_again(&mut self) -> bool {
        self.is_again_at(Instant::now())
    }

    fn is_again_at(&mut self, now: Instant) -> bool {
        let first = *self.0.get_or_insert(now);
        now.saturating_duration_since(first) >= INSTANT
    }
}

/// Ends the program as the signal does when nobody hears it.
pub fn end_by(signal: i32) {
    if is_first_process() {
        std::process::exit(status_of(signal));
    }
    let _ = emulate_default_handler(signal);
}

/// From here on the signal ends the program if the flag is set when it comes.
///
/// # Errors
/// The system has no handler for it.
pub fn end_by_if(signal: i32, flag: &Arc<AtomicBool>) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_once_is_the_first_ones_copy() {
        let (mut asked, first) = (Asked::default(), Instant::now());
        let again = [0, 1, 499, 500, 10_000].map(|ms| asked.is_again_at(first + Duration::from_millis(ms)));
        assert_eq!(again, [false, false, false, true, true]);
    }
}
