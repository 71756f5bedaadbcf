//! Our library and the distribution's, side by side: each opened from its file, and called through its own symbols.

#![allow(unsafe_code, dead_code, unreachable_pub)]
#![allow(clippy::missing_transmute_annotations, reason = "the types stand in the fields")]

use std::ffi::{CString, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use baio_libaio::{IoEvent, Iocb};

/// `build.sh`, once for a test program; the directory that has our library.
pub fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/build.sh");
        let told = Command::new(script).arg("dev").output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        PathBuf::from(String::from_utf8(told.stdout).unwrap().trim())
    })
}

/// The distribution's libaio, if it is installed.
pub fn original() -> Option<PathBuf> {
    let places = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let names = ["libaio.so.1", "libaio.so.1t64"];
    let paths = places
        .iter()
        .flat_map(|place| names.iter().map(move |name| Path::new(place).join(name)));
    paths.into_iter().find(|path| path.exists())
}

/// Says in one write that a test was skipped.
pub fn skipped(test: &str, needs: &str) {
    eprintln!("SKIPPED: {test}: needs {needs}");
}

pub type Context = usize;

/// An opened library.
pub struct Library {
    pub name: &'static str,
    pub setup: unsafe extern "C" fn(c_int, *mut Context) -> c_int,
    pub destroy: unsafe extern "C" fn(Context) -> c_int,
    pub submit: unsafe extern "C" fn(Context, c_long, *mut *mut Iocb) -> c_int,
    pub cancel: unsafe extern "C" fn(Context, *mut Iocb, *mut IoEvent) -> c_int,
    pub get_events: unsafe extern "C" fn(Context, c_long, c_long, *mut IoEvent, *mut libc::timespec) -> c_int,
    pub pget_events:
        unsafe extern "C" fn(Context, c_long, c_long, *mut IoEvent, *mut libc::timespec, *mut libc::sigset_t) -> c_int,
    pub queue_run: unsafe extern "C" fn(Context) -> c_int,
    pub queue_init: unsafe extern "C" fn(c_int, *mut Context) -> c_int,
    pub queue_release: unsafe extern "C" fn(Context) -> c_int,
    pub queue_wait: unsafe extern "C" fn(Context, *mut libc::timespec) -> c_int,
    pub queue_wait_0_1: unsafe extern "C" fn(Context, *mut libc::timespec) -> c_int,
    pub get_events_0_1: unsafe extern "C" fn(Context, c_long, *mut IoEvent, *const libc::timespec) -> c_int,
    pub cancel_0_1: unsafe extern "C" fn(Context, *mut Iocb) -> c_int,
}

impl Library {
    pub fn open(name: &'static str, path: &Path) -> Library {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library that runs nothing of note when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} cannot be opened");
        let symbol = |name: &str, version: &str| {
            let (symbol, version) = (CString::new(name).unwrap(), CString::new(version).unwrap());
            // SAFETY: both strings end with a zero.
            let found = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
            assert!(!found.is_null(), "{path:?} has no {name} {version:?}");
            found
        };
        // SAFETY: the types are those of libaio.h.
        unsafe {
            Library {
                name,
                setup: std::mem::transmute::<*mut c_void, _>(symbol("io_setup", "LIBAIO_0.4")),
                destroy: std::mem::transmute::<*mut c_void, _>(symbol("io_destroy", "LIBAIO_0.4")),
                submit: std::mem::transmute::<*mut c_void, _>(symbol("io_submit", "LIBAIO_0.1")),
                cancel: std::mem::transmute::<*mut c_void, _>(symbol("io_cancel", "LIBAIO_0.4")),
                get_events: std::mem::transmute::<*mut c_void, _>(symbol("io_getevents", "LIBAIO_0.4")),
                pget_events: std::mem::transmute::<*mut c_void, _>(symbol("io_pgetevents", "LIBAIO_0.5")),
                queue_run: std::mem::transmute::<*mut c_void, _>(symbol("io_queue_run", "LIBAIO_0.1")),
                queue_init: std::mem::transmute::<*mut c_void, _>(symbol("io_queue_init", "LIBAIO_0.1")),
                queue_release: std::mem::transmute::<*mut c_void, _>(symbol("io_queue_release", "LIBAIO_0.1")),
                queue_wait: std::mem::transmute::<*mut c_void, _>(symbol("io_queue_wait", "LIBAIO_0.4")),
                queue_wait_0_1: std::mem::transmute::<*mut c_void, _>(symbol("io_queue_wait", "LIBAIO_0.1")),
                get_events_0_1: std::mem::transmute::<*mut c_void, _>(symbol("io_getevents", "LIBAIO_0.1")),
                cancel_0_1: std::mem::transmute::<*mut c_void, _>(symbol("io_cancel", "LIBAIO_0.1")),
            }
        }
    }

    pub fn ours() -> Library {
        Library::open("ours", &ours().join("libaio.so.1"))
    }

    pub fn original() -> Option<Library> {
        original().map(|path| Library::open("the original", &path))
    }

    pub fn context(&self, requests: c_int) -> Context {
        let _alone = addresses();
        let mut context = 0;
        // SAFETY: the one context is ours.
        assert_eq!(unsafe { (self.setup)(requests, &raw mut context) }, 0, "{}", self.name);
        context
    }

    pub fn submit_one(&self, context: Context, request: &mut Iocb) -> c_int {
        let mut list = [std::ptr::from_mut(request)];
        // SAFETY: the test keeps the request and what it names.
        unsafe { (self.submit)(context, 1, list.as_mut_ptr()) }
    }

    /// Waits for so many events, at most so long. In parts: io_uring at work in the same thread, for the
    /// other library, ends the kernel's own call early.
    pub fn events(&self, context: Context, count: usize) -> Vec<IoEvent> {
        let mut events = vec![NO_EVENT; count];
        let mut taken = 0;
        while taken < count {
            let left = (count - taken) as c_long;
            let mut limit = libc::timespec { tv_sec: 20, tv_nsec: 0 };
            let into = events[taken..].as_mut_ptr();
            // SAFETY: there is room for so many.
            let told = unsafe { (self.get_events)(context, left, left, into, &raw mut limit) };
            assert!(
                told > 0 || told == -libc::EINTR,
                "{}: {told} of {left} events",
                self.name
            );
            taken += told.max(0) as usize;
        }
        events
    }

    /// Ends it, and has `look` look at what is gone, before another test has a context by its address.
    pub fn end_and(&self, context: Context, look: impl FnOnce()) {
        let _alone = addresses();
        self.end(context);
        look();
    }

    pub fn end(&self, context: Context) {
        // SAFETY: nobody uses the context any more.
        assert_eq!(unsafe { (self.destroy)(context) }, 0, "{}", self.name);
    }
}

/// The kernel gives the address of a context that is gone to the next.
fn addresses() -> MutexGuard<'static, ()> {
    static ADDRESSES: Mutex<()> = Mutex::new(());
    ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub const NO_EVENT: IoEvent = IoEvent {
    data: 0,
    object: 0,
    result: i64::MIN,
    result2: i64::MIN,
};

/// A request as the functions of libaio.h fill it in.
pub fn request(opcode: u16, fd: c_int, bytes: *mut u8, len: usize, offset: i64) -> Iocb {
    Iocb {
        data: 0,
        key: 77,
        rw_flags: 0,
        opcode,
        priority: 0,
        fd: fd as u32,
        buffer: bytes.expose_provenance() as u64,
        bytes: len as u64,
        offset,
        reserved: 0,
        flags: 0,
        event_fd: 0,
    }
}
