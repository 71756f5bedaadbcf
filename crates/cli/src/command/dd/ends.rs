//! The two ends of a copy: what is typed becomes something that requests can be made on.
//!
//! The order of opening keeps mistakes cheap: plain files first, because a volume that is opened is written (its epoch),
//! then volumes, then segments; and only when all of that is done is an output file cut.

use std::io::{Seek, SeekFrom};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use baio::{Access, Caching, Durability, EngineOptions, Errno, Fault, Handle, Mode};
use baio_console::failure::Failure;
use baio_console::memory_limit::Room;
use baio_console::named::{NamedSegment, Volume};
use baio_console::printable::readable;
use baio_console::target::{Target, TypedTarget};
use baio_engine::Kind;

use rustix::fs::Advice;

use super::frame::{BLOCK, is_aligned};
use super::inode::{Inode, inode_of};
use super::plain::{self, Flow, Made, Plain};
use super::routes::{Opened, Routes};
use super::signals::Signals;
use crate::operands::{Creation, DdOperands, Flags, Truncate};

/// An end as it was typed.
enum Typed {
    Standard(&'static str),
    File(PathBuf),
    Segment(NamedSegment),
}

/// What an end is, to tell whether two are one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Object {
    File(Inode),
    Segment {
        /// Of a volume that a broker serves: its socket.
        volume: Option<Inode>,
        owner: u32,
        name: String,
    },
}

/// One end of a copy.
pub(super) struct End {
    /// As it was typed, for messages.
    pub(super) typed: String,
    /// The link that leads to it.
    pub(super) route: usize,
    opened: Opened,
    pub(super) mode: Mode,
    pub(super) flow: Flow,
    /// The offset of the first byte of the copy.
    pub(super) origin: u64,
    /// What requests must be multiples of; 1 where any byte will do.
    pub(super) align: u64,
    /// What reads of a file past the kernel's cache must be multiples of; `None` where it was not opened for them.
    pub(super) direct: Option<u64>,
    /// A stream of which a short read means nothing: there is always more.
    pub(super) never_short: bool,
    /// A directory can be opened, and each read of it fails.
    pub(super) unreadable: Option<Errno>,
    /// Its size when it was opened; 0 for streams.
    pub(super) size: u64,
    kind: EndKind,
    object: Object,
    /// The same description once more, to move its position: of standard input and output, and of streams.
    pub(super) positioned: Option<std::fs::File>,
    /// `nocache`: of what the kernel is told.
    advised: Option<std::fs::File>,
    /// The operand that asked for its mode, if one did.
    pub(super) asked: Option<&'static str>,
    /// What the system says of a position at `origin`, if it has something to say.
    nowhere: Option<Errno>,
    made: Option<Made>,
}

/// What decides how an end is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    Segment,
    Device,
    /// A file that was named, and so may be cut.
    File,
    /// A file that somebody else opened.
    StandardFile,
    Stream,
}

/// Both ends.
pub(super) struct Ends {
    pub(super) input: End,
    pub(super) output: End,
}

