//! What is wrong with a request before the kernel sees it, and the call that is made of a good one.
//!
//! glibc finds nearly everything in its threads, so that `aio_read` succeeds and `aio_error` tells. So do we: the kernel says it. Only what
//! io_uring takes another way is asked first: it would take an offset of -1 for the file's own, and its lengths have 32 bits.

#![allow(unsafe_code)]

use std::io::IoSliceMut;
use std::os::fd::RawFd;

use baio_engine::Errno;
use baio_engine::shared::What;
use baio_process::descriptor;
use baio_process::kernel::{self, Feature};
use baio_shim::file::File;
use rustix::fs::MemfdFlags;
use rustix::io::ReadWriteFlags;

use crate::abi::{Aiocb, operation};

/// `AIO_PRIO_DELTA_MAX`.
const PRIORITY_MAX: i32 = 20;
/// Most bytes that one call moves (`MAX_RW_COUNT`, include/linux/fs.h).
const TRANSFER_MAX: usize = 0x7fff_f000;
/// No memory is so long: most kernels refuse a call with it before they move anything. Those that look only whether the addresses are the
/// program's (x86-64, Linux 6.4 to 6.11) move what there is.
const MEMORY_MAX: usize = 1 << 47;
/// `RWF_NOSIGNAL`, include/uapi/linux/fs.h: who writes to a pipe without a reader gets no SIGPIPE. glibc's threads have it blocked.
const NO_SIGNAL: i32 = 0x100;

pub(crate) enum Checked {
    Good(What),
    /// It has ended already: a count, or a negated error number.
    Ended(i32),
}

fn failed(errno: Errno) -> Checked {
    Checked::Ended(-errno.raw())
}

/// The only thing that `aio_read` and `aio_write` refuse themselves; a sync has no priority.
///
/// # Safety
/// It is a request, and nobody else has it.
pub(crate) unsafe fn priority(object: *mut Aiocb, opcode: i32) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let priority = unsafe { (*object).priority };
    if matches!(opcode, operation::SYNC | operation::DATA_SYNC) {
        // SAFETY: the caller's promise.
        unsafe { (*object).priority = 0 };
    } else if !(0..=PRIORITY_MAX).contains(&priority) {
        // SAFETY: the caller's promise.
        unsafe { Aiocb::end(object, -Errno::EINVAL.raw()) };
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// # Safety
/// It is a request, whose bytes may be used.
pub(crate) unsafe fn request(object: *const Aiocb, opcode: i32) -> Checked {
    let writes = match opcode {
        operation::SYNC => return Checked::Good(What::Sync { data_only: false }),
        operation::DATA_SYNC => return Checked::Good(What::Sync { data_only: true }),
        _ => match opcode & operation::BITS {
            operation::READ => false,
            operation::WRITE => true,
            _ => return failed(Errno::EINVAL),
        },
    };
    // SAFETY: the caller's promise.
    let (fd, buffer, bytes, offset) = unsafe { ((*object).fd, (*object).buffer, (*object).bytes, (*object).offset) };
    let end = i64::try_from(bytes).ok().and_then(|bytes| offset.checked_add(bytes));
    if offset < 0 || bytes >= MEMORY_MAX || end.is_none() {
        // SAFETY: the caller's promise.
        return Checked::Ended(unsafe { asked(fd, buffer, bytes, offset, writes) });
    }
    // io_uring reads nothing of a directory with success.
    // SAFETY: no byte is asked for.
    if bytes == 0 && !writes && unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, bytes, offset) } < 0 {
        match Errno::last() {
            Errno::ESPIPE => {}
            errno => return failed(errno),
        }
    }
    let len = bytes.min(TRANSFER_MAX) as u32;
    let offset = offset as u64;
    Checked::Good(if writes {
        What::Write {
            pointer: buffer,
            len,
            offset,
            flags: 0,
        }
    } else {
        What::Read {
            pointer: buffer,
            len,
            offset,
            flags: 0,
        }
    })
}

/// Does this kernel know how to write without SIGPIPE? It knows the flag for all files or for none, and for reads too (`kiocb_set_rw_flags`,
/// include/linux/fs.h). So this reads: a write might meet a limit of file sizes, and raise SIGXFSZ.
pub(crate) fn knows_no_signal() -> bool {
    kernel::tried(Feature::NoSignal, || {
        let Ok(memory) = descriptor::memory("baio", MemfdFlags::empty()) else {
            return false;
        };
        let flags = ReadWriteFlags::from_bits_retain(NO_SIGNAL as u32);
        rustix::io::preadv2(memory, &mut [IoSliceMut::new(&mut [0])], 0, flags).is_ok()
    })
}

