//! What the peers of the three example programs have in common: the same work, and memory that is aligned for direct I/O.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Aligned, BLOCK};

/// Bytes of a read and of a write of the copy.
pub const CHUNK: usize = 256 << 10;
/// So many chunks are under way.
pub const DEPTH: usize = 32;
/// Durable writes, and the tasks that share them.
pub const WRITES: u64 = 10_000;
pub const WRITERS: u64 = 8;
/// Reads of the hot set, and the readers that share them.
pub const READS: u64 = 1_000_000;
pub const READERS: u64 = 8;

/// `copy FROM TO direct|kernel`, `durable FILE direct|kernel`, `hot-set FILE`. A runtime has one of the two where it has no choice.
pub struct Work {
    pub program: Program,
    pub direct: bool,
}

#[derive(Clone)]
pub enum Program {
    Copy { from: PathBuf, to: PathBuf },
    Durable { file: PathBuf },
    HotSet { file: PathBuf },
}

impl Work {
    pub fn from_arguments() -> Work {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (program, how) = match words[..] {
            ["copy", from, to, how] => {
                let (from, to) = (from.into(), to.into());
                (Program::Copy { from, to }, how)
            }
            ["durable", file, how] => (Program::Durable { file: file.into() }, how),
            ["hot-set", file] => (Program::HotSet { file: file.into() }, "kernel"),
            _ => panic!("usage: copy FROM TO direct|kernel, durable FILE direct|kernel, hot-set FILE"),
        };
        let direct = how == "direct";
        Work { program, direct }
    }

    /// Of `open`, beside those of reading and writing.
    pub fn flags(&self) -> i32 {
        if self.direct { libc::O_DIRECT } else { 0 }
    }

    pub fn to_read(&self, path: &Path) -> std::io::Result<std::fs::File> {
        std::fs::File::options()
            .read(true)
            .custom_flags(self.flags())
            .open(path)
    }

    /// The target of a copy: new, with room for all, so that direct writes do not wait for each other to lengthen it.
    pub fn to_fill(&self, path: &Path, bytes: u64) -> std::io::Result<std::fs::File> {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(self.flags())
            .open(path)?;
        if self.direct {
            // SAFETY: a call on an open descriptor.
            let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) } != 0;
            if failed {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(file)
    }

    /// Each write is durable when it ends (`O_DSYNC`).
    pub fn to_write_durably(&self, path: &Path) -> std::io::Result<std::fs::File> {
        std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(self.flags() | libc::O_DSYNC)
            .open(path)
    }
}

/// Hands out the chunks of a copy to the tasks of one thread.
pub struct Chunks {
    next: Cell<u64>,
    bytes: u64,
}

impl Chunks {
    /// # Panics
    /// The last chunk of what is measured is a whole one.
    pub fn of(bytes: u64) -> Chunks {
        assert!(bytes.is_multiple_of(CHUNK as u64), "no multiple of a chunk");
        let next = Cell::new(0);
        Chunks { next, bytes }
    }

    pub fn next(&self) -> Option<u64> {
        let at = self.next.get();
        self.next.set(at + CHUNK as u64);
        (at < self.bytes).then_some(at)
    }
}

/// The places that one reader of the hot set's example reads.
pub fn places(reader: u64, pages: u64) -> impl Iterator<Item = u64> {
    let mut random = reader;
    (0..READS / READERS).map(move |_| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let among = if random >> 60 > 0 { pages / 10 + 1 } else { pages };
        (random >> 20) % among.min(pages) * BLOCK as u64
    })
}

/// Aligned memory of one request, touched once.
pub struct Memory(Box<[Aligned]>);

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory((0..bytes / BLOCK).map(|_| Aligned([1; BLOCK])).collect())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: blocks of bytes, one behind the other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * BLOCK) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * BLOCK) }
    }
}
