//! The structures and constants of baio.h.

#![allow(unsafe_code)]

use std::ffi::c_char;

use crate::border::Growing;

/// A way to a core, which does the I/O: in the caller's thread, on a thread of its own, or in a broker.
#[derive(Debug)]
pub struct baio_link {
    _private: [u8; 0],
}

/// An open file, device or segment.
#[derive(Debug)]
pub struct baio_file {
    _private: [u8; 0],
}

/// Memory for requests, from the arena of a link.
#[derive(Debug)]
pub struct baio_buffer {
    _private: [u8; 0],
}

/// A word that says whether a request has ended, and how.
#[derive(Debug)]
pub struct baio_status {
    _private: [u8; 0],
}

/// A durable log, which takes up a whole file or segment.
#[derive(Debug)]
pub struct baio_log {
    _private: [u8; 0],
}

/// Reads the records of a log in their order.
#[derive(Debug)]
pub struct baio_records {
    _private: [u8; 0],
}

/// A page that is held in the page cache.
#[derive(Debug)]
pub struct baio_pin {
    _private: [u8; 0],
}

/// Pages that are lent: the page cache's own memory, read-only.
#[derive(Debug)]
pub struct baio_pages {
    _private: [u8; 0],
}

/// Names a submitted request on its link. Never 0. A number is used again only after a quarter of a million others.
pub type baio_ticket = u64;

/// The core is in the caller's thread: no hop. The link, and whatever is opened on it, belongs to the thread that opened it.
pub const BAIO_LINK_THREAD: u32 = 0;
/// The core is on a thread of its own: any thread may use the link and whatever is opened on it.
pub const BAIO_LINK_SERVICE: u32 = 1;
/// The core is in a broker (`baio serve`), whose socket the path names: any thread may use the link.
pub const BAIO_LINK_BROKER: u32 = 2;

/// The best backend that works here; or the one that BAIO_BACKEND names in the environment: auto, sync, threads, aio, uring.
pub const BAIO_BACKEND_AUTO: u32 = 0;
/// Blocking system calls.
pub const BAIO_BACKEND_SYNC: u32 = 1;
/// Blocking system calls in worker threads.
pub const BAIO_BACKEND_THREADS: u32 = 2;
/// Native Linux AIO.
pub const BAIO_BACKEND_AIO: u32 = 3;
/// io_uring.
pub const BAIO_BACKEND_URING: u32 = 4;

/// Register the arena with the kernel: less work per request, and all of it is pinned at once.
pub const BAIO_LINK_REGISTER_ARENA: u32 = 1;
/// Open the volume to read only, beside other readers. In the caller's thread only.
pub const BAIO_LINK_READ_ONLY: u32 = 2;

/// Options of a link. Zeros are the defaults, except for `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct baio_link_options {
    /// sizeof(baio_link_options).
    pub size: u32,
    /// BAIO_BACKEND_...
    pub backend: u32,
    /// Requests in flight at most; 0 for 1024.
    pub slots: u32,
    /// BAIO_LINK_REGISTER_ARENA, BAIO_LINK_READ_ONLY, or 0.
    pub flags: u32,
    /// Bytes of memory for buffers, mapped lazily; 0 for 64 MiB.
    pub arena_bytes: u64,
    /// Bytes of a page cache for requests of mode BAIO_MODE_CACHED; 0 for none.
    pub cache_bytes: u64,
    /// How long a link waits for another broker when its own has ended, in nanoseconds; 0: it does not wait.
    pub reconnect_ns: u64,
    /// Which volume of a broker, by its name; NULL for the only one.
    pub volume: *const c_char,
}

// SAFETY: integers and a pointer, whose null is the default.
unsafe impl Growing for baio_link_options {
    const LEAST: usize = size_of::<baio_link_options>();
}

/// Options of a new volume. Zeros are the defaults, except for `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct baio_format_options {
    /// sizeof(baio_format_options).
    pub size: u32,
    /// 1: overwrite whatever is there.
    pub force: u32,
    /// Size of the volume in bytes; 0 takes the file or device as it is.
    pub size_bytes: u64,
    /// Bytes to which it may grow later; 0 for no more than its size.
    pub max_size_bytes: u64,
    /// How many segments it can hold; 0 for one per 1000 blocks.
    pub segments: u64,
    /// Unit of allocation in bytes; 0 for 4096.
    pub block_size: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers, whose zeros are the defaults.
unsafe impl Growing for baio_format_options {
    const LEAST: usize = size_of::<baio_format_options>();
}

