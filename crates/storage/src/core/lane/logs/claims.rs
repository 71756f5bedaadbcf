//! A segment for a log that a caller keeps itself: in another process, with its own appender and its own batches. Here nobody else writes
//! there meanwhile, and nothing more is known of that log.

use baio_words::LogClaim;

use crate::core::Core;
use crate::crossing::ToTable;
use crate::error::{Error, Fault, Result};
use crate::log::LogOptions;
use crate::request::Handle;

impl Core {
    /// Has a segment for a log that the caller keeps itself: whatever else would write there is refused from now on, as where a log of this
    /// core is open. By the handle that this gives the caller writes, directly. It is over when that was closed and nothing is under way
    /// by it any more.
    ///
    /// # Errors
    /// As [`Core::begin_create_log`]; it is a plain file.
    pub fn claim_log(&mut self, handle: Handle) -> Result<LogClaim> {
        const WHAT: &str = "open the log in";
        let options = self.lane.free_for_log(WHAT, handle, &LogOptions::default())?;
        let Some(object) = self.lane.objects.get(handle) else {
            return Err(Error::new(WHAT, "a closed handle", Fault::Stale));
        };
        let Some(at) = self.lane.objects.address(handle) else {
            return Err(Error::new(WHAT, &object.name, Fault::NotYet("a claim of a plain file")));
        };
        let (name, access, target) = (object.name.clone(), object.access, object.target.clone());
        let handle = self.lane.objects.add(name.clone(), access, target);
        self.lane.objects.claim(handle);
        self.lane.to_table.push_back(ToTable::LogClaims { handle, at });
        self.pass_on();
        if let Some(fault) = self.lane.logs.refused.take() {
            return Err(Error::new(WHAT, name, fault));
        }
        Ok(LogClaim {
            handle,
            size_bytes: self.lane.size(handle)?,
            block_bytes: options.block_bytes,
            flushes: options.window_short == 1,
        })
    }

    /// Is it the handle of a claim, open or with something under way?
    #[must_use]
    pub fn is_log_claim(&self, handle: Handle) -> bool {
        self.lane.objects.is_claim(handle)
    }
}
