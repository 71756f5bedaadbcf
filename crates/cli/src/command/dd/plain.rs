//! Files, devices and streams as ends of a copy: opened as GNU dd opens them.
//!
//! | what | how |
//! |---|---|
//! | a file | through the kernel's cache; with `iflag=direct`, `oflag=direct` past it |
//! | a block device | the same; to write, it must not be mounted or held |
//! | a pipe, a terminal, a character device | in order, one request at a time |
//! | standard input and output | whichever of these it is, from where its position stands |
//!
//! Nothing is truncated here: that comes when everything else of the copy is known to work.

use std::fs::{OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use baio::{Caching, Errno, Error, Mode, SetupError, VOLUME_BYTES_MIN, holds_volume};
use baio_console::failure::Failure;
use baio_engine::{Create, Descriptions, File, Kind, Open};
use rustix::fs::{FileType, OFlags, SeekFrom};

use crate::closed::was_closed;
use crate::operands::{Creation, Flags};

/// How the bytes of an end can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// At any offset, in any order.
    Anywhere,
    /// One after the other.
    InOrder,
}

/// A file that is open and belongs to no core yet.
pub(super) struct Plain {
    pub(super) file: File,
    pub(super) mode: Mode,
    pub(super) flow: Flow,
    /// Where standard input or output stood; 0 for what was opened here.
    pub(super) position: u64,
    /// The same description once more, to move its position: of standard input and output, and of streams.
    pub(super) positioned: Option<OwnedFd>,
    pub(super) made: Option<Made>,
    /// A read that is short only happened to be interrupted: there is always more.
    pub(super) never_short: bool,
    /// What each read of it says: it is a directory.
    pub(super) unreadable: Option<Errno>,
    /// `nocache`: of what the kernel is told.
    pub(super) advised: Option<std::fs::File>,
    /// The operand that asked for its mode, if one did.
    pub(super) asked: Option<&'static str>,
    /// What the system says of a position where the copy begins: it is beyond a device, or beyond what a file may have.
    pub(super) nowhere: Option<Errno>,
}

/// A file that was made for this copy, and may be removed again while nothing has come of it.
#[derive(Clone)]
pub(super) struct Made {
    path: PathBuf,
    identity: (u64, u64),
}

