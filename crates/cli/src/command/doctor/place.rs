//! What a path is and can do: a file or a device itself, or a directory with a file that has no name.
//!
//! The path is opened once, without touching what lies there (`O_PATH`, open(2)); everything else goes through that
//! descriptor, so all answers are about one inode. Nothing is written to it, and streams are not even opened: that could
//! wait for the other end of a FIFO, rewind a tape or arm a watchdog.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use baio::{Caching, Core, Errno, Error, Fault, Identity, SetupError};
use baio_console::device::Device;
use baio_console::failure::Failure;
use baio_console::mount::Mount;
use baio_console::output::Table;
use baio_console::printable::readable;
use baio_console::size::format_size;
use baio_engine::kernel::{self, Feature};
use baio_engine::{DurableBy, Engine, File, Kind, Open};
use rustix::fs::{AtFlags, FileType, Mode as FileMode, OFlags, Stat, StatxFlags};
use serde::Serialize;

use crate::command::exposed::{Exposed, exposed};

use super::extents;
use super::modes::{self, DirectWrites, DurableWrites, Mode};
use super::verdict::Task;

/// `STATX_WRITE_ATOMIC` (statx(2), Linux 6.11).
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);

/// File systems whose files hold nothing.
const MADE_UP: [&str; 12] = [
    "proc",
    "sysfs",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "cgroup",
    "cgroup2",
    "bpf",
    "efivarfs",
    "pstore",
    "binfmt_misc",
];

/// What was found out about a path. Every key is always there; what does not apply or cannot be known is null.
#[derive(Default, Serialize)]
pub(super) struct Place {
    path: String,
    /// `file`, `directory`, `block device` or `stream`.
    kind: &'static str,
    /// Of a stream: `fifo`, `socket` or `character device`.
    stream: Option<&'static str>,
    size_bytes: u64,
    volume: bool,
    volume_problem: Option<String>,
    file_system: Option<String>,
    mount_point: Option<String>,
    mount_source: Option<String>,
    mount_options: Vec<String>,
    modes: Vec<Mode>,
    /// Why no mode could be tried.
    untried: Option<String>,
    direct_writes: DirectWrites,
    durable_writes: DurableWrites,
    direct_memory_alignment: Option<u32>,
    direct_offset_alignment: Option<u32>,
    /// `statx`, `sector size` or `assumed`.
    alignment_source: Option<&'static str>,
    atomic_write: Option<AtomicWrite>,
    /// Bytes preallocated and never written, of an existing file.
    unwritten_bytes: Option<u64>,
    /// The block device below.
    device: Option<Device>,
    advice: Vec<Advice>,
    /// What to do about a volume that is not well; none for one that somebody has in use.
    #[serde(skip)]
    volume_cure: Option<String>,
    /// Of a volume, that others may open its file.
    #[serde(skip)]
    exposed: Option<Exposed>,
    /// What to do where nothing could be tried, if it could be otherwise.
    #[serde(skip)]
    untried_cure: Option<&'static str>,
}

/// A write that happens whole or not at all (`RWF_ATOMIC`), in bytes.
#[derive(Serialize)]
struct AtomicWrite {
    unit_bytes_min: u32,
    unit_bytes_max: u32,
    segments_max: u32,
}

/// What costs speed or surprises here, and what to do about it.
#[derive(Serialize)]
struct Advice {
    found: String,
    cure: Option<String>,
}

/// One inode, held by a descriptor that does nothing else.
struct Held {
    shown: String,
    fd: OwnedFd,
    stat: Stat,
}

impl Held {
    fn open(path: &Path) -> Result<Held, Failure> {
        let shown = readable(path);
        let fault = |errno: rustix::io::Errno| told(&shown, SetupError::new("open", shown.clone(), errno.into()));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = baio_process::descriptor::open(path, flags, FileMode::empty()).map_err(fault)?;
        let stat = rustix::fs::fstat(&fd).map_err(fault)?;
        Ok(Held { shown, fd, stat })
    }

    /// A path to this very inode.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// The failure to open or measure what was typed.
fn told(shown: &str, mut error: SetupError) -> Failure {
    shown.clone_into(&mut error.object);
    if error.cure.is_none() {
        error.cure = match error.errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Some("check the path".into()),
            Errno::EACCES | Errno::EPERM => Some("check the permissions of the file and its directories".into()),
            _ => None,
        };
    }
    Failure::from_storage(
        "doctor",
        shown.to_owned(),
        &Error::new("examine", shown.to_owned(), error),
    )
}

