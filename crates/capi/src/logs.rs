//! The durable log: appending without waiting, waiting, reading back.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baio::{Errno, LogOptions, LogRecord, Lsn, Records};

use crate::abi::{baio_file, baio_log, baio_records};
use crate::border::{Out, guard, invalid, null};
use crate::failure::{Failure, Result};
use crate::handles::{Handle, Home, forget, keep, look, on_either};
use crate::things::{Kind, RecordsState, Thing};

/// Make a new log; what the file or segment holds is lost.
pub const BAIO_LOG_CREATE: u32 = 1;
/// Open the log, or make one where none was ever made: where there are only zeros, or where an earlier making was cut off.
pub const BAIO_LOG_OPEN_OR_CREATE: u32 = 2;

fn number(lsn: Lsn) -> Result<i64> {
    i64::try_from(lsn.0).map_err(|_| invalid(format!("the LSN {lsn} is beyond int64_t"), "make a new log"))
}

fn open<L: Home>(handle: Handle, flags: u32, file_bytes: u64) -> Result<*mut baio_log> {
    let thing = look::<L>(handle, Kind::File)?;
    let opened = &thing.as_file()?.opened;
    let options = LogOptions {
        file_bytes,
        ..LogOptions::default()
    };
    let log = match flags {
        0 => opened.open_log(&options).wait()?,
        BAIO_LOG_CREATE => opened.create_log(&options).wait()?,
        BAIO_LOG_OPEN_OR_CREATE => opened.open_or_create_log(&options).wait()?,
        other => {
            return Err(invalid(
                format!("flags {other:#x} are not known"),
                "use 0, BAIO_LOG_CREATE or BAIO_LOG_OPEN_OR_CREATE",
            ));
        }
    };
    keep(Arc::new(Thing::Log(log)))
}

/// Opens the log of a whole file or segment, after recovery. With BAIO_LOG_OPEN_OR_CREATE it makes one where none was ever made: a process that is
/// killed at any step calls this again. With BAIO_LOG_CREATE it makes one, and what was there is lost. To make a log in a file, the file must
/// have its size already; baio_log_open_or_create() gives it one. It blocks.
///
/// Owner: the caller owns the log, and gives it back by baio_log_close(). The file may be closed before.
/// Threads: the link's.
/// Returns: 0 and the log in `*log`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_log_open(file: *mut baio_file, flags: u32, log: *mut *mut baio_log) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(log, "log")? };
        out.put(on_either!(file, Kind::File, open, flags, 0)?);
        Ok(0)
    })
}

/// As baio_log_open() with BAIO_LOG_OPEN_OR_CREATE; begin a program with this. When it makes a log, it makes a file that is shorter than `file_bytes`
/// as long. A log that is there keeps its size, and one that a copy has cut short is refused. A segment has its size, and `file_bytes` has no
/// effect. It blocks.
///
/// Owner: the caller owns the log, and gives it back by baio_log_close(). The file may be closed before.
/// Threads: the link's.
/// Returns: 0 and the log in `*log`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_log_open_or_create(
    file: *mut baio_file,
    file_bytes: u64,
    log: *mut *mut baio_log,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(log, "log")? };
        out.put(on_either!(file, Kind::File, open, BAIO_LOG_OPEN_OR_CREATE, file_bytes)?);
        Ok(0)
    })
}

fn append<L: Home>(handle: Handle, record: &[u8]) -> Result<i64> {
    number(look::<L>(handle, Kind::Log)?.as_log()?.append(record)?)
}

/// Appends a record of up to 16758648 bytes. It never waits: the record is in memory, and is safe when baio_log_wait() returns 0.
///
/// Owner: the library copies the bytes; they are the caller's again when the call returns.
/// Threads: the link's.
/// Returns: the LSN of the record, or a negative error number: -EAGAIN when there is no room in memory (wait for a record that was appended);
/// -ENOSPC only when the log is full (give up records by baio_log_truncate()); when the device is full, the log fails with -EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_log_append(log: *mut baio_log, record: *const c_void, bytes: usize) -> i64 {
    guard(|| {
        let record = match (record.is_null(), bytes) {
            (_, 0) => &[],
            (true, _) => return Err(null("record")),
            (false, bytes) if bytes > isize::MAX as usize => {
                return Err(invalid("`bytes` is too large", "append less"));
            }
            // SAFETY: the caller's promise.
            (false, bytes) => unsafe { std::slice::from_raw_parts(record.cast::<u8>(), bytes) },
        };
        on_either!(log, Kind::Log, append, record)
    })
}

fn wait<L: Home>(handle: Handle, lsn: u64) -> Result<c_int> {
    look::<L>(handle, Kind::Log)?.as_log()?.durable(Lsn(lsn)).wait()?;
    Ok(0)
}

/// Waits until the record with this LSN is durable, with all before it.
///
/// Threads: the link's. Threads that wait on a service are woken together.
/// Returns: 0, or a negative error number: then the record may or may not be there after the next opening.
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_wait(log: *mut baio_log, lsn: u64) -> c_int {
    guard(|| on_either!(log, Kind::Log, wait, lsn))
}

fn wait_for<L: Home>(handle: Handle, lsn: u64, timeout_ns: i64) -> Result<c_int> {
    let Ok(limit) = u64::try_from(timeout_ns) else {
        return wait::<L>(handle, lsn);
    };
    let thing = look::<L>(handle, Kind::Log)?;
    let durable = thing.as_log()?.durable(Lsn(lsn));
    match durable.wait_within(Duration::from_nanos(limit))? {
        Some(_) => Ok(0),
        None => Err(Failure::new(
            Errno::ETIMEDOUT,
            format!("wait for the log: LSN {lsn} is not durable after {limit} ns"),
            "wait again",
        )),
    }
}

