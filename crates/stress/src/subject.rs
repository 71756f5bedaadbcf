//! A file, a device or a segment for other commands that measure by writing. It is inspected, protected and made as `stress` does it, and
//! reached in the same ways, but it takes one write at a time.
//!
//! [`Ground::prepare`] checks whether the target may be overwritten and makes a missing file. [`Ground::open`] gives the [`Subject`] that
//! takes the writes.

use std::path::{Path, PathBuf};

use baio::{Core, Error, Fault, Identity, Local};
use baio_console::failure::Failure;
use baio_console::named::{NamedSegment, Volume};
use baio_console::size::format_size;
use baio_console::target::{Target as Meant, TypedTarget};
use baio_engine::{Caching, Create, Descriptions, Durability, File, Memory, Open, Wait};

use crate::deal::deal;
use crate::drive::put;
use crate::fill::{Want, make};
use crate::job::{Backend, Job, Objects, Rw, SEGMENT_BLOCK, SegmentPath, Stage, Stream};
use crate::pattern::Random;
use crate::place::{Claim, Kind, Place, is_empty, may_write_segment, refused, too_small};
use crate::schedule::Piece;
use crate::target::{Reach, Target, buffers};

/// Files that are made are written in requests of this many bytes.
const FILL_BYTES: u64 = 4096;

/// Bytes of each write, if nobody says.
const WRITE_BYTES: u64 = 512;

/// What is wanted of a target.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The command at work, for messages.
    pub command: &'static str,
    /// Where.
    pub target: &'a TypedTarget,
    /// Also a volume image, a device, somebody else's segment.
    pub force: bool,
    /// Bytes of each write, as asked for. Without that, 512, or as many as the device asks for.
    pub request_size: Option<u64>,
    /// Requests that must fit into it side by side.
    pub requests: u64,
    /// Bytes that it must have, whatever the size of a request.
    pub bytes_min: u64,
    /// Bytes of it that are used, as asked for.
    pub size: Option<u64>,
    /// Bytes of a file that is missing, if no size is asked for.
    pub size_default: u64,
}

/// A target that is there, large enough, and ours to use.
#[derive(Debug)]
pub struct Ground {
    command: &'static str,
    objects: Objects,
    /// Bytes of it that are used.
    pub size: u64,
    /// Bytes of each request.
    pub request_size: u64,
    /// The file or device; of a segment, its volume's.
    pub path: PathBuf,
    _claim: Option<Claim>,
}

/// How requests are to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// By what.
    pub backend: Backend,
    /// What is safe when a write completes.
    pub durability: Durability,
    /// Requests that may be under way.
    pub depth: u32,
}

/// An open target, for one thread.
pub struct Subject {
    target: Target<Local>,
    job: Job,
    buffers: Vec<Memory>,
}

/// The end of a request.
pub struct Reply {
    /// As it was handed over.
    pub tag: u64,
    /// Its buffer.
    pub memory: Memory,
    /// Bytes that were moved.
    pub result: Result<u32, Fault>,
}

impl Ground {
    /// Looks at a target, and makes a file that is missing or too short.
    ///
    /// # Errors
    /// It may not be written over, does not fit what is asked, or cannot be made.
    pub fn prepare(wish: &Wish<'_>) -> Result<Ground, Failure> {
        if wish.request_size == Some(0) {
            return Err(Failure::usage(wish.command, "a request has at least one byte")
                .on("--request-size (--bs)")
                .needing("at least one block")
                .cured_by("choose a larger one, or leave it out"));
        }
        match wish.target.meant(wish.command)? {
            Meant::File(path) => of_file(wish, &path),
            Meant::Segment(named) => match &named.volume {
                Volume::Here(path) => of_segment(wish, &named, path),
                Volume::Served(_) => Err(wish.target.served(wish.command)),
            },
            Meant::Served(_) => Err(wish.target.served(wish.command)),
        }
    }

    /// The owner and the name of a segment; `None` of a file or device.
    pub fn segment(&self) -> Option<(u32, &str)> {
        match &self.objects {
            Objects::Files(_) => None,
            Objects::Segment(segment) => Some((segment.owner_uid, &segment.name)),
        }
    }

