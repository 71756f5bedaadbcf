//! What goes to the ring, and what the kernel does in the call; and the call that is made of what goes to the ring.
//!
//! A read of a file or a device goes to the ring: it may have to wait. So does what is asynchronous by nature: direct I/O, syncs, polls. A
//! buffered write is a copy; appends, pipes, sockets and the like have an order, and a way of their own to wait or not to wait. These the
//! kernel does, and it also says what is wrong with a request, in the order in which it looks. Direct appends that have no order go to the ring:
//! see [`keeps_order`].

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use baio_engine::Errno;
use baio_engine::shared::What;
use baio_shim::file::File;

use crate::abi::{FLAG_PRIORITY, Iocb, command};
use crate::cold::passed;
use crate::descriptor;

/// Most bytes that one call moves (`MAX_RW_COUNT`, include/linux/fs.h).
const TRANSFER_MAX: u64 = 0x7fff_f000;
/// `UIO_MAXIOV`.
const PARTS_MAX: u64 = 1024;

/// `RWF_*` that each kernel knows. Of a younger one the kernel itself says in the call whether it does: AIO refuses in `io_submit` what a
/// ring would refuse with an event.
const RWF_KNOWN: i32 = RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | RWF_APPEND;
/// Asks for a busy wait, which AIO never does: the kernel's forgets it too.
const RWF_HIPRI: i32 = 1;
const RWF_APPEND: i32 = 0x10;

/// Who does a request.
pub(crate) enum Route {
    /// The kernel, in the call.
    InCall,
    /// The ring; so is its file open.
    ToRing(i32),
}

/// What kind of file a number stood for when it was looked at last, and how it was open then: one word. Asking for the flags alone each
/// time is cheaper. A number that stands for another file by now, open the same way, goes the wrong way: it may wait where it would not,
/// and reads and writes the right file.
#[derive(Default)]
pub(crate) struct Kinds(AtomicU64);

/// In the word: it is a file with offsets, or a device of blocks; a directory; a pipe, a socket or an event fd and its like.
const HAS_OFFSETS: u64 = 1 << 31;
const DIRECTORY: u64 = 1 << 30;
const IS_POLLED: u64 = 1 << 29;
const KINDS: u64 = HAS_OFFSETS | DIRECTORY | IS_POLLED;

impl Kinds {
    pub(crate) fn route(&self, iocb: &Iocb) -> Route {
        let fd = iocb.fd as RawFd;
        let Ok(open) = descriptor::flags(fd) else {
            return Route::InCall;
        };
        let direct = open & libc::O_DIRECT != 0;
        let appends = open & libc::O_APPEND != 0 || iocb.rw_flags & RWF_APPEND != 0;
        let wanted = match iocb.opcode {
            command::PREAD | command::PREADV if direct || iocb.rw_flags & libc::RWF_NOWAIT == 0 => HAS_OFFSETS,
            // Of two appends the ring may have two workers, and the second may be the first to write.
            command::PWRITE | command::PWRITEV if direct && !(appends && keeps_order(iocb)) => HAS_OFFSETS,
            command::FSYNC | command::FDSYNC => HAS_OFFSETS | DIRECTORY,
            command::POLL => IS_POLLED,
            _ => 0,
        };
        match wanted != 0 && self.of(fd, open) & wanted != 0 {
            true => Route::ToRing(open),
            false => Route::InCall,
        }
    }

    fn of(&self, fd: RawFd, open: i32) -> u64 {
        let key = (fd as u64) << 32 | open as u64 & !KINDS & u64::from(u32::MAX);
        // Relaxed: one word.
        let known = self.0.load(Ordering::Relaxed);
        // Number 0, open for reading, is what an empty word says.
        if known & !KINDS == key && known != 0 {
            return known & KINDS;
        }
        let kind = match File::of(fd).map(File::kind) {
            Some(libc::S_IFREG | libc::S_IFBLK) => HAS_OFFSETS,
            Some(libc::S_IFDIR) => DIRECTORY,
            Some(libc::S_IFIFO | libc::S_IFSOCK | 0) => IS_POLLED,
            _ => 0,
        };
        self.0.store(key | kind, Ordering::Relaxed);
        kind
    }
}

/// Does the kernel's AIO write a direct append behind the one before it? Most file systems wait for it in the call (ext4, f2fs), or move the
/// file's end when it begins (btrfs). A device has no end to move. Of XFS whole blocks in flight at once all begin at the old end, and what is
/// not whole blocks is waited for: it goes by the numbers of the request, before it looks for the end (`xfs_file_dio_write`). Asked each time:
/// a number may be another file's by now.
fn keeps_order(iocb: &Iocb) -> bool {
    let fd = iocb.fd as RawFd;
    match File::of(fd).map(File::kind) {
        Some(libc::S_IFBLK) => false,
        Some(libc::S_IFREG) => !descriptor::block_of_xfs(fd).is_some_and(|block| is_of_blocks(iocb, block)),
        _ => true,
    }
}

