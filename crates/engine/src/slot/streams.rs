//! Iterations of what is received and sent, and of transfers.

use super::Slot;
use crate::memory::Window;
use crate::sys::Action;

impl Slot {
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
