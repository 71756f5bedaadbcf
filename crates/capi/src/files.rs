//! Files and segments: opening and closing them.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::Arc;

use baio::{Access, File, Mode, OpenOptions, Opened};

use crate::abi::{
    BAIO_MODE_CACHED, BAIO_MODE_DEFAULT, BAIO_MODE_DIRECT, BAIO_MODE_KERNEL, BAIO_MODE_UNCACHED, BAIO_OPEN_CREATE,
    BAIO_OPEN_EVERY_MODE, BAIO_OPEN_EXCLUSIVE, BAIO_OPEN_TRUNCATE, BAIO_OPEN_WRITE, baio_file, baio_link,
};
use crate::border::{Out, guard, invalid, path, text};
use crate::failure::Result;
use crate::handles::{Handle, Home, forget, keep, look, on_either};
use crate::things::{FileState, Kind, LinkState, Thing};

/// None: the file's own.
pub(crate) fn mode_of(mode: u32) -> Result<Option<Mode>> {
    Ok(Some(match mode {
        BAIO_MODE_DEFAULT => return Ok(None),
        BAIO_MODE_DIRECT => Mode::Direct,
        BAIO_MODE_CACHED => Mode::Cached,
        BAIO_MODE_KERNEL => Mode::Kernel,
        BAIO_MODE_UNCACHED => Mode::Uncached,
        other => return Err(invalid(format!("there is no mode {other}"), "use one of BAIO_MODE_...")),
    }))
}

fn known(flags: u32, known: u32) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        bits => Err(invalid(
            format!("flags {bits:#x} are not known to this call"),
            "use those of BAIO_OPEN_... that baio.h names for it",
        )),
    }
}

fn keep_file<L: Home>(state: &Arc<LinkState<L>>, opened: Opened<L>) -> Result<*mut baio_file> {
    keep(Arc::new(Thing::File(FileState {
        opened,
        on: Arc::clone(state),
    })))
}

/// A flag, and what it does.
type Shape = (u32, fn(OpenOptions) -> OpenOptions);

fn open<L: Home>(handle: Handle, path: PathBuf, flags: u32, mode: u32) -> Result<*mut baio_file> {
    known(
        flags,
        BAIO_OPEN_WRITE | BAIO_OPEN_CREATE | BAIO_OPEN_EXCLUSIVE | BAIO_OPEN_TRUNCATE | BAIO_OPEN_EVERY_MODE,
    )?;
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    let mut options = OpenOptions::new().mode(mode_of(mode)?.unwrap_or(Mode::Kernel));
    let shapes: [Shape; 5] = [
        (BAIO_OPEN_WRITE, OpenOptions::write),
        (BAIO_OPEN_CREATE, OpenOptions::create),
        (BAIO_OPEN_EXCLUSIVE, OpenOptions::create_new),
        (BAIO_OPEN_TRUNCATE, OpenOptions::truncate),
        (BAIO_OPEN_EVERY_MODE, OpenOptions::every_mode),
    ];
    for (flag, shape) in shapes {
        if flags & flag != 0 {
            options = shape(options);
        }
    }
    let file: File<L> = options.open(&state.link, path).wait()?;
    keep_file(state, Opened::clone(&file))
}

/// Opens a file or device by its path. `flags` are BAIO_OPEN_... or 0. `mode` is for requests that name none. It blocks.
///
/// Owner: the caller owns the file, and gives it back by baio_file_close().
/// Threads: the link's.
/// Returns: 0 and the file in `*file`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_file_open(
    link: *mut baio_link,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut baio_file,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, at) = unsafe { (Out::new(file, "file")?, self::path(path, "path")?) };
        out.put(on_either!(link, Kind::Link, open, at, flags, mode)?);
        Ok(0)
    })
}

fn open_segment<L: Home>(handle: Handle, name: String, flags: u32, mode: u32) -> Result<*mut baio_file> {
    known(flags, BAIO_OPEN_WRITE)?;
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    let access = match flags & BAIO_OPEN_WRITE {
        0 => Access::Read,
        _ => Access::Write,
    };
    let mut segment = state.link.open_segment(&name, access).wait()?;
    if let Some(mode) = mode_of(mode)? {
        segment = segment.with_mode(mode);
    }
    keep_file(state, Opened::clone(&segment))
}

/// Opens a segment of the caller's own by its name. `flags` is BAIO_OPEN_READ or BAIO_OPEN_WRITE. It blocks.
///
/// Owner: the caller owns it, and gives it back by baio_file_close().
/// Threads: the link's.
/// Returns: 0 and the segment in `*file`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_open(
    link: *mut baio_link,
    name: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut baio_file,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, name) = unsafe { (Out::new(file, "file")?, text(name, "name")?) };
        out.put(on_either!(link, Kind::Link, open_segment, name, flags, mode)?);
        Ok(0)
    })
}

fn close<L: Home>(handle: Handle) -> Result<c_int> {
    drop(forget::<L>(handle, Kind::File)?);
    Ok(0)
}

/// Closes a file or segment. Requests under way on it go on, and it is closed when they have ended.
///
/// Owner: the handle is gone.
/// Threads: the link's.
/// Returns: 0, or a negative error number when it is no open file.
#[unsafe(no_mangle)]
pub extern "C" fn baio_file_close(file: *mut baio_file) -> c_int {
    guard(|| on_either!(file, Kind::File, close))
}

fn size<L: Home>(handle: Handle) -> Result<i64> {
    let thing = look::<L>(handle, Kind::File)?;
    let bytes = thing.as_file()?.opened.size().wait()?;
    i64::try_from(bytes).map_err(|_| invalid(format!("the file has {bytes} bytes"), "use a smaller one"))
}

/// The size of a file or segment now. It blocks.
///
/// Threads: the link's.
/// Returns: bytes, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_file_size(file: *mut baio_file) -> i64 {
    guard(|| on_either!(file, Kind::File, size))
}