impl Ends {
    /// Opens both. `config` sizes the links.
    pub(super) fn open(
        operands: &DdOperands,
        mut config: EngineOptions,
        signals: &Signals,
    ) -> Result<(Routes, Ends), Failure> {
        let input = resolve(operands.input.as_ref(), "standard input")?;
        let output = resolve(operands.output.as_ref(), "standard output")?;
        refuse_what_a_segment_has_not(&output, operands)?;
        let source = open_input(&input, operands)?;
        let errno = source.as_ref().and_then(|plain| plain.unreadable);
        if let (Some(errno), Typed::Segment(_), false) = (errno, &output, operands.noerror) {
            // Nothing would be written: that is no reason to open a volume.
            return Err(unreadable(&input.typed(), errno));
        }
        let target = open_output(&output, operands)?;
        let made = target.as_ref().and_then(|plain| plain.made.clone());
        let is_cached = |plain: &Plain| plain.mode == Mode::Kernel && plain.file.kind() != Kind::Stream;
        if target.as_ref().is_some_and(is_cached) {
            config.backend = Room::here().backend_of_page_cache(config.backend);
        }
        let mut routes = Routes::new(config, signals.clone());
        let ends = (|| {
            // Volumes first: the first link has the arena, and plain files are no reason for another.
            let volume = if input.shares_volume(&output) {
                Access::Write
            } else {
                Access::Read
            };
            let found = [
                open_segment(&mut routes, &input, Access::Read, volume)?,
                open_segment(&mut routes, &output, Access::Write, Access::Write)?,
            ];
            let [from, to] = found;
            Ok(Ends {
                input: finish(
                    &mut routes,
                    (&input, operands.skip_bytes()),
                    from,
                    source,
                    operands.mode,
                )?,
                output: finish(&mut routes, (&output, operands.seek_bytes()), to, target, operands.mode)?,
            })
        })();
        match ends {
            Ok(ends) => Ok((routes, ends)),
            Err(failure) => {
                let _ = routes.close(); // The first failure is the one to tell.
                made.as_ref().map(Made::remove);
                Err(failure)
            }
        }
    }

    /// Would the copy read what it writes? Then it goes one record after the other, as GNU dd does.
    pub(super) fn overlap(&self, count: u64) -> bool {
        let (input, output) = (&self.input, &self.output);
        if input.object != output.object {
            // A disk and its partition share bytes, and which ones is not looked at.
            let disks = [input, output].map(End::disk);
            return disks[0].is_some() && disks[0] == disks[1];
        }
        if input.flow == Flow::InOrder || output.flow == Flow::InOrder {
            // What a file is appended is read again.
            return input.kind != EndKind::Stream && output.kind != EndKind::Stream;
        }
        let len = count.min(input.size.saturating_sub(input.origin));
        let grows = matches!(input.kind, EndKind::File | EndKind::StandardFile) && count > len;
        let apart =
            input.origin.saturating_add(len) <= output.origin || output.origin.saturating_add(len) <= input.origin;
        grows || !apart
    }
}

impl End {
    /// The offset of a position of the copy.
    pub(super) fn offset(&self, position: u64) -> u64 {
        self.origin.saturating_add(position)
    }

    pub(super) fn kind(&self) -> EndKind {
        self.kind
    }

    /// Bytes that can be written from the first one on.
    pub(super) fn room(&self) -> u64 {
        match self.kind {
            EndKind::Segment | EndKind::Device => self.size.saturating_sub(self.origin),
            EndKind::File | EndKind::StandardFile | EndKind::Stream => u64::MAX,
        }
    }

    /// Moves standard input and output behind what was copied, for whoever goes on with them.
    pub(super) fn leave_position(&self, bytes: u64) {
        if let (Some(mut file), Flow::Anywhere) = (self.positioned.as_ref(), self.flow) {
            let _ = file.seek(SeekFrom::Start(self.offset(bytes)));
        }
    }

    /// `nocache`: the kernel need not keep what was copied. It is advice, so nobody is told that it was not taken.
    pub(super) fn drop_cached(&self, bytes: u64) {
        if let Some(file) = &self.advised {
            // As GNU dd: nothing copied (`count=0`) is all that there is.
            let _ = rustix::fs::fadvise(file, self.origin, NonZeroU64::new(bytes), Advice::DontNeed);
        }
    }

    /// Fails where no copy can begin at `origin`, to which it would skip or seek.
    pub(super) fn must_reach(&self, operation: &'static str) -> Result<(), Failure> {
        let Some(errno) = self.nowhere else {
            return Ok(());
        };
        let error = baio::Error::new(operation, self.typed.clone(), errno).at(self.origin);
        Err(self
            .failed(&error)
            .needing("an offset within the device, or within the largest file of the file system")
            .cured_by(format!("choose a smaller {operation}=")))
    }

