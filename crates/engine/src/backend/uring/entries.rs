//! What the kernel is told of an iteration: one entry of the submission queue.

use std::sync::Arc;

use io_uring::types::{self, FsyncFlags, TimeoutFlags, Timespec};
use io_uring::{opcode, squeue};

use crate::memory::{Arena, Window};
use crate::request::RequestId;
use crate::sys::{self, Action, Fd, Iteration, Message, TRANSFER_MAX};

/// Makes entries, and keeps what they point at or name by number.
pub(super) struct Entries {
    /// Where timer requests keep the moment that the kernel reads at submission; one a slot.
    moments: Box<[Timespec]>,
    /// Where lists that are sent and received have theirs; none before the first.
    messages: Box<[Message]>,
    /// What is registered of an arena: memory in it goes by a number.
    pub(super) arena: Option<Pieces>,
    /// Lists of such memory go the same way (Linux 6.15).
    pub(super) lists: bool,
}

/// A registered arena. The kernel takes no more than a gibibyte at a time (`io_sqe_buffer_register`, io_uring/rsrc.c), so a
/// larger one is registered in pieces, and what crosses from one into the next goes as if it were not registered. A run of up
/// to 64 chunks never does: those of one bitmap word lie in one piece.
pub(super) struct Pieces {
    arena: Arc<Arena>,
    /// The size of all but the last, as a power of two.
    bits: u32,
}

impl Pieces {
    /// The power of two that is the largest piece.
    pub(super) const BITS: u32 = 30;

    pub(super) fn of(arena: &Arc<Arena>, bits: u32) -> Pieces {
        Pieces {
            arena: Arc::clone(arena),
            bits,
        }
    }

    /// Where each lies, in the order of their numbers.
    pub(super) fn ranges(&self) -> Vec<libc::iovec> {
        let (base, size) = self.arena.range();
        let piece = 1 << self.bits;
        (0..size)
            .step_by(piece)
            .map(|at| libc::iovec {
                iov_base: base.wrapping_add(at).cast(),
                iov_len: piece.min(size - at),
            })
            .collect()
    }

    /// The number of the piece that has all these bytes.
    pub(super) fn number_of(&self, pointer: *mut u8, len: usize) -> Option<u16> {
        let (base, size) = self.arena.range();
        let at = (pointer as usize).wrapping_sub(base as usize);
        if at >= size || len > size - at {
            return None;
        }
        let last = at + len.saturating_sub(1);
        (at >> self.bits == last >> self.bits).then_some((at >> self.bits) as u16)
    }
}

impl Entries {
    pub(super) fn new(slots: u32) -> Entries {
        Entries {
            moments: vec![Timespec::new(); slots as usize].into(),
            messages: Box::default(),
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
            Action::Truncate { len } => opcode::Ftruncate::new(fd, len).build(),
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
            Action::Receive { window, flags } => match window {
                Window::Flat { pointer, len } => opcode::Recv::new(fd, pointer, clamp(len)).flags(flags as i32).build(),
                Window::List { list, count } => {
                    let message = self.message(id, list, count);
                    opcode::RecvMsg::new(fd, message).flags(flags).build()
                }
            },
            Action::Send { window, flags } => match window {
                Window::Flat { pointer, len } => opcode::Send::new(fd, pointer, clamp(len)).flags(flags as i32).build(),
                Window::List { list, count } => {
                    let message = self.message(id, list, count);
                    opcode::SendMsg::new(fd, message).flags(flags).build()
                }
            },
        };
        let flags = if fixed {
            squeue::Flags::FIXED_FILE
        } else {
            squeue::Flags::empty()
        };
        Some(entry.flags(flags).user_data(id.to_bits()))
    }

    /// The kernel may still write messages.
    pub(super) fn leak_messages(&mut self) {
        std::mem::forget(std::mem::take(&mut self.messages));
    }

    /// The kernel reads it at submission, and writes what it has received beside the bytes when the request ends.
    fn message(&mut self, id: RequestId, list: *const libc::iovec, count: u32) -> *mut libc::msghdr {
        if self.messages.is_empty() {
            let none = || Message::of(std::ptr::null(), 0);
            self.messages = std::iter::repeat_with(none).take(self.moments.len()).collect();
        }
        let message = &mut self.messages[id.slot as usize];
        *message = Message::of(list, count);
        &raw mut message.0
    }

    /// Before Linux 6.13 memory that goes by a number keeps detached files open as a registered file does (registration.rs), and a stream,
    /// which has no offset, may let it wait for ever. Who takes lists (6.15) has no such order.
    fn number_at(&self, offset: u64, pointer: *mut u8, len: usize) -> Option<u16> {
        if offset == u64::MAX && !self.lists {
            return None;
        }
        self.number_of(pointer, len)
    }

    fn read(&self, fd: types::Fd, window: Window, offset: i64, flags: i32) -> squeue::Entry {
        let offset = offset as u64;
        match window {
            Window::Flat { pointer, len } => match self.number_at(offset, pointer, len) {
                Some(number) => opcode::ReadFixed::new(fd, pointer, clamp(len), number)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Read::new(fd, pointer, clamp(len))
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            },
            Window::List { list, count } => match self.number_of_list(list, count) {
                Some(number) => opcode::ReadvFixed::new(fd, list, count, number)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Readv::new(fd, list, count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            },
        }
    }

    fn write(&self, fd: types::Fd, window: Window, offset: i64, flags: i32) -> squeue::Entry {
        let offset = offset as u64;
        match window {
            Window::Flat { pointer, len } => match self.number_at(offset, pointer, len) {
                Some(number) => opcode::WriteFixed::new(fd, pointer, clamp(len), number)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Write::new(fd, pointer, clamp(len))
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            },
            Window::List { list, count } => match self.number_of_list(list, count) {
                Some(number) => opcode::WritevFixed::new(fd, list, count, number)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Writev::new(fd, list, count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            },
        }
    }

    fn number_of(&self, pointer: *mut u8, len: usize) -> Option<u16> {
        self.arena.as_ref()?.number_of(pointer, len)
    }

    /// The number of the piece that has all of a list.
    fn number_of_list(&self, list: *const libc::iovec, count: u32) -> Option<u16> {
        if !self.lists || count == 0 {
            return None;
        }
        // SAFETY: a window's list belongs to the request, which its slot holds, and nobody else looks at it now.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        let mut numbers = list
            .iter()
            .map(|part| self.number_of(part.iov_base.cast(), part.iov_len));
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    }
}

fn clamp(len: usize) -> u32 {
    len.min(TRANSFER_MAX) as u32
}
