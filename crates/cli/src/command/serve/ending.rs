//! Signals: one asks the broker to end, a second one ends the process. SIGHUP ends nothing: it rereads the rules.

use std::io;
use std::path::{Path, PathBuf};

use baio_broker::host::{Ruler, Stop};
use baio_console::end_by::{Asked, end_by};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::notify::Manager;
use super::{grants, say};

/// SIGHUP ends nothing from here on; the others still end the process.
///
/// # Errors
/// The system has no handler or no socket for it.
pub(super) fn begin() -> io::Result<Signals> {
    Signals::new([SIGHUP])
}

/// From here on signals are heard, by a thread of their own. `rules` are where they are read, and who is told of them.
///
/// # Errors
/// The system has no handler or no thread for them.
pub(super) fn on_signals(
    mut signals: Signals,
    stop: Stop,
    manager: Manager,
    rules: Option<(PathBuf, Ruler)>,
) -> io::Result<()> {
    let handle = signals.handle();
    handle.add_signal(SIGTERM)?;
    handle.add_signal(SIGINT)?;
    let hear = move || {
        let (mut asked, mut is_ending) = (Asked::default(), false);
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    if let Some((path, ruler)) = &rules {
                        reread(path, ruler);
                    }
                }
                _ if asked.is_again() => end_by(signal),
                _ if is_ending => {}
                _ => {
                    is_ending = true;
                    let _ = manager.tell("STOPPING=1");
                    say("ending: what is under way ends first; a second signal ends it at once");
                    stop.ask();
                }
            }
        }
    };
    baio_process::thread::named("signals").start(hear)?;
    Ok(())
}

/// Other rules, if there are some: those that cannot be read or understood change nothing.
fn reread(path: &Path, ruler: &Ruler) {
    match grants::read(path) {
        Ok(grants) => {
            if let Some(note) = grants.note(path) {
                say(&note);
            }
            ruler.rule(grants.rules);
            say(&format!("the rules of {} hold from now on", path.display()));
        }
        Err(failure) => {
            // One line: it begins as all of them do.
            let failure = failure.to_string();
            let told = failure.strip_prefix("baio: serve ").unwrap_or(&failure);
            say(&format!("the rules stay as they were: {told}"));
        }
    }
}