    /// Passes over bytes of a stream by moving its position; says whether it has one.
    pub(super) fn move_position(&self, bytes: u64) -> bool {
        let distance = i64::try_from(bytes).unwrap_or(i64::MAX);
        let moved = self
            .positioned
            .as_ref()
            .map(|mut file| file.seek(SeekFrom::Current(distance)));
        matches!(moved, Some(Ok(_)))
    }

    /// Removes a file that was made for a copy that does not begin.
    pub(super) fn unmake(&self) {
        self.made.as_ref().map(Made::remove);
    }

    /// The disk that a device is, or is a part of, as sysfs has it.
    fn disk(&self) -> Option<PathBuf> {
        let Object::File((_, number)) = self.object else {
            return None;
        };
        if self.kind != EndKind::Device {
            return None;
        }
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let place = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        match place.join("partition").exists() {
            true => place.parent().map(Path::to_owned),
            false => Some(place),
        }
    }

    /// Cuts an output file where the copy begins to write.
    pub(super) fn truncate(&self, truncate: Truncate) -> Result<(), Failure> {
        if self.kind != EndKind::File || truncate == Truncate::Never {
            return Ok(());
        }
        self.cut(self.origin)
    }

    /// The size of an output file as it is now.
    pub(super) fn size_now(&self) -> Result<u64, Failure> {
        match &self.opened {
            Opened::File(file) => file.size().wait().map_err(|error| self.failed(&error)),
            Opened::Here(_) | Opened::There(_) => Ok(self.size),
        }
    }

    /// Gives an output file a size.
    pub(super) fn cut(&self, size: u64) -> Result<(), Failure> {
        let Opened::File(file) = &self.opened else {
            return Ok(());
        };
        let cut = file.truncate(size).wait().map(drop);
        cut.map_err(|failed| self.failed(&failed.error).at(size))
    }

    /// What requests name it by.
    pub(super) fn handle(&self) -> Handle {
        self.opened.handle()
    }

    /// A storage error as the failure of this end.
    pub(super) fn failed(&self, error: &baio::Error) -> Failure {
        let failure = Failure::from_storage("dd", self.typed.clone(), error);
        if error.code() == "EPIPE" && !matches!(error.fault, Fault::ServiceEnded | Fault::ServiceFailed(_)) {
            // What a reader that has enough does, such as `head`; GNU dd would die of SIGPIPE.
            return failure
                .needing("a reader that takes all of it")
                .cured_by("let it read to the end, or copy less (count=)");
        }
        failure
    }

    /// Is this an output that takes whole blocks only?
    pub(super) fn is_segment(&self) -> bool {
        self.kind == EndKind::Segment
    }

    /// How safe each write is when it ends. A stream has nothing that could be made safe.
    pub(super) fn durability(&self, operands: &DdOperands) -> Durability {
        match self.kind {
            EndKind::Stream => Durability::None,
            _ => operands.output_flags.durable,
        }
    }

    /// By which cache a write goes: past all of them only where it begins and ends on whole sectors.
    pub(super) fn mode_of_write(&self, offset: u64, len: u64) -> Mode {
        match (is_aligned(offset, len, self.align), self.kind) {
            (true, _) => self.mode,
            // The page cache reads what the sectors keep, and nobody sees a half of them.
            (false, EndKind::Segment) => Mode::Cached,
            // As GNU dd does when it clears O_DIRECT for a partial block.
            (false, _) => Mode::Kernel,
        }
    }

    /// There is no room for what is to be written.
    pub(super) fn is_full(&self) -> Failure {
        Failure::new(
            "dd",
            "ENOSPC",
            "no space left: it ends here, and a copy does not change its size",
        )
        .on(self.typed.clone())
        .at(self.offset(self.room()))
        .needing("an output with room for all of the input")
        .cured_by("copy less (count=, seek=), or make a larger segment")
    }
}