    /// Which way direct requests go here: a file system may take them and go through its page cache all the same (tmpfs, ext4 where it
    /// journals data). Some blocks of the file, or of the volume's, are read for that.
    pub fn mode(&self) -> &'static str {
        let found = File::open(&self.path, &Open::read()).map(|file| file.probe(Caching::Direct));
        // Of what cannot be asked the requests themselves will tell.
        let found = found.ok().and_then(Result::ok).unwrap_or(Caching::Direct);
        found.name()
    }

    /// Opens it, with as many buffers as there may be requests under way.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn open(&self, manner: Manner) -> Result<Subject, Failure> {
        let streams = [Stream {
            object: 0,
            start: 0,
            end: self.size,
        }];
        let mut lanes = deal(&streams, 1);
        lanes[0].depth = manner.depth;
        let job = Job {
            lanes,
            stages: vec![Stage::of(Rw::RandomWrite)],
            durability: manner.durability,
            backend: manner.backend.into(),
            ..Job::new(self.command, self.objects.clone(), self.request_size)
        };
        let mut target = Local::open_lane(&job, 0, &())?;
        let buffers = buffers(&job, &job.lanes[0], &mut target);
        let mut subject = Subject {
            target,
            job,
            buffers: Vec::new(),
        };
        match buffers {
            Ok(buffers) => subject.buffers = buffers,
            Err(failure) => {
                // The first failure is the one to tell.
                let _ = subject.close();
                return Err(failure);
            }
        }
        let mut random = Random::new(1);
        let mut bytes = vec![0; self.request_size as usize];
        for memory in &mut subject.buffers {
            random.fill(&mut bytes);
            put(memory, &bytes);
        }
        Ok(subject)
    }
}

impl Subject {
    /// A buffer that no request has: filled at random at first.
    pub fn buffer(&mut self) -> Option<Memory> {
        self.buffers.pop()
    }

    /// Queues a write; the kernel has it after the next turn.
    ///
    /// # Errors
    /// There are more than there may be under way: the memory comes back.
    pub fn start(&mut self, offset: u64, memory: Memory, tag: u64) -> Result<(), Memory> {
        let piece = Piece {
            offset,
            write: true,
            ..Piece::default()
        };
        self.target.start(&piece, memory, tag)
    }

    /// Hands over what is queued, and sleeps as long as `wait` allows.
    ///
    /// # Errors
    /// Nothing goes on.
    pub fn turn(&mut self, wait: Wait) -> Result<(), Failure> {
        self.target.turn(wait).map_err(|fault| {
            let error = Error::new("turn", "the engine", fault);
            Failure::from_storage(self.job.command, "the engine", &error)
        })
    }

    /// The next end that a turn has found.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let ended = self.target.next()?;
        Some(Reply {
            tag: ended.tag,
            memory: ended.memory,
            result: ended.result,
        })
    }

    /// What a write at `offset` that ended so has to say; `None` if it did all.
    pub fn failure_of(&self, offset: u64, result: Result<u32, Fault>) -> Option<Failure> {
        let name = self.job.objects.name(0);
        match result {
            Ok(bytes) if u64::from(bytes) == self.job.request_size => None,
            Ok(bytes) => {
                let said = format!("a write of {} bytes ended after {bytes}", self.job.request_size);
                let failure = Failure::new(self.job.command, "EIO", said).on(name).at(offset);
                Some(
                    failure
                        .needing("an object that keeps its size")
                        .cured_by("see who cuts it meanwhile"),
                )
            }
            Err(fault) => {
                let error = Error::new("write", name.clone(), fault).at(offset);
                Some(Failure::from_storage(self.job.command, name, &error))
            }
        }
    }

    /// The backend at work.
    pub fn backend(&self) -> &'static str {
        self.target.backend()
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// The volume of a segment did not close.
    pub fn close(self) -> Result<(), Failure> {
        drop(self.buffers);
        self.target.close()
    }
}

/// Makes sure that a result may be written to this path: nothing is there, or an ordinary file that is no volume.
///
/// # Errors
/// There is something else; or what the system said.
pub fn may_replace(command: &'static str, path: &Path) -> Result<(), Failure> {
    let claimed = Place::look(command, path)?.claim(command, false);
    claimed.map(drop).map_err(|failure| {
        failure
            .needing("a new file, or one that holds nothing precious")
            .cured_by("name another file")
    })
}

