//! Pages of the page cache: held and changed in place, or lent to be read where they lie.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use baio::{CacheError, Fault, Link, Opened, PAGE, Pin};

use crate::abi::{baio_file, baio_link, baio_log, baio_pages, baio_pin};
use crate::border::{Out, guard, invalid, null};
use crate::failure::Result;
use crate::handles::{Handle, Home, forget, keep, look, on_either, on_link};
use crate::things::{Kind, Thing};

/// Bytes of a page.
pub const BAIO_PAGE: usize = 4096;
const _: () = assert!(BAIO_PAGE == PAGE);

/// Make the page zeros, without reading it.
pub const BAIO_PIN_ZERO: u32 = 1;

fn hold<L: Home>(handle: Handle, page: u64, flags: u32) -> Result<*mut baio_pin> {
    let thing = look::<L>(handle, Kind::File)?;
    let opened = &thing.as_file()?.opened;
    let pin = match flags {
        0 => opened.pin(page).wait()?,
        BAIO_PIN_ZERO => opened.pin_new(page, 0).wait()?,
        other => {
            let text = format!("flags {other:#x} are not known to this call");
            return Err(invalid(text, "use 0 or BAIO_PIN_ZERO"));
        }
    };
    keep(Arc::new(Thing::Pin(pin)))
}

/// Holds a page of 4 KiB in the page cache of the file's link: number 0 is the first. `flags` is BAIO_PIN_ZERO or 0. It blocks while the page is read; one that
/// is in the cache costs no I/O. If all pages of the cache are held it has no room: free pins that are not needed.
///
/// Owner: the caller owns the pin, and gives it back by baio_pin_free(). The file may be closed before.
/// Threads: the link's.
/// Returns: 0 and the pin in `*pin`; or a negative error number: -EOPNOTSUPP over a broker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_pin_new(file: *mut baio_file, page: u64, flags: u32, pin: *mut *mut baio_pin) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(pin, "pin")? };
        out.put(on_either!(file, Kind::File, hold, page, flags)?);
        Ok(0)
    })
}

/// Do these bytes lie in a page?
fn inside(offset: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= PAGE => Ok(()),
        _ => Err(invalid(
            format!("{bytes} bytes at {offset} do not lie in a page of {PAGE}"),
            "stay in the page",
        )),
    }
}

fn read<L: Home>(handle: Handle, offset: usize, bytes: usize) -> Result<Vec<u8>> {
    let thing = look::<L>(handle, Kind::Pin)?;
    let copied = move |page: &[u8]| page.get(offset..)?.get(..bytes).map(<[u8]>::to_vec);
    let found = thing.as_pin()?.read(copied).wait()?;
    found.ok_or_else(|| invalid("the page is shorter", "stay in the page"))
}

/// Copies `bytes` bytes at `offset` of a page that is held to `to`, as they are at one moment.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number: -ESTALE when the segment was deleted or resized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_pin_read(pin: *mut baio_pin, offset: usize, to: *mut c_void, bytes: usize) -> c_int {
    guard(|| {
        if to.is_null() {
            return Err(null("to"));
        }
        inside(offset, bytes)?;
        let copied = on_either!(pin, Kind::Pin, read, offset, bytes)?;
        // SAFETY: the caller's promise: there is room for `bytes`, which is what was copied.
        unsafe { std::ptr::copy_nonoverlapping(copied.as_ptr(), to.cast::<u8>(), copied.len()) };
        Ok(0)
    })
}

fn change<L: Link>(pin: &Pin<L>, offset: usize, from: &Arc<[u8]>, lsn: u64) -> baio::Result<()> {
    let from = Arc::clone(from);
    let copy = move |page: &mut [u8]| {
        if let Some(there) = page.get_mut(offset..).and_then(|rest| rest.get_mut(..from.len())) {
            there.copy_from_slice(&from);
        }
    };
    pin.change(lsn, copy).wait()
}

