//! Pages of the cache, lent to whoever reads: [`crate::cache::Borrower`].

use std::ops::Range;

use super::Core;
use crate::cache::{Borrower, LentPages};
use crate::object::ObjectState;
use crate::request::Handle;

impl Core {
    /// Lends these pages of 4 KiB, at most 16, if all of them are in the cache: their own memory, read-only, as it is now. Who writes
    /// them meanwhile writes a copy. They are given back when the value is dropped, on any thread.
    ///
    /// `None`: they are not all there, the file is not cached, the handle is stale, or the borrower, or all together, hold what they may
    /// hold. A read of [`Mode::Cached`](crate::Mode::Cached) does what there is to do then.
    ///
    /// ```
    /// use baio_engine::{EngineOptions, Open};
    /// use baio_storage::cache::{Borrower, CacheOptions};
    /// use baio_storage::Core;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("baio-lend-{}", std::process::id()));
    /// # std::fs::write(&path, vec![7; 1 << 20])?;
    /// let mut core = Core::new(&EngineOptions::default())?;
    /// core.use_cache(&CacheOptions { bytes: 8 << 20, ..CacheOptions::default() })?;
    /// let file = core.open_file(&path, &Open::read())?;
    /// let session = Borrower::new(1 << 20);
    /// # let pin = core.pin_now(file, 3)?;
    /// # core.unpin(pin);
    /// let lent = core.lend(&session, file, 3..4).ok_or("it was read before")?;
    /// assert!(lent.pages().all(|page| page == [7; 4096]));
    /// assert_eq!(session.held_bytes(), 4096);
    /// drop(lent);
    /// assert_eq!(session.held_bytes(), 0);
    /// # core.close()?;
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn lend(&mut self, borrower: &Borrower, handle: Handle, pages: Range<u64>) -> Option<LentPages> {
        self.lane
            .objects
            .get(handle)
            .filter(|object| object.state == ObjectState::Open)?;
        let cached = self.lane.cached.as_mut()?;
        let object = cached.object_for_mode(&self.lane.objects, handle, false)?;
        let lent = cached.cache.lend(object, pages, borrower)?;
        cached.is_served &= !cached.cache.wants_io(); // It may read ahead.
        Some(lent)
    }
}