/// Does one write move whole blocks, from memory that lies so too? Lists are not looked into.
fn is_of_blocks(iocb: &Iocb, block: u64) -> bool {
    let all = iocb.offset as u64 | iocb.bytes.min(TRANSFER_MAX) | iocb.buffer;
    iocb.opcode == command::PWRITE && all.checked_rem(block) == Some(0)
}

/// What is wrong with the numbers alone, before a place is looked for.
pub(crate) fn numbers(iocb: &Iocb) -> Result<(), Errno> {
    let fits = iocb.reserved == 0 && isize::try_from(iocb.bytes).is_ok();
    fits.then_some(()).ok_or(Errno::EINVAL)
}

/// Does it read or write?
fn is_transfer(iocb: &Iocb) -> bool {
    matches!(
        iocb.opcode,
        command::PREAD | command::PWRITE | command::PREADV | command::PWRITEV
    )
}

/// A request that was found good.
pub(crate) struct Checked {
    pub(crate) what: What,
    pub(crate) priority: u16,
    /// What `what` points at, if that is a list: the program's own may go when `io_submit` returns.
    pub(crate) list: Option<Box<[libc::iovec]>>,
}

/// What is wrong with the request on a file that is open so.
///
/// # Safety
/// A list that the request names can be read.
pub(crate) unsafe fn request(iocb: &Iocb, open: i32) -> Result<Checked, Errno> {
    match iocb.opcode {
        // SAFETY: the caller's promise.
        _ if is_transfer(iocb) => unsafe { transfer(iocb, open) },
        command::FSYNC | command::FDSYNC => {
            let plain = iocb.buffer == 0 && iocb.offset == 0 && iocb.bytes == 0 && iocb.rw_flags == 0;
            if !plain {
                return Err(Errno::EINVAL);
            }
            let data_only = iocb.opcode == command::FDSYNC;
            Ok(bare(What::Sync { data_only }))
        }
        command::POLL => {
            let plain = iocb.offset == 0 && iocb.bytes == 0 && iocb.rw_flags == 0;
            let events = u16::try_from(iocb.buffer).map_err(|_| Errno::EINVAL)?;
            if !plain {
                return Err(Errno::EINVAL);
            }
            let always = (libc::POLLERR | libc::POLLHUP) as u32;
            let events = u32::from(events) | always;
            Ok(bare(What::Poll { events }))
        }
        // NOOP among them: the kernel has none.
        _ => Err(Errno::EINVAL),
    }
}

fn bare(what: What) -> Checked {
    Checked {
        what,
        priority: 0,
        list: None,
    }
}

/// # Safety
/// As for [`request`].
unsafe fn transfer(iocb: &Iocb, open: i32) -> Result<Checked, Errno> {
    let reads = matches!(iocb.opcode, command::PREAD | command::PREADV);
    let priority = priority(iocb)?;
    if iocb.rw_flags & !RWF_KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let refused = if reads { libc::O_WRONLY } else { libc::O_RDONLY };
    if open & libc::O_ACCMODE == refused {
        return Err(Errno::EBADF);
    }
    let flags = iocb.rw_flags & !RWF_HIPRI;
    let vectored = matches!(iocb.opcode, command::PREADV | command::PWRITEV);
    // SAFETY: the caller's promise.
    let list: Box<[libc::iovec]> = if vectored { unsafe { list(iocb) }? } else { Box::new([]) };
    let bytes = match vectored {
        true => list
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(part.iov_len as u64)),
        false => iocb.bytes,
    };
    let bytes = bytes.min(TRANSFER_MAX);
    let Ok(offset) = u64::try_from(iocb.offset) else {
        return Err(Errno::EINVAL);
    };
    if offset + bytes > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let flat = match (vectored, &*list) {
        (false, _) => Some(std::ptr::with_exposed_provenance_mut::<u8>(iocb.buffer as usize)),
        // One part, or none, goes as if it were no list.
        (true, []) => Some(std::ptr::null_mut()),
        (true, [one]) => Some(one.iov_base.cast()),
        (true, _) => None,
    };
    let (len, count) = (bytes as u32, list.len() as u32);
    // An address of the kernel's is refused before all else.
    let of_kernel = |address: usize| (address as isize) < 0;
    if flat.is_some_and(|at| of_kernel(at.addr())) || list.iter().any(|part| of_kernel(part.iov_base.addr())) {
        return Err(Errno::EFAULT);
    }
    let what = match (flat, reads) {
        (Some(pointer), true) => What::Read {
            pointer,
            len,
            offset,
            flags,
        },
        (Some(pointer), false) => What::Write {
            pointer,
            len,
            offset,
            flags,
        },
        (None, true) => What::ReadList {
            list: list.as_ptr(),
            count,
            offset,
            flags,
        },
        (None, false) => What::WriteList {
            list: list.as_ptr(),
            count,
            offset,
            flags,
        },
    };
    Ok(Checked {
        what,
        priority,
        list: flat.is_none().then_some(list),
    })
}

