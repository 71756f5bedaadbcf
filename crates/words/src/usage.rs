//! Who uses a broker, and how much.

use crate::codec::{Field, Malformed, OWNERS_MAX, Reader, Writer, record};

/// Who uses the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusWords {
    /// A row for each user: at most [`OWNERS_MAX`](crate::session::OWNERS_MAX).
    pub owners: Vec<OwnerWords>,
    /// When the broker started: seconds since 1970.
    pub started_at_unix: u64,
    /// Sessions that have ended since.
    pub sessions_ended: u64,
}

/// How much one user uses the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerWords {
    /// The user.
    pub uid: u32,
    /// Sessions that it has.
    pub sessions: u32,
    /// Handles that are open.
    pub handles: u32,
    /// Requests under way.
    pub in_flight: u32,
    /// Requests that wait until others end.
    pub held: u32,
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes that these have read.
    pub bytes_read: u64,
    /// Bytes that these have written.
    pub bytes_written: u64,
    /// Those that failed.
    pub errors: u64,
    /// Sessions that were ended for what no correct client sends.
    pub violations: u64,
    /// The time within which half of the requests ended, in microseconds.
    pub latency_us_p50: u32,
    /// The time within which 99 of 100 ended, in microseconds.
    pub latency_us_p99: u32,
}

record!(OwnerWords {
    uid,
    sessions,
    handles,
    in_flight,
    held,
    requests,
    bytes_read,
    bytes_written,
    errors,
    violations,
    latency_us_p50,
    latency_us_p99,
});

impl Field for StatusWords {
    fn put(&self, writer: &mut Writer) {
        writer.check("a list of users", self.owners.len(), OWNERS_MAX);
        self.owners.put(writer);
        self.started_at_unix.put(writer);
        self.sessions_ended.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<StatusWords, Malformed> {
        let count = reader.count(OWNERS_MAX, "more than 960 users")?;
        let owners: Result<_, _> = (0..count).map(|_| Field::take(reader)).collect();
        Ok(StatusWords {
            owners: owners?,
            started_at_unix: Field::take(reader)?,
            sessions_ended: Field::take(reader)?,
        })
    }
}
