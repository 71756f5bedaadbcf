//! What programs did with a shim, counted in a file that `baio run` makes and names in the environment.
//!
//! The file is mapped when a shim is loaded: before the program gives up rights, closes descriptors or is confined. What is counted is in
//! the file at once, so it outlives a program that is killed, and forked children count in it too. All of it is numbers of 64 bits in
//! the byte order of the machine. Without the variable nothing is counted, and no clock is read.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// The environment variable that names the file.
pub const VARIABLE: &str = "BAIO_COUNTERS";

/// "baioctr1": changes with the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"baioctr1");

/// Four for each doubling of nanoseconds.
const BUCKETS: usize = 252;

/// Which shim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `libaio.so.1`.
    Libaio,
    /// `libbaio-posix-aio.so`.
    PosixAio,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Any read.
    Read,
    /// Any write.
    Write,
    /// A sync of data, or of all.
    Sync,
    /// A poll.
    Poll,
}

impl Operation {
    /// All of them, in the order of the file.
    pub const ALL: [Operation; 4] = [Operation::Read, Operation::Write, Operation::Sync, Operation::Poll];

    /// Its name in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::Poll => "poll",
        }
    }
}

#[repr(C)]
struct Table {
    magic: AtomicU64,
    sheets: [Sheet; 2],
}

/// What one library counts.
#[repr(C)]
pub struct Sheet {
    loaded: AtomicU64,
    contexts: AtomicU64,
    refused: AtomicU64,
    lines: [Line; 4],
}

#[repr(C)]
struct Line {
    at_once: AtomicU64,
    later: AtomicU64,
    failed: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
}

const BYTES: usize = size_of::<Table>();

/// The table of this process; null if nothing is counted.
static MAPPED: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// Relaxed everywhere: sums, each right by itself.
fn add(to: &AtomicU64) {
    to.fetch_add(1, Ordering::Relaxed);
}

/// The library has been loaded: maps the file that the environment names, if any. A file that is not one of ours is left alone.
pub fn load(library: Library) {
    // SAFETY: no memory is involved. A program that runs with rights of others must not open what its caller names.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let Some(name) = std::env::var_os(VARIABLE).filter(|_| !is_privileged) else {
        return;
    };
    if let Some(table) = map(&name) {
        add(&table.sheet(library).loaded);
        MAPPED.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
}

fn map(name: &OsStr) -> Option<&'static Table> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(name)
        .ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).ok()?;
    if metadata.len() != BYTES as u64 || u64::from_ne_bytes(magic) != MAGIC {
        return None;
    }
    // SAFETY: a new mapping, which nobody else refers to.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    // SAFETY: it is page-aligned, as long as a table, never unmapped, and any bytes are valid atomics.
    mapped.ok().map(|at| unsafe { &*at.cast::<Table>() })
}

/// Where this process counts for the library, if it does.
#[must_use]
#[inline]
pub fn sheet(library: Library) -> Option<&'static Sheet> {
    let table = MAPPED.load(Ordering::Acquire);
    // SAFETY: it is a mapping that stays for ever.
    unsafe { table.as_ref() }.map(|table| table.sheet(library))
}

impl Table {
    fn sheet(&self, library: Library) -> &Sheet {
        match library {
            Library::Libaio => &self.sheets[0],
            Library::PosixAio => &self.sheets[1],
        }
    }
}

impl Sheet {
    /// A context, or what stands for one, was made; on io_uring or not.
    pub fn context(&self, on_io_uring: bool) {
        add(if on_io_uring { &self.contexts } else { &self.refused });
    }

    /// One that had been without io_uring has gone over to it.
    pub fn context_goes_over(&self) {
        self.refused.fetch_sub(1, Ordering::Relaxed);
        add(&self.contexts);
    }

    /// A request has ended, before the submitting call returned or later, so many nanoseconds after it was submitted.
    pub fn ended(&self, operation: Operation, at_once: bool, failed: bool, nanoseconds: u64) {
        let line = &self.lines[operation as usize];
        add(if at_once { &line.at_once } else { &line.later });
        if failed {
            add(&line.failed);
        }
        add(&line.latencies[bucket_of(nanoseconds)]);
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < 4 {
        return nanoseconds as usize;
    }
    let doublings = nanoseconds.ilog2() as usize;
    let quarter = (nanoseconds >> (doublings - 2)) as usize & 3;
    (doublings - 1) * 4 + quarter
}

/// The largest number of nanoseconds that a bucket holds.
fn end_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (doublings, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    let step = 1_u64 << (doublings - 2);
    ((4 + quarter) * step).saturating_add(step - 1)
}

/// Makes a file without a name for all of it, and the path by which processes of the same user find it as long as it is open.
///
/// # Errors
/// What the system said.
pub fn create() -> io::Result<(File, PathBuf)> {
    let file = File::from(baio_process::descriptor::memory("baio-counters", MemfdFlags::CLOEXEC)?);
    file.set_len(BYTES as u64)?;
    file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path.into()))
}