fn write<L: Home>(handle: Handle, offset: usize, from: &Arc<[u8]>, lsn: u64) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Pin)?;
    let pin = thing.as_pin()?;
    loop {
        match change(pin, offset, from, lsn) {
            Ok(()) => return Ok(0),
            Err(error) if lsn == 0 && waits(&error.fault) => pin.changeable(lsn).wait()?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Passes by itself when pages have been written.
fn waits(fault: &Fault) -> bool {
    matches!(fault, Fault::Cache(CacheError::BeingWritten | CacheError::NoRoom))
}

/// Changes `bytes` bytes at `offset` of a page that is held, at one moment. The page is written later, by the cleaner or for a sync. `lsn` is the
/// LSN of the log record for this change: the page is not written before the log is durable up to it (baio_file_set_log(),
/// baio_link_set_durable_lsn()). It is 0 for a change that is not logged. With 0 the call waits while the page cannot be changed. With an LSN it fails
/// with -EAGAIN instead and changes nothing, since it might wait for a log that only the caller makes durable.
///
/// Owner: the library copies the bytes.
/// Threads: the link's.
/// Returns: 0, or a negative error number: -EBADF for a file that was opened to read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_pin_write(
    pin: *mut baio_pin,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    lsn: u64,
) -> c_int {
    guard(|| {
        if from.is_null() {
            return Err(null("from"));
        }
        inside(offset, bytes)?;
        // SAFETY: the caller's promise: `bytes` may be read there, and they are at most a page.
        let from: Arc<[u8]> = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.into();
        on_either!(pin, Kind::Pin, write, offset, &from, lsn)
    })
}

fn unpin<L: Home>(handle: Handle) -> Result<c_int> {
    drop(forget::<L>(handle, Kind::Pin)?);
    Ok(0)
}

/// Gives a held page back to the cache.
///
/// Owner: the pin is gone.
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_pin_free(pin: *mut baio_pin) -> c_int {
    guard(|| on_either!(pin, Kind::Pin, unpin))
}

fn lend<L: Home>(handle: Handle, first: u64, count: u64) -> Result<*mut baio_pages> {
    let thing = look::<L>(handle, Kind::File)?;
    let opened: Opened<L> = thing.as_file()?.opened.clone();
    let link = opened.link().clone();
    let lent = link.block_on(async move { opened.read_pages(first..first.saturating_add(count)).await })??;
    keep(Arc::new(Thing::<L>::Pages(lent)))
}

/// Reads `count` pages of 4 KiB, 1 to 16, without a copy: the page cache lends its own memory. Writes to these pages
/// meanwhile go to a copy, so the lent bytes do not change. It blocks while they are read; pages that are in the cache cost no I/O.
///
/// Owner: the caller owns the loan, and gives it back by baio_pages_free(). The file may be closed before.
/// Threads: the link's.
/// Returns: 0 and the loan in `*pages`; or a negative error number: -EOPNOTSUPP over a broker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_pages_read(
    file: *mut baio_file,
    first: u64,
    count: u64,
    pages: *mut *mut baio_pages,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(pages, "pages")? };
        out.put(on_either!(file, Kind::File, lend, first, count)?);
        Ok(0)
    })
}

fn page<L: Home>(handle: Handle, nth: usize) -> Result<*const c_void> {
    let thing = look::<L>(handle, Kind::Pages)?;
    let lent = thing.as_pages()?;
    let found = lent.pages().nth(nth).map(|page| page.as_ptr().cast());
    found.ok_or_else(|| {
        let text = format!("page {nth} of a loan of {} pages", lent.pages().len());
        invalid(text, "count from 0")
    })
}

/// Where the bytes of a lent page are: 0 is the first of the loan. They must not be written.
///
/// Owner: the library; they are valid until baio_pages_free(), also after the link was closed.
/// Threads: the link's. The bytes themselves may be read by any.
/// Returns: the address of 4096 bytes; NULL after an error: see baio_error_message().
#[unsafe(no_mangle)]
pub extern "C" fn baio_pages_data(pages: *mut baio_pages, nth: usize) -> *const c_void {
    struct Address(*const c_void);
    impl From<c_int> for Address {
        fn from(_: c_int) -> Address {
            Address(std::ptr::null())
        }
    }
    guard(|| on_either!(pages, Kind::Pages, page, nth).map(Address)).0
}

fn give_back<L: Home>(handle: Handle) -> Result<c_int> {
    drop(forget::<L>(handle, Kind::Pages)?);
    Ok(0)
}

/// Gives lent pages back.
///
/// Owner: the loan is gone, and the bytes of its pages.
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_pages_free(pages: *mut baio_pages) -> c_int {
    guard(|| on_either!(pages, Kind::Pages, give_back))
}

fn durable<L: Home>(handle: Handle, lsn: u64) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    thing.as_link()?.link.set_durable_lsn(lsn).wait()?;
    Ok(0)
}

/// For a log of your own: says that it is durable up to and including this LSN. Pages whose last change has this LSN or an earlier one may now be
/// written. It never goes back.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_link_set_durable_lsn(link: *mut baio_link, lsn: u64) -> c_int {
    guard(|| on_either!(link, Kind::Link, durable, lsn))
}

fn set_log<L: Home>(handle: Handle, log: *mut baio_log) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::File)?;
    let log = on_link::<L, _>(log, Kind::Log)?;
    thing.as_file()?.opened.set_log(log.as_log()?).wait()?;
    Ok(0)
}

/// From now on pages of the file that are changed with an LSN (baio_pin_write()) wait for this log, which must be of the same link: each is written
/// once the record with its LSN is durable.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_file_set_log(file: *mut baio_file, log: *mut baio_log) -> c_int {
    guard(|| on_either!(file, Kind::File, set_log, log))
}
