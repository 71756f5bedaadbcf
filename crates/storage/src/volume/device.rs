//! The file or device that a volume lies on, open and locked; with blocking reads and writes for the time before and after the volume
//! serves (format, open, close).
//!
//! A device is opened by its path ([`Device::open`]), or made from any open file (`From<&File>`): one on a simulated disk, on a device of the
//! caller's own, or one that the process has open already. From then on the rules are the same.
//!
//! The lock is on the description that carries the I/O, because only that lock outlives a killed process until its last
//! write has landed. So a new owner knows that no write of the old one is still under way. A device that is not a file of this kernel has
//! a lock of its own ([`baio_engine::Device::try_lock`]).

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baio_engine::{
    Buffer, Caching, Completion, Create, Descriptions, Durability, Engine, Errno, File, Kind, Op, Open, Policy,
    Request, Space, Wait,
};

use crate::error::{Error, Fault, Result};
use crate::identity::{Identity, Sight};
use crate::volume::lock::{Hold, Locked, claimed, lock_backing, open_claimed};

/// What a volume lies on, and what keeps others from it: from a file, which is locked when the volume is opened
/// ([`Core::open_on`](crate::Core::open_on)) or made, and as long as it is there; or [`Device::unlocked`].
///
/// Its size, the sectors of it and how it flushes are the file's to say. Give it a file for direct I/O if there is one: a volume wants no
/// second cache below its own.
#[derive(Debug)]
pub struct Device {
    pub(crate) file: File,
    /// The caching mode that all I/O on it uses.
    pub(crate) caching: Caching,
    /// Whom the file or device belongs to; what is no file of the system belongs to nobody.
    owner_uid: Option<u32>,
    /// The first read that failed, for whoever must have read everything.
    unread: Unread,
    lock: Lock,
}

/// What keeps others from a device.
#[derive(Debug)]
enum Lock {
    /// Its own, to be taken by whoever opens it.
    ToTake,
    /// That was taken. Of a loop device the file behind it is locked as well: whoever opens that one meets no lock of the device.
    Taken { _device: Locked, _backing: Option<Locked> },
    /// None is taken: what is read may change meanwhile, or whoever has opened the file keeps others away.
    None,
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

impl From<&File> for Device {
    fn from(file: &File) -> Device {
        let caching = if file.gives(Caching::Direct) {
            Caching::Direct
        } else {
            Caching::Kernel
        };
        Device::of(file.clone(), caching, Lock::ToTake)
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
        let mut device = Device::of(file, caching, Lock::None);
        if hold != Hold::Beside {
            device.lock = Lock::ToTake;
            device.take(hold)?;
            let backing = lock_backing(path, &name, hold)?;
            if let Lock::Taken { _backing, .. } = &mut device.lock {
                *_backing = backing;
            }
        }
        Ok(device)
    }

    /// A file that others are kept from by whoever has opened it: no lock is asked for.
    #[must_use]
    pub fn unlocked(file: &File) -> Device {
        Device {
            lock: Lock::None,
            ..Device::from(file)
        }
    }

    fn of(file: File, caching: Caching, lock: Lock) -> Device {
        Device {
            owner_uid: file.owner_uid(),
            file,
            caching,
            unread: Unread::default(),
            lock,
        }
    }

    /// Takes the device as its lock says, if that was not done; whoever is to write must be able to, wherever he wants.
    ///
    /// # Errors
    /// Somebody has it; or the device takes no writes in any order, or is none that a volume can be on.
    pub(crate) fn take(&mut self, hold: Hold) -> Result<()> {
        let name = self.file.name();
        if self.file.kind() == Kind::Stream {
            return Err(Error::new("open", name, Fault::NotVolume(NO_PLACE.into())));
        }
        if hold == Hold::Exclusive {
            let may = self.file.must_take_any_order();
            may.and_then(|()| self.file.must_not_append())
                .map_err(|error| Error::new("open", name, error))?;
        }
        if matches!(self.lock, Lock::ToTake) {
            let _device = Locked::take(&self.file, name, hold)?;
            self.lock = Lock::Taken {
                _device,
                _backing: None,
            };
        }
        Ok(())
    }

    /// Lets somebody look at it while nobody writes there, and gives it back.
    ///
    /// # Errors
    /// What the look says; somebody has it to write.
    pub(crate) fn look<T>(
        mut self,
        engine: &mut Engine,
        look: impl FnOnce(&mut Engine, &Device) -> Result<T>,
    ) -> Result<T> {
        self.take(Hold::Shared)?;
        let seen = look(engine, &self);
        self.close(engine);
        seen
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
        Ok(Device::of(file, caching, Lock::None))
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
    pub(crate) fn close(&mut self, engine: &mut Engine) {
        if !engine.is_forked() {
            engine.detach(&self.file);
        }
        self.lock = Lock::None;
    }

    /// The kernel still has requests on it: the locks stay until it has let go.
    pub(crate) fn stays_locked(&mut self, engine: &mut Engine) {
        engine.detach(&self.file);
        std::mem::forget(std::mem::replace(&mut self.lock, Lock::None));
    }
}

const NO_PLACE: &str = "a volume lives in a regular file or on a block device, and this is neither";

/// Opening a pipe can wait for ever, and a terminal or a tape drive minds being opened at all.
fn refuse_streams(path: &Path, name: &str) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(kind) = std::fs::metadata(path).map(|metadata| metadata.file_type()) else {
        return Ok(()); // What the path lacks is for the open itself to say.
    };
    if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
        return Err(Error::new("open", name, Fault::NotVolume(NO_PLACE.into())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use baio_engine::EngineOptions;
    use baio_engine::sim::{Disk, Sim};

    use super::*;

    #[test]
    fn pages_are_written_at_once_where_nobody_else_uses_the_engine() {
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &EngineOptions::default()).unwrap();
        let device = Device::from(&File::simulated(&Disk::new(4 * 4096), "disk"));
        let page = [1; 4096];
        let pages = [0, 4096, 8192, 12288].map(|at| (at, &page[..]));
        device.write_pages(&mut engine, &pages, Durability::Data).unwrap();
        assert_eq!(engine.stats().in_flight_max, 4);
    }
}
