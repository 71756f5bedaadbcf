//! The cores that carry a copy: one for each volume that it touches, or one without a volume.
//!
//! Where a copy goes from one volume to another, both cores are turned, and neither may sleep while the other has
//! something to do: both are armed, looked at once more, and then their ready descriptors are slept on together.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_engine::{Buffer, Config, Wait};
use baio_storage::{Access, Core, Outcome, SegmentRequest};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Device and inode number: equal for two paths to one file.
pub(super) type Inode = (u64, u64);

/// A core, and whose failures are its.
struct Carrier {
    core: Core,
    volume: Option<Inode>,
    typed: String,
}

/// One or two cores.
pub(super) struct Cores {
    carriers: Vec<Carrier>,
    config: Config,
}

impl Cores {
    /// None yet; they are started with `config`.
    pub(super) fn new(config: Config) -> Cores {
        Cores {
            carriers: Vec::new(),
            config,
        }
    }

    /// The core of a segment's volume, which is opened if it is not open yet: to read, unless something of it is to be written.
    pub(super) fn of_volume(&mut self, segment: &NamedSegment, access: Access) -> Result<usize, Failure> {
        let volume = inode_of(&segment.volume);
        let known = |carrier: &Carrier| volume.is_some() && carrier.volume == volume;
        if let Some(index) = self.carriers.iter().position(known) {
            return Ok(index);
        }
        let opened = match access {
            Access::Read => Core::open_to_read(&segment.volume, &self.config),
            Access::Write => Core::open(&segment.volume, &self.config),
        };
        let core = segment.told("dd", opened)?;
        Ok(self.add(core, volume, segment.typed.clone()))
    }

    /// Any core: plain files live on whichever there is.
    pub(super) fn any(&mut self) -> Result<usize, Failure> {
        if self.carriers.is_empty() {
            let core = Core::new(&self.config);
            let core = core.map_err(|error| Failure::from_storage("dd", "the engine", &error))?;
            self.add(core, None, "the engine".to_owned());
        }
        Ok(0)
    }

    fn add(&mut self, core: Core, volume: Option<Inode>, typed: String) -> usize {
        self.carriers.push(Carrier { core, volume, typed });
        self.carriers.len() - 1
    }

    /// Works with the core of this index.
    pub(super) fn with<T>(&mut self, index: usize, work: impl FnOnce(&mut Core) -> T) -> Result<T, Failure> {
        match self.carriers.get_mut(index) {
            Some(carrier) => Ok(work(&mut carrier.core)),
            None => Err(Failure::new("dd", "EBADF", "no core carries this")),
        }
    }

    /// A buffer from the first core's arena, which is sized for the whole copy.
    pub(super) fn buffer(&self, len: usize) -> Result<Buffer, Failure> {
        let carrier = self.carriers.first();
        let buffer = carrier.and_then(|carrier| carrier.core.engine().buffer(len));
        buffer.ok_or_else(|| {
            Failure::new("dd", "ENOBUFS", format!("no buffer of {len} bytes is free"))
                .needing("memory for every request in flight")
                .cured_by("choose a smaller bs= or iodepth=")
        })
    }

    /// Queues a request. The tables are larger than any depth, so a full one empties by turning.
    pub(super) fn start(&mut self, index: usize, mut request: SegmentRequest) -> Result<(), Failure> {
        loop {
            match self.with(index, |core| core.start(request).map(drop))? {
                Ok(()) => return Ok(()),
                Err(back) => request = back,
            }
            self.turn()?;
        }
    }

    /// The next outcome of any core.
    pub(super) fn next_outcome(&mut self) -> Option<Outcome> {
        self.carriers.iter_mut().find_map(|carrier| carrier.core.next_outcome())
    }

    /// Submits what is queued and sleeps until something has completed.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        if let [only] = self.carriers.as_mut_slice() {
            return only.turn(Wait::one()).map(drop);
        }
        if self.turn_all()? > 0 {
            return Ok(());
        }
        self.arm(true);
        let found = self.turn_all();
        let slept = match found {
            Ok(0) => self.sleep(),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.arm(false);
        slept
    }

    fn turn_all(&mut self) -> Result<usize, Failure> {
        let mut count = 0;
        for carrier in &mut self.carriers {
            count += carrier.turn(Wait::No)?;
        }
        Ok(count)
    }

    fn arm(&mut self, arm: bool) {
        for carrier in &mut self.carriers {
            // A backend without such a descriptor completes everything inside a turn: it is never slept on.
            let _ = carrier.core.engine_mut().ready_fd(arm);
        }
    }

    /// Sleeps on all cores that have something under way.
    fn sleep(&mut self) -> Result<(), Failure> {
        let busy = self.carriers.iter_mut().filter(|carrier| carrier.core.in_flight() > 0);
        let ready = busy.filter_map(|carrier| carrier.core.engine_mut().ready_fd(true));
        let ready: Vec<_> = ready.collect();
        let mut watched: Vec<PollFd<'_>> = ready.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if watched.is_empty() {
            return Ok(());
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Failure::from_io("dd", &errno.into())),
        }
    }

    /// System calls made so far.
    pub(super) fn system_calls(&self) -> u64 {
        self.carriers
            .iter()
            .map(|carrier| carrier.core.stats().system_calls)
            .sum()
    }

    /// The backend's name, and whether it really keeps several requests in flight.
    pub(super) fn backend(&self) -> (&'static str, bool) {
        let Some(carrier) = self.carriers.first() else {
            return ("none", false);
        };
        let explained = carrier.core.engine().explain();
        let blocking = |(name, had): &(&str, Result<(), String>)| *name == "asynchronous" && had.is_err();
        (explained.backend, !explained.features.iter().any(blocking))
    }

    /// Closes every volume cleanly, whatever happened; the first failure is told.
    pub(super) fn close(self) -> Result<(), Failure> {
        let closed = self.carriers.into_iter().map(|carrier| {
            let closed = carrier.core.close();
            closed.map_err(|error| Failure::from_storage("dd", carrier.typed, &error))
        });
        closed.fold(Ok(()), Result::and)
    }
}

impl Carrier {
    fn turn(&mut self, wait: Wait) -> Result<usize, Failure> {
        let turned = self.core.turn(wait);
        turned.map_err(|error| Failure::from_storage("dd", self.typed.clone(), &error))
    }
}

/// What a path leads to; `None` where it leads nowhere. A block device is one, whichever of its nodes is named.
pub(super) fn inode_of(path: &Path) -> Option<Inode> {
    let metadata = path.metadata().ok()?;
    if metadata.file_type().is_block_device() {
        return Some((u64::MAX, metadata.rdev()));
    }
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is opened: a number that no device has will do.
    #[test]
    fn two_nodes_of_one_device_lead_to_one() {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let node = |name: &str, minor| {
            let path = dir.path().join(name);
            mknodat(CWD, &path, FileType::BlockDevice, Mode::RUSR, makedev(240, minor)).map(|()| inode_of(&path))
        };
        let (Ok(one), Ok(two), Ok(other)) = (node("one", 1), node("two", 1), node("other", 2)) else {
            return eprintln!("skipped: no device node can be made here");
        };
        assert!(one.is_some());
        assert_eq!(one, two);
        assert_ne!(one, other);
    }
}