impl Made {
    /// Not what somebody else has put there, or into it, meanwhile.
    pub(super) fn remove(&self) {
        let found = self.path.symlink_metadata();
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity && found.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Plain {
    fn of(file: File, begin: Begin<'_>) -> Plain {
        let flow = match file.kind() {
            Kind::Stream => Flow::InOrder,
            _ => Flow::Anywhere,
        };
        let kernel = !begin.flags.direct && file.gives(Caching::Kernel);
        let uncached = begin.mode == Some(Mode::Uncached) && flow == Flow::Anywhere;
        Plain {
            file,
            mode: match (kernel, uncached) {
                (true, true) => Mode::Uncached,
                (true, false) => Mode::Kernel,
                (false, _) => Mode::Direct,
            },
            flow,
            position: 0,
            positioned: None,
            made: None,
            never_short: false,
            unreadable: None,
            advised: None,
            asked: begin.asked,
            nowhere: None,
        }
    }

    /// What requests must be multiples of; 1 where any byte will do.
    pub(super) fn align(&self) -> u64 {
        match self.mode {
            Mode::Direct => self.file.direct_limits().offset.into(),
            _ => 1,
        }
    }
}

/// Where and how a copy begins on a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin<'a> {
    /// The target as it was typed.
    pub(super) typed: &'a str,
    /// The first byte.
    pub(super) offset: u64,
    /// How it is opened.
    pub(super) flags: &'a Flags,
    /// The operand that asks for a way past the kernel's cache, if one does.
    pub(super) asked: Option<&'static str>,
    /// Through which cache, where it has that.
    pub(super) mode: Option<Mode>,
    /// Is it read again, past the kernel's cache?
    pub(super) verifies: bool,
}

/// Opens the file of `if=`.
pub(super) fn open_input(path: &Path, begin: Begin<'_>) -> Result<Plain, Failure> {
    let mut positioned = None;
    let flags = begin.flags;
    let mut only = OpenOptions::new();
    only.read(true).custom_flags(kernel_flags(flags));
    if path.is_dir() {
        if flags.direct {
            // Most file systems refuse that of a directory.
            only.custom_flags(kernel_flags(flags) | bits(OFlags::DIRECT));
        }
        let opened = only.open(path).map_err(|error| unopened(begin.typed, &error));
        return opened
            .map_err(|error| unopened_as(begin, error))
            .and_then(|_| directory(begin.typed));
    }
    let opened = if is_stream(path) && !flags.direct {
        adopt(only.open(path), begin.typed, &mut positioned)
    } else if kernel_flags(flags) != 0 {
        if flags.direct {
            only.custom_flags(kernel_flags(flags) | bits(OFlags::DIRECT));
        }
        adopt(only.open(path), begin.typed, &mut None)
    } else {
        let options = Open {
            descriptions: Descriptions::Only(match flags.direct {
                true => Caching::Direct,
                false => Caching::Kernel,
            }),
            ..Open::read()
        };
        File::open(path, &options)
    };
    let mut plain = Plain::of(opened.map_err(|error| unopened_as(begin, error))?, begin);
    plain.never_short = positioned.as_ref().is_some_and(is_memory_device);
    plain.positioned = positioned;
    plain.nowhere = nowhere(&plain, path, begin.offset);
    plain.advised = advised(path, flags);
    check_direct(&plain, begin, "skip=")?;
    Ok(plain)
}

/// A directory can be opened; it is the reads of it that fail.
fn directory(typed: &str) -> Result<Plain, Failure> {
    let stands_in = File::open(Path::new("/dev/null"), &Open::read()).map_err(|error| refused(typed, error))?;
    let begin = Begin {
        typed,
        offset: 0,
        flags: &Flags::default(),
        asked: None,
        mode: None,
        verifies: false,
    };
    Ok(Plain {
        unreadable: Some(Errno::EISDIR),
        ..Plain::of(stands_in, begin)
    })
}

/// Opens, and if it may be makes, the file of `of=`.
pub(super) fn open_output(path: &Path, begin: Begin<'_>, creation: Creation) -> Result<Plain, Failure> {
    if begin.offset > 0 && is_fifo(path) {
        // Before it is opened: that waits for a reader.
        return Err(no_positions(begin.typed, begin.offset));
    }
    refuse_volume(path, begin.typed)?;
    let made = path.symlink_metadata().is_err();
    let mut positioned = None;
    let flags = begin.flags;
    let mut only = OpenOptions::new();
    only.custom_flags(kernel_flags(flags));
    // Also where something is there: only in an open with O_CREAT does the kernel keep a stranger's file or pipe in a directory such as /tmp
    // from whoever takes it for his own (`fs.protected_regular`, `fs.protected_fifos`; proc_sys_fs(5)).
    match creation {
        Creation::Exclusive => only.write(true).create_new(true),
        Creation::IfMissing => only.write(true).create(true).truncate(false),
        Creation::Never => only.write(true),
    };
    let opened = if is_stream(path) && !flags.direct {
        adopt(only.open(path), begin.typed, &mut positioned)
    } else if flags.append {
        adopt(only.append(true).open(path), begin.typed, &mut positioned)
    } else if kernel_flags(flags) != 0 {
        reopen_to_write(only.open(path), begin)
    } else {
        open_to_write(path, begin, creation)
    };
    let mut plain = Plain::of(opened.map_err(|error| unopened_as(begin, error))?, begin);
    plain.positioned = positioned;
    plain.made = made.then(|| Made {
        path: path.to_owned(),
        identity: plain.file.identity(),
    });
    plain.nowhere = nowhere(&plain, path, begin.offset);
    plain.advised = advised(path, flags);
    if flags.append {
        // The kernel appends whatever the offset says: only the order is left to us.
        plain.flow = Flow::InOrder;
    }
    let checked = check_direct(&plain, begin, "seek=");
    if let (Err(_), Some(made)) = (&checked, &plain.made) {
        made.remove();
    }
    checked.map(|()| plain)
}

fn open_to_write(path: &Path, begin: Begin<'_>, creation: Creation) -> Result<File, SetupError> {
    let is_device = path
        .metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device());
    let create = match creation {
        Creation::Exclusive => Create::New,
        // O_CREAT would give the O_EXCL that claims a device its other meaning.
        Creation::IfMissing if !is_device => Create::IfMissing,
        Creation::IfMissing | Creation::Never => Create::Never,
    };
    if begin.flags.direct && create != Create::Never && path.symlink_metadata().is_err() {
        return made_direct(path, begin);
    }
    match File::open(path, &write_options(begin, create)) {
        // A file that may be written but not read is good enough, unless a block device had to be claimed.
        Err(error) if error.errno == Errno::EACCES && !begin.flags.direct && path.is_file() => {
            let mut only = OpenOptions::new();
            only.write(true).create(create == Create::IfMissing).truncate(false);
            adopt(only.open(path), begin.typed, &mut None).map_err(|_| error)
        }
        opened => opened,
    }
}

