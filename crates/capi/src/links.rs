//! Links: opening and closing them, the last error, volumes.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baio::{Backend, EngineOptions, FormatOptions, LinkOptions, Local, Reconnect, Remote};

use crate::abi::{
    BAIO_LINK_BROKER, BAIO_LINK_READ_ONLY, BAIO_LINK_REGISTER_ARENA, BAIO_LINK_SERVICE, BAIO_LINK_THREAD,
    baio_format_options, baio_link, baio_link_options,
};
use crate::border::{Out, grown, guard, invalid, path, text, unused};
use crate::failure::{self, Result, Text};
use crate::handles::{Handle, Home, ended, forget, keep, look, of_any_thread, of_this_thread, on_either, this_thread};
use crate::reaping;
use crate::things::{Kind, LinkState, Thing};

impl Home for Local {
    fn thread() -> u64 {
        this_thread()
    }

    fn with<R>(act: impl FnOnce(&mut crate::handles::Things<Local>) -> R) -> Option<R> {
        of_this_thread(act)
    }
}

impl Home for Remote {
    fn thread() -> u64 {
        0
    }

    fn with<R>(act: impl FnOnce(&mut crate::handles::Things<Remote>) -> R) -> Option<R> {
        Some(of_any_thread(act))
    }
}

/// What the environment asks for, where the program leaves it open: under valgrind, for one, io_uring hangs (docs/program/c-interface.md).
fn backend_named(name: &str) -> Result<Backend> {
    let known = Backend::ALL.into_iter().find(|backend| backend.name() == name);
    known.ok_or_else(|| {
        let names: Vec<&str> = Backend::ALL.iter().map(|backend| backend.name()).collect();
        let text = format!("BAIO_BACKEND={name} in the environment is not a backend");
        invalid(text, &format!("unset it, or name one of: {}", names.join(", ")))
    })
}

/// Requests of a link, at most: more are no faster anywhere, and each costs memory.
const SLOTS_MAX: u32 = EngineOptions::SLOTS_MAX;

fn options_of(given: &baio_link_options) -> Result<LinkOptions> {
    let mut options = LinkOptions::default();
    let config = &mut options.engine;
    let backend = usize::try_from(given.backend).unwrap_or(usize::MAX);
    let Some(backend) = Backend::ALL.get(backend) else {
        let text = format!("backend {} of `options` does not exist", given.backend);
        return Err(invalid(text, "use one of BAIO_BACKEND_..."));
    };
    config.backend = match (*backend, std::env::var("BAIO_BACKEND")) {
        (Backend::Auto, Ok(name)) => backend_named(&name)?,
        (backend, _) => backend,
    };
    let known = BAIO_LINK_REGISTER_ARENA | BAIO_LINK_READ_ONLY;
    if given.flags & !known != 0 {
        let text = format!("flags {:#x} of `options` are not known", given.flags & !known);
        return Err(invalid(
            text,
            "use BAIO_LINK_REGISTER_ARENA and BAIO_LINK_READ_ONLY only",
        ));
    }
    config.register_arena = given.flags & BAIO_LINK_REGISTER_ARENA != 0;
    if given.slots > SLOTS_MAX {
        let text = format!("{} slots are asked for by `options`", given.slots);
        return Err(invalid(text, &format!("ask for at most {SLOTS_MAX}")));
    }
    if given.slots != 0 {
        config.slots = given.slots;
        // As many as by default in proportion: a small link is not to be all reserve.
        config.reserved_slots = config.reserved_slots.min(given.slots / 16);
    }
    let too_large = |_| invalid("a size in `options` is too large", "ask for less memory");
    if given.arena_bytes != 0 {
        config.arena_bytes = usize::try_from(given.arena_bytes).map_err(too_large)?;
    }
    if given.cache_bytes != 0 {
        options = options.with_cache(usize::try_from(given.cache_bytes).map_err(too_large)?);
    }
    if given.reconnect_ns != 0 {
        options.reconnect = Reconnect::Within(Duration::from_nanos(given.reconnect_ns));
    }
    Ok(options)
}

fn kept<L: Home>(link: L) -> Result<*mut baio_link> {
    keep(Arc::new(Thing::Link(Arc::new(LinkState::new(link)))))
}

fn open(kind: u32, path: Option<PathBuf>, given: &baio_link_options, volume: &str) -> Result<*mut baio_link> {
    // First: a volume that was opened, and could not be kept, would be marked as in use.
    if kind == BAIO_LINK_THREAD && of_this_thread(|_| ()).is_none() {
        return Err(ended("open a link"));
    }
    let options = options_of(given)?;
    if kind != BAIO_LINK_BROKER && (given.reconnect_ns != 0 || !volume.is_empty()) {
        let text = "`reconnect_ns` and `volume` of `options` are for a link to a broker";
        return Err(invalid(text, "leave them 0, or open a link of kind BAIO_LINK_BROKER"));
    }
    let reads_only = given.flags & BAIO_LINK_READ_ONLY != 0;
    match (kind, path, reads_only) {
        (BAIO_LINK_THREAD, Some(path), true) => kept(Local::open_to_read(path, &options)?),
        (_, _, true) => {
            let cure = "open a volume with BAIO_LINK_THREAD";
            Err(invalid("a link of this kind cannot be opened to read only", cure))
        }
        (BAIO_LINK_THREAD, None, false) => kept(Local::new_with(&options)?),
        (BAIO_LINK_THREAD, Some(path), false) => kept(Local::open_with(path, &options)?),
        (BAIO_LINK_SERVICE, None, false) => kept(Remote::new_with(&options)?),
        (BAIO_LINK_SERVICE, Some(path), false) => kept(Remote::open_with(path, &options)?),
        (BAIO_LINK_BROKER, Some(path), false) => kept(Remote::connect_with(path, volume, &options)?),
        (BAIO_LINK_BROKER, None, false) => Err(invalid("a broker has no path", "pass the path of its socket")),
        (kind, _, false) => {
            let text = format!("there is no kind of link {kind}");
            Err(invalid(
                text,
                "use one of BAIO_LINK_THREAD, BAIO_LINK_SERVICE, BAIO_LINK_BROKER",
            ))
        }
    }
}