/// The call as this file takes it. Only a stream can raise SIGPIPE. A socket has no offset, and glibc ignores what the request says: the kernel
/// would refuse it, and by the next try the number may be another file's. One that waits for others keeps its offset: by then, too.
pub(crate) fn on_its_file(mut what: What, file: Option<File>, knows_no_signal: bool, waits: bool) -> What {
    let Some(file) = file else { return what };
    if let What::Read { offset, .. } | What::Write { offset, .. } = &mut what {
        if file.kind() == libc::S_IFSOCK && !waits {
            *offset = 0;
        }
    }
    if let What::Write { flags, .. } = &mut what {
        if knows_no_signal && file.is_stream() {
            *flags = NO_SIGNAL;
        }
    }
    what
}

/// What the system says of a call that is not for io_uring: what is wrong with it, or, seldom, how much it has moved.
///
/// # Safety
/// As for [`request`].
unsafe fn asked(fd: RawFd, buffer: *mut u8, bytes: usize, offset: i64, writes: bool) -> i32 {
    // By `syscall`: a thread can be cancelled in libc's own functions.
    // SAFETY: the kernel checks the numbers, and the memory is the program's word.
    let told = unsafe {
        match writes {
            true => libc::syscall(libc::SYS_pwrite64, fd, buffer, bytes, offset),
            false => libc::syscall(libc::SYS_pread64, fd, buffer, bytes, offset),
        }
    };
    match told {
        // One call moves fewer bytes than 31 bits count.
        0.. => told as i32,
        _ => match Errno::last() {
            // What cannot be seeked has no offset, and no room for so many bytes either.
            Errno::ESPIPE => -Errno::EFAULT.raw(),
            errno => -errno.raw(),
        },
    }
}

/// Must requests of this descriptor go one after the other? Those of what cannot be seeked must, and writes with `O_APPEND`.
pub(crate) fn is_ordered(fd: RawFd, writes: bool) -> bool {
    // SAFETY: neither call touches memory.
    unsafe {
        libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) < 0
            || writes && {
                let flags = libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL);
                flags >= 0 && flags & libc::c_long::from(libc::O_APPEND) != 0
            }
    }
}

/// Is it a descriptor at all?
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: it touches no memory.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) >= 0 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The offset and the flags of a write at 7.
    fn written(fd: RawFd, knows_no_signal: bool) -> (u64, i32) {
        // SAFETY: zeros are a request.
        let mut one: Aiocb = unsafe { std::mem::zeroed() };
        let mut byte = 0_u8;
        (one.fd, one.buffer, one.bytes, one.offset) = (fd, &raw mut byte, 1, 7);
        // SAFETY: it is a request, and its byte is here.
        let Checked::Good(what) = (unsafe { request(&raw const one, operation::WRITE) }) else {
            panic!("it is good");
        };
        match on_its_file(what, File::of(fd), knows_no_signal, false) {
            What::Write { offset, flags, .. } => (offset, flags),
            other => panic!("{other:?}"),
        }
    }

    /// A kernel that does not know the flag refuses the write, and by the next try the program may have closed the file.
    #[test]
    fn only_a_stream_is_written_with_a_flag() {
        let regular = tempfile::tempfile().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let (_end, pipe) = rustix::pipe::pipe().unwrap();
        assert_eq!(written(regular.as_raw_fd(), true), (7, 0));
        assert_eq!(written(socket.as_raw_fd(), true), (0, NO_SIGNAL));
        assert_eq!(written(pipe.as_raw_fd(), true), (7, NO_SIGNAL));
        for stream in [socket.as_raw_fd(), pipe.as_raw_fd()] {
            assert_eq!(written(stream, false).1, 0);
        }
    }

    /// As a kernel moves them that does not refuse the length.
    #[test]
    fn bytes_that_were_moved_are_told() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let mut bytes = *b"moved";
        // SAFETY: the bytes are here.
        assert_eq!(unsafe { asked(fd, bytes.as_mut_ptr(), 5, 0, true) }, 5);
        // SAFETY: as above.
        assert_eq!(unsafe { asked(fd, bytes.as_mut_ptr(), 5, 2, false) }, 3);
        assert_eq!(&bytes, b"veded");
        // SAFETY: as above.
        let told = unsafe { asked(fd, bytes.as_mut_ptr(), 5, -1, true) };
        assert_eq!(told, -Errno::EINVAL.raw());
    }

    #[test]
    fn a_kernel_that_knows_the_flag_is_found_to() {
        let release = rustix::system::uname().release().to_str().unwrap().to_owned();
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let takes_it = version >= (6, 18) && !kernel::is_taken_away(Feature::NoSignal);
        assert_eq!(knows_no_signal(), takes_it, "{release}");
    }
}
