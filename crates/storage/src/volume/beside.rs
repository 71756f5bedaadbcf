//! Looking at a volume that another process has open to write: without its lock, writing nothing.
//!
//! # What is read is of one moment
//!
//! The table is read twice. Of each bucket the epoch and generation of the image that it is are remembered, and of the
//! superblock its sequence. All of them only grow. (The checksum too: a record that the host refused whole lends its generation to the
//! next one.) So if both readings agree, nothing has changed between the end of the first
//! and the beginning of the second, and what the first one told was the volume at that moment. If not, it is tried again, after
//! a growing pause; a volume that does not stand still for so long is told as *possibly torn*.
//!
//! # What one bucket is
//!
//! Which image is believed is the rule of recovery (`segment/bucket.rs`): the newest in the table, also when the mirror does
//! not have it yet. A page that was caught half-written fails its checksum; then the mirror decides, which is behind the table
//! and has what was acknowledged. Images are read one after the other, so each bucket is told as it was at some moment of its
//! own reading: no image is overwritten before the one after it is whole.
//!
//! # What the device shows
//!
//! The volume is read as it is served, by direct I/O where the file system has that; a reading by direct I/O sees what others
//! wrote through the page cache, and the other way round, as the kernel keeps the two the same for one file or device. So it does
//! for a file and a loop device over it. It does not between machines, nor between a device and a partition or mapping over it
//! where either is written without direct I/O.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use baio_engine::Engine;
use baio_words::InUse;

use crate::error::{Error, Fault, Result};
use crate::segment::bucket::Image;
use crate::segment::superblock::Superblock;
use crate::volume::device::Device;
use crate::volume::lock::Hold;
use crate::volume::table::{Doubt, Healing};

/// The part of an image that says which it is: bucket, epoch, generation and checksum (`segment/bucket.rs`).
const HEADER_BYTES: usize = 64;
/// How long a volume that does not stand still is tried for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first pause between two tries; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(1);
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Tries at least, however long one takes.
const TRIES_MIN: u32 = 3;
/// So many times in turn the same error is no chance.
const SAME_ERRORS: u32 = 5;

/// What a look at a volume has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// What it is.
    pub found: T,
    /// The volume was changing while it was read, and did not stand still: parts of it may be of different moments.
    pub torn: bool,
}

/// What one reading of a volume has met.
#[derive(Debug)]
pub(crate) struct Witness {
    /// Set where the volume is read beside its owner.
    user: Option<InUse>,
    hasher: DefaultHasher,
}

impl Witness {
    /// Of a reading under a lock: nobody writes meanwhile.
    pub(crate) fn of_a_lock() -> Witness {
        Witness {
            user: None,
            hasher: DefaultHasher::new(),
        }
    }

    fn beside(user: InUse) -> Witness {
        Witness {
            user: Some(user),
            ..Witness::of_a_lock()
        }
    }

    /// Beside whom the volume is read.
    pub(crate) fn user(&self) -> Option<InUse> {
        self.user
    }

    /// Notes the superblock; returns which buckets are in doubt.
    pub(crate) fn saw_superblock(&mut self, found: &Superblock) -> Doubt {
        (found.uuid, found.sequence, found.epoch, found.healed_epoch).hash(&mut self.hasher);
        let is_served = found.healed_epoch == found.epoch;
        match self.user {
            // Its owner has healed it, and reads the table alone where that is whole.
            Some(_) if is_served => Doubt {
                from_epoch: u64::MAX,
                healing: Healing::InMemory,
            },
            _ => Doubt::after(found, Healing::InMemory),
        }
    }

    /// Notes the image that a bucket is.
    pub(crate) fn saw(&mut self, image: &Image<'_>) {
        // Of those that were never written some are left out by whoever reads.
        if image.generation() > 0 {
            image.bytes()[..HEADER_BYTES].hash(&mut self.hasher);
        }
    }

    fn agrees(&self, other: &Witness) -> bool {
        self.hasher.finish() == other.hasher.finish() || crate::seeded_bug("the-first-reading-is-believed")
    }
}

/// Reads something of a volume: it notes in the witness what it met.
type Read<'a, T> = dyn FnMut(&mut Engine, &Device, &mut Witness) -> Result<T> + 'a;

