//! Who uses a broker, and how much.

use std::time::Duration;

use crate::codec::{Field, Malformed, OWNERS_MAX, Reader, Writer};

/// Who uses a broker now, and how much each user has used since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerStatus {
    /// The users that the caller may see, in no order: 960 at most. If more than 256 users have gone it forgets some of them.
    pub owners: Vec<OwnerStatus>,
    /// When it started: seconds since 1970.
    pub started_at_unix: u64,
    /// Connections that have ended since; 0 for a user who may see only its own figures.
    pub sessions_ended: u64,
}

/// How much one user uses a broker, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerStatus {
    /// The user.
    pub uid: u32,
    /// Now: connections.
    pub clients: u32,
    /// Now: open segments, each counted as often as it is open.
    pub handles: u32,
    /// Now: requests at the device or in the page cache.
    pub in_flight: u32,
    /// Now: requests that wait until others end.
    pub held: u32,
    /// Requests that have ended.
    pub requests: u64,
    /// Bytes that these have read.
    pub bytes_read: u64,
    /// Bytes that these have written.
    pub bytes_written: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Connections that were ended because they broke the protocol.
    pub violations: u64,
    /// Half of the requests have ended within this time, in the broker: of those of the last second in which any ended, and of the one before.
    /// Whole microseconds.
    pub latency_p50: Duration,
    /// 99 of 100 of them.
    pub latency_p99: Duration,
}

impl Field for OwnerStatus {
    fn put(&self, writer: &mut Writer) {
        for word in [self.uid, self.clients, self.handles, self.in_flight, self.held] {
            word.put(writer);
        }
        for count in [
            self.requests,
            self.bytes_read,
            self.bytes_written,
            self.errors,
            self.violations,
        ] {
            count.put(writer);
        }
        for took in [self.latency_p50, self.latency_p99] {
            u32::try_from(took.as_micros()).unwrap_or(u32::MAX).put(writer);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<OwnerStatus, Malformed> {
        let us = |us: u32| Duration::from_micros(us.into());
        // Fields of an expression are evaluated in the order in which they are written.
        Ok(OwnerStatus {
            uid: Field::take(reader)?,
            clients: Field::take(reader)?,
            handles: Field::take(reader)?,
            in_flight: Field::take(reader)?,
            held: Field::take(reader)?,
            requests: Field::take(reader)?,
            bytes_read: Field::take(reader)?,
            bytes_written: Field::take(reader)?,
            errors: Field::take(reader)?,
            violations: Field::take(reader)?,
            latency_p50: us(Field::take(reader)?),
            latency_p99: us(Field::take(reader)?),
        })
    }
}

impl Field for BrokerStatus {
    fn put(&self, writer: &mut Writer) {
        writer.check("a list of users", self.owners.len(), OWNERS_MAX);
        self.owners.put(writer);
        self.started_at_unix.put(writer);
        self.sessions_ended.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<BrokerStatus, Malformed> {
        let count = reader.count(OWNERS_MAX, "more than 960 users")?;
        let owners: Result<_, _> = (0..count).map(|_| Field::take(reader)).collect();
        Ok(BrokerStatus {
            owners: owners?,
            started_at_unix: Field::take(reader)?,
            sessions_ended: Field::take(reader)?,
        })
    }
}