fn of_file(wish: &Wish<'_>, path: &Path) -> Result<Ground, Failure> {
    let place = Place::look(wish.command, path)?;
    let size = size_of(wish, &place)?;
    fits(wish, size, size, wish.request_size.unwrap_or(WRITE_BYTES))?;
    let claim = place.claim(wish.command, wish.force)?;
    let objects = Objects::Files(vec![path.to_owned()]);
    let is_missing = place.kind == Kind::Missing;
    let mut filling = Job::new(wish.command, objects.clone(), FILL_BYTES);
    make(&mut filling, &[Want { place, size }])?;
    let made = is_missing.then(|| Made(Some(path)));
    let options = Open {
        write: false,
        descriptions: Descriptions::Only(Caching::Direct),
        create: Create::Never,
        claim_device: false,
    };
    let file = File::open(path, &options).map_err(|error| refused(wish.command, path, error))?;
    let least = u64::from(file.direct_limits().offset);
    let ground = Ground {
        command: wish.command,
        objects,
        size,
        request_size: wish.request_size.unwrap_or(WRITE_BYTES.max(least)),
        path: path.to_owned(),
        _claim: Some(claim),
    };
    fits(wish, size, size, ground.request_size)?;
    if let Some(made) = made {
        made.stays();
    }
    Ok(ground)
}

/// A file that was made for a run that then turns out to make no sense goes again.
struct Made<'a>(Option<&'a Path>);

impl Made<'_> {
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // There is nobody to tell: another failure is under way.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn of_segment(wish: &Wish<'_>, named: &NamedSegment, volume: &Path) -> Result<Ground, Failure> {
    let who = Identity::effective();
    let owner_uid = named.owner_uid(who);
    may_write_segment(wish.command, &named.typed, owner_uid, who, wish.force)?;
    let info = Core::inspect_segment(volume, who, owner_uid, &named.name);
    let info = named.told(wish.command, info)?;
    let request_size = wish.request_size.unwrap_or(SEGMENT_BLOCK);
    let ground = Ground {
        command: wish.command,
        objects: Objects::Segment(SegmentPath::of_named(named, who)),
        size: wish.size.unwrap_or(info.size_bytes),
        request_size,
        path: volume.to_owned(),
        _claim: None,
    };
    if !request_size.is_multiple_of(SEGMENT_BLOCK) {
        let said = format!("requests of {request_size} bytes are not whole blocks");
        return Err(Failure::usage(wish.command, said)
            .on(named.typed.as_str())
            .needing("a multiple of 4096 bytes")
            .cured_by("choose another --request-size (--bs)"));
    }
    fits(wish, info.size_bytes, ground.size, request_size)?;
    Ok(ground)
}

/// There must be room for the requests, and no more may be asked for than there is.
fn fits(wish: &Wish<'_>, there: u64, size: u64, request_size: u64) -> Result<(), Failure> {
    let needed = wish.requests.max(1).saturating_mul(request_size);
    let refused = |said: String, need: String, cure: &str| {
        Err(Failure::usage(wish.command, said)
            .on(wish.target.to_string())
            .needing(need)
            .cured_by(cure))
    };
    if size > there {
        return Err(too_small(wish.command, &wish.target.to_string(), there, size));
    }
    if size < wish.bytes_min {
        let said = format!("{} are too few to work on", format_size(size));
        let cure = "choose a larger target or --size";
        return refused(said, format!("{} bytes", wish.bytes_min), cure);
    }
    if size < needed {
        let (count, size) = (wish.requests.max(1), format_size(size));
        let said = format!("requests of {request_size} bytes: {size} have no room for {count}");
        let cure = "choose fewer or smaller requests, or a larger target or --size";
        return refused(said, format!("{needed} bytes"), cure);
    }
    Ok(())
}

/// The bytes of a file or device that are used.
fn size_of(wish: &Wish<'_>, place: &Place) -> Result<u64, Failure> {
    match (place.kind, wish.size) {
        (Kind::Missing, size) => {
            let each = wish.request_size.unwrap_or(WRITE_BYTES).max(FILL_BYTES);
            let needed = wish.requests.saturating_mul(each).max(FILL_BYTES);
            // What is made is written in whole blocks.
            let size = size.unwrap_or(wish.size_default.max(needed));
            Ok(size.checked_next_multiple_of(FILL_BYTES).unwrap_or(size))
        }
        (Kind::File | Kind::Device, None) if place.size == 0 => Err(is_empty(wish.command, &place.path)),
        (Kind::File | Kind::Device, None) => Ok(place.size),
        (Kind::File, Some(asked)) => Ok(asked),
        (Kind::Device, Some(asked)) if asked <= place.size => Ok(asked),
        (Kind::Device, Some(asked)) => {
            let shown = place.path.display().to_string();
            Err(too_small(wish.command, &shown, place.size, asked))
        }
    }
}
