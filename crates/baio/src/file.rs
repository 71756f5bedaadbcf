//! A plain file or device, without a volume.

use std::fmt;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;

use baio_broker::control::{Call, Reply};
use baio_engine::{Caching, Create, Descriptions, Open};
use baio_storage::{Access, Error, Handle, Mode, Result, SegmentOp};

use crate::opened::Opened;
use crate::operation::Operation;
use crate::request::Request;
use crate::transport::{Notice, Transport};

/// An open file or device. Its requests are those of [`Opened`], of any size, any number in flight. A request that names no mode has
/// the one that the file was opened for.
///
/// ```
/// use baio::{Durability, File, Link, Local};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("baio-file-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("notes");
/// let link = Local::new()?;
/// link.block_on(async {
///     let file = File::options().write().create().open(&link, &path).await?;
///     file.write_all_at(0, b"hello".to_vec()).durable(Durability::Data).await?;
///     let read = file.read_at(0, vec![0; 10]).await?;
///     assert_eq!(&read.buffer[..read.bytes], b"hello");
///     baio::Result::Ok(())
/// })??;
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// ```
pub struct File<L: Transport> {
    opened: Opened<L>,
}

impl<L: Transport> Clone for File<L> {
    fn clone(&self) -> File<L> {
        File {
            opened: self.opened.clone(),
        }
    }
}

impl<L: Transport> fmt::Debug for File<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.opened.name())
    }
}

impl<L: Transport> Deref for File<L> {
    type Target = Opened<L>;

    fn deref(&self) -> &Opened<L> {
        &self.opened
    }
}

impl<L: Transport> File<L> {
    pub(crate) fn new(link: &L, handle: Handle, name: String, mode: Mode) -> File<L> {
        File {
            opened: Opened::new(link, handle, name, mode),
        }
    }

    /// Opens a file to read, through the kernel's page cache.
    pub fn open(link: &L, path: impl AsRef<Path>) -> Operation<L, File<L>> {
        OpenOptions::new().open(link, path)
    }

    /// Sets the length of the file. Bytes beyond it are lost; new bytes read as zeros. A device refuses it.
    pub fn truncate(&self, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Truncate { len }, ())
    }

    /// Reserves space for these bytes, so that a later write there needs none. No byte changes; a file that ended before becomes longer.
    /// Fails with `EOPNOTSUPP` on a file system that cannot reserve space (exfat, ext2, 9p, NFS before 4.2). There [`File::truncate`] makes the
    /// file as long, and only what is written has space.
    pub fn allocate(&self, offset: u64, len: u64) -> Request<L, ()> {
        self.request_of(SegmentOp::Allocate { offset, len }, ())
    }

    /// Takes a file that is open already. Its mode is direct if it was opened with `O_DIRECT`, else the kernel's cache.
    ///
    /// # Errors
    /// The error of `fcntl` or `fstat`; `EINVAL` if the descriptor has `O_APPEND` and is to be written to: the kernel would put every write at the
    /// end.
    pub fn from_std(link: &L, file: std::fs::File, access: Access) -> Result<Operation<L, File<L>>> {
        let name = format!("fd {}", file.as_raw_fd());
        let fail = |error| Error::new("open", &name, error);
        let file = baio_engine::File::from_fd(file.into(), &name).map_err(fail)?;
        if access == Access::Write {
            file.must_not_append().map_err(fail)?;
        }
        Ok(File::from_engine(link, file, access))
    }

    /// Takes a file that was opened for the engine, in one description or both.
    #[doc(hidden)]
    pub fn from_engine(link: &L, file: baio_engine::File, access: Access) -> Operation<L, File<L>> {
        let name = file.name().to_owned();
        let mode = match file.gives(Caching::Direct) {
            true => Mode::Direct,
            false => Mode::Kernel,
        };
        let call = Call::AddFile { file, access };
        Operation::new(link, call, move |link, reply| match reply {
            Reply::OpenedFile(handle) => {
                link.tell_link(Notice::Named(handle, name.clone()));
                Some(File::new(link, handle, name, mode))
            }
            _ => None,
        })
    }

    /// The same file, with another mode for requests that do not say one. It must have been opened for that mode too
    /// ([`OpenOptions::every_mode`]).
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> File<L> {
        self.opened.set_mode(mode);
        self
    }
}

impl File<crate::Local> {
    /// Options for opening a file, on any link. The defaults: to read, through the kernel's page cache.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

/// How a file is opened.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct OpenOptions {
    open: Open,
    mode: Mode,
    every_mode: bool,
    truncate: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// To read, through the kernel's page cache; it must exist.
    pub fn new() -> OpenOptions {
        OpenOptions {
            open: Open::read(),
            mode: Mode::Kernel,
            every_mode: false,
            truncate: false,
        }
    }

    /// Opens it for writing as well as for reading.
    pub fn write(mut self) -> OpenOptions {
        self.open.write = true;
        self
    }

    /// Makes the file if it is missing, with mode 0666 less the umask.
    pub fn create(mut self) -> OpenOptions {
        self.open.create = Create::IfMissing;
        self
    }

    /// Makes the file; fails if it exists.
    pub fn create_new(mut self) -> OpenOptions {
        self.open.create = Create::New;
        self
    }

    /// Truncates the file to 0 bytes when it is opened.
    pub fn truncate(mut self) -> OpenOptions {
        self.truncate = true;
        self
    }

    /// Past the kernel's page cache (`O_DIRECT`): offset, length and memory of each request are aligned to what the device needs.
    pub fn direct(self) -> OpenOptions {
        self.mode(Mode::Direct)
    }

    /// Through baio's page cache, which the link must have ([`LinkOptions::cache`](crate::LinkOptions::cache)). Writes are safe after a sync, or after
    /// [`Link::close`](crate::Link::close): a link that is dropped without it loses what it had not written back.
    ///
    /// Let one link at a time do this. Another link with a cache, here or in another process, and other programs that write the file, do not see
    /// changes made here. Whoever writes a page last undoes what the others wrote to that page, even durably. No error says so.
    pub fn cached(self) -> OpenOptions {
        self.mode(Mode::Cached)
    }

    /// The mode of requests that do not say one.
    pub fn mode(mut self, mode: Mode) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// Allows requests in other modes too. This takes two descriptors instead of one.
    pub fn every_mode(mut self) -> OpenOptions {
        self.every_mode = true;
        self
    }

    /// On a block device: fails with `EBUSY` if it is mounted or in use.
    pub fn claim_device(mut self) -> OpenOptions {
        self.open.claim_device = true;
        self
    }

    /// Opens the file on a link, with the rights of the process that drives the link.
    ///
    /// The future fails with the system's error, the path and the cure.
    pub fn open<L: Transport>(&self, link: &L, path: impl AsRef<Path>) -> Operation<L, File<L>> {
        let path = path.as_ref().to_owned();
        let (mode, name) = (self.mode, baio_engine::path_name(&path));
        let descriptions = match mode {
            _ if self.every_mode => Descriptions::Both,
            Mode::Direct => Descriptions::Only(Caching::Direct),
            Mode::Kernel | Mode::Uncached => Descriptions::Only(Caching::Kernel),
            Mode::Cached => Descriptions::Both,
        };
        let options = Open {
            descriptions,
            ..self.open
        };
        let call = Call::OpenFile {
            path,
            options,
            truncate: self.truncate,
        };
        Operation::new(link, call, move |link, reply| match reply {
            Reply::OpenedFile(handle) => {
                link.tell_link(Notice::Named(handle, name.clone()));
                Some(File::new(link, handle, name, mode))
            }
            _ => None,
        })
    }
}