/// Reads a volume under a shared lock if nobody writes to it, else beside its owner.
///
/// # Errors
/// What `read` says, each time; what the system said.
pub(crate) fn look<T>(engine: &mut Engine, path: &Path, read: &mut Read<'_, T>) -> Result<Seen<T>> {
    let began = Instant::now();
    let (mut pause, mut tries) = (PAUSE, 0);
    let mut torn = None;
    let mut errors = SameErrors::default();
    loop {
        let holder = match locked(engine, path, read)? {
            Locked::Seen(found) => return Ok(Seen { found, torn: false }),
            Locked::InUse(holder) => holder,
        };
        match twice(engine, path, holder, read) {
            Ok((found, true)) => return Ok(Seen { found, torn: false }),
            Ok((found, false)) => {
                torn = Some(found);
                errors = SameErrors::default();
            }
            Err(error) => errors.add(error),
        }
        tries += 1;
        let is_over = tries >= TRIES_MIN && began.elapsed() >= PATIENCE;
        match (torn.take(), errors.last.take()) {
            (_, Some(error)) if errors.is_no_chance() => return Err(error),
            (Some(found), _) if is_over => return Ok(Seen { found, torn: true }),
            (None, Some(error)) if is_over => return Err(error),
            (found, error) => (torn, errors.last) = (found, error),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// What came of the attempt to lock it.
enum Locked<T> {
    Seen(T),
    /// Somebody has it open to write.
    InUse(Option<u32>),
}

fn locked<T>(engine: &mut Engine, path: &Path, read: &mut Read<'_, T>) -> Result<Locked<T>> {
    let device = match Device::open(path, Hold::SharedIfFree) {
        Ok(device) => device,
        Err(error) => {
            return match error.fault {
                Fault::Busy { holder } => Ok(Locked::InUse(holder)),
                _ => Err(error),
            };
        }
    };
    let seen = device.look(engine, |engine, device| read(engine, device, &mut Witness::of_a_lock()));
    seen.map(Locked::Seen)
}

/// Reads it twice. Gives what the first reading found, and whether the second has met the same.
fn twice<T>(engine: &mut Engine, path: &Path, holder: Option<u32>, read: &mut Read<'_, T>) -> Result<(T, bool)> {
    Device::open(path, Hold::Beside)?.look(engine, |engine, device| {
        let user = InUse { pid: holder };
        let (mut first, mut second) = (Witness::beside(user), Witness::beside(user));
        let found = read(engine, device, &mut first)?;
        // One that fails has met something else.
        let agrees = read(engine, device, &mut second).is_ok() && first.agrees(&second);
        Ok((found, agrees))
    })
}

/// The last error, and how often it came in turn. Of what is being written a reading may make nothing, but not every time
/// the same nothing.
#[derive(Default)]
struct SameErrors {
    last: Option<Error>,
    times: u32,
}

impl SameErrors {
    fn add(&mut self, error: Error) {
        let same = self
            .last
            .as_ref()
            .is_some_and(|last| last.to_string() == error.to_string());
        self.times = if same { self.times + 1 } else { 1 };
        self.last = Some(error);
    }

    fn is_no_chance(&self) -> bool {
        self.times >= SAME_ERRORS
    }
}

#[cfg(test)]
mod tests {
    use baio_engine::{Caching, Descriptions, EngineOptions, File, Open};

    use super::*;

    /// A file that somebody has locked to write, and an engine to look at it.
    fn in_use() -> (tempfile::NamedTempFile, File, Engine) {
        let place = tempfile::NamedTempFile::new().unwrap();
        let kernel = Descriptions::Only(Caching::Kernel);
        let owner = File::open(
            place.path(),
            &Open {
                descriptions: kernel,
                ..Open::write()
            },
        )
        .unwrap();
        owner.try_lock(true).unwrap();
        let engine = Engine::new(&EngineOptions {
            slots: 4,
            arena_bytes: 1 << 20,
            ..EngineOptions::default()
        })
        .unwrap();
        (place, owner, engine)
    }

    fn failed(what: &str) -> Error {
        Error::new("read", "it", Fault::Corrupt(what.to_owned()))
    }

    #[test]
    fn what_never_stands_still_is_told_as_torn() {
        let (place, _owner, mut engine) = in_use();
        let mut readings = 0;
        let seen = look(&mut engine, place.path(), &mut |_, _, witness| {
            readings += 1;
            readings.hash(&mut witness.hasher);
            Ok(readings)
        });
        let seen = seen.unwrap();
        assert!(seen.torn);
        assert_eq!(seen.found, readings - 1, "the first of the last two");
    }

    #[test]
    fn a_reading_that_met_a_change_is_made_again() {
        let (place, _owner, mut engine) = in_use();
        let mut readings = 0;
        let seen = look(&mut engine, place.path(), &mut |_, _, witness| {
            readings += 1;
            readings.min(4).hash(&mut witness.hasher);
            match readings {
                3 => Err(failed("a page is half-written")),
                _ => Ok(readings),
            }
        });
        // 1 and 2 differ, 3 fails, 4 and 5 agree.
        assert_eq!(seen.unwrap(), Seen { found: 4, torn: false });
    }

    #[test]
    fn an_error_that_stays_is_one() {
        let (place, _owner, mut engine) = in_use();
        let mut readings = 0;
        let seen: Result<Seen<()>> = look(&mut engine, place.path(), &mut |_, _, _| {
            readings += 1;
            Err(failed("it is lost"))
        });
        assert!(seen.unwrap_err().to_string().contains("it is lost"));
        assert_eq!(readings, SAME_ERRORS);
    }

    #[test]
    fn an_owner_that_goes_leaves_the_lock_to_who_looks() {
        let (place, owner, mut engine) = in_use();
        let mut users = Vec::new();
        let seen = look(&mut engine, place.path(), &mut |_, _, witness| {
            users.push(witness.user().is_some());
            users.len().hash(&mut witness.hasher);
            owner.unlock();
            Ok(())
        });
        assert!(!seen.unwrap().torn);
        assert_eq!(users, [true, true, false]);
    }
}
