//! Opening a file of this kernel: by its path, with one description or both, or by a descriptor that somebody else opened.

use std::fmt::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::File;
use super::inode::{Inode, identity_of, kind_of};
use super::made::Made;
use crate::device::Kind;
use crate::error::{Errno, SetupError};
use crate::policy::Caching;

/// Which descriptions a file is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptions {
    /// A kernel-cached one, and a direct one where the file system gives it.
    Both,
    /// Exactly the one for this mode.
    Only(Caching),
}

/// What to do about a file that is missing, or there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    Never,
    /// Made when missing.
    IfMissing,
    /// It must not exist.
    New,
}

/// How to open a file.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// For writing as well as reading.
    pub write: bool,
    /// Which descriptions.
    pub descriptions: Descriptions,
    /// About existence.
    pub create: Create,
    /// On a block device: fail with `EBUSY` when it is mounted or held (`O_EXCL` without `O_CREAT`, open(2)).
    pub claim_device: bool,
}

impl Open {
    /// Both descriptions, read only, the file must exist.
    #[must_use]
    pub fn read() -> Open {
        Open {
            write: false,
            descriptions: Descriptions::Both,
            create: Create::Never,
            claim_device: false,
        }
    }

    /// Both descriptions, reading and writing, the file must exist.
    #[must_use]
    pub fn write() -> Open {
        Open {
            write: true,
            ..Open::read()
        }
    }

    fn flags(&self, caching: Caching, kind: Option<Kind>) -> OFlags {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if self.write { OFlags::RDWR } else { OFlags::RDONLY };
        if caching == Caching::Direct {
            flags |= OFlags::DIRECT;
        }
        match self.create {
            Create::Never => {}
            // A device is not made, and with O_EXCL for its claim, O_CREAT would mean that it must not exist.
            Create::IfMissing if kind == Some(Kind::Block) => {}
            Create::IfMissing => flags |= OFlags::CREATE,
            Create::New => flags |= OFlags::CREATE | OFlags::EXCL,
        }
        if self.claim_device && kind == Some(Kind::Block) {
            flags |= OFlags::EXCL;
        }
        flags
    }
}

/// A path as messages and metrics call it. Bytes that are no UTF-8 are escaped, as a shell would have them (`$'/tmp/\xff'`), so that two
/// paths never have one name.
#[must_use]
pub fn path_name(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut name = String::from("$'");
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if matches!(letter, '\\' | '\'') {
                name.push('\\');
            }
            name.push(letter);
        }
        for byte in chunk.invalid() {
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    name.push('\'');
    name
}

impl File {
    /// Opens `path`.
    ///
    /// With [`Descriptions::Both`] a file system that refuses `O_DIRECT` leaves the file without a direct description,
    /// which [`File::gives`] tells; with [`Descriptions::Only`] the refusal is an error.
    ///
    /// # Errors
    /// What the system said, with the path and, where there is one, the cure.
    pub fn open(path: &Path, options: &Open) -> Result<File, SetupError> {
        let name = path_name(path);
        let first = match options.descriptions {
            Descriptions::Both => Caching::Kernel,
            Descriptions::Only(caching) => caching,
        };
        let known = rustix::fs::stat(path).ok().map(|stat| kind_of(stat.st_mode));
        let flags = options.flags(first, known);
        let fd = outlast(|| open_path(path, flags), options.claim_device)
            .map_err(|errno| explain_open(&name, errno, first, options.write))?;
        let mut inode = Inode::new(&name, fd, first)?;
        if options.descriptions == Descriptions::Both && inode.kind != Kind::Stream {
            add_direct(&mut inode, path, &name, options)?;
        }
        Ok(File::made_of(name, Made::Inode(inode)))
    }

    /// Takes over a descriptor that somebody else opened. It never gets a second description: whether it is direct is
    /// read from its flags.
    ///
    /// # Errors
    /// What `fcntl` or `fstat` said.
    pub fn from_fd(fd: OwnedFd, name: &str) -> Result<File, SetupError> {
        let flags =
            rustix::fs::fcntl_getfl(&fd).map_err(|errno| SetupError::new("inspect", name.to_owned(), errno.into()))?;
        let caching = if flags.contains(OFlags::DIRECT) {
            Caching::Direct
        } else {
            Caching::Kernel
        };
        let mut inode = Inode::new(name, fd, caching)?;
        inode.is_given = true;
        Ok(File::made_of(name.to_owned(), Made::Inode(inode)))
    }
}

