//! The claim: under a limit of file sizes a library's write fails, and takes no signal of the program's: the program's handler, or its default,
//! stays for the program's own writes, and what was pending before stays pending. Each story is a process of its own: limits and signals are.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

use baio_process::signals::{files_are_limited, outlasting_limits};

static HEARD: AtomicU32 = AtomicU32::new(0);

extern "C" fn hear(_: libc::c_int) {
    HEARD.fetch_add(1, Ordering::Relaxed);
}

/// How often the program's handler has run.
fn heard() -> u32 {
    HEARD.load(Ordering::Relaxed)
}

/// A write beyond the limit: what the system said.
fn write_beyond(file: &File) -> i32 {
    // SAFETY: the byte lives through the call.
    let told = unsafe { libc::pwrite(file.as_raw_fd(), b"x".as_ptr().cast(), 1, 4096) };
    assert_eq!(told, -1);
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A file, in a process that may write 4096 bytes of any.
fn limited() -> File {
    let limit = libc::rlimit {
        rlim_cur: 4096,
        rlim_max: 4096,
    };
    // SAFETY: the kernel reads the structure during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    assert!(files_are_limited());
    let memory = rustix::fs::memfd_create("limited", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    File::from(memory)
}

/// Runs this story in a process of its own; how it ended.
fn alone(story: impl FnOnce()) -> Option<ExitStatus> {
    const ALONE: &str = "BAIO_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        story();
        return None;
    }
    let thread = std::thread::current();
    let told = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", thread.name().unwrap(), "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    Some(told.status)
}

#[test]
fn a_handler_is_called_for_the_programs_writes_alone() {
    let ended = alone(|| {
        let handler: extern "C" fn(libc::c_int) = hear;
        // SAFETY: the handler adds to an atomic, and does nothing else.
        unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
        let file = limited();
        for own in 0..3 {
            assert_eq!(outlasting_limits(|| write_beyond(&file)), libc::EFBIG);
            assert_eq!(heard(), own);
            assert_eq!(write_beyond(&file), libc::EFBIG);
            assert_eq!(heard(), own + 1);
        }
    });
    assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
}

#[test]
fn what_was_pending_before_comes_when_it_is_let_through() {
    let ended = alone(|| {
        let handler: extern "C" fn(libc::c_int) = hear;
        let file = limited();
        // SAFETY: the handler adds to an atomic; the set is ours, and zeros are one.
        unsafe {
            libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t);
            let mut limit: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut limit, libc::SIGXFSZ);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const limit, std::ptr::null_mut());
            assert_eq!(write_beyond(&file), libc::EFBIG);
            assert_eq!(outlasting_limits(|| write_beyond(&file)), libc::EFBIG);
            assert_eq!(heard(), 0);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const limit, std::ptr::null_mut());
        }
        assert_eq!(heard(), 1);
    });
    assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
}

/// The library's write is nobody's end; the program's own is.
#[test]
fn the_default_is_the_programs_too() {
    let ended = alone(|| {
        let file = limited();
        assert_eq!(outlasting_limits(|| write_beyond(&file)), libc::EFBIG);
        write_beyond(&file);
    });
    assert!(
        ended.is_none_or(|status| status.signal() == Some(libc::SIGXFSZ)),
        "{ended:?}"
    );
}