/// What one library has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that loaded it.
    pub loaded: u64,
    /// Contexts on io_uring.
    pub contexts: u64,
    /// Contexts that were left to the kernel's AIO or to the C library.
    pub refused: u64,
    /// In the order of [`Operation::ALL`].
    pub operations: [OperationCounts; 4],
}

/// What has been counted of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCounts {
    /// Requests that had ended when the submitting call returned.
    pub at_once: u64,
    /// Requests that ended later.
    pub later: u64,
    /// Of both, those that ended with an error.
    pub failed: u64,
    latencies: Vec<u64>,
}

impl Default for OperationCounts {
    fn default() -> OperationCounts {
        OperationCounts {
            at_once: 0,
            later: 0,
            failed: 0,
            latencies: vec![0; BUCKETS],
        }
    }
}

impl OperationCounts {
    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.at_once.saturating_add(self.later)
    }

    /// Nanoseconds within which this part of the requests, in thousandths, had ended; right to a quarter. None without requests.
    #[must_use]
    pub fn latency(&self, thousandths: u64) -> Option<u64> {
        let all: u128 = self.latencies.iter().map(|&count| u128::from(count)).sum();
        let wanted = (all * u128::from(thousandths)).div_ceil(1000).max(1);
        let mut seen = 0;
        let within = |count: &u64| {
            seen += u128::from(*count);
            seen >= wanted
        };
        self.latencies.iter().position(within).map(end_of)
    }
}

/// Reads what has been counted so far, by [`Library::Libaio`] and by [`Library::PosixAio`].
///
/// # Errors
/// What the system said; `InvalidData` for a file that is not of this layout.
pub fn read(file: &File) -> io::Result<[Counts; 2]> {
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let mut words = bytes.chunks_exact(8).map(|word| {
        let mut number = [0; 8];
        number.copy_from_slice(word);
        u64::from_ne_bytes(number)
    });
    let mut next = || words.next().unwrap_or(0);
    if next() != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut counts = || Counts {
        loaded: next(),
        contexts: next(),
        refused: next(),
        operations: std::array::from_fn(|_| OperationCounts {
            at_once: next(),
            later: next(),
            failed: next(),
            latencies: (0..BUCKETS).map(|_| next()).collect(),
        }),
    };
    Ok([counts(), counts()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_its_bucket() {
        let mut last = 0;
        for nanoseconds in (0..2000).chain((11..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let bucket = bucket_of(nanoseconds);
            assert!(bucket < BUCKETS && bucket >= last, "{nanoseconds}");
            assert!(nanoseconds <= end_of(bucket), "{nanoseconds}");
            assert!(bucket == 0 || nanoseconds > end_of(bucket - 1), "{nanoseconds}");
            last = bucket;
        }
    }

    #[test]
    fn what_was_counted_is_read() {
        let (file, path) = create().unwrap();
        let table = map(path.as_os_str()).unwrap();
        let sheet = table.sheet(Library::PosixAio);
        sheet.context(true);
        sheet.context(false);
        for at in 1..=1000 {
            sheet.ended(Operation::Write, at % 2 == 0, at == 7, at * 1000);
        }
        let [libaio, posix] = read(&file).unwrap();
        assert_eq!(libaio, Counts::default());
        assert_eq!((posix.loaded, posix.contexts, posix.refused), (0, 1, 1));
        let writes = &posix.operations[Operation::Write as usize];
        assert_eq!((writes.at_once, writes.later, writes.failed), (500, 500, 1));
        assert_eq!(writes.requests(), 1000);
        let median = writes.latency(500).unwrap();
        assert!((500_000..640_000).contains(&median), "{median}");
        assert!(writes.latency(1000).unwrap() >= 1_000_000);
        assert_eq!(posix.operations[0].latency(500), None);
    }

    /// Whatever the variable names stays as it is.
    #[test]
    fn another_file_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("letters");
        let bytes = vec![7; BYTES];
        std::fs::write(&path, &bytes).unwrap();
        assert!(map(path.as_os_str()).is_none());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(read(&File::open(&path).unwrap()).is_err());
        assert!(map(dir.path().as_os_str()).is_none());
    }
}