/// A copy of the request's list.
///
/// # Safety
/// As for [`request`].
unsafe fn list(iocb: &Iocb) -> Result<Box<[libc::iovec]>, Errno> {
    if iocb.bytes > PARTS_MAX {
        return Err(Errno::EINVAL);
    }
    let count = iocb.bytes as usize;
    if count == 0 {
        return Ok(Box::new([]));
    }
    let first = std::ptr::with_exposed_provenance::<libc::iovec>(iocb.buffer as usize);
    if first.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: any bytes are a part of a list.
    let list: Box<[libc::iovec]> = unsafe { passed(first.expose_provenance(), count) }?.into();
    let bad = list.iter().any(|part| isize::try_from(part.iov_len).is_err());
    if bad { Err(Errno::EINVAL) } else { Ok(list) }
}

/// `ioprio_check_cap`, block/ioprio.c, as far as the number alone tells; whether the thread may have it, the kernel says in the event.
fn priority(iocb: &Iocb) -> Result<u16, Errno> {
    if iocb.flags & FLAG_PRIORITY == 0 {
        return Ok(0);
    }
    let priority = iocb.priority as u16;
    let (class, level) = (priority >> 13, priority & 7);
    if class > 3 || class == 0 && level != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(priority)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

    use super::*;

    /// Of no whole block.
    fn write(fd: RawFd, opcode: u16, rw_flags: i32) -> Iocb {
        Iocb {
            data: 0,
            key: 0,
            rw_flags,
            opcode,
            priority: 0,
            fd: fd as u32,
            buffer: 512,
            bytes: 512,
            offset: 512,
            reserved: 0,
            flags: 0,
            event_fd: 0,
        }
    }

    fn goes_to_ring(iocb: &Iocb) -> bool {
        matches!(Kinds::default().route(iocb), Route::ToRing(_))
    }

    #[test]
    fn direct_appends_keep_their_order_in_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let open = |flags: i32| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options
                .custom_flags(libc::O_DIRECT | flags)
                .open(dir.path().join("log"))
        };
        let (Ok(plain), Ok(appending)) = (open(0), open(libc::O_APPEND)) else {
            eprintln!("SKIPPED: check: needs a file system with direct I/O");
            return;
        };
        let (plain, appending) = (plain.as_raw_fd(), appending.as_raw_fd());
        for opcode in [command::PWRITE, command::PWRITEV] {
            assert!(goes_to_ring(&write(plain, opcode, 0)));
            assert!(!goes_to_ring(&write(plain, opcode, RWF_APPEND | libc::RWF_DSYNC)));
        }
        assert!(!goes_to_ring(&write(appending, command::PWRITEV, 0)));
        // Of whole blocks: on XFS alone they have no order to keep.
        let mut blocks = write(appending, command::PWRITE, 0);
        (blocks.buffer, blocks.bytes, blocks.offset) = (1 << 16, 1 << 16, 1 << 16);
        assert_eq!(goes_to_ring(&blocks), descriptor::block_of_xfs(appending).is_some());
    }

    #[test]
    fn whole_blocks_lie_so_in_the_file_and_in_memory() {
        let mut iocb = write(0, command::PWRITE, 0);
        assert!(is_of_blocks(&iocb, 512) && !is_of_blocks(&iocb, 4096) && !is_of_blocks(&iocb, 0));
        (iocb.buffer, iocb.bytes, iocb.offset) = (8192, 4096, 0);
        assert!(is_of_blocks(&iocb, 4096));
        let changes: [fn(&mut Iocb); 4] = [
            |it| it.buffer += 512,
            |it| it.bytes += 512,
            |it| it.offset += 512,
            |it| it.opcode = command::PWRITEV,
        ];
        for change in changes {
            let mut other = write(0, command::PWRITE, 0);
            (other.buffer, other.bytes, other.offset) = (8192, 4096, 0);
            change(&mut other);
            assert!(!is_of_blocks(&other, 4096));
        }
    }

    #[test]
    fn a_device_has_no_end_to_append_at() {
        let all = std::fs::read_dir("/dev").unwrap().flatten();
        let devices = all.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
        let mut open = devices.filter_map(|entry| {
            let mut options = OpenOptions::new();
            let flags = libc::O_DIRECT | libc::O_APPEND | libc::O_NONBLOCK;
            options.read(true).custom_flags(flags).open(entry.path()).ok()
        });
        match open.next() {
            Some(device) => assert!(goes_to_ring(&write(device.as_raw_fd(), command::PWRITE, 0))),
            None => eprintln!("SKIPPED: check: needs a block device that may be read"),
        }
    }
}