/// What each read of a directory comes to.
pub(super) fn unreadable(typed: &str, errno: Errno) -> Failure {
    let error = baio::Error::new("read", typed.to_owned(), errno);
    Failure::from_storage("dd", typed, &error)
        .needing("a file or a device")
        .cured_by("name a file in it")
}

fn resolve(typed: Option<&TypedTarget>, standard: &'static str) -> Result<Typed, Failure> {
    let Some(typed) = typed else {
        return Ok(Typed::Standard(standard));
    };
    Ok(match typed.meant("dd")? {
        Target::File(path) => Typed::File(path),
        Target::Segment(segment) => Typed::Segment(segment),
        Target::Served(_) => return Err(typed.segment_expected("dd")),
    })
}

fn open_input(named: &Typed, operands: &DdOperands) -> Result<Option<Plain>, Failure> {
    let begin = plain::Begin {
        typed: &named.typed(),
        offset: operands.skip_bytes(),
        flags: &flags_of(named, &operands.input_flags, operands.mode),
        asked: asked(&operands.input_flags, operands.mode, "iflag=direct"),
        mode: operands.mode,
        verifies: operands.verifies,
    };
    match named {
        Typed::Standard(_) => plain::standard_input(begin).map(Some),
        Typed::File(path) => plain::open_input(path, begin).map(Some),
        Typed::Segment(_) => Ok(None),
    }
}

fn open_output(named: &Typed, operands: &DdOperands) -> Result<Option<Plain>, Failure> {
    let begin = plain::Begin {
        typed: &named.typed(),
        offset: operands.seek_bytes(),
        flags: &flags_of(named, &operands.output_flags, operands.mode),
        asked: asked(&operands.output_flags, operands.mode, "oflag=direct"),
        mode: operands.mode,
        verifies: operands.verifies,
    };
    match named {
        Typed::Standard(_) => plain::standard_output(begin).map(Some),
        Typed::File(path) => plain::open_output(path, begin, operands.creation).map(Some),
        Typed::Segment(_) => Ok(None),
    }
}

/// A segment is there, has its size, and is no directory: what asks for something else is refused before anything is written.
fn refuse_what_a_segment_has_not(output: &Typed, operands: &DdOperands) -> Result<(), Failure> {
    let asked = match output {
        Typed::Standard(_) | Typed::File(_) => None,
        _ if operands.output_flags.append => Some("oflag=append"),
        _ if operands.output_flags.directory => Some("oflag=directory"),
        _ if operands.creation == Creation::Exclusive => Some("conv=excl"),
        _ => None,
    };
    let Some(asked) = asked else { return Ok(()) };
    Err(Failure::new("dd", "EINVAL", format!("a segment has no {asked}"))
        .on(output.typed())
        .needing("a file")
        .cured_by(format!("leave out {asked}; seek= says where in a segment to begin")))
}

/// `mode=direct` is the flag of each end that can have it.
fn flags_of(named: &Typed, flags: &Flags, mode: Option<Mode>) -> Flags {
    let can = matches!(named, Typed::File(path) if !plain::is_stream(path) && !path.is_dir());
    Flags {
        direct: flags.direct || can && mode == Some(Mode::Direct),
        ..*flags
    }
}

