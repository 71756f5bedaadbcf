//! What the kernel is told of an iteration: one entry of the submission queue.

use std::sync::Arc;

use io_uring::types::{self, FsyncFlags, TimeoutFlags, Timespec};
use io_uring::{opcode, squeue};

use crate::memory::{Arena, Window};
use crate::request::RequestId;
use crate::sys::{self, Action, Fd, Iteration, TRANSFER_MAX};

/// Makes entries, and keeps what they point at or name by number.
pub(super) struct Entries {
    /// Where timer requests keep the moment that the kernel reads at submission; one a slot.
    moments: Box<[Timespec]>,
    /// The registered one: memory of it goes by its number.
    pub(super) arena: Option<Arc<Arena>>,
    /// Lists of pieces of it go the same way (Linux 6.15).
    pub(super) lists: bool,
}

impl Entries {
    pub(super) fn new(slots: u32) -> Entries {
        Entries {
            moments: vec![Timespec::new(); slots as usize].into(),
            arena: None,
            lists: false,
        }
    }

    /// The entry of an iteration. Without a descriptor the kernel itself shall say `EBADF`.
    pub(super) fn of(&mut self, id: RequestId, iteration: &Iteration) -> squeue::Entry {
        let no_file = || opcode::Fsync::new(types::Fd(-1)).build().user_data(id.to_bits());
        self.of_file(id, iteration).unwrap_or_else(no_file)
    }

    fn of_file(&mut self, id: RequestId, iteration: &Iteration) -> Option<squeue::Entry> {
        let (fd, fixed) = match iteration.fd {
            Fd::Raw(fd) => (types::Fd(fd), false),
            Fd::Registered(index) => (types::Fd(index as i32), true),
            Fd::None if matches!(iteration.action, Action::Timer { .. }) => (types::Fd(-1), false),
            Fd::None => return None,
        };
        let entry = match iteration.action {
            Action::Read { window, offset } => self.read(fd, window, offset, iteration.flags),
            Action::Write { window, offset } => self.write(fd, window, offset, iteration.flags),
            Action::Sync { data_only } => {
                let flags = if data_only {
                    FsyncFlags::DATASYNC
                } else {
                    FsyncFlags::empty()
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            Action::SyncRange { offset, len } => {
                // The length is 32 bits wide here; 0 means to the end of the file, which covers more, never less.
                let len = u32::try_from(len).unwrap_or(0);
                let flags =
                    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
                opcode::SyncFileRange::new(fd, len).offset(offset).flags(flags).build()
            }
            Action::Allocate { offset, len, mode } => opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build(),
            Action::Poll { events } => opcode::PollAdd::new(fd, events).build(),
            Action::Timer { at } => {
                let (seconds, nanoseconds) = at.split();
                let moment = &mut self.moments[id.slot as usize];
                *moment = Timespec::new().sec(seconds as u64).nsec(nanoseconds as u32);
                opcode::Timeout::new(moment).flags(TimeoutFlags::ABS).build()
            }
            Action::Accept => opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(sys::ACCEPT_FLAGS)
                .build(),
            Action::Connect { address } => {
                let (pointer, len) = sys::flat(address);
                opcode::Connect::new(fd, pointer.cast(), len as u32).build()
            }
            Action::Receive { window, flags } => {
                let (pointer, len) = sys::flat(window);
                opcode::Recv::new(fd, pointer, clamp(len)).flags(flags as i32).build()
            }
            Action::Send { window, flags } => {
                let (pointer, len) = sys::flat(window);
                opcode::Send::new(fd, pointer, clamp(len)).flags(flags as i32).build()
            }
        };
        let flags = if fixed {
            squeue::Flags::FIXED_FILE
        } else {
            squeue::Flags::empty()
        };
        Some(entry.flags(flags).user_data(id.to_bits()))
    }

    fn read(&self, fd: types::Fd, window: Window, offset: i64, flags: i32) -> squeue::Entry {
        match window {
            Window::Flat { pointer, len } if self.is_registered(pointer, len) => {
                opcode::ReadFixed::new(fd, pointer, clamp(len), 0)
                    .offset(offset as u64)
                    .rw_flags(flags)
                    .build()
            }
            Window::Flat { pointer, len } => opcode::Read::new(fd, pointer, clamp(len))
                .offset(offset as u64)
                .rw_flags(flags)
                .build(),
            Window::List { list, count } if self.is_list_registered(list, count) => {
                opcode::ReadvFixed::new(fd, list, count, 0)
                    .offset(offset as u64)
                    .rw_flags(flags)
                    .build()
            }
            Window::List { list, count } => opcode::Readv::new(fd, list, count)
                .offset(offset as u64)
                .rw_flags(flags)
                .build(),
        }
    }

    fn write(&self, fd: types::Fd, window: Window, offset: i64, flags: i32) -> squeue::Entry {
        match window {
            Window::Flat { pointer, len } if self.is_registered(pointer, len) => {
                opcode::WriteFixed::new(fd, pointer, clamp(len), 0)
                    .offset(offset as u64)
                    .rw_flags(flags)
                    .build()
            }
            Window::Flat { pointer, len } => opcode::Write::new(fd, pointer, clamp(len))
                .offset(offset as u64)
                .rw_flags(flags)
                .build(),
            Window::List { list, count } if self.is_list_registered(list, count) => {
                opcode::WritevFixed::new(fd, list, count, 0)
                    .offset(offset as u64)
                    .rw_flags(flags)
                    .build()
            }
            Window::List { list, count } => opcode::Writev::new(fd, list, count)
                .offset(offset as u64)
                .rw_flags(flags)
                .build(),
        }
    }

    fn is_registered(&self, pointer: *mut u8, len: usize) -> bool {
        self.arena.as_ref().is_some_and(|arena| {
            let (base, size) = arena.range();
            let at = (pointer as usize).wrapping_sub(base as usize);
            at < size && len <= size - at
        })
    }

    fn is_list_registered(&self, list: *const libc::iovec, count: u32) -> bool {
        // SAFETY: a window's list belongs to the request, which its slot holds, and nobody else looks at it now.
        let list = || unsafe { std::slice::from_raw_parts(list, count as usize) };
        self.lists
            && count > 0
            && list()
                .iter()
                .all(|piece| self.is_registered(piece.iov_base.cast(), piece.iov_len))
    }
}

fn clamp(len: usize) -> u32 {
    len.min(TRANSFER_MAX) as u32
}
