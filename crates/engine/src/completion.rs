//! What a caller gets back: exactly one per request.

use crate::error::Error;
use crate::file::File;
use crate::memory::Memory;
use crate::policy::Caching;
use crate::request::RequestId;

/// Why a completion is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The request has ended; this is its one result.
    Completed,
    /// A request that was completed early (deadline) or abandoned has now really ended: here is its memory.
    Released,
}

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    /// Which request.
    pub id: RequestId,
    /// The caller's name for it.
    pub tag: u64,
    /// Why this is delivered.
    pub notice: Notice,
    /// Bytes transferred, or ready events; or why not.
    pub result: Result<u32, Error>,
    /// Bytes that were transferred, also when an error ended the request half-way.
    pub bytes_done: u32,
    /// The request's memory; `None` while the kernel may still write it.
    pub memory: Memory,
    /// The connection that an accept took.
    pub accepted: Option<File>,
    /// The caching mode that really carried it.
    pub took: Caching,
    /// How many iterations it ran.
    pub iterations: u16,
}
