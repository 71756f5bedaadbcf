//! Iterations of what is received and sent, and of transfers.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;

use super::Slot;
use crate::memory::Window;
use crate::sys::{self, Action, Fd, Iteration};

/// What a stream is that knows no `RWF_NOWAIT`, on whose behalf the engine looks before each iteration whether it is ready. Who is
/// overtaken between the look and the call waits after all: on a pipe, never on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Writable is a pipe that has room for `PIPE_BUF` bytes.
    Pipe,
    /// Has a word of its own, `MSG_DONTWAIT`.
    Socket,
    /// Writable is a terminal that has room for something.
    Terminal,
    Other,
}

/// The ready ones of `events`, and errors; 0 when there is none.
#[allow(unsafe_code)]
pub(crate) fn ready(fd: RawFd, events: u32) -> u32 {
    // SAFETY: the slot of the request keeps the descriptor open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut one = [PollFd::new(&fd, PollFlags::from_bits_truncate(events as _))];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut one, Some(&now)) {
        Ok(1..) => {
            // Of either sign: that of the C library, by which Miri looks on, differs from the kernel's.
            let told: u16 = one[0].revents().bits() as _;
            u32::from(told)
        }
        _ => 0,
    }
}

/// A pseudo-terminal that is writable has room for 256 bytes (`tty_buffer_alloc`, drivers/tty/tty_buffer.c) and a serial line for more; a tab
/// may become eight (`n_tty_write`).
const TERMINAL_PIECE: usize = 32;

/// What does not wait on a stream that is ready.
pub(super) fn of_what_is_ready(looks: Looks, action: Action, fd: Fd) -> Iteration {
    let quiet = libc::MSG_DONTWAIT as u32;
    let action = match (looks, action) {
        (Looks::Socket, Action::Read { window, .. }) => Action::Receive { window, flags: quiet },
        (Looks::Socket, Action::Write { window, .. }) => Action::Send {
            window,
            flags: quiet | libc::MSG_NOSIGNAL as u32,
        },
        (Looks::Pipe, Action::Write { window, offset }) => Action::Write {
            window: first_part(window).at_most(libc::PIPE_BUF),
            offset,
        },
        (Looks::Terminal, Action::Write { window, offset }) => Action::Write {
            window: first_part(window).at_most(TERMINAL_PIECE),
            offset,
        },
        (_, other) => other,
    };
    Iteration { action, fd, flags: 0 }
}

/// Of a list its first part.
#[allow(unsafe_code)]
pub(crate) fn first_part(window: Window) -> Window {
    match window {
        // SAFETY: the slot keeps the list, which has so many parts.
        Window::List { list, count: 1.. } => unsafe {
            Window::Flat {
                pointer: (*list).iov_base.cast(),
                len: (*list).iov_len,
            }
        },
        other => other,
    }
}

impl Slot {
    /// The stream that its next iteration reads or writes and that has refused `RWF_NOWAIT`: what it is.
    #[allow(unsafe_code)]
    pub(crate) fn refuses_nowait(&self) -> Option<Looks> {
        let (file, caching) = self.subject()?;
        let fd = file.raw_fd(caching).filter(|_| !file.has_offsets())?;
        // SAFETY: the slot of the request keeps the descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let stat = rustix::fs::fstat(fd).ok()?;
        Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Looks::Pipe,
            FileType::Socket => Looks::Socket,
            FileType::CharacterDevice if sys::is_terminal(fd) => Looks::Terminal,
            _ => Looks::Other,
        })
    }

    /// Is there anything to be read now, or room?
    pub(crate) fn is_ready(&self) -> bool {
        let Some((file, caching)) = self.subject() else {
            return true;
        };
        let fd = file.raw_fd(caching).filter(|_| !file.has_offsets());
        fd.is_none_or(|fd| ready(fd, self.readiness()) != 0)
    }

    /// Is a terminal what its next iteration is about?
    pub(crate) fn is_at_a_terminal(&self) -> bool {
        self.subject().is_some_and(|(file, _)| file.is_terminal())
    }

    /// A list goes by readv(2) and writev(2), which take no `MSG_*`; `validate` has seen to that.
    pub(super) fn receive(&mut self, skip: usize, flags: u32) -> Action {
        match self.memory.window(skip) {
            window @ Window::List { .. } => Action::Read { window, offset: -1 },
            window @ Window::Flat { .. } => Action::Receive {
                window,
                flags: flags | self.impatience(),
            },
        }
    }

    pub(super) fn send(&mut self, skip: usize, flags: u32) -> Action {
        match self.memory.window(skip) {
            window @ Window::List { .. } => Action::Write { window, offset: -1 },
            window @ Window::Flat { .. } => Action::Send {
                window,
                flags: flags | self.impatience() | libc::MSG_NOSIGNAL as u32,
            },
        }
    }

    fn impatience(&self) -> u32 {
        if self.policy.patience.may_wait() {
            0
        } else {
            libc::MSG_DONTWAIT as u32
        }
    }

    /// The next half of a window: out of the file when it is empty, else on to the target.
    pub(super) fn transfer(&mut self, offset: u64, len: u64) -> Action {
        let begun = self.window_start();
        if self.window.is_empty() {
            let granularity = self.granularity() as u64;
            let wanted = (len - begun).next_multiple_of(granularity);
            return Action::Read {
                window: self
                    .memory
                    .window(0)
                    .at_most(usize::try_from(wanted).unwrap_or(usize::MAX)),
                offset: (offset + begun) as i64,
            };
        }
        let window = self.memory.window(self.window.sent as usize);
        Action::Write {
            window: window.at_most((self.window.bytes - self.window.sent) as usize),
            offset: -1,
        }
    }

    /// Where in the range the window that is read next begins: at an aligned byte.
    pub(crate) fn window_start(&self) -> u64 {
        (self.done - self.done % self.granularity()) as u64
    }
}