/// The operand that asks for a way past the kernel's cache.
fn asked(flags: &Flags, mode: Option<Mode>, flag: &'static str) -> Option<&'static str> {
    match (flags.direct, mode) {
        (true, _) => Some(flag),
        (false, Some(Mode::Direct)) => Some("mode=direct"),
        (false, Some(Mode::Uncached)) => Some("mode=uncached"),
        _ => None,
    }
}

/// A segment that is open.
struct OpenSegment {
    route: usize,
    opened: Opened,
    /// Of its volume, or of its broker's socket.
    place: Option<Inode>,
}

fn open_segment(
    routes: &mut Routes,
    named: &Typed,
    access: Access,
    volume: Access,
) -> Result<Option<OpenSegment>, Failure> {
    let Typed::Segment(segment) = named else {
        return Ok(None);
    };
    let (route, place) = match &segment.volume {
        Volume::Here(path) => {
            let place = inode_of(path);
            (routes.reach_volume(segment, (path, place), volume)?, place)
        }
        Volume::Served(socket) => {
            let place = inode_of(socket);
            (routes.reach_broker(segment, (socket, place))?, place)
        }
    };
    let opened = routes.open_segment(route, segment, access)?;
    Ok(Some(OpenSegment { route, opened, place }))
}

/// The end of what is open. A `mode=` that it does not have leaves it its own.
fn finish(
    routes: &mut Routes,
    (named, begin): (&Typed, u64),
    segment: Option<OpenSegment>,
    plain: Option<Plain>,
    mode: Option<Mode>,
) -> Result<End, Failure> {
    match (segment, plain) {
        (Some(segment), _) => Ok(segment_end(named.typed(), segment, begin, mode)),
        (None, Some(plain)) => plain_end(routes, named, plain, begin),
        (None, None) => Err(Failure::new("dd", "EBADF", "it was not opened").on(named.typed())),
    }
}

fn segment_end(typed: String, segment: OpenSegment, begin: u64, mode: Option<Mode>) -> End {
    let OpenSegment { route, opened, place } = segment;
    let (owner, name, size) = opened
        .info()
        .map(|info| (info.owner_uid, info.name.clone(), info.size_bytes))
        .unwrap_or_default();
    End {
        typed,
        route,
        opened,
        mode: mode.filter(|mode| *mode == Mode::Cached).unwrap_or(Mode::Direct),
        flow: Flow::Anywhere,
        origin: begin,
        align: BLOCK,
        direct: None,
        never_short: false,
        unreadable: None,
        size,
        kind: EndKind::Segment,
        object: Object::Segment {
            volume: place,
            owner,
            name,
        },
        positioned: None,
        advised: None,
        asked: None,
        nowhere: None,
        made: None,
    }
}

fn plain_end(routes: &mut Routes, named: &Typed, plain: Plain, begin: u64) -> Result<End, Failure> {
    let typed = named.typed();
    let size = plain.file.size().map_err(|errno| {
        let error = baio::Error::new("measure", typed.clone(), errno);
        Failure::from_storage("dd", typed.clone(), &error)
    })?;
    let kind = match (plain.file.kind(), named) {
        (Kind::Stream, _) => EndKind::Stream,
        (Kind::Block, _) => EndKind::Device,
        (_, Typed::File(_)) => EndKind::File,
        _ => EndKind::StandardFile,
    };
    let (align, object) = (plain.align(), Object::File(plain.file.identity()));
    let direct = plain
        .file
        .gives(Caching::Direct)
        .then(|| plain.file.direct_limits().offset.into());
    let (route, opened) = routes.open_file(plain.file, &typed)?;
    Ok(End {
        typed,
        route,
        opened,
        mode: plain.mode,
        flow: plain.flow,
        origin: plain.position.saturating_add(begin),
        align,
        direct,
        never_short: plain.never_short,
        unreadable: plain.unreadable,
        size,
        kind,
        object,
        positioned: plain.positioned.map(std::fs::File::from),
        advised: plain.advised,
        asked: plain.asked,
        nowhere: plain.nowhere,
        made: plain.made,
    })
}

impl Typed {
    /// Are both segments of one volume?
    fn shares_volume(&self, other: &Typed) -> bool {
        let volume = |named: &Typed| match named {
            Typed::Segment(NamedSegment {
                volume: Volume::Here(path),
                ..
            }) => inode_of(path),
            _ => None,
        };
        volume(self).is_some_and(|one| volume(other) == Some(one))
    }

    fn typed(&self) -> String {
        match self {
            Typed::Standard(name) => (*name).to_owned(),
            Typed::File(path) => readable(path),
            Typed::Segment(segment) => segment.typed.clone(),
        }
    }
}