/// To read. The default.
pub const BAIO_OPEN_READ: u32 = 0;
/// To write as well as to read.
pub const BAIO_OPEN_WRITE: u32 = 1;
/// Make the file when it is missing. Files only.
pub const BAIO_OPEN_CREATE: u32 = 2;
/// Make the file; it must not exist. Files only.
pub const BAIO_OPEN_EXCLUSIVE: u32 = 4;
/// Truncate the file to 0 bytes. Files only.
pub const BAIO_OPEN_TRUNCATE: u32 = 8;
/// Allow requests in other modes than the file's. Files only.
pub const BAIO_OPEN_EVERY_MODE: u32 = 16;

/// Of a request: the mode that its file was opened with. When opening: the kernel's cache for a file, direct for a segment.
pub const BAIO_MODE_DEFAULT: u32 = 0;
/// Past every cache: offset and length must be multiples of the device's block (4096 always works).
pub const BAIO_MODE_DIRECT: u32 = 1;
/// Through baio's page cache, which the link must have.
pub const BAIO_MODE_CACHED: u32 = 2;
/// Through the kernel's page cache. Files only.
pub const BAIO_MODE_KERNEL: u32 = 3;
/// The same, and dropped from the cache after the request. Files only.
pub const BAIO_MODE_UNCACHED: u32 = 4;

/// Not safe before a sync.
pub const BAIO_DURABLE_NONE: u32 = 0;
/// The bytes, and what is needed to find them, are safe when the request ends (fdatasync(2)).
pub const BAIO_DURABLE_DATA: u32 = 1;
/// All of the inode too (fsync(2)).
pub const BAIO_DURABLE_FULL: u32 = 2;

/// Fill `length` bytes of the buffer from `offset`; less at the end of the file.
pub const BAIO_OP_READ: u32 = 1;
/// Write `length` bytes of the buffer at `offset`.
pub const BAIO_OP_WRITE: u32 = 2;
/// Make every write that completed before this durable.
pub const BAIO_OP_SYNC: u32 = 3;
/// Make every write that was submitted before this durable.
pub const BAIO_OP_FENCE: u32 = 4;
/// Give back the space of `length` bytes at `offset`: they read as zeros.
pub const BAIO_OP_DISCARD: u32 = 5;
/// Make `length` bytes at `offset` read as zeros, and keep their space.
pub const BAIO_OP_ZERO: u32 = 6;
/// Make the file `length` bytes long. Files only.
pub const BAIO_OP_TRUNCATE: u32 = 7;
/// Reserve space for `length` bytes at `offset`. Files only.
pub const BAIO_OP_ALLOCATE: u32 = 8;

/// A request. Set it to zeros first. The library copies it: you may use it again when the call has returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct baio_request {
    /// On what.
    pub file: *mut baio_file,
    /// The memory to write from or read into; NULL for operations that move no bytes. In flight it belongs to the library.
    pub buffer: *mut baio_buffer,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for the whole buffer.
    pub length: u64,
    /// BAIO_OP_...
    pub op: u32,
    /// BAIO_MODE_...
    pub mode: u32,
    /// BAIO_DURABLE_...: of a write, a sync, a fence.
    pub durable: u32,
    /// 0.
    pub flags: u32,
    /// It is given up after so many nanoseconds; a write may or may not take effect then. 0: never.
    pub timeout_ns: u64,
    /// Comes back with the outcome.
    pub tag: u64,
    /// A status word that changes when the request ends, or NULL. One request at a time.
    pub status: *mut baio_status,
    /// 0.
    pub reserved: [u64; 5],
}

/// How a request ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct baio_outcome {
    /// The request's tag.
    pub tag: u64,
    /// The ticket that baio_submit() gave.
    pub ticket: baio_ticket,
    /// Bytes moved; or a negative error number.
    pub result: i64,
    /// Bytes that were moved, also when an error ended it half-way.
    pub bytes_done: u64,
    /// NULL, or why it failed, with the cure. It belongs to the library, and is valid until this thread's next call of
    /// baio_reap(), baio_wait() or baio_run().
    pub message: *const c_char,
    /// How the kernel did it: BAIO_MODE_DIRECT, BAIO_MODE_KERNEL or BAIO_MODE_UNCACHED; direct also if baio's page cache did it, or if there was nothing to do.
    pub took: u32,
    /// Non-blocking tries that it took.
    pub iterations: u32,
    /// 0.
    pub reserved: [u64; 2],
}
