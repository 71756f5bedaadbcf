//! Where a log lies, and reading it there: a file, a device, or a segment, whose volume is read beside its owner if it has one. A segment
//! of a broker is read through it, opened to read.
//!
//! Nothing is opened to write. Reads are direct where that works, so that the owner's own direct writes are not disturbed.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baio::{Access, Core, Errno, Identity, InUse, Link, LogError, LogLook, Recovered, Remote, Segment, SegmentInfo};
use baio_console::failure::Failure;
use baio_console::named::{NamedSegment, Volume};
use baio_console::target::{Target, TypedTarget};
use baio_engine::Arena;

/// The bytes that a log may have.
pub(super) struct Area {
    /// As it was typed, for messages.
    pub(super) typed: String,
    /// Who has the volume open to write.
    pub(super) in_use: Option<InUse>,
    way: Way,
    size: u64,
    segment: Option<(NamedSegment, PathBuf, SegmentInfo)>,
}

/// How it is read.
enum Way {
    Here {
        buffered: File,
        direct: Option<File>,
        /// Where in the file it begins.
        begin: u64,
    },
    Far(Box<Segment<Remote>>),
}

/// Bytes of a read through a broker: whatever arena it gives has room for so many.
const FAR_BYTES: usize = 128 << 10;

impl Area {
    /// Finds and opens it.
    pub(super) fn open(typed: &TypedTarget) -> Result<Area, Failure> {
        match typed.meant("log")? {
            Target::File(path) => Area::of_file(&path, typed.to_string()),
            Target::Segment(named) => match named.volume.clone() {
                Volume::Here(volume) => Area::of_segment(named, &volume),
                Volume::Served(socket) => Area::of_served(&named, &socket),
            },
            Target::Served(_) => Err(typed.segment_expected("log")),
        }
    }

    fn of_file(path: &Path, typed: String) -> Result<Area, Failure> {
        let told = |error: io::Error| refused(&typed, &error);
        let kind = path.metadata().map_err(told)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let errno = if kind.is_dir() { Errno::EISDIR } else { Errno::EINVAL };
            return Err(told(io::Error::from_raw_os_error(errno.raw())));
        }
        let mut buffered = File::open(path).map_err(told)?;
        let size = buffered.seek(SeekFrom::End(0)).map_err(told)?;
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
        Ok(Area {
            in_use: None,
            way: Way::Here {
                buffered,
                direct: direct.ok(),
                begin: 0,
            },
            size,
            segment: None,
            typed,
        })
    }

    fn of_segment(named: NamedSegment, path: &Path) -> Result<Area, Failure> {
        let info = segment_info(&named, path)?;
        let seen = Core::inspect_beside(path, Identity::effective());
        let (volume, _) = named.told("log", seen)?.found;
        let mut area = Area::of_file(path, named.typed.clone())?;
        if let Way::Here { begin, .. } = &mut area.way {
            *begin = volume.data_at_bytes + info.start_block * u64::from(volume.block_size);
        }
        Ok(Area {
            in_use: volume.in_use,
            size: info.size_bytes,
            segment: Some((named, path.to_owned(), info)),
            ..area
        })
    }

    fn of_served(named: &NamedSegment, socket: &Path) -> Result<Area, Failure> {
        let link = named.told("log", Remote::connect(socket))?;
        let owner = named.owner_uid(link.identity());
        let segment = link.open_segment_of(owner, &named.name, Access::Read).wait();
        let segment = named.told("log", segment)?;
        Ok(Area {
            typed: named.typed.clone(),
            in_use: None,
            size: named.told("log", segment.size().wait())?,
            way: Way::Far(Box::new(segment)),
            segment: None,
        })
    }

    /// Is the segment still where it was? What was read is another's, else.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.segment {
            Some((named, path, info)) if segment_info(named, path)? != *info => Err(changing(&self.typed)),
            _ => Ok(()),
        }
    }

    /// What an opening would find.
    pub(super) fn look(&self, arena: &Arc<Arena>, salvage: bool) -> Result<(LogLook<'_>, Recovered), LogError> {
        LogLook::open(arena, self.size, salvage, |bytes: &mut [u8], offset| {
            let errno = |error: io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            self.read(bytes, offset).map_err(errno)
        })
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let (buffered, direct, begin) = match &self.way {
            Way::Here {
                buffered,
                direct,
                begin,
            } => (buffered, direct, begin),
            Way::Far(segment) => return read_far(segment, bytes, offset),
        };
        let at = begin.saturating_add(offset);
        match direct.as_ref().map(|direct| direct.read_exact_at(bytes, at)) {
            // The log's blocks may be smaller than the device's.
            None => buffered.read_exact_at(bytes, at),
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => buffered.read_exact_at(bytes, at),
            Some(read) => read,
        }
    }
}

