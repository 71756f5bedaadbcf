//! Counters that are always on.

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests accepted.
    pub requests: u64,
    /// Completions delivered, `Released` notices not counted.
    pub completions: u64,
    /// Completions that were errors.
    pub errors: u64,
    /// Iterations run by the backend.
    pub iterations: u64,
    /// Cached reads tried at once, before any backend (`RWF_NOWAIT`).
    pub trials: u64,
    /// Of these, ended there: whatever else was asked of a backend continued on a worker or in the kernel.
    pub trial_hits: u64,
    /// Batches handed to the backend: a batch is one call into the kernel where the backend can.
    pub batches: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Most requests in flight at a time.
    pub in_flight_max: u64,
    /// Requests given up on while they ran.
    pub abandoned: u64,
    /// System calls made by the backend.
    pub system_calls: u64,
}
