//! What each caching mode really is on a file, found by requests in it.
//!
//! A file that exists is only read. In a directory the trials run on a file without a name (`O_TMPFILE`, open(2)), of which
//! nothing is ever seen by anybody. Which way direct *writes* go cannot be tried: btrfs drops the pages that such a write went
//! through, so nothing tells afterwards. There the file system's own rule is told.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use baio::{Caching, Durability, Errno};
use baio_console::mount::Mount;
use baio_console::output::Table;
use baio_engine::kernel::{self, Feature};
use baio_engine::{DurableBy, Engine, Error, File, Kind, Open, Policy, Request};
use rustix::fs::{Advice, IFlags, Mode as FileMode, OFlags};
use serde::Serialize;

/// Bytes of one trial: fits every alignment in use.
const TRIAL_BYTES: usize = 4096;

/// Blocks of the nameless file.
const FILLED: u64 = 4;

/// A caching mode, and what requests in it came to.
#[derive(Serialize)]
pub(super) struct Mode {
    mode: &'static str,
    works: bool,
    /// The mode that really carries its reads; null where it does not work.
    is: Option<&'static str>,
    reason: Option<String>,
}

/// Which way direct writes go; by default nothing can be said.
#[derive(Default, Serialize)]
pub(super) struct DirectWrites {
    /// `direct` or `kernel`; null where only a write would tell.
    are: Option<&'static str>,
    /// How that is known.
    reason: Option<String>,
}

/// What makes durable writes durable; by default nothing, of what has none.
#[derive(Default, Serialize)]
pub(super) struct DurableWrites {
    /// `flag` or `sync`; null for a stream.
    by: Option<&'static str>,
    /// Why it is not the flag.
    reason: Option<String>,
}

impl DurableWrites {
    pub(super) fn by(found: DurableBy, mount: Option<&Mount>) -> DurableWrites {
        let reason = || {
            let name = mount.map_or("this file system".into(), |mount| format!("`{}`", mount.file_system));
            format!("{name} is not known to honour RWF_DSYNC")
        };
        DurableWrites {
            by: Some(found.name()),
            reason: (found == DurableBy::Sync).then(reason),
        }
    }

    /// Shows it in a few words, where there are any.
    pub(super) fn sentence(&self) -> Option<String> {
        self.by?;
        Some(match &self.reason {
            None => "by the flag of the write (RWF_DSYNC)".into(),
            Some(reason) => {
                format!("by a sync after each, shared by writes that end together: {reason}")
            }
        })
    }
}

impl Mode {
    /// Shows it.
    pub(super) fn add_row(&self, table: &mut Table) {
        let said = match (&self.reason, self.is) {
            (Some(reason), _) => format!("no: {reason}"),
            (None, Some(is)) if is != self.mode => {
                format!("is accepted, but reads go as with `{is}`, through the kernel's page cache")
            }
            (None, _) => "works".into(),
        };
        table.row([format!("mode {}", self.mode), said]);
    }

    /// Is it taken, and something else?
    pub(super) fn is_pretended(&self) -> bool {
        self.is.is_some_and(|is| is != self.mode)
    }
}

impl DirectWrites {
    /// What is known of the file system of an open file.
    pub(super) fn known(fd: impl AsFd, mount: Option<&Mount>, release: &str) -> DirectWrites {
        let Some(mount) = mount else {
            return DirectWrites::default();
        };
        let kernel = |reason: &str| DirectWrites {
            are: Some(Caching::Kernel.name()),
            reason: Some(reason.to_owned()),
        };
        match mount.file_system.as_str() {
            "tmpfs" | "ramfs" => kernel("the file system lives in the page cache"),
            "btrfs" if has_checksums(&fd, mount) && is_at_least(release, (6, 14)) => kernel(CHECKSUMS),
            "ext4" if journals_data(&fd, mount) => kernel(JOURNALED),
            "ext4" | "f2fs" if has_no_direct(&fd) => kernel("statx(2) says that there is no direct I/O on this file"),
            _ => DirectWrites::default(),
        }
    }

    /// Why they go through the page cache, if so.
    pub(super) fn cached_because(&self) -> Option<&str> {
        let cached = self.are == Some(Caching::Kernel.name());
        self.reason.as_deref().filter(|_| cached)
    }

    /// Shows it in a few words, where something is known.
    pub(super) fn sentence(&self) -> Option<String> {
        let are = self.are?;
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}"));
        Some(format!("go as with `{are}`{}", reason.unwrap_or_default()))
    }
}

/// Since Linux 6.14: a page that changes while it is written would no longer match its checksum.
const CHECKSUMS: &str = "the file has checksums (btrfs, since Linux 6.14)";

/// Then ext4 takes `O_DIRECT`, and what it reads and writes goes through the page cache.
const JOURNALED: &str = "the file system journals this file's data (data=journal, or `chattr +j`)";

fn journals_data(fd: impl AsFd, mount: &Mount) -> bool {
    let by_flag = rustix::fs::ioctl_getflags(&fd).is_ok_and(|flags| flags.contains(IFlags::JOURNALING));
    has_no_direct(fd) && (by_flag || mount.has("data=journal"))
}

/// Alignments that are told, and 0.
fn has_no_direct(fd: impl AsFd) -> bool {
    kernel::direct_alignment(fd).is_some_and(|told| told.offset == 0)
}

fn has_checksums(fd: impl AsFd, mount: &Mount) -> bool {
    if mount.has("nodatasum") || mount.has("nodatacow") {
        return false;
    }
    !rustix::fs::ioctl_getflags(fd).is_ok_and(|flags| flags.contains(IFlags::NOCOW))
}

fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= wanted,
        _ => false,
    }
}

/// Tries all three on a file that exists, reading it.
pub(super) fn of_file(engine: &mut Engine, file: &File) -> Vec<Mode> {
    if file.kind() == Kind::Stream {
        return Vec::new(); // Reading would take something away from it, or wait.
    }
    // Cached reads come last: after them, nothing could be learned of the others.
    let direct = try_mode(engine, file, Caching::Direct);
    let uncached = try_mode(engine, file, Caching::Uncached);
    let kernel = try_mode(engine, file, Caching::Kernel);
    vec![kernel, uncached, direct]
}

/// A file without a name, and what was found on it.
pub(super) struct Nameless {
    pub(super) file: File,
    pub(super) fd: OwnedFd,
    pub(super) modes: Vec<Mode>,
}

/// Tries all three on a file without a name in the directory.
pub(super) fn in_directory(engine: &mut Engine, directory: &Path) -> Result<Nameless, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = baio_process::descriptor::open(directory, flags, FileMode::from_raw_mode(0o600)).map_err(Errno::from)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let file = File::open(&path, &Open::write()).map_err(|error| error.errno)?;
    fill(engine, &file, &fd)?;
    let modes = of_file(engine, &file);
    Ok(Nameless { file, fd, modes })
}

/// Gives the file some blocks, and has the page cache forget them: of what is cached no read can tell anything.
fn fill(engine: &mut Engine, file: &File, fd: impl AsFd) -> Result<(), Errno> {
    for block in 0..FILLED {
        let mut buffer = engine.buffer(TRIAL_BYTES).ok_or(Errno::ENOMEM)?;
        buffer.fill(0x5a);
        let policy = Policy {
            durability: Durability::Data,
            ..in_mode(Caching::Kernel)
        };
        let request = Request::write(file, block * TRIAL_BYTES as u64, buffer, policy);
        engine.run(request).result.map_err(Error::errno)?;
    }
    Ok(rustix::fs::fadvise(fd, 0, None, Advice::DontNeed)?)
}

fn try_mode(engine: &mut Engine, file: &File, caching: Caching) -> Mode {
    let tried = probe(file, caching).and_then(|found| read(engine, file, caching).map(|()| found));
    Mode {
        mode: caching.name(),
        works: tried.is_ok(),
        is: tried.as_ref().ok().map(|found| found.name()),
        reason: tried.err(),
    }
}

fn probe(file: &File, caching: Caching) -> Result<Caching, String> {
    if !file.gives(caching) {
        return Err("the file system refuses to open it with O_DIRECT".into());
    }
    file.probe(caching).map_err(|errno| match (caching, errno) {
        (Caching::Uncached, Errno::EOPNOTSUPP | Errno::EINVAL) => {
            let since = Feature::Uncached.line().since;
            format!(
                "{errno}: RWF_DONTCACHE is not known here (it takes Linux {since}, and ext4, xfs, btrfs or the like)"
            )
        }
        (_, errno) => errno.to_string(),
    })
}

fn read(engine: &mut Engine, file: &File, caching: Caching) -> Result<(), String> {
    let need = file.direct_limits().offset.max(1) as usize;
    let len = TRIAL_BYTES.next_multiple_of(need);
    let buffer = engine.buffer(len).ok_or("no buffer is free")?;
    let request = Request::read(file, 0, buffer, in_mode(caching));
    engine.run(request).result.map(drop).map_err(|error| error.to_string())
}

fn in_mode(caching: Caching) -> Policy {
    Policy {
        caching,
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, newer) in [
            ("6.14.0", true),
            ("6.18.44-fc", true),
            ("7.0", true),
            ("6.9.1", false),
            ("5.19-rc1", false),
            ("unknown", false),
        ] {
            assert_eq!(is_at_least(release, (6, 14)), newer, "{release}");
        }
    }

    fn mounted(file_system: &str, options: &[&str]) -> Mount {
        Mount {
            file_system: file_system.into(),
            mount_point: "/".into(),
            source: "/dev/x".into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        }
    }

    #[test]
    fn durable_writes_are_told_with_the_reason() {
        let fuse = mounted("fuse.sshfs", &["rw"]);
        let said = |found, mount| DurableWrites::by(found, mount).sentence().unwrap();
        assert_eq!(
            said(DurableBy::Flag, Some(&fuse)),
            "by the flag of the write (RWF_DSYNC)"
        );
        let by_sync = said(DurableBy::Sync, Some(&fuse));
        assert!(by_sync.contains("`fuse.sshfs` is not known to honour"), "{by_sync}");
        assert!(said(DurableBy::Sync, None).contains("this file system"));
        assert_eq!(DurableWrites::default().sentence(), None);
    }

    #[test]
    fn btrfs_with_checksums_writes_through_the_page_cache() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let are = |mount: &Mount, release| DirectWrites::known(&null, Some(mount), release).are;
        assert_eq!(are(&mounted("btrfs", &["rw"]), "6.14.1"), Some("kernel"));
        assert_eq!(are(&mounted("btrfs", &["rw"]), "6.13.9"), None);
        assert_eq!(are(&mounted("btrfs", &["rw", "nodatasum"]), "6.14.1"), None);
        assert_eq!(are(&mounted("ext4", &["rw"]), "6.14.1"), None);
        assert_eq!(are(&mounted("tmpfs", &["rw"]), "6.14.1"), Some("kernel"));
    }
}