/// Makes a file for a direct copy, which opens it twice: whatever the umask leaves of its mode, that is of who opens it later.
fn made_direct(path: &Path, begin: Begin<'_>) -> Result<File, SetupError> {
    let said = |error: std::io::Error| unopened(begin.typed, &error);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(said)?;
    let mode = made.metadata().map_err(said)?.permissions();
    let is_closed = mode.mode() & 0o600 != 0o600;
    if is_closed {
        made.set_permissions(Permissions::from_mode(0o600)).map_err(said)?;
    }
    let opened = File::open(path, &write_options(begin, Create::Never));
    if is_closed {
        made.set_permissions(mode).map_err(said)?;
    }
    opened
}

fn write_options(begin: Begin<'_>, create: Create) -> Open {
    Open {
        write: true,
        // A direct copy needs the kernel-cached description for its unaligned end; a cached one is read back by the direct one.
        descriptions: match (begin.flags.direct, begin.verifies) {
            (false, false) => Descriptions::Only(Caching::Kernel),
            _ => Descriptions::Both,
        },
        create,
        claim_device: true,
    }
}

/// What the kernel is told of: files and devices alone.
fn advised(path: &Path, flags: &Flags) -> Option<std::fs::File> {
    let has_cache = flags.nocache && !is_stream(path);
    has_cache.then(|| std::fs::File::open(path).ok()).flatten()
}

/// Asked only where it may be so: behind the end.
fn nowhere(plain: &Plain, path: &Path, offset: u64) -> Option<Errno> {
    if plain.flow == Flow::InOrder || plain.file.size().is_ok_and(|size| offset <= size) {
        return None;
    }
    let file = std::fs::File::open(path).ok()?;
    rustix::fs::seek(&file, SeekFrom::Start(offset)).err().map(Errno::from)
}

/// What was opened as flags want it is opened once more, as requests want it: it cannot be another file by then.
fn reopen_to_write(opened: std::io::Result<std::fs::File>, begin: Begin<'_>) -> Result<File, SetupError> {
    let guard = opened.map_err(|error| unopened(begin.typed, &error))?;
    let path = format!("/proc/self/fd/{}", guard.as_raw_fd());
    File::open(Path::new(&path), &write_options(begin, Create::Never))
}

/// What `open(2)` has a flag for, but for those that requests have themselves.
fn kernel_flags(flags: &Flags) -> i32 {
    let wanted = [
        (flags.directory, OFlags::DIRECTORY),
        (flags.nonblock, OFlags::NONBLOCK),
        (flags.noatime, OFlags::NOATIME),
        (flags.nofollow, OFlags::NOFOLLOW),
    ];
    let set = wanted.into_iter().filter(|(is_set, _)| *is_set);
    bits(set.fold(OFlags::empty(), |all, (_, flag)| all | flag))
}

