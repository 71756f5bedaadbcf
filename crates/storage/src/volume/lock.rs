//! Who has a volume's file: locks that outlive a killed process until its last write has landed, and claims of block devices.

use std::path::Path;
use std::time::{Duration, Instant};

use baio_engine::{Caching, Descriptions, Errno, File, LockHolder, Open, SetupError};

use crate::error::{Error, Fault, Result};

/// How long a lock is waited for that will soon be free.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);

/// The same where the kernel does not say who has it, as in another pid namespace: he may well live.
const UNNAMED_PATIENCE: Duration = Duration::from_secs(1);

/// The same for those who can do without.
const LOOKERS_PATIENCE: Duration = Duration::from_millis(50);

/// How the volume's file is to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// For reading and writing, alone.
    Exclusive,
    /// For reading, with other readers.
    Shared,
    /// As `Shared`, for a caller who can do without: it waits only briefly for an owner whom the kernel does not name.
    SharedIfFree,
    /// For reading without a lock, beside whoever has it: what is read may change meanwhile.
    Beside,
}

/// A file that is locked as long as this is there.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    by: u32,
}

impl Locked {
    /// Takes the lock as [`lock`] does.
    pub(super) fn take(file: &File, name: &str, hold: Hold) -> Result<Locked> {
        lock(file, name, hold)?;
        Ok(Locked {
            file: file.clone(),
            by: std::process::id(),
        })
    }
}

impl Drop for Locked {
    /// At once, whoever else has the description: a child forked meanwhile keeps it until it execs. Not in the child itself: the
    /// lock is its parent's.
    fn drop(&mut self) {
        if std::process::id() == self.by {
            self.file.unlock();
        }
    }
}

