//! The signals as whoever started this process left them, ignored or blocked: a program that it runs must find them so. The language's
//! start-up has changed one of them before `main`, and a command that runs a program changes others, to hear them and to wait.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use baio_process::signals::is_ignored;
use libc::{SIGCHLD, SIGPIPE, SIGXFSZ, sigset_t};

/// `SIGPIPE` was ignored before the start-up ignored it, and `SIGXFSZ` before `main` did.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static LIMIT_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    PIPE_IGNORED.store(is_ignored(SIGPIPE), Ordering::Relaxed);
    LIMIT_IGNORED.store(is_ignored(SIGXFSZ), Ordering::Relaxed);
}

// SAFETY: functions of this section are called with no thread but one, before `main`; it touches an atomic and makes a system call,
// neither of which needs the language's start-up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// What a program inherits.
pub(crate) struct Inherited {
    /// The signals that differ from what they were, or will, and whether each was ignored.
    signals: Vec<(c_int, bool)>,
    mask: sigset_t,
}

impl Inherited {
    /// Looks, before any of `heard` is. Children are waited for from now on: where `SIGCHLD` is ignored, none leaves a status.
    pub(crate) fn keep(heard: &[c_int]) -> Inherited {
        let mut signals: Vec<_> = heard.iter().map(|&signal| (signal, is_ignored(signal))).collect();
        signals.push((SIGPIPE, PIPE_IGNORED.load(Ordering::Relaxed)));
        signals.push((SIGXFSZ, LIMIT_IGNORED.load(Ordering::Relaxed)));
        signals.push((SIGCHLD, is_ignored(SIGCHLD)));
        // SAFETY: it names no function.
        unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
        let mask = change_mask(libc::SIG_BLOCK, &[]);
        Inherited { signals, mask }
    }

    /// Starts with no signal let through to this thread; the program has them as they were.
    pub(crate) fn start<T>(self, mut command: Command, start: impl FnOnce(&mut Command) -> T) -> T {
        let Inherited { signals, mask } = self;
        let restore = move || {
            for &(signal, ignored) in &signals {
                let disposition = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
                // SAFETY: it names no function.
                unsafe { libc::signal(signal, disposition) };
            }
            set_mask(&mask);
            Ok(())
        };
        // SAFETY: between fork and exec it reads memory of its own and makes system calls, no more. It comes after the language's own
        // changes to the signals.
        unsafe { command.pre_exec(restore) };
        // A signal that came between fork and exec would find the handlers of this process in the child.
        change_mask(libc::SIG_BLOCK, &every());
        let started = start(&mut command);
        set_mask(&mask);
        started
    }
}

/// Lets these through to this thread, whatever the mask was when this process began.
pub(crate) fn let_through(signals: &[c_int]) {
    change_mask(libc::SIG_UNBLOCK, signals);
}

/// The process that has sent it; none where it was the kernel, as when a key of a terminal sends it to a whole group.
pub(crate) fn sender(signal: &libc::siginfo_t) -> Option<i32> {
    // SAFETY: a code that is not above zero says that a process has sent it, by a call that fills in who.
    (signal.si_code <= 0).then(|| unsafe { signal.si_pid() })
}

fn every() -> Vec<c_int> {
    (1..=libc::SIGRTMAX()).collect()
}

/// Returns what the mask was.
fn change_mask(how: c_int, signals: &[c_int]) -> sigset_t {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: both sets are there; the first is made empty before it is added to, and all zeros are a set. A number that the C library
    // keeps for itself is refused.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn set_mask(mask: &sigset_t) {
    // SAFETY: the set is there, and nobody asks what was before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}