fn bits(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Takes standard input.
pub(super) fn standard_input(begin: Begin<'_>) -> Result<Plain, Failure> {
    standard(0, std::io::stdin().as_fd().try_clone_to_owned(), begin, "iflag=direct")
}

/// Takes standard output.
pub(super) fn standard_output(begin: Begin<'_>) -> Result<Plain, Failure> {
    let plain = standard(1, std::io::stdout().as_fd().try_clone_to_owned(), begin, "oflag=direct")?;
    if plain.file.kind() != Kind::Stream {
        refuse_volume_behind(&plain, begin.typed)?;
    }
    Ok(plain)
}

fn standard(number: u8, fd: std::io::Result<OwnedFd>, begin: Begin<'_>, flag: &str) -> Result<Plain, Failure> {
    let told = |error: std::io::Error| Failure::from_io("dd", &error).on(begin.typed);
    if was_closed(number) {
        // What is there now is none of the caller's.
        return Err(told(Errno::EBADF.into()).cured_by("leave it open"));
    }
    let fd = fd.map_err(told)?;
    if begin.flags.direct {
        return Err(
            Failure::new("dd", "EINVAL", "an opened descriptor cannot be made direct")
                .on(begin.typed)
                .needing("a file or device, named by if= or of=")
                .cured_by(format!("name it, or leave out {flag}")),
        );
    }
    let kind = rustix::fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_directory = kind == Ok(FileType::Directory);
    if begin.flags.directory && !is_directory {
        return Err(refused(
            begin.typed,
            SetupError::new("open", begin.typed.to_owned(), Errno::ENOTDIR),
        ));
    }
    if is_directory {
        return directory(begin.typed);
    }
    let mut flags = rustix::fs::fcntl_getfl(&fd).unwrap_or(OFlags::empty());
    if begin.flags.append || begin.flags.noatime {
        flags.set(OFlags::APPEND, begin.flags.append || flags.contains(OFlags::APPEND));
        flags.set(OFlags::NOATIME, begin.flags.noatime || flags.contains(OFlags::NOATIME));
        rustix::fs::fcntl_setfl(&fd, flags).map_err(|errno| told(errno.into()))?;
    }
    let position = rustix::fs::seek(&fd, SeekFrom::Current(0));
    let kept = fd.try_clone().map_err(told)?;
    let file = File::from_fd(fd, begin.typed).map_err(|error| refused(begin.typed, error))?;
    let mut plain = Plain::of(file, begin);
    plain.never_short = is_memory_device(&kept);
    plain.advised = begin
        .flags
        .nocache
        .then(|| kept.try_clone().ok().map(Into::into))
        .flatten();
    if plain.flow == Flow::Anywhere {
        plain.position = position.unwrap_or(0);
        let first = plain.position.saturating_add(begin.offset);
        plain.nowhere = rustix::fs::seek(&kept, SeekFrom::Start(first)).err().map(Errno::from);
        // As GNU dd: who cannot stand where the copy begins stands at the end.
        let back = plain
            .nowhere
            .map_or(SeekFrom::Start(plain.position), |_| SeekFrom::End(0));
        let _ = rustix::fs::seek(&kept, back);
    }
    plain.positioned = Some(kept);
    if number == 1 && flags.contains(OFlags::APPEND) {
        // The kernel appends whatever the offset says: only the order is left to us.
        plain.flow = Flow::InOrder;
    }
    Ok(plain)
}

/// Takes a descriptor, and keeps a second one of its description.
fn adopt(
    opened: std::io::Result<std::fs::File>,
    typed: &str,
    positioned: &mut Option<OwnedFd>,
) -> Result<File, SetupError> {
    match opened {
        Ok(file) => {
            *positioned = file.try_clone().ok().map(OwnedFd::from);
            File::from_fd(file.into(), typed)
        }
        Err(error) => Err(unopened(typed, &error)),
    }
}

fn unopened(typed: &str, error: &std::io::Error) -> SetupError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let refused = SetupError::new("open", typed.to_owned(), errno);
    match error.kind() {
        ErrorKind::PermissionDenied => refused.cure("check the permissions"),
        ErrorKind::NotFound => refused.cure("check the path"),
        _ => refused,
    }
}

/// Is it known, before it is opened, to be neither a file nor a block device?
pub(super) fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let kind = metadata.file_type();
        !(kind.is_file() || kind.is_block_device() || kind.is_dir())
    })
}

fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// The refusal of `seek=` on what has no positions.
pub(super) fn no_positions(typed: &str, seek: u64) -> Failure {
    Failure::new("dd", "ESPIPE", "cannot seek: Illegal seek")
        .on(typed)
        .at(seek)
        .needing("an output with positions: a file, a device or a segment")
        .cured_by("leave out seek=")
}

