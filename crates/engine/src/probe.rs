//! Finds out what a caching mode really does on a file, by trying it: a file system may accept `O_DIRECT` and still go through its
//! page cache (btrfs with checksums since Linux 6.14, tmpfs since 6.6, ext4 where it journals data).

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use baio_process::descriptor;
use baio_process::kernel::{self, Feature};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::device::Kind;
use crate::durable::{EXT, HUGETLBFS, IN_MEMORY};
use crate::error::Errno;
use crate::file::File;
use crate::memory::{Mapping, Window};
use crate::policy::Caching;
use crate::sys::{self, Action, Fd, Iteration};

/// Tries what no engine has to try before it is asked for it, and what needs no file of anybody's: [`kernel::lacking`] knows more then.
pub fn try_the_kernel() {
    sys::knows_the_end();
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    if let Ok((one, _other)) = descriptor::socket_pair(unix, stream, SocketFlags::empty(), None) {
        let quiet = sys::as_streams_know_it(libc::RWF_NOWAIT);
        let told = File::from_fd(one, "a socket").map(|socket| socket.try_block(Caching::Kernel, u64::MAX, quiet));
        kernel::has(Feature::NowaitStreams, !matches!(told, Ok(Err(Errno::EOPNOTSUPP))));
    }
    if let Ok(memory) = descriptor::memory(c"baio", MemfdFlags::empty()) {
        let _ = File::from_fd(memory, "memory").map(|memory| memory.is_cached(0, 1));
    }
}

/// The number of cachestat(2): the same on every architecture that Rust runs on.
const CACHESTAT: libc::c_long = 451;

/// Places of a file that are looked at, as shares of its size.
const PLACES: u64 = 8;

/// File systems that know of each file whether there is direct I/O on it, and tell by alignments of 0 that there is none: they take
/// `O_DIRECT` all the same. ext4 does so where it journals data, encrypts, or keeps the bytes in the inode; f2fs likewise.
const TELL_BY_ZERO: [i64; 2] = [EXT, 0xf2f5_2010];

impl File {
    /// Which way a request of this mode really goes: `Direct` may turn out to be `Kernel`. Reads up to eight blocks, waiting for the
    /// device, and writes nothing; what it finds is told by later completions ([`Completion::took`](crate::Completion::took)).
    ///
    /// A file whose blocks are all in the page cache already, or that is empty, tells nothing: then the answer is the mode asked
    /// for.
    ///
    /// # Errors
    /// `EINVAL` when the file was not opened for the mode, `EOPNOTSUPP` when its file system does not know it, else what the
    /// read said.
    pub fn probe(&self, mode: Caching) -> Result<Caching, Errno> {
        if !self.gives(mode) {
            return Err(Errno::EINVAL);
        }
        if self.kind() == Kind::Foreign {
            return Ok(mode);
        }
        match mode {
            Caching::Kernel => Ok(Caching::Kernel),
            Caching::Uncached => self.probe_uncached(),
            Caching::Direct => {
                let found = self.probe_direct()?;
                self.set_direct_is(found);
                Ok(found)
            }
        }
    }

    /// The flag is refused before anything is read.
    fn probe_uncached(&self) -> Result<Caching, Errno> {
        if !kernel::has(Feature::Uncached, true) {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = libc::RWF_DONTCACHE | libc::RWF_NOWAIT;
        match self.try_block(Caching::Uncached, 0, flags) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(Caching::Uncached),
            Err(errno) => Err(errno),
        }
    }

    /// A block that was not in the page cache and is there after a direct read of it has come through it.
    fn probe_direct(&self) -> Result<Caching, Errno> {
        if self.is_in_memory() || self.is_told_to_be_cached() {
            return Ok(Caching::Kernel);
        }
        if !self.gives(Caching::Kernel) {
            return Ok(Caching::Direct);
        }
        let block = u64::from(self.direct_limits().offset.max(4096));
        let blocks = self.size()? / block;
        let places = PLACES.min(blocks);
        for place in 0..places {
            let at = blocks / places * place * block;
            let before = self.is_cached(at, block);
            if before == Ok(true) {
                continue;
            }
            self.try_block(Caching::Direct, at, 0)?;
            match (before, self.is_cached(at, block)) {
                (Ok(false), Ok(true)) => return Ok(Caching::Kernel),
                (_, Ok(false)) => return Ok(Caching::Direct),
                // Only the owner and who may write are told (since Linux 6.14), and older kernels do not know the question.
                _ if self.is_missed(at)? => return Ok(Caching::Direct),
                _ => {}
            }
        }
        Ok(Caching::Direct)
    }