/// The same for `timeout_ns` nanoseconds at most; with a negative time it waits without a limit.
///
/// Threads: the link's.
/// Returns: 0; -ETIMEDOUT when it is not durable by then, and it may become so later; or a negative error number, as baio_log_wait().
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_wait_for(log: *mut baio_log, lsn: u64, timeout_ns: i64) -> c_int {
    guard(|| on_either!(log, Kind::Log, wait_for, lsn, timeout_ns))
}

fn durable_lsn<L: Home>(handle: Handle) -> Result<i64> {
    number(look::<L>(handle, Kind::Log)?.as_log()?.durable_lsn())
}

/// Every record below this LSN is durable. It does not wait.
///
/// Threads: the link's.
/// Returns: an LSN, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_durable_lsn(log: *mut baio_log) -> i64 {
    guard(|| on_either!(log, Kind::Log, durable_lsn))
}

fn head_lsn<L: Home>(handle: Handle) -> Result<i64> {
    number(look::<L>(handle, Kind::Log)?.as_log()?.head_lsn())
}

/// The LSN of the oldest record that is kept. It does not wait.
///
/// Threads: the link's.
/// Returns: an LSN, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_head_lsn(log: *mut baio_log) -> i64 {
    guard(|| on_either!(log, Kind::Log, head_lsn))
}

fn truncate<L: Home>(handle: Handle, lsn: u64) -> Result<i64> {
    number(look::<L>(handle, Kind::Log)?.as_log()?.truncate(Lsn(lsn)).wait()?)
}

/// Gives up the records before this LSN, so that their space can be used again. It blocks.
///
/// Threads: the link's.
/// Returns: the oldest LSN that is kept, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_truncate(log: *mut baio_log, lsn: u64) -> i64 {
    guard(|| on_either!(log, Kind::Log, truncate, lsn))
}

fn close<L: Home>(handle: Handle) -> Result<c_int> {
    let thing = forget::<L>(handle, Kind::Log)?;
    thing.as_log()?.close().wait()?;
    Ok(0)
}

/// Closes a log: what was appended becomes durable, and the log is marked as closed. It blocks. Readers of it fail from now on.
///
/// Owner: the log is gone, also after an error.
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_log_close(log: *mut baio_log) -> c_int {
    guard(|| on_either!(log, Kind::Log, close))
}

fn read<L: Home>(handle: Handle, from: u64) -> Result<*mut baio_records> {
    let thing = look::<L>(handle, Kind::Log)?;
    let log = thing.as_log()?;
    let head = log.head_lsn();
    if from != 0 && from < head.0 {
        return Err(Failure::new(
            Errno::ENODATA,
            format!("read the log: LSN {from} was given up, the oldest that is kept is {head}"),
            "read from 0: from the oldest",
        ));
    }
    let records = log.records(Lsn(from.max(head.0)));
    let state = RecordsState { records, last: None };
    keep(Arc::new(Thing::Records(Box::new(Mutex::new(state)))))
}

/// Begins to read a log: the records from this LSN on, or from the first after it; with 0 from the oldest that is kept. Records that
/// baio_log_truncate() gave up cannot be read: -ENODATA here, or with the first record if they are given up meanwhile.
///
/// Owner: the caller owns the reader, and gives it back by baio_records_close().
/// Threads: the link's.
/// Returns: 0 and the reader in `*records`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_records_open(log: *mut baio_log, from: u64, records: *mut *mut baio_records) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(records, "records")? };
        out.put(on_either!(log, Kind::Log, read, from)?);
        Ok(0)
    })
}

type Bytes = (u64, *const c_void, usize);

fn next<L: Home>(handle: Handle) -> Result<Option<Bytes>> {
    let thing = look::<L>(handle, Kind::Records)?;
    let mut state = thing.as_records()?.lock().unwrap_or_else(PoisonError::into_inner);
    let state = &mut *state;
    let next = |records: &mut Records<L>| records.next_record().wait();
    state.last = next(&mut state.records)?;
    let shown = |record: &LogRecord| (record.lsn().0, record.payload().as_ptr().cast(), record.payload().len());
    Ok(state.last.as_ref().map(shown))
}

/// The next record: its LSN, where its bytes are, how many. It blocks while they are read.
///
/// Owner: the bytes belong to the reader, and are valid until its next record, or until it is closed.
/// Threads: the link's; one at a time for each reader.
/// Returns: 1; 0 at the durable end (ask again later); or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_records_next(
    records: *mut baio_records,
    lsn: *mut u64,
    record: *mut *const c_void,
    bytes: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (lsn, record, bytes) = unsafe {
            (
                Out::new(lsn, "lsn")?,
                Out::new(record, "record")?,
                Out::new(bytes, "bytes")?,
            )
        };
        let Some(found) = on_either!(records, Kind::Records, next)? else {
            return Ok(0);
        };
        lsn.put(found.0);
        record.put(found.1);
        bytes.put(found.2);
        Ok(1)
    })
}

fn leave<L: Home>(handle: Handle) -> Result<c_int> {
    drop(forget::<L>(handle, Kind::Records)?);
    Ok(0)
}

/// Gives a reader back.
///
/// Owner: the reader is gone, and the bytes of its last record.
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_records_close(records: *mut baio_records) -> c_int {
    guard(|| on_either!(records, Kind::Records, leave))
}