impl Place {
    /// Finds out.
    pub(super) fn examine(engine: &mut Engine, path: &Path, release: &str) -> Result<Place, Failure> {
        let held = Held::open(path)?;
        let mut place = match held.kind() {
            FileType::Directory => Place::of_directory(engine, &held, release),
            FileType::RegularFile if is_made_up(&held) => Place::of_made_up(&held),
            FileType::RegularFile | FileType::BlockDevice => Place::of_file(engine, &held, release)?,
            kind => Place::of_stream(&held, kind),
        };
        place.advise();
        Ok(place)
    }

    /// What can be said without opening it.
    fn outline(held: &Held, kind: &'static str) -> Place {
        Place {
            path: held.shown.clone(),
            kind,
            ..Place::default()
        }
    }

    fn of_stream(held: &Held, kind: FileType) -> Place {
        Place {
            stream: Some(match kind {
                FileType::Fifo => "fifo",
                FileType::Socket => "socket",
                _ => "character device",
            }),
            untried: Some("a stream has no caching modes, and opening it could wait or change something".into()),
            ..Place::outline(held, "stream")
        }
    }

    fn of_made_up(held: &Held) -> Place {
        let mut place = Place {
            untried: Some(
                "the kernel makes up such a file as it is read, and reading it could wait or take something away"
                    .into(),
            ),
            ..Place::outline(held, "file")
        };
        place.add_mount(held, Mount::of(&held.fd));
        place
    }

    fn of_directory(engine: &mut Engine, held: &Held, release: &str) -> Place {
        let mut place = Place::outline(held, "directory");
        let mount = Mount::of(&held.fd);
        if let Ok(system) = rustix::fs::fstatfs(&held.fd) {
            place.durable_writes = DurableWrites::by(DurableBy::on_file_system(system.f_type), mount.as_ref());
        }
        match modes::in_directory(engine, &held.path()) {
            Ok(nameless) => {
                place.add_limits(&nameless.file, &nameless.fd);
                place.modes = nameless.modes;
                place.direct_writes = DirectWrites::known(&nameless.fd, mount.as_ref(), release);
            }
            Err(errno) => {
                place.untried = Some(why_no_trial(errno));
                place.untried_cure = Some(how_to_try(errno));
            }
        }
        place.add_mount(held, mount);
        place
    }

    fn of_file(engine: &mut Engine, held: &Held, release: &str) -> Result<Place, Failure> {
        let wrong = |error| told(&held.shown, error);
        let via = held.path();
        let file = File::open(&via, &Open::read()).map_err(wrong)?;
        let measured = |errno| SetupError::new("measure", held.shown.clone(), errno);
        let size_bytes = file.size().map_err(measured).map_err(wrong)?;
        let found = look_for_volume(&via);
        let kind = if file.kind() == Kind::Block {
            "block device"
        } else {
            "file"
        };
        let is_volume = found.is_well || found.problem.is_some();
        let mut place = Place {
            size_bytes,
            exposed: is_volume.then(|| exposed(&via, &held.shown)).flatten(),
            volume: found.is_well,
            volume_problem: found.problem,
            volume_cure: found.cure,
            modes: modes::of_file(engine, &file),
            ..Place::outline(held, kind)
        };
        place.add_limits(&file, &held.fd);
        let mount = (file.kind() != Kind::Block).then(|| Mount::of(&held.fd)).flatten();
        place.durable_writes = DurableWrites::by(file.durable_by(), mount.as_ref());
        if file.kind() == Kind::Block {
            // What the node of a device lies on says nothing about the device.
            place.device = Device::of(held.stat.st_rdev);
            place
                .advice
                .extend(
                    file.must_take_any_order().err().map(|refused| Advice {
                        found:
                            "it is zoned (host-managed) and takes writes in order only: no volume, no log, no stress"
                                .into(),
                        cure: refused.cure,
                    }),
                );
            return Ok(place);
        }
        if let Ok(plain) = std::fs::File::open(&via) {
            place.direct_writes = DirectWrites::known(&plain, mount.as_ref(), release);
            place.unwritten_bytes = extents::unwritten(plain.as_fd());
        }
        place.add_mount(held, mount);
        Ok(place)
    }

    fn add_mount(&mut self, held: &Held, mount: Option<Mount>) {
        self.device = Device::below(held.stat.st_dev, mount.as_ref());
        let Some(mount) = mount else {
            return;
        };
        self.file_system = Some(mount.file_system);
        self.mount_point = Some(readable(mount.mount_point));
        self.mount_source = Some(mount.source);
        self.mount_options = mount.options;
    }

