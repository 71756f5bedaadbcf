//! The volume's file as its owner sees it: one description, used for everything and locked; and straight-line reads and
//! writes for what happens before and after the volume serves (format, open, close).
//!
//! The lock is on the description that carries the I/O, because only that lock outlives a killed process until its last
//! write has landed: whoever gets it knows that nothing of the old owner is still under way.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baio_engine::{
    Buffer, Caching, Completion, Create, Descriptions, Durability, Engine, Errno, File, LockHolder, Op, Open, Policy,
    Request, SetupError, Space, Wait,
};

use crate::error::{Error, Fault, Result};
use crate::identity::{Identity, Sight};

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
    /// The same, by somebody who can do without: of an owner whom the kernel does not name it is not hoped for long that he is dead.
    SharedIfFree,
    /// For reading without a lock, beside whoever has it: what is read may change meanwhile.
    Beside,
}

/// A locked file, and the caching mode that all I/O on it uses.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) file: File,
    pub(crate) caching: Caching,
    /// Whom the file or device belongs to; a disk of the simulation belongs to nobody.
    owner_uid: Option<u32>,
    /// The first read that failed, for whoever must have read everything.
    unread: Unread,
    /// Of a loop device, the file behind it: locked as well, because whoever opens that one meets no lock of the device.
    backing: Option<Backing>,
}

/// The first read that failed: where, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<(u64, Errno)>>>);

impl Unread {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Errno)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That nothing was left unread.
    ///
    /// # Errors
    /// The first read that failed.
    pub(crate) fn must_be_none(&self, operation: &'static str, name: &str) -> Result<()> {
        match *self.lock() {
            None => Ok(()),
            Some((offset, errno)) => Err(Error::new(operation, name, errno).at(offset)),
        }
    }
}

/// The file behind a loop device, locked as long as this is there.
#[derive(Debug)]
struct Backing {
    file: File,
    locked_by: u32,
}

impl Drop for Backing {
    /// Not in a forked child: the lock is its parent's.
    fn drop(&mut self) {
        if std::process::id() == self.locked_by {
            self.file.unlock();
        }
    }
}

impl Device {
    /// Opens and locks a volume's file. Direct, unless the file system has no direct I/O.
    pub(crate) fn open(path: &Path, hold: Hold) -> Result<Device> {
        let name = baio_engine::path_name(path);
        refuse_streams(path, &name)?;
        let options = |caching| Open {
            write: hold == Hold::Exclusive,
            descriptions: Descriptions::Only(caching),
            create: Create::Never,
            claim_device: hold == Hold::Exclusive,
        };
        let (file, caching) = match open_claimed(path, &options(Caching::Direct)) {
            Ok(file) => (file, Caching::Direct),
            Err(error) if error.errno == Errno::EINVAL => {
                let file = File::open(path, &options(Caching::Kernel));
                (file.map_err(|error| Error::new("open", &name, error))?, Caching::Kernel)
            }
            Err(error) if error.errno == Errno::EBUSY => return Err(claimed(path, &name, error)),
            Err(error) => return Err(Error::new("open", &name, error)),
        };
        if hold == Hold::Exclusive {
            file.must_take_any_order()
                .map_err(|error| Error::new("open", &name, error))?;
        }
        let backing = match hold {
            Hold::Beside => None,
            Hold::Exclusive | Hold::Shared | Hold::SharedIfFree => {
                lock(&file, &name, hold)?;
                lock_backing(path, &name, hold).inspect_err(|_| file.unlock())?
            }
        };
        Ok(Device {
            owner_uid: file.owner_uid(),
            file,
            caching,
            unread: Unread::default(),
            backing,
        })
    }

    /// One more description of a file that this process has as its volume, to read it, without a lock of its own.
    pub(crate) fn beside(name: &str, caching: Caching) -> Result<Device> {
        let options = Open {
            write: false,
            descriptions: Descriptions::Only(caching),
            create: Create::Never,
            claim_device: false,
        };
        let file = File::open(Path::new(name), &options).map_err(|error| Error::new("open", name, error))?;
        Ok(Device {
            owner_uid: file.owner_uid(),
            file,
            caching,
            unread: Unread::default(),
            backing: None,
        })
    }

