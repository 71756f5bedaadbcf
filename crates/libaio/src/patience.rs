//! Waiting for a moment, in a thread of the program.

use std::time::Duration;

/// Waits for another thread that is done soon. It may have the lower priority, and get no processor while those that wait only give way.
#[derive(Default)]
pub(crate) struct Patience(u32);

impl Patience {
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 > YIELDS {
            true => pause(Duration::from_micros(50)),
            false => std::thread::yield_now(),
        }
    }
}

/// So often it gives way before it sleeps.
const YIELDS: u32 = 32;

/// Sleeps; not by `std::thread::sleep`, in which a thread can be cancelled.
pub(crate) fn pause(time: Duration) {
    let time = rustix::event::Timespec::try_from(time).ok();
    let _ = rustix::event::poll(&mut [], time.as_ref());
}