    /// Alignment and atomic writes, as told of an open file.
    fn add_limits(&mut self, file: &File, fd: impl AsFd) {
        let told = kernel::direct_alignment(&fd);
        let asked = kernel::has(Feature::AtomicWrites, true)
            .then(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, WRITE_ATOMIC).ok())
            .flatten();
        if file.gives(Caching::Direct) {
            let limits = file.direct_limits();
            self.direct_memory_alignment = Some(limits.memory);
            self.direct_offset_alignment = Some(limits.offset);
            let by_statx = told.is_some_and(|told| told.offset != 0);
            self.alignment_source = Some(match file.kind() {
                _ if by_statx => "statx",
                Kind::Block => "sector size",
                _ => "assumed",
            });
        }
        let answered = asked.filter(|stat| stat.stx_mask & WRITE_ATOMIC.bits() != 0);
        let atomic = answered.filter(|stat| stat.stx_atomic_write_unit_max != 0);
        self.atomic_write = atomic.map(|stat| AtomicWrite {
            unit_bytes_min: stat.stx_atomic_write_unit_min,
            unit_bytes_max: stat.stx_atomic_write_unit_max,
            segments_max: stat.stx_atomic_write_segments_max,
        });
    }

    fn advise(&mut self) {
        let mut advise = |found: String, cure: Option<&str>| {
            self.advice.push(Advice {
                found,
                cure: cure.map(str::to_owned),
            });
        };
        if self.modes.iter().any(Mode::is_pretended) {
            advise(
                "direct reads go through the kernel's page cache here".into(),
                Some("to bypass the page cache, use another file system, or a device"),
            );
        }
        if let Some(because) = self.direct_writes.cached_because() {
            let cure = match self.file_system.as_deref() {
                Some("btrfs") => "`chattr +C` on the directory, then make the file anew: it has no checksums then",
                _ => "to bypass the page cache, use another file system, or a device",
            };
            advise(
                format!("direct writes go through the kernel's page cache: {because}"),
                Some(cure),
            );
        }
        // What a volume has preallocated is its owner's to write, through its segments; whoever wrote over it would destroy it.
        let is_plain = !self.volume && self.volume_problem.is_none();
        if let Some(bytes) = self.unwritten_bytes.filter(|&bytes| bytes > 0 && is_plain) {
            advise(
                format!(
                    "{} are preallocated and were never written: the first durable write to each place costs about twice as much",
                    format_size(bytes)
                ),
                Some("write over them once, before the durable writes that matter"),
            );
        }
        if let Some(exposed) = self.exposed.take() {
            advise(exposed.found, Some(&exposed.cure));
        }
        if self.file_system.as_deref() == Some("overlay") && self.device.is_none() {
            advise(
                "this is an overlay, and the layer that holds its data cannot be seen from here".into(),
                Some("name a path on a volume or a mount of its own"),
            );
        }
        if self.mount_options.iter().any(|option| option == "ro") {
            advise("the file system is mounted read-only".into(), None);
        }
        let of_devices = self.device.iter().flat_map(Device::advice);
        self.advice.extend(of_devices.map(|(found, cure)| Advice {
            found,
            cure: Some(cure),
        }));
    }

    /// What to do about what was found; what has no cure is told as a note.
    pub(super) fn tasks(&self) -> impl Iterator<Item = Task> {
        let curable = self
            .advice
            .iter()
            .filter_map(|advice| Some((advice, advice.cure.as_deref()?)));
        let volume = self.volume_problem.as_ref().zip(self.volume_cure.as_deref());
        let volume = volume.map(|(why, cure)| (format!("the volume cannot be opened: {why}"), cure));
        let untried = self.untried.as_ref().zip(self.untried_cure);
        let untried = untried.map(|(why, cure)| (format!("no mode could be tried: {why}"), cure));
        let advice = curable.map(|(advice, cure)| (advice.found.clone(), cure));
        let all = volume.into_iter().chain(untried).chain(advice);
        all.map(|(found, cure)| Task::new(format!("{}: {found}", self.path), cure))
    }

    /// Is it a volume that cannot be opened, and not because somebody else has it open?
    pub(super) fn is_broken_volume(&self) -> bool {
        self.volume_problem.is_some() && self.volume_cure.is_some()
    }

    /// Shows the little that most people want to know.
    pub(super) fn add_outline(&self, table: &mut Table) {
        self.add_identity(table);
        if let Some(name) = &self.file_system {
            table.row(["file system", name]);
        }
        if let Some(why) = &self.untried {
            table.row(["modes", &format!("not tried: {why}")]);
        }
        for tried in &self.modes {
            tried.add_row(table);
        }
        for advice in self.advice.iter().filter(|advice| advice.cure.is_none()) {
            table.row(["note", &advice.found]);
        }
    }

    /// Shows it.
    pub(super) fn add_rows(&self, table: &mut Table) {
        self.add_identity(table);
        if let Some(name) = &self.file_system {
            table.row(["file system", &self.mount_sentence(name)]);
        }
        if let Some(why) = &self.untried {
            table.row(["modes", &format!("not tried: {why}")]);
        }
        for tried in &self.modes {
            tried.add_row(table);
        }
        if let Some(said) = self.direct_writes.sentence() {
            table.row(["direct writes", &said]);
        }
        if let Some(said) = self.durable_writes.sentence() {
            table.row(["durable writes", &said]);
        }
        if let (Some(memory), Some(offset)) = (self.direct_memory_alignment, self.direct_offset_alignment) {
            let source = self.alignment_source.unwrap_or("assumed");
            let needs = format!("memory {memory} B, offset and length {offset} B ({source})");
            table.row(["direct alignment", &needs]);
        }
        if let Some(atomic) = &self.atomic_write {
            let (least, most) = (atomic.unit_bytes_min.into(), atomic.unit_bytes_max.into());
            table.row([
                "atomic writes",
                &format!("{} to {}", format_size(least), format_size(most)),
            ]);
        }
        if let Some(device) = &self.device {
            device.add_rows(table, 0);
        }
        for advice in &self.advice {
            let cure = advice.cure.as_ref().map(|cure| format!("; cure: {cure}"));
            table.row(["note", &format!("{}{}", advice.found, cure.unwrap_or_default())]);
        }
    }

    fn add_identity(&self, table: &mut Table) {
        table.row(["path", &self.path]);
        let kind = match (self.stream, self.volume) {
            (Some(stream), _) => stream.to_owned(),
            (None, true) => format!("{}, a volume", self.kind),
            (None, false) => self.kind.to_owned(),
        };
        table.row(["kind", &kind]);
        if let Some(why) = &self.volume_problem {
            table.row(["volume", &format!("cannot be opened: {why}")]);
        }
        if matches!(self.kind, "file" | "block device") {
            table.row(["size", &format_size(self.size_bytes)]);
        }
    }

    fn mount_sentence(&self, name: &str) -> String {
        let point = self.mount_point.as_ref().map(|point| format!(" on {point}"));
        format!("{name}{} ({})", point.unwrap_or_default(), self.mount_options.join(","))
    }
}