/// Opens a link: to the volume at `path`, which this process then owns; without a path for plain files; or to the broker whose socket is at
/// `path`. `options` may be NULL.
///
/// Owner: the caller owns the link, and gives it back by baio_link_close().
/// Threads: any. A link of kind BAIO_LINK_THREAD belongs to the thread that called.
/// Returns: 0 and the link in `*link`; or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_link_open(
    link: *mut *mut baio_link,
    kind: u32,
    path: *const c_char,
    options: *const baio_link_options,
) -> c_int {
    guard(|| {
        baio_shim::forks::watch();
        // SAFETY: the caller's promise, here and in what follows.
        let out = unsafe { Out::new(link, "link")? };
        let at = match path.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { crate::border::path(path, "path")? }),
        };
        // SAFETY: as above.
        let given = unsafe { grown(options, "options")? };
        let volume = match given.volume.is_null() {
            true => String::new(),
            // SAFETY: as above.
            false => unsafe { text(given.volume, "options.volume")? },
        };
        out.put(open(kind, at, &given, &volume)?);
        Ok(0)
    })
}

fn close<L: Home>(handle: Handle) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    reaping::end_all(state);
    let closed = state.link.clone().close();
    reaping::give_up(state);
    forget::<L>(handle, Kind::Link)?;
    closed?;
    Ok(0)
}

/// Closes a link. It waits for requests under way, but cancels reads, since a read of a pipe may never end. It writes what the page cache
/// has not written yet, and marks the volume as closed. Outcomes that were not taken are lost; the buffers of these requests are the
/// caller's again.
///
/// Owner: the link is gone, also after an error, unless the caller may not close it (-EBADF, -EPERM, -EINVAL). Handles of its files, buffers
/// and logs must still be given back by their own calls; all other calls on them fail.
/// Threads: the link's, before it ends (in atexit(3) the main thread has ended: -ESRCH). No other call on the link may be under way.
/// Returns: 0, or a negative error number: the next open then heals the volume.
#[unsafe(no_mangle)]
pub extern "C" fn baio_link_close(link: *mut baio_link) -> c_int {
    guard(|| on_either!(link, Kind::Link, close))
}

/// Makes a volume in a file or device. `options` may be NULL.
///
/// Threads: any. It blocks.
/// Returns: 0, or a negative error number: -EEXIST when something is there already and `force` was not asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_format(path: *const c_char, options: *const baio_format_options) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (at, given) = unsafe { (self::path(path, "path")?, grown(options, "options")?) };
        unused(&[u64::from(given.reserved)], "options")?;
        if given.force > 1 {
            let text = format!("`force` of `options` is {}", given.force);
            return Err(invalid(text, "use 1 to overwrite what is there, else 0"));
        }
        let some = |number: u64| (number != 0).then_some(number);
        let default = FormatOptions::default();
        let format = FormatOptions {
            size_bytes: some(given.size_bytes),
            max_size_bytes: some(given.max_size_bytes),
            segments: some(given.segments),
            force: given.force != 0,
            block_size: match given.block_size {
                0 => default.block_size,
                bytes => bytes,
            },
            mode: default.mode,
        };
        baio::format(at, &format)?;
        Ok(0)
    })
}

fn event_fd<L: Home>(handle: Handle) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    reaping::event_fd(state)
}

/// A descriptor for poll(2), select(2) or epoll(7) that is readable when there may be outcomes to be taken, and once a link to a service has ended:
/// call baio_reap() then. Do nothing else with it: the library reads it. From this call on baio_submit() also submits what it queues.
///
/// Owner: the library; it is closed with the link. Each call gives the same one.
/// Threads: the link's.
/// Returns: the descriptor, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_link_event_fd(link: *mut baio_link) -> c_int {
    guard(|| on_either!(link, Kind::Link, event_fd))
}

/// Why the last call of this thread failed: what was asked, of what, at which offset, what the system said, what was needed,
/// and the cure, in one line. "" if none has failed.
///
/// Owner: the library; it is valid until this thread's next call that fails.
/// Threads: any; each has its own.
/// Returns: never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn baio_error_message() -> *const c_char {
    failure::last(&Text::Message)
}

/// The name of the same error: "ENOSPC". Some have no number in errno: "ENOTVOLUME", "ECORRUPT", "EINDETERMINATE", "EPOISONED".
///
/// Owner, threads, returns: as baio_error_message().
#[unsafe(no_mangle)]
pub extern "C" fn baio_error_name() -> *const c_char {
    failure::last(&Text::Name)
}

/// What to do about the same error; "" where nothing general can be said.
///
/// Owner, threads, returns: as baio_error_message().
#[unsafe(no_mangle)]
pub extern "C" fn baio_error_cure() -> *const c_char {
    failure::last(&Text::Cure)
}

/// The version of the library that the program runs with: "0.2.0".
///
/// Owner: the library. Threads: any. Returns: never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn baio_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
