//! What a case gets: a directory, links, files with known bytes.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;

use baio::{Backend, Buffer, EngineOptions, File, Link, LinkOptions, Local, Mode, OpenOptions, Remote, Result};

/// Bytes of a page, and what direct requests are aligned to everywhere.
pub(crate) const PAGE: usize = 4096;

/// Slots of a link, unless a case says otherwise.
pub(crate) const SLOTS: u32 = 64;

/// Bytes of a link's arena, without its cache.
pub(crate) const ARENA: usize = 8 << 20;

/// A link that the cases run over.
pub(crate) trait Made: Link {
    const NAME: &'static str;

    fn made(options: &LinkOptions) -> Result<Self>;
}

impl Made for Local {
    const NAME: &'static str = "local";

    fn made(options: &LinkOptions) -> Result<Local> {
        Local::new_with(options)
    }
}

impl Made for Remote {
    const NAME: &'static str = "remote";

    fn made(options: &LinkOptions) -> Result<Remote> {
        Remote::new_with(options)
    }
}

/// Why a case did not run to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This machine cannot show it.
    Skipped(String),
}

/// The outcome of a case; what is wrong panics.
pub(crate) type Case = std::result::Result<(), Stop>;

pub(crate) fn skip<T>(why: impl Into<String>) -> std::result::Result<T, Stop> {
    Err(Stop::Skipped(why.into()))
}

/// One case on one backend.
pub(crate) struct Bench<L> {
    pub(crate) backend: Backend,
    dir: tempfile::TempDir,
    link: PhantomData<fn() -> L>,
}

impl<L: Made> Bench<L> {
    pub(crate) fn new(backend: Backend, case: &str) -> Bench<L> {
        // Under the target directory: /tmp is often a tmpfs, which may have no direct I/O.
        let mut named = tempfile::Builder::new();
        let prefix = format!("{}-", case.replace("::", "-"));
        let dir = named.prefix(&prefix).tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Bench {
            backend,
            dir,
            link: PhantomData,
        }
    }

    pub(crate) fn options(&self) -> LinkOptions {
        LinkOptions {
            engine: EngineOptions {
                backend: self.backend,
                slots: SLOTS,
                arena_bytes: ARENA,
                ..EngineOptions::default()
            },
            ..LinkOptions::default()
        }
        .with_cache(1 << 20)
    }

    /// `Err` with the reason when the backend does not start here.
    pub(crate) fn starts(&self) -> Result<()> {
        L::made(&self.options()).map(drop)
    }

    pub(crate) fn link(&self) -> L {
        self.link_with(&self.options())
    }

    pub(crate) fn link_of_slots(&self, slots: u32) -> L {
        let mut options = self.options();
        options.engine.slots = slots;
        self.link_with(&options)
    }

    /// AIO events and locked memory are the whole machine's, and another test may have them for a moment.
    pub(crate) fn link_with(&self, options: &LinkOptions) -> L {
        for _ in 0..1000 {
            match L::made(options) {
                Err(error) if matches!(error.code(), "EAGAIN" | "ENOMEM") => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                other => return other.unwrap(),
            }
        }
        L::made(options).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of so many bytes ([`bytes`]), which the disk has.
    pub(crate) fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes(len)).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    /// May files here be opened for this mode?
    pub(crate) fn gives(&self, mode: Mode) -> Case {
        if mode != Mode::Direct {
            return Ok(());
        }
        let path = self.path("direct");
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let mut options = std::fs::OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags)
            .open(path);
        match opened {
            Ok(_) => Ok(()),
            Err(error) => skip(format!("the file system has no direct I/O: {error}")),
        }
    }
}

/// Bytes of which no two pages are alike.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at / PAGE) as u8 ^ 0x5a)
        .collect()
}

pub(crate) fn open<L: Link>(link: &L, path: &Path, mode: Mode) -> File<L> {
    try_open(link, path, mode).unwrap()
}

pub(crate) fn try_open<L: Link>(link: &L, path: &Path, mode: Mode) -> Result<File<L>> {
    OpenOptions::new().write().mode(mode).open(link, path).wait()
}

/// A buffer with these bytes.
pub(crate) fn buffer<L: Link>(link: &L, bytes: &[u8]) -> Buffer {
    let mut buffer = link.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

/// What there is to read of `len` bytes at `offset`.
pub(crate) fn read<L: Link>(file: &File<L>, offset: u64, len: usize) -> Vec<u8> {
    try_read(file, offset, len).unwrap()
}

pub(crate) fn try_read<L: Link>(file: &File<L>, offset: u64, len: usize) -> Result<Vec<u8>> {
    let done = file.read_at(offset, buffer(file.link(), &vec![0xee; len])).wait()?;
    Ok(done.buffer[..done.bytes].to_vec())
}

pub(crate) fn write<L: Link>(file: &File<L>, offset: u64, bytes: &[u8]) {
    assert_eq!(try_write(file, offset, bytes).unwrap(), bytes.len());
}

pub(crate) fn try_write<L: Link>(file: &File<L>, offset: u64, bytes: &[u8]) -> Result<usize> {
    let done = file.write_at(offset, buffer(file.link(), bytes)).wait()?;
    assert_eq!(&done.buffer[..], bytes, "the buffer as it went in");
    Ok(done.bytes)
}

pub(crate) fn size<L: Link>(file: &File<L>) -> u64 {
    file.size().wait().unwrap()
}

/// Polls once; the output if that was enough.
pub(crate) async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