    /// A disk of the simulation; nobody else can have it open.
    pub(crate) fn simulated(file: File) -> Device {
        Device {
            file,
            caching: Caching::Direct,
            owner_uid: None,
            unread: Unread::default(),
            backing: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.file.name()
    }

    pub(crate) fn sight(&self, who: Identity) -> Sight {
        who.sight(self.owner_uid)
    }

    pub(crate) fn size(&self) -> Result<u64> {
        self.file
            .size()
            .map_err(|errno| Error::new("measure", self.name(), errno))
    }

    /// Where the next bytes are that were ever written; `None` behind the last of them.
    pub(crate) fn next_data(&self, from: u64) -> Result<Option<u64>> {
        self.file
            .next_data(from)
            .map_err(|errno| Error::new("look for data in", self.name(), errno).at(from))
    }

    pub(crate) fn policy(&self, durability: Durability) -> Policy {
        Policy {
            caching: self.caching,
            durability,
            ..Policy::default()
        }
    }

    /// Reads `len` bytes at `offset`; fewer only where the device ends.
    pub(crate) fn read(&self, engine: &mut Engine, offset: u64, len: usize) -> Result<Buffer> {
        let buffer = self.buffer(engine, len)?;
        let request = Request::read(&self.file, offset, buffer, self.policy(Durability::None));
        let completion = engine.run(request);
        if let Err(baio_engine::Error::System(errno)) = completion.result {
            self.note_unread(offset, errno);
        }
        let got = self.outcome("read", offset, &completion)? as usize;
        let mut buffer = completion
            .memory
            .into_buffer()
            .ok_or_else(|| Error::new("read", self.name(), baio_engine::Error::Indeterminate))?;
        buffer.set_len(got);
        Ok(buffer)
    }

    /// A read has failed, also one that is tried again in pieces.
    pub(crate) fn note_unread(&self, offset: u64, errno: Errno) {
        self.unread.lock().get_or_insert((offset, errno));
    }

    /// What could not be read since the device was opened, to be asked also when somebody else has the device.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Writes some bytes and waits for that alone: others may have requests under way.
    pub(crate) fn write_now(&self, engine: &mut Engine, at: u64, bytes: &[u8], durability: Durability) -> Result<()> {
        let mut buffer = self.buffer(engine, bytes.len())?;
        buffer.copy_from_slice(bytes);
        let completion = engine.run(Request::write(&self.file, at, buffer, self.policy(durability)));
        self.outcome("write", at, &completion).map(drop)
    }

    /// Writes each page at its offset, all at once, and waits for all. Where others use the engine it is one after the
    /// other: their completions are not ours to take.
    pub(crate) fn write_pages(
        &self,
        engine: &mut Engine,
        pages: &[(u64, &[u8])],
        durability: Durability,
    ) -> Result<()> {
        if engine.in_flight() + engine.completed() > 0 {
            return pages
                .iter()
                .try_for_each(|(at, bytes)| self.write_now(engine, *at, bytes, durability));
        }
        let mut failed = None;
        for &(offset, bytes) in pages {
            if let Err(error) = self.write_page(engine, offset, bytes, durability) {
                failed = Some(error);
                break;
            }
        }
        // Whatever failed: what was begun ends first.
        let ended = self.end_writes(engine);
        failed.map_or(ended, Err)
    }

    /// Submits one page; an engine of few slots first ends what it has.
    fn write_page(&self, engine: &mut Engine, offset: u64, bytes: &[u8], durability: Durability) -> Result<()> {
        let mut buffer = self.buffer(engine, bytes.len())?;
        buffer.copy_from_slice(bytes);
        let request = Request::write(&self.file, offset, buffer, self.policy(durability));
        let Err(back) = engine.submit_reserved(request) else {
            return Ok(());
        };
        self.end_writes(engine)?;
        engine
            .submit_reserved(back)
            .map(drop)
            .map_err(|_| Error::new("write", self.name(), baio_engine::Error::Full).at(offset))
    }

    /// Nothing but such writes is under way: volumes are formatted, opened and closed alone.
    fn end_writes(&self, engine: &mut Engine) -> Result<()> {
        let mut failed = None;
        while engine.in_flight() > 0 {
            engine
                .turn(Wait::one())
                .map_err(|error| Error::new("write", self.name(), error))?;
            while let Some(completion) = engine.next_completion() {
                let wrong = self.outcome("write", 0, &completion).err();
                failed = failed.or(wrong);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Flushes everything written so far, by whomever.
    pub(crate) fn sync(&self, engine: &mut Engine, durability: Durability) -> Result<()> {
        let completion = engine.run(Request::sync(&self.file, durability));
        self.outcome("sync", 0, &completion).map(drop)
    }

    /// Makes a range read as zero: by giving it back where the file can, else by writing.
    pub(crate) fn clear(&self, engine: &mut Engine, offset: u64, len: u64) -> Result<()> {
        for space in [Space::Discard, Space::Zero] {
            let op = Op::Allocate { offset, len, space };
            let completion = engine.run(Request::bare(op, Some(&self.file), Policy::direct()));
            match completion.result {
                Ok(_) => return Ok(()),
                Err(baio_engine::Error::System(Errno::EOPNOTSUPP | Errno::EINVAL)) => {}
                Err(_) => return self.outcome("clear", offset, &completion).map(drop),
            }
        }
        self.write_zeros(engine, offset, len)
    }

    fn write_zeros(&self, engine: &mut Engine, offset: u64, len: u64) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let mut zeros = self.buffer(engine, CHUNK.min(len) as usize)?;
        zeros.fill(0);
        let zeros = zeros.freeze();
        let mut at = 0;
        while at < len {
            let mut chunk = self.buffer(engine, CHUNK.min(len - at) as usize)?;
            let size = chunk.len();
            chunk.copy_from_slice(&zeros[..size]);
            let request = Request::write(&self.file, offset + at, chunk, self.policy(Durability::None));
            let completion = engine.run(request);
            self.outcome("clear", offset + at, &completion)?;
            at += size as u64;
        }
        Ok(())
    }

    fn buffer(&self, engine: &Engine, len: usize) -> Result<Buffer> {
        engine
            .buffer(len)
            .ok_or_else(|| Error::new("take a buffer for", self.name(), Fault::NoMemory { asked: len as u64 }))
    }

    fn outcome(&self, operation: &'static str, offset: u64, completion: &Completion) -> Result<u32> {
        completion
            .result
            .map_err(|error| Error::new(operation, self.name(), error).at(offset))
    }

    /// Gives the file back: unregistered first, else the ring would keep the lock alive. In a forked child
    /// nothing is given back: the description, and with it the lock, is the parent's, who goes on.
    pub(crate) fn close(&self, engine: &mut Engine) {
        if !engine.is_forked() {
            engine.detach(&self.file);
            // At once, whoever else has the description: a child forked meanwhile keeps it until it execs.
            self.file.unlock();
        }
    }

    /// The kernel still has requests on it: the locks stay until it has let go.
    pub(crate) fn stays_locked(&mut self, engine: &mut Engine) {
        engine.detach(&self.file);
        std::mem::forget(self.backing.take());
    }
}

/// Opens a file. A claim on a block device lasts as long as its description: that of a killed owner until its last write has
/// landed, which is waited for as with its lock; that of a closed volume for as long as a child that some thread is just
/// starting has a copy, until it execs, which is outlasted (locks are given back explicitly). The claim of a killed owner
/// outlives its lock: the kernel writes back its page cache of the device in between. A mounted device is refused.
fn open_claimed(path: &Path, options: &Open) -> std::result::Result<File, SetupError> {
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
fn claimed(path: &Path, name: &str, error: SetupError) -> Error {
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

/// Opening a pipe can wait for ever, and a terminal or a tape drive minds being opened at all.
fn refuse_streams(path: &Path, name: &str) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(kind) = std::fs::metadata(path).map(|metadata| metadata.file_type()) else {
        return Ok(()); // What the path lacks is for the open itself to say.
    };
    if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
        let why = "a volume lives in a regular file or on a block device, and this is neither";
        return Err(Error::new("open", name, Fault::NotVolume(why.into())));
    }
    Ok(())
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
fn lock_backing(path: &Path, name: &str, hold: Hold) -> Result<Option<Backing>> {
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
    lock(&file, name, hold)?;
    let locked_by = std::process::id();
    Ok(Some(Backing { file, locked_by }))
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

#[cfg(test)]
mod tests {
    use baio_engine::Config;
    use baio_engine::sim::{Disk, Sim};

    use super::*;

    #[test]
    fn pages_are_written_at_once_where_nobody_else_uses_the_engine() {
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &Config::default()).unwrap();
        let device = Device::simulated(File::simulated(&Disk::new(4 * 4096), "disk"));
        let page = [1; 4096];
        let pages = [0, 4096, 8192, 12288].map(|at| (at, &page[..]));
        device.write_pages(&mut engine, &pages, Durability::Data).unwrap();
        assert_eq!(engine.stats().in_flight_max, 4);
    }

    /// Who is refused a device that nobody has mounted waits for its owner to let go of it.
    #[test]
    fn a_device_that_has_no_file_system_is_not_mounted() {
        assert!(!is_mounted(Path::new("/dev/null")));
    }
}