    /// Is any of this range in the page cache? Asked by cachestat(2), Linux 6.5. A read with `RWF_NOWAIT` must not be the
    /// question before a trial: it begins to read ahead what it does not find, and so answers itself.
    fn is_cached(&self, offset: u64, len: u64) -> Result<bool, Errno> {
        let fd = self.raw_fd(Caching::Kernel).ok_or(Errno::EINVAL)?;
        if !kernel::has(Feature::Cachestat, true) {
            return Err(Errno::ENOSYS);
        }
        let range = [offset, len];
        // Pages cached, dirty, under write-back, evicted, recently evicted.
        let mut counts = [0_u64; 5];
        // SAFETY: the arguments have the layout of `struct cachestat_range` and `struct cachestat`, which hold nothing but
        // these 64-bit numbers, and outlive the call.
        let failed = unsafe { libc::syscall(CACHESTAT, fd, range.as_ptr(), counts.as_mut_ptr(), 0_u32) } != 0;
        if failed {
            let errno = Errno::last();
            kernel::has(Feature::Cachestat, errno != Errno::ENOSYS);
            return Err(errno);
        }
        Ok(counts[0] > 0)
    }

    /// Does a cached read without waiting find nothing? Good after a trial only. Where the file system does not know such a read, nothing
    /// is told.
    fn is_missed(&self, offset: u64) -> Result<bool, Errno> {
        match self.try_block(Caching::Kernel, offset, libc::RWF_NOWAIT) {
            Ok(_) | Err(Errno::EOPNOTSUPP) => Ok(false),
            Err(Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Does its file system say that direct requests go through the page cache?
    fn is_told_to_be_cached(&self) -> bool {
        let tells = self.file_system().is_some_and(|kind| TELL_BY_ZERO.contains(&kind));
        let Some(fd) = self
            .raw_fd(Caching::Direct)
            .filter(|_| tells && self.kind() == Kind::Regular)
        else {
            return false;
        };
        // SAFETY: the file keeps its descriptor open as long as it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        kernel::direct_alignment(fd).is_some_and(|told| told.offset == 0)
    }

    /// Is it nothing but memory? The node of a device may lie there (devtmpfs), and the device does not.
    pub(crate) fn is_in_memory(&self) -> bool {
        let kept_in = |kind: i64| IN_MEMORY.contains(&kind);
        self.kind() == Kind::Regular && self.file_system().is_some_and(kept_in)
    }

    /// Is a cached read of it a copy, with nothing but memory behind it?
    pub(crate) fn reads_are_copies(&self) -> bool {
        self.is_in_memory() || self.kind() == Kind::Regular && self.file_system() == Some(HUGETLBFS)
    }

    /// One blocking read of a block into memory that is thrown away.
    fn try_block(&self, mode: Caching, offset: u64, flags: i32) -> Result<i32, Errno> {
        let len = self.direct_limits().offset.max(4096) as usize;
        let scratch = Mapping::anonymous(len)?;
        // btrfs reads through its cache into memory that nobody has touched yet, and directly into all other.
        // SAFETY: the mapping is this function's own, and `len` bytes long.
        unsafe { scratch.at(0).write_bytes(1, len) };
        let window = Window::Flat {
            pointer: scratch.at(0),
            len,
        };
        let iteration = Iteration {
            action: Action::Read {
                window,
                offset: offset as i64,
            },
            fd: self.raw_fd(mode).map_or(Fd::None, Fd::Raw),
            flags,
        };
        // SAFETY: the scratch memory is this function's own and outlives the call.
        match unsafe { sys::execute(&iteration) } {
            raw @ 0.. => Ok(raw),
            raw => Err(Errno::from_raw(-raw)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;
    use crate::file::Open;

    /// Its node may lie on devtmpfs, which calls itself a tmpfs.
    #[test]
    fn a_block_device_is_not_in_memory_for_its_nodes_sake() {
        let nodes = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let devices: Vec<File> = nodes
            .filter(|node| node.file_type().is_ok_and(|kind| kind.is_block_device()))
            .filter_map(|node| File::open(&node.path(), &Open::read()).ok())
            .collect();
        if devices.is_empty() {
            eprintln!("skipped: no block device to open");
        }
        for device in devices {
            assert_eq!(device.really(Caching::Direct), Caching::Direct, "{device:?}");
        }
    }
}