/// Is this a regular file by name only, like `/proc/kmsg` and `trace_pipe`, of which a read waits?
fn is_made_up(held: &Held) -> bool {
    let mount = Mount::of(&held.fd);
    mount.is_some_and(|mount| MADE_UP.contains(&mount.file_system.as_str()))
}

/// A look at what may be a volume; by default it is none.
#[derive(Default)]
struct FoundVolume {
    is_well: bool,
    problem: Option<String>,
    cure: Option<String>,
}

/// Is it a volume, and if it looks like one, why can it not be read?
fn look_for_volume(path: &Path) -> FoundVolume {
    match Core::inspect(path, Identity::effective()) {
        Ok(_) => FoundVolume {
            is_well: true,
            ..FoundVolume::default()
        },
        Err(error) if error.code() == "ENOTVOLUME" => FoundVolume::default(),
        // Somebody works with it: nothing is wrong.
        Err(error) if matches!(error.fault, Fault::Busy { .. }) => FoundVolume {
            problem: Some(error.fault.to_string()),
            ..FoundVolume::default()
        },
        Err(error) => FoundVolume {
            problem: Some(error.fault.to_string()),
            cure: Some(error.cure().unwrap_or_else(|| "`baio check` shows more".to_owned())),
            ..FoundVolume::default()
        },
    }
}

/// Why a file without a name cannot be made and tried.
fn why_no_trial(errno: Errno) -> String {
    match errno {
        // Kernels and file systems that do not know such files take the directory for what shall be opened.
        Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT => {
            "this file system has no files without a name; name a file in the directory instead".into()
        }
        Errno::EACCES | Errno::EPERM => {
            format!("{errno}: no file may be made here; name a file in the directory instead")
        }
        errno => format!("no file can be made here: {errno}"),
    }
}

/// What to do about that.
fn how_to_try(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES | Errno::EPERM => "check the permissions of the directory, or name a file in it",
        Errno::EROFS => "mount the file system so that it can be written to, or name a file in the directory",
        Errno::ENOSPC | Errno::EDQUOT => "free some space on the file system, or name a file in the directory",
        _ => "name a file in the directory",
    }
}
