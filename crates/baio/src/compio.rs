//! Driving a local link from compio's runtime.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use baio_storage::Error;
use compio::runtime::fd::PollFd;

use crate::local::Local;
use crate::reactor::{self, Reactor};

impl Local {
    /// Drives the link from compio's runtime, on the thread that owns both: spawn it, or select it with the work. The returned future
    /// never ends, and has the role of reaping from this call until it is dropped.
    ///
    /// Link and runtime have a ring each; the runtime's thread sleeps in its own, which watches the engine's event fd. The event fd tells
    /// of no deadline, and of no page that has grown old in the cache: until the first of these at most it sleeps.
    ///
    /// ```no_run
    /// use baio::{Compio, File, Link, Local};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// compio::runtime::Runtime::new()?.block_on(async {
    ///     let link = Local::new()?;
    ///     compio::runtime::spawn(link.drive_compio()).detach();
    ///     let file = File::open(&link, "/etc/os-release").await?;
    ///     let read = file.read_at(0, Compio(Vec::with_capacity(4096))).await?;
    ///     println!("{}", String::from_utf8_lossy(&read.buffer.0));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    /// The future does outside of compio's runtime.
    pub fn drive_compio(&self) -> impl Future<Output = Error> + use<> {
        reactor::drive::<PollFd<OwnedFd>>(self)
    }
}

impl Reactor for PollFd<OwnedFd> {
    fn watch(fd: OwnedFd) -> io::Result<PollFd<OwnedFd>> {
        PollFd::new(fd)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }

    fn sleep(duration: Duration) -> impl Future<Output = ()> {
        compio::time::sleep(duration)
    }
}