/// `/dev/zero`, `/dev/urandom` and their like. The kernel ends a read of them early when something else is to be done,
/// which is no end of a record. (`/dev/kmsg` is one of them, and has records.)
fn is_memory_device(fd: &OwnedFd) -> bool {
    const MEMORY: u32 = 1;
    const MESSAGES: u32 = 11;
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        let device = stat.st_rdev;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        is_device && rustix::fs::major(device) == MEMORY && rustix::fs::minor(device) != MESSAGES
    })
}

/// Direct I/O begins where the device can; what `bs=` says does not matter, as pieces are cut to fit.
fn check_direct(plain: &Plain, begin: Begin<'_>, operand: &str) -> Result<(), Failure> {
    let Some(asked) = begin.asked.filter(|_| begin.flags.direct) else {
        return Ok(());
    };
    if !plain.file.gives(Caching::Direct) || plain.flow == Flow::InOrder {
        return Err(no_direct(begin.typed, asked));
    }
    let need = plain.align();
    if begin.offset.is_multiple_of(need) {
        return Ok(());
    }
    Err(Failure::new("dd", "EINVAL", "direct I/O cannot begin at this offset")
        .on(begin.typed)
        .at(begin.offset)
        .needing(format!("an offset that is a multiple of {need} bytes"))
        .cured_by(format!("change {operand}, or leave out {asked}")))
}

fn no_direct(typed: &str, asked: &str) -> Failure {
    Failure::new("dd", "EINVAL", "there is no direct I/O on it")
        .on(typed)
        .needing("a device, or a file on a file system that supports O_DIRECT")
        .cured_by(format!("leave out {asked}"))
}

/// A file that is written over would be a volume no more. What cannot be read, and may be one, is taken for one: it might be written all the
/// same.
fn refuse_volume(path: &Path, typed: &str) -> Result<(), Failure> {
    if is_stream(path) {
        return Ok(());
    }
    match std::fs::File::open(path) {
        Ok(file) if holds_volume(&file) => Err(would_destroy(typed)),
        Ok(_) => Ok(()),
        Err(_) if !is_long_file(path) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(may_destroy(typed)
            .needing("the permission to read it")
            .cured_by("let it be read (`chmod u+r`), remove it first, or copy to another file")),
        Err(error) => Err(refused(typed, unopened(typed, &error))),
    }
}

/// Is it a regular file that is long enough for a volume?
fn is_long_file(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.len() >= VOLUME_BYTES_MIN)
}

/// The same for an open descriptor, which may be for writing only; and then there may be no `/proc` to open it once more by. What may be a
/// volume is taken for one.
fn refuse_volume_behind(plain: &Plain, typed: &str) -> Result<(), Failure> {
    let Some(fd) = &plain.positioned else { return Ok(()) };
    let flags = rustix::fs::fcntl_getfl(fd).unwrap_or(OFlags::empty());
    let file = match flags & OFlags::ACCMODE == OFlags::RDWR {
        true => fd.try_clone().ok().map(std::fs::File::from),
        false => std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok(),
    };
    match file {
        Some(file) if holds_volume(&file) => Err(would_destroy(typed)),
        Some(_) => Ok(()),
        None if plain.file.size().is_ok_and(|size| size < VOLUME_BYTES_MIN) => Ok(()),
        None => Err(may_destroy(typed)
            .needing("/proc and the permission to read it, or a descriptor that is open for reading too")
            .cured_by("name it by of=, or open it for both (`1<>FILE`)")),
    }
}

fn may_destroy(typed: &str) -> Failure {
    let said = "it cannot be read, and may hold a baio volume, which the copy would destroy";
    Failure::new("dd", "EACCES", said).on(typed)
}

fn would_destroy(typed: &str) -> Failure {
    Failure::new("dd", "EEXIST", "it holds a baio volume, which the copy would destroy")
        .on(typed)
        .needing("a segment, written as PATH#NAME, or a file that holds no volume")
        .cured_by("copy into a segment of it, or to another file")
}

/// What the system said of an open. It says no other word of a file system without `O_DIRECT`.
fn unopened_as(begin: Begin<'_>, error: SetupError) -> Failure {
    match begin.asked.filter(|_| begin.flags.direct) {
        Some(asked) if error.errno == Errno::EINVAL => no_direct(begin.typed, asked),
        _ => refused(begin.typed, error),
    }
}

fn refused(typed: &str, error: SetupError) -> Failure {
    Failure::from_storage("dd", typed, &Error::new("open", typed, error))
}
