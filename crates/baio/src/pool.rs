//! The buffer pool: pages of segments and files, held in the cache, read and changed where they lie.
//!
//! A page that is held is a [`Pin`], on every link. To look at several pages and change them as one, run code on the core's
//! thread ([`Link::with_pool`](crate::Link::with_pool)): nothing else happens there meanwhile, so no latch is needed, and over a service it is one hop.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use baio_broker::control::{Call, Reply};
use baio_storage::cache::{CacheError, LentPages};
use baio_storage::{Core, Error, Fault, Handle, HeldPage, Result};

use crate::opened::Opened;
use crate::operation::{On, Operation};
use crate::transport::Transport;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The pool of a core, on its thread. Handles are those of [`Opened::handle`], pages are of 4 KiB and number 0 is the first.
pub struct Pool<'a> {
    core: &'a mut Core,
}

impl fmt::Debug for Pool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?})", self.core)
    }
}

impl Pool<'_> {
    /// Shows a page that is in the cache; `None` if it is not: hold it ([`Opened::pin`]) and run again.
    ///
    /// # Errors
    /// There is no cache, or the handle is stale.
    pub fn read<T>(&mut self, handle: Handle, page: u64, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.held(handle, page, |core, pin| core.page(pin).map(read))
    }

    /// Lets you change a page that is in the cache; `None` if it is not there. The LSN is that of the log record for this change, or 0 for a
    /// change that is not logged. The page is written once the log is durable up to it ([`Opened::set_log`], [`Pool::set_durable_lsn`]), never before.
    ///
    /// # Errors
    /// As [`Pool::read`], and nothing was changed: `BeingWritten`, `NoRoom`, `LogFirst` ([`Pin::change`] waits for these), `ReadOnly`.
    pub fn change<T>(
        &mut self,
        handle: Handle,
        page: u64,
        lsn: u64,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<Option<T>> {
        self.held(handle, page, |core, pin| core.change(pin, lsn).map(change))
    }

    fn held<T>(
        &mut self,
        handle: Handle,
        page: u64,
        act: impl FnOnce(&mut Core, &baio_storage::PinnedPage) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(pin) = self.core.pin_there(handle, page)? else {
            return Ok(None);
        };
        // Given back also when `act` panics.
        struct Back<'a>(&'a mut Core, Option<baio_storage::PinnedPage>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                if let Some(pin) = self.1.take() {
                    self.0.unpin(pin);
                }
            }
        }
        let back = &mut Back(self.core, Some(pin));
        let Back(core, Some(pin)) = back else { return Ok(None) };
        act(core, pin).map(Some)
    }

    /// As [`Link::set_durable_lsn`](crate::Link::set_durable_lsn).
    ///
    /// # Errors
    /// There is no cache.
    pub fn set_durable_lsn(&mut self, lsn: u64) -> Result<()> {
        self.core.set_durable_lsn(lsn)
    }

    /// The oldest LSN of a change that may not be durable in its page yet: a restart needs the log from there on.
    #[must_use]
    pub fn oldest_recovery_lsn(&self) -> Option<u64> {
        self.core.oldest_recovery_lsn()
    }

    /// How far the log must be durable so that everything that waits for it now can go on.
    #[must_use]
    pub fn lsn_wanted(&self) -> Option<u64> {
        self.core.lsn_wanted()
    }
}

pub(crate) fn run<L: Transport, T: Send + 'static>(
    link: &L,
    run: impl FnOnce(&mut Pool<'_>) -> T + Send + Sync + 'static,
) -> Operation<L, T> {
    on_core(On::Link(link.clone()), move |core| run(&mut Pool { core }))
}

fn on_core<L: Transport, T: Send + 'static>(
    on: On<L>,
    run: impl FnOnce(&mut Core) -> T + Send + Sync + 'static,
) -> Operation<L, T> {
    try_on_core(on, move |core| Ok(run(core)))
}

/// The same for what may fail.
fn try_on_core<L: Transport, T: Send + 'static>(
    on: On<L>,
    run: impl FnOnce(&mut Core) -> Result<T> + Send + Sync + 'static,
) -> Operation<L, T> {
    let run = move |core: &mut Core| -> Box<dyn Any + Send> { Box::new(run(core)) };
    Operation::trying(on, Call::Run(Box::new(run)), |_, reply| match reply {
        Reply::Ran(Ok(value)) => value.downcast().ok().map(|value| *value),
        Reply::Ran(Err(panic)) => std::panic::resume_unwind(panic),
        _ => None,
    })
}

/// A page that is held in the cache until this is dropped: it stays in memory, at the same address. It may outlive the handle that it came
/// from. It becomes stale when its segment is deleted or resized.
pub struct Pin<L: Transport> {
    opened: Opened<L>,
    held: Arc<HeldPage>,
}

impl<L: Transport> fmt::Debug for Pin<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({}, {:?})", self.opened.name(), self.held)
    }
}