/// Takes the lock. What a dead process still has under way is waited for, and so are those who only look, as they are soon
/// done; a living owner is an error at once. It names what the caller named, whatever is behind that.
pub(crate) fn lock(file: &File, name: &str, hold: Hold) -> Result<()> {
    let began = Instant::now();
    loop {
        let errno = match file.try_lock(hold == Hold::Exclusive) {
            Ok(()) => return Ok(()),
            Err(errno) => errno,
        };
        if errno != Errno::EAGAIN {
            return Err(no_lock(name, errno));
        }
        let holder = file.lock_holder();
        let stays = holder.is_some_and(|holder| holder.exclusive && is_alive(holder.pid));
        let patience = match (hold, holder) {
            (Hold::SharedIfFree, None) => LOOKERS_PATIENCE,
            (_, None) => UNNAMED_PATIENCE,
            _ => HOLDER_PATIENCE,
        };
        if stays || began.elapsed() >= patience {
            let holder = holder.and_then(named);
            return Err(Error::new("lock", name, Fault::Busy { holder }));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// There is no lock to be had, from anybody.
fn no_lock(name: &str, errno: Errno) -> Error {
    let refused = SetupError::new("lock", name.to_owned(), errno);
    let refused = match errno {
        Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK | Errno::EPERM => refused
            .need("a kernel and a file system that lock files (flock), so that a volume has one owner")
            .cure(
                "allow flock in the sandbox (seccomp), mount NFS with locks, or put the volume on a local file system",
            ),
        _ => refused,
    };
    Error::new("lock", name, refused)
}

/// Locks the file behind a loop device that shows it from its first byte on. One that cannot be opened here, because it is gone
/// or somebody else's, cannot be opened as a volume here either.
pub(super) fn lock_backing(path: &Path, name: &str, hold: Hold) -> Result<Option<Locked>> {
    let Some(backing) = path_behind_loop(path) else {
        return Ok(None);
    };
    let look = Open {
        descriptions: Descriptions::Only(Caching::Kernel),
        ..Open::read()
    };
    let Ok(file) = File::open(&backing, &look) else {
        return Ok(None);
    };
    Locked::take(&file, name, hold).map(Some)
}

/// What the kernel says is behind a loop device (`Documentation/ABI/testing/sysfs-block-loop`).
fn path_behind_loop(path: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = path
        .metadata()
        .ok()
        .filter(|metadata| metadata.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let about = |what: &str| std::fs::read(format!("/sys/dev/block/{major}:{minor}/loop/{what}")).ok();
    let mut backing = about("backing_file")?;
    let offset = about("offset")?;
    while backing.last() == Some(&b'\n') {
        backing.pop();
    }
    (offset.trim_ascii() == b"0").then(|| std::ffi::OsString::from_vec(backing).into())
}

/// A process that has been killed is dead for us though the system may still be taking it apart: it can hold nothing but
/// late writes. That is so from the signal on (SIGKILL pending), while it exits (PF_EXITING, include/linux/sched.h), and until its
/// parent asks for its status (state Z).
fn is_alive(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    const SIGKILL_BIT: u64 = 1 << 8;
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name, in parentheses, may itself contain anything; the state follows the last parenthesis, the flags six words on.
    let words: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split_whitespace().collect();
    let state = words.first().copied().unwrap_or("X");
    let flags: u64 = words.get(6).and_then(|word| word.parse().ok()).unwrap_or(0);
    !matches!(state, "Z" | "X") && flags & PF_EXITING == 0 && pending_signals(pid) & SIGKILL_BIT == 0
}

/// Signals that wait for the whole process, one bit each.
fn pending_signals(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Opens a file. A claim on a block device lasts as long as its description: that of a killed owner until its last write has
/// landed, which is waited for as with its lock; that of a closed volume for as long as a child that some thread is just
/// starting has a copy, until it execs, which is outlasted (locks are given back explicitly). The claim of a killed owner
/// outlives its lock: the kernel writes back its page cache of the device in between. A mounted device is refused.
pub(super) fn open_claimed(path: &Path, options: &Open) -> std::result::Result<File, SetupError> {
    let began = Instant::now();
    loop {
        let error = match File::open(path, options) {
            Err(error) if options.claim_device && error.errno == Errno::EBUSY => error,
            opened => return opened,
        };
        let patience = match owner_of_claimed(path) {
            Some(Some(holder)) if holder.exclusive && is_alive(holder.pid) => return Err(error),
            None if is_mounted(path) => return Err(error),
            _ => HOLDER_PATIENCE,
        };
        if began.elapsed() >= patience {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Is a file system of this mount namespace on the device? (proc_pid_mountinfo(5): the third field is its number.)
fn is_mounted(path: &Path) -> bool {
    let (Ok(metadata), Ok(mounts)) = (path.metadata(), std::fs::read_to_string("/proc/self/mountinfo")) else {
        return false;
    };
    let device = std::os::unix::fs::MetadataExt::rdev(&metadata);
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(&number))
}

/// A device that has a living owner is not merely busy: he is named.
pub(super) fn claimed(path: &Path, name: &str, error: SetupError) -> Error {
    match owner_of_claimed(path) {
        Some(holder) => {
            let holder = holder.and_then(named);
            Error::new("lock", name, Fault::Busy { holder })
        }
        None => Error::new("open", name, error),
    }
}

/// Who has locked a claimed device, as far as the kernel names him; `None` where nobody has, so that whoever claims it
/// owns no volume on it. Another description, without a claim, is enough to look.
fn owner_of_claimed(path: &Path) -> Option<Option<LockHolder>> {
    let look = Open {
        descriptions: Descriptions::Only(Caching::Kernel),
        ..Open::read()
    };
    let file = File::open(path, &look).ok()?;
    match file.try_lock(false) {
        Err(Errno::EAGAIN) => Some(file.lock_holder()),
        _ => {
            file.unlock();
            None
        }
    }
}

/// The holder's process, if it is this user's business: root's, and of one's own processes.
fn named(holder: LockHolder) -> Option<u32> {
    let me = rustix::process::geteuid().as_raw();
    let whose = std::fs::metadata(format!("/proc/{}", holder.pid)).map(|of| std::os::unix::fs::MetadataExt::uid(&of));
    (me == 0 || whose.is_ok_and(|uid| uid == me)).then_some(holder.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is refused a device that nobody has mounted waits for its owner to let go of it.
    #[test]
    fn a_device_that_has_no_file_system_is_not_mounted() {
        assert!(!is_mounted(Path::new("/dev/null")));
    }
}
