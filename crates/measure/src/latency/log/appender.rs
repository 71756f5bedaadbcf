//! What a side must do.

use std::time::Instant;

/// Takes records, makes them durable in their order, and tells how far it is.
///
/// A record is known by where it ends in the stream of all records: it is durable when [`Appender::wait`] says as much or more.
pub(super) trait Appender {
    /// Takes a record without waiting; where it ends. `None`: there is no room until something becomes durable.
    ///
    /// # Errors
    /// An earlier write failed.
    fn append(&self, record: &[u8]) -> Result<Option<u64>, String>;

    /// Sleeps until all up to `end` is durable, or until `until`; how far it is then.
    ///
    /// # Errors
    /// A write failed.
    fn wait(&self, end: u64, until: Option<Instant>) -> Result<u64, String>;

    /// Waits for room for a record, when nothing is waited for that would give some.
    ///
    /// # Errors
    /// There will be none.
    fn room(&self, bytes: usize) -> Result<(), String> {
        Err(format!("there is no room for a single record of {bytes} bytes"))
    }
}