impl<L: Transport> Pin<L> {
    /// Which page: its first byte is at this number times 4096.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.held.pin().map_or(0, baio_storage::PinnedPage::page)
    }

    /// Looks at its bytes.
    pub fn read<T: Send + 'static>(&self, read: impl FnOnce(&[u8]) -> T + Send + Sync + 'static) -> Operation<L, T> {
        let held = Arc::clone(&self.held);
        try_on_core(On::Object(Arc::clone(self.opened.object())), move |core| {
            core.page(pin_of(&held)?).map(read)
        })
    }

    /// Changes its bytes. The LSN is that of the log record for this change, or 0 for a change that is not logged. The page is written, by the
    /// cleaner or for a sync, once the log is durable up to the page's last LSN, never before. That log is the one that was set for the segment
    /// or file ([`Opened::set_log`]), or one of your own ([`Link::set_durable_lsn`](crate::Link::set_durable_lsn)).
    ///
    /// It fails and changes nothing while the page is being written (`BeingWritten`), or while too many pages are dirty (`NoRoom`,
    /// `LogFirst`): [`Pin::changeable`] waits for these. Once the log has failed, that ends with `LogFirst` too.
    pub fn change<T: Send + 'static>(
        &self,
        lsn: u64,
        change: impl FnOnce(&mut [u8]) -> T + Send + Sync + 'static,
    ) -> Operation<L, T> {
        let held = Arc::clone(&self.held);
        try_on_core(On::Object(Arc::clone(self.opened.object())), move |core| {
            core.change(pin_of(&held)?, lsn).map(change)
        })
    }

    /// Waits until the page can be changed under this LSN, and counts it as dirty.
    pub fn changeable(&self, lsn: u64) -> Operation<L, ()> {
        let held = Arc::clone(&self.held);
        self.opened
            .ask(Call::ChangeLater { held, lsn }, |reply| reply.is_done().then_some(()))
    }

    /// Gives the page back, as dropping it does.
    pub fn unpin(self) {}
}

fn pin_of(held: &HeldPage) -> Result<&baio_storage::PinnedPage> {
    let stale = || Error::new("use", "a pinned page", Fault::Cache(CacheError::StalePin));
    held.pin().ok_or_else(stale)
}

impl<L: Transport> Opened<L> {
    /// Holds a page of 4 KiB in the cache: number 0 is the first. One that is there costs no I/O.
    pub fn pin(&self, page: u64) -> Operation<L, Pin<L>> {
        self.pin_by(page, None)
    }

    /// The same, and makes it zero, without reading it. It counts as changed under this LSN.
    pub fn pin_new(&self, page: u64, lsn: u64) -> Operation<L, Pin<L>> {
        self.pin_by(page, Some(lsn))
    }

    fn pin_by(&self, page: u64, new: Option<u64>) -> Operation<L, Pin<L>> {
        let handle = self.handle();
        self.ask_for(Call::Pin { handle, page, new }, |opened, reply| match reply {
            Reply::Pinned(held) => Some(Pin {
                opened,
                held: Arc::new(held),
            }),
            _ => None,
        })
    }

    /// Lends these pages of 4 KiB, at most 16, if all of them are in the cache: the cache's own memory, read-only, without a copy. A write to
    /// them meanwhile goes to a copy, so the lent bytes do not change. They are given back when the value is dropped, on any thread.
    ///
    /// `None`: they are not all there, or too many pages are lent. Use a cached read then.
    pub fn lend(&self, pages: Range<u64>) -> Operation<L, Option<LentPages>> {
        let (handle, borrower) = (self.handle(), self.object().borrower.clone());
        on_core(On::Object(Arc::clone(self.object())), move |core| {
            core.lend(&borrower, handle, pages)
        })
    }

    /// Reads these pages of 4 KiB, at most 16, without a copy: lent, as by [`Opened::lend`], once they are in the cache. On a
    /// [`Local`](crate::Local) link pages that are there cost no more than a look.
    ///
    /// # Errors
    /// There is no cache; what the read said; `NoRoom` when more is lent than may be: drop some.
    pub async fn read_pages(&self, pages: Range<u64>) -> Result<LentPages> {
        let count = pages.end.saturating_sub(pages.start);
        if !(1..=16).contains(&count) {
            let fault = Fault::BadSize(format!("{count} pages: 1 to 16 are read at a time"));
            return Err(Error::new("lend", self.name(), fault).at(pages.start.saturating_mul(PAGE as u64)));
        }
        if let Some(lent) = self
            .link()
            .lend_here(&self.object().borrower, self.handle(), pages.clone())
        {
            return Ok(lent);
        }
        if let Some(lent) = self.lend(pages.clone()).await? {
            return Ok(lent);
        }
        // All of them are on their way before the first is waited for.
        self.prefetch(std::slice::from_ref(&pages)).await?;
        let mut pins = Vec::new();
        for page in pages.clone() {
            pins.push(self.pin(page).await?);
        }
        let no_room = || {
            let error = Error::new("lend", self.name(), Fault::Cache(CacheError::LentOut));
            error.at(pages.start.saturating_mul(PAGE as u64))
        };
        self.lend(pages.clone()).await?.ok_or_else(no_room)
    }
}
