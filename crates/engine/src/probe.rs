//! What a caching mode really is on a file: found by doing, because a file system may take `O_DIRECT` and go through its
//! page cache all the same (btrfs with checksums since Linux 6.14, tmpfs since 6.6).

#![allow(unsafe_code)]

use crate::error::Errno;
use crate::file::{File, Kind};
use crate::memory::{Mapping, Window};
use crate::policy::Caching;
use crate::sys::{self, Action, Fd, Iteration};

/// File systems that live in the page cache (`include/uapi/linux/magic.h`).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Places of a file that are looked at, as shares of its size.
const PLACES: u64 = 8;

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
        if self.kind() == Kind::Simulated {
            return Ok(mode);
        }
        if !self.gives(mode) {
            return Err(Errno::EINVAL);
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
        let flags = libc::RWF_DONTCACHE | libc::RWF_NOWAIT;
        match self.try_block(Caching::Uncached, 0, flags) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(Caching::Uncached),
            Err(errno) => Err(errno),
        }
    }

    /// A block that was not in the page cache and is there after a direct read of it has come through it.
    fn probe_direct(&self) -> Result<Caching, Errno> {
        if self.is_in_memory() {
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
            let is_cached = || match self.try_block(Caching::Kernel, at, libc::RWF_NOWAIT) {
                Ok(bytes) => Ok(bytes > 0),
                Err(Errno::EAGAIN) => Ok(false),
                Err(errno) => Err(errno),
            };
            if is_cached()? {
                continue;
            }
            self.try_block(Caching::Direct, at, 0)?;
            return Ok(if is_cached()? { Caching::Kernel } else { Caching::Direct });
        }
        Ok(Caching::Direct)
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        let kind = self.any_fd().and_then(|fd| Ok(rustix::fs::fstatfs(fd)?.f_type));
        kind.is_ok_and(|kind| IN_MEMORY.contains(&kind))
    }

    /// One blocking read of a block into memory that is thrown away.
    fn try_block(&self, mode: Caching, offset: u64, flags: i32) -> Result<i32, Errno> {
        let len = self.direct_limits().offset.max(4096) as usize;
        let scratch = Mapping::anonymous(len)?;
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