fn read_far(segment: &Segment<Remote>, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    for (at, part) in (offset..).step_by(FAR_BYTES).zip(bytes.chunks_mut(FAR_BYTES)) {
        let read = || segment.read_exact_at(at, vec![0; part.len()]);
        let read = match read().direct().wait() {
            // The log's blocks may be smaller than the device's.
            Err(failed) if failed.error.errno() == Some(Errno::EINVAL) => read().cached().wait(),
            read => read,
        };
        match read {
            Ok(read) => part.copy_from_slice(&read.buffer),
            Err(failed) => {
                let errno = failed.error.errno().unwrap_or(Errno::EIO);
                return Err(io::Error::from_raw_os_error(errno.raw()));
            }
        }
    }
    Ok(())
}

fn segment_info(named: &NamedSegment, volume: &Path) -> Result<SegmentInfo, Failure> {
    let who = Identity::effective();
    let seen = Core::inspect_segment_beside(volume, who, named.owner_uid(who), &named.name);
    let seen = named.told("log", seen)?;
    if seen.torn {
        return Err(changing(&named.typed));
    }
    if seen.found.state != "live" {
        return Err(Failure::new("log", "EBUSY", "the segment is being moved")
            .on(named.typed.clone())
            .needing("a segment whose move has ended")
            .cured_by("wait for that; a move that a crash stopped goes on when the volume is opened to write"));
    }
    Ok(seen.found)
}

/// Each look found something else.
pub(super) fn changing(typed: &str) -> Failure {
    Failure::new("log", "EAGAIN", "it changed during each attempt to read it")
        .on(typed)
        .needing("a moment at which its owner writes less")
        .cured_by("look again")
}

fn refused(typed: &str, error: &io::Error) -> Failure {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => "read it as its owner, or as root",
        _ => "check the path; a log in a volume is named PATH#SEGMENT",
    };
    Failure::from_io("log", error)
        .on(typed)
        .needing("a file, a device or a segment that holds a log, and the permission to read it")
        .cured_by(cure)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use baio::{Link, Local, LogOptions};

    use super::*;

    #[test]
    fn an_end_that_cannot_be_read_is_told_as_an_opening_tells_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("log"), dir.path().join("copy"));
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let link = Local::new().unwrap();
        let file = baio::File::options().write().open(&link, &path).wait().unwrap();
        let log = file.create_log(&LogOptions::default()).wait().unwrap();
        log.append_durable(b"nobody may lose it").wait().unwrap();
        // No watermark names the record yet.
        fs::copy(&path, &copy).unwrap();
        log.close().wait().unwrap();
        drop((log, file));
        link.close().unwrap();
        let arena = Arena::new(8 << 20).unwrap();
        let mut area = Area::of_file(&copy, "copy".to_owned()).unwrap();
        let (_, recovered) = area.look(&arena, false).unwrap();
        assert!(recovered.end > recovered.head);
        // The size stays as it was, so that reads of the data fail.
        let Way::Here { buffered, .. } = &mut area.way else {
            panic!()
        };
        *buffered = File::options().read(true).write(true).open(&copy).unwrap();
        buffered.set_len(8192).unwrap();
        for salvages in [false, true] {
            let error = area.look(&arena, salvages).unwrap_err();
            let expected = LogError::Read {
                errno: Errno::EIO,
                offset: 8192,
            };
            assert_eq!(error, expected);
        }
    }
}
