//! Stories that may hang when they go wrong.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// Tells a story on a thread of its own: one that hangs fails, and the others go on.
pub fn tell_of(story: impl FnOnce() + Send + 'static) {
    const STUCK: Duration = Duration::from_secs(40);
    let (done, told) = mpsc::channel();
    let thread = move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(story)));
    };
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(thread).unwrap();
    match told.recv_timeout(STUCK) {
        Ok(ended) => {
            thread.join().unwrap();
            ended.unwrap_or_else(|panic| resume_unwind(panic));
        }
        Err(_) => panic!("it hangs"),
    }
}