/// The second description of the same inode; a file system that has none leaves it out. Without /proc, or where the modes of the file
/// forbid a second opening there, it is opened by its path.
fn add_direct(inode: &mut Inode, path: &Path, name: &str, options: &Open) -> Result<(), SetupError> {
    let Some(kernel) = &inode.kernel else {
        return Ok(());
    };
    let again = Open {
        create: Create::Never,
        claim_device: false,
        ..*options
    };
    let flags = again.flags(Caching::Direct, Some(inode.kind));
    let by_descriptor = format!("/proc/self/fd/{}", kernel.as_raw_fd());
    let opened = match open_path(Path::new(&by_descriptor), flags) {
        Err(errno) if !is_final(errno) => open_path(path, flags),
        opened => opened,
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(errno) if has_no_direct(errno) => return Ok(()),
        // A file without it would be refused later, for what it is not to blame.
        Err(errno) => {
            let error = explain_open(name, errno, Caching::Direct, options.write);
            return Err(match errno {
                Errno::EACCES => is_second(error),
                _ => error,
            });
        }
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| SetupError::new("stat", name.to_owned(), errno.into()))?;
    if identity_of(&stat) != inode.identity {
        return Err(SetupError::new("open", name.to_owned(), Errno::ESTALE)
            .need("two descriptions of one inode; the path was replaced meanwhile"));
    }
    inode.direct = Some(fd);
    Ok(())
}

/// Does the file system give no direct description at all?
fn has_no_direct(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::EOPNOTSUPP)
}

/// Would another path to the file be refused for the same reason?
fn is_final(errno: Errno) -> bool {
    has_no_direct(errno) || matches!(errno, Errno::EMFILE | Errno::ENFILE)
}

/// Looks at a claim that somebody else has on a device, and the pause between two of them.
const CLAIM_LOOKS: u32 = 50;
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

/// A program that has just ended may hold a device a moment longer: the kernel takes its ring down after its process. So may whoever unmounts
/// one.
fn outlast<T>(mut open: impl FnMut() -> Result<T, Errno>, claims: bool) -> Result<T, Errno> {
    for _ in 0..CLAIM_LOOKS {
        match open() {
            Err(Errno::EBUSY) if claims => std::thread::sleep(CLAIM_PAUSE),
            opened => return opened,
        }
    }
    open()
}

fn open_path(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        match baio_process::descriptor::open(path, flags, Mode::from_raw_mode(0o666)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Errno::from),
        }
    }
}

/// The first opening was allowed: one that was just made may have been denied it by the umask.
fn is_second(error: SetupError) -> SetupError {
    let need = error.need.clone().unwrap_or_default();
    let cure = error.cure.clone().unwrap_or_default();
    error.need(format!("{need} by a second opening")).cure(format!(
        "{cure}; choose another umask for one that is made; or open it with one description alone"
    ))
}

fn explain_open(name: &str, errno: Errno, caching: Caching, write: bool) -> SetupError {
    let (to_do, bits) = if write { ("read and write", "rw") } else { ("read", "r") };
    let error = SetupError::new("open", name.to_owned(), errno);
    match (errno, caching) {
        (Errno::EINVAL, Caching::Direct) => error
            .need("a file system that supports O_DIRECT")
            .cure("use another mode, or move the file"),
        (Errno::ENOENT, _) => error.cure("check the path"),
        (Errno::EACCES, _) => error.need(format!("permission to {to_do} the file")).cure(format!(
            "have its owner give it (`chmod u+{bits}`, or {bits} for your group), and x on the directories above"
        )),
        (Errno::EBUSY, _) => error.need("a device that is not mounted and not held by another"),
        (Errno::EMFILE, _) => error
            .need("a free descriptor for each description of a file")
            .cure("raise RLIMIT_NOFILE (`ulimit -n`), or open fewer files, or each with one description alone"),
        (Errno::ENFILE, _) => error
            .need("a free descriptor in the whole system")
            .cure("raise `sysctl fs.file-max`, or close what is open"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(claims: bool, answer: impl Fn(u32) -> Result<(), Errno>) -> (Result<(), Errno>, u32) {
        let mut count = 0;
        let opened = outlast(
            || {
                count += 1;
                answer(count)
            },
            claims,
        );
        (opened, count)
    }

    #[test]
    fn who_claims_a_device_outlasts_a_claim_that_ends() {
        let free_at_third = |count| if count < 3 { Err(Errno::EBUSY) } else { Ok(()) };
        assert_eq!(looks(true, free_at_third), (Ok(()), 3));
        assert_eq!(looks(false, free_at_third), (Err(Errno::EBUSY), 1));
        assert_eq!(looks(true, |_| Err(Errno::EBUSY)), (Err(Errno::EBUSY), CLAIM_LOOKS + 1));
        assert_eq!(looks(true, |_| Err(Errno::EACCES)), (Err(Errno::EACCES), 1));
    }
}
