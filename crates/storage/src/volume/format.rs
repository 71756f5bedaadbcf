//! Making a volume.
//!
//! Everything in front of the data area is made to read as zero, which means never written, and takes its room on the host; then the superblock is written,
//! its first pair durably before its second. A volume that was there before is first made unrecognisable, durably, so that
//! no crash leaves a mixture of two.

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use baio_engine::{Durability, Engine, Errno, Kind, Op, Policy, Request, SetupError, Space};

use crate::error::{Error, Fault, Result};
use crate::segment::layout::{BLOCK_SIZE_MIN, Layout};
use crate::segment::page::PAGE_BYTES;
use crate::segment::superblock::{SnapshotNote, Superblock};
use crate::volume::device::Device;
use crate::volume::lock::Hold;
use crate::volume::superblocks;

/// Options for a new volume.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Size in bytes; `None` takes the file or device as it is.
    pub size_bytes: Option<u64>,
    /// Size to which it may grow later; table and bitmap are made for it.
    pub max_size_bytes: Option<u64>,
    /// Unit of allocation in bytes.
    pub block_size: u32,
    /// How many segments it can hold; `None` gives one per 1000 blocks.
    pub segments: Option<u64>,
    /// Overwrite a volume, or a file or device that holds something else.
    pub force: bool,
    /// Permissions of the file. `None` makes a new one for its owner alone, 0600, and leaves one that exists as it is.
    pub mode: Option<u32>,
}

/// Whoever may open a volume's file needs no permission of a segment, so nobody else may unless it is asked for.
const FILE_MODE: u32 = 0o600;

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            size_bytes: None,
            max_size_bytes: None,
            block_size: BLOCK_SIZE_MIN,
            segments: None,
            force: false,
            mode: None,
        }
    }
}

impl FormatOptions {
    /// A volume of so many bytes.
    #[must_use]
    pub fn of_size(bytes: u64) -> FormatOptions {
        FormatOptions {
            size_bytes: Some(bytes),
            ..FormatOptions::default()
        }
    }
}

/// Formats `path`, which is made if it is missing and a size is given.
///
/// # Errors
/// Refuses a volume, and anything that is not empty, unless forced; nothing is changed then. Else what the system said.
pub(crate) fn format(engine: &mut Engine, path: &Path, format: &FormatOptions) -> Result<Superblock> {
    // What cannot be looked at is not missing: the opening says why.
    let existed = !std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if !existed && format.size_bytes.is_none() {
        let missing = Error::new(
            "format",
            baio_engine::path_name(path),
            Fault::BadSize("no such file, and no size to make one".into()),
        );
        return Err(missing);
    }
    // A plan that cannot be must not leave a file behind.
    if let Some(size_bytes) = format.size_bytes {
        plan(path, size_bytes, format)?;
    }
    if !existed {
        make_file(path)?;
    }
    let made = Device::open(path, Hold::Exclusive).and_then(|device| format_on(engine, device, format));
    if made.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Makes the file. It is for its owner alone from its first moment on, and under every umask.
fn make_file(path: &Path) -> Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path);
    made.map(drop).map_err(|error| {
        let name = path.display().to_string();
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw()));
        Error::new("make", name.clone(), SetupError::new("make", name, errno))
    })
}

/// The permissions that were asked for. They are given by the descriptor that is held: its path may lead elsewhere by now.
struct Permission(Option<u32>);

impl Permission {
    /// Before anything is written: may they be given? Those of a device are not a format's to change: they last until the next start.
    fn asked(device: &Device, mode: Option<u32>) -> Result<Permission> {
        let permission = Permission(mode);
        if mode.is_some() {
            if device.file.kind() != Kind::Regular {
                return Err(refused(device, Errno::EOPNOTSUPP));
            }
            let has = device.file.permissions().map_err(|errno| refused(device, errno))?;
            Permission(Some(has)).give(device)?;
        }
        Ok(permission)
    }

    fn give(&self, device: &Device) -> Result<()> {
        let Some(mode) = self.0 else { return Ok(()) };
        device
            .file
            .set_permissions(mode)
            .map_err(|errno| refused(device, errno))
    }
}

fn refused(device: &Device, errno: Errno) -> Error {
    Error::new("change the permissions of", device.name(), errno)
}

/// Makes a volume on a device: [`Core::format`](crate::Core::format) without a path.
///
/// # Errors
/// As there.
pub fn format_on(engine: &mut Engine, device: impl Into<Device>, format: &FormatOptions) -> Result<Superblock> {
    let mut device = device.into();
    device.take(Hold::Exclusive)?;
    let made = make_on(engine, &device, format);
    device.close(engine);
    made
}

fn make_on(engine: &mut Engine, device: &Device, format: &FormatOptions) -> Result<Superblock> {
    if !format.force {
        refuse_occupied(engine, device, format)?;
    }
    let permission = Permission::asked(device, format.mode)?;
    let made = write_volume(engine, device, format)?;
    // Only now: whoever may open it from here on finds a volume, and nothing of what was there.
    permission.give(device)?;
    Ok(made)
}

fn plan(path: &Path, size_bytes: u64, format: &FormatOptions) -> Result<Layout> {
    let max = format.max_size_bytes.unwrap_or(size_bytes);
    Layout::plan(size_bytes, max, format.block_size, format.segments)
        .map(|(_, layout)| layout)
        .map_err(|error| Error::new("format", baio_engine::path_name(path), error))
}

/// Bytes of a device that are looked at in any case from its beginning, and to its end: what keeps its marks there.
const HEAD_BYTES: u64 = 16 << 20;
const TAIL_BYTES: u64 = 1 << 20;
/// Pages of a device that are looked at in between, at equal distances.
const SAMPLES: u64 = 1024;

/// Nothing that somebody might miss is overwritten unasked: a volume, also one of which a single copy of the superblock is left,
/// or any byte that is not zero. Of a file everything that was ever written is looked at. Of a device everything that a format
/// would clear, both ends, and pages all over it: reading all of it could take a day.
fn refuse_occupied(engine: &mut Engine, device: &Device, format: &FormatOptions) -> Result<()> {
    let occupied = |what: String| Err(Error::new("format", device.name(), Fault::Occupied(what)));
    match superblocks::find_left(engine, device) {
        Ok(_) => return occupied("it holds a baio volume".into()),
        Err(error) => match &error.fault {
            Fault::NotVolume(_) => {}
            Fault::Corrupt(why) | Fault::Version(why) => {
                return occupied(format!("it holds what is left of a baio volume, or a newer one: {why}"));
            }
            // What cannot be read may be anything.
            _ => return Err(error),
        },
    }
    let size = device.size()?;
    let looked_at = match device.file.kind() {
        Kind::Block | Kind::Foreign => {
            let cleared = plan(Path::new(device.name()), format.size_bytes.unwrap_or(size), format)?.data_at();
            let head = cleared.max(HEAD_BYTES).min(size);
            let tail = size.saturating_sub(TAIL_BYTES).max(head);
            let step = ((tail - head) / SAMPLES).next_multiple_of(PAGE_BYTES as u64);
            let samples = (1..SAMPLES).map(|number| head + number * step);
            let samples = samples.map(|at| at..at + PAGE_BYTES as u64);
            let mut ranges = vec![0..head, tail..size];
            ranges.extend(samples.filter(|sample| step > 0 && sample.end <= tail));
            ranges
        }
        _ => std::iter::once(0..size).collect(),
    };
    for range in looked_at {
        if let Some(at) = first_byte_stored(engine, device, range)? {
            return occupied(format!("it holds data of something else: byte {at} is not zero"));
        }
    }
    Ok(())
}

/// Where the first byte of a range is that is not zero.
fn first_byte_stored(engine: &mut Engine, device: &Device, range: Range<u64>) -> Result<Option<u64>> {
    const CHUNK: u64 = 1 << 20;
    let page = PAGE_BYTES as u64;
    let mut at = range.start;
    while let Some(data) = device.next_data(at)?.filter(|data| *data < range.end) {
        at = at.max(data / page * page);
        let len = CHUNK.min((range.end - at).next_multiple_of(page));
        let bytes = device.read(engine, at, len as usize)?;
        if let Some(index) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(at + index as u64));
        }
        at += len;
    }
    Ok(None)
}

fn write_volume(engine: &mut Engine, device: &Device, format: &FormatOptions) -> Result<Superblock> {
    let size_bytes = match format.size_bytes {
        Some(size) => size,
        None => device.size()?,
    };
    let layout = plan(Path::new(device.name()), size_bytes, format)?;
    make_unrecognisable(engine, device)?;
    resize(device, format.size_bytes)?;
    device.clear(engine, 0, layout.data_at())?;
    device.sync(engine, Durability::Full)?;
    let mut identity = [0; 32];
    engine
        .random(&mut identity)
        .map_err(|errno| Error::new("format", device.name(), errno))?;
    let (mut uuid, mut seed) = ([0; 16], [0; 16]);
    uuid.copy_from_slice(&identity[..16]);
    seed.copy_from_slice(&identity[16..]);
    let mut superblock = Superblock::fresh(layout, uuid, seed);
    // Nothing is in use: so says a snapshot without a page, and the first open need not read the table.
    superblock.snapshot = Some(SnapshotNote::of_nothing(superblock.epoch));
    superblocks::write(engine, device, &superblock)?;
    reserve(engine, device, layout.data_at());
    device.sync(engine, Durability::Full)?;
    Ok(superblock)
}

/// Takes room on the host for all metadata, so that a host that fills up later refuses data alone: deletes, renames and resizes
/// go on. It reads as zero still. Where the metadata would take more than this part of what is free there, the volume is meant
/// to be sparse, and so is its metadata; a device, or a file system that cannot, has its own way.
fn reserve(engine: &mut Engine, device: &Device, len: u64) {
    const PART_OF_FREE: u64 = 16;
    let is_affordable = match device.file.kind() {
        Kind::Regular => rustix::fs::statvfs(Path::new(device.name()))
            .is_ok_and(|host| len <= host.f_bavail.saturating_mul(host.f_frsize) / PART_OF_FREE),
        Kind::Foreign => true,
        _ => false,
    };
    if is_affordable {
        let space = Space::Reserve;
        let op = Op::Allocate { offset: 0, len, space };
        // What cannot be taken is missed when it is needed: such an update is refused, and harms nothing.
        let _ = engine.run(Request::bare(op, Some(&device.file), Policy::direct()));
    }
}

/// Destroys all four copies of a superblock of which any is left. The table of the old volume is cleared after this.
fn make_unrecognisable(engine: &mut Engine, device: &Device) -> Result<()> {
    let Ok(old) = superblocks::find_left(engine, device) else {
        return Ok(());
    };
    let zero = [0; PAGE_BYTES];
    let size = device.size()?;
    let places = old.current.layout().superblocks_at().into_iter();
    // The device may have become shorter since.
    let places = places.filter(|at| at + PAGE_BYTES as u64 <= size);
    let pages: Vec<(u64, &[u8])> = places.map(|at| (at, &zero[..])).collect();
    device.write_pages(engine, &pages, Durability::Data)?;
    device.sync(engine, Durability::Full)
}

/// A regular file gets exactly the size asked for; a device has the size that it has.
fn resize(device: &Device, asked: Option<u64>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let size = device.size()?;
    match device.file.kind() {
        Kind::Regular if size != asked => device
            .file
            .set_size(asked)
            .map_err(|errno| Error::new("resize", device.name(), errno)),
        Kind::Block | Kind::Foreign if asked > size => Err(Error::new(
            "format",
            device.name(),
            Fault::BadSize(format!("asked for {asked} bytes on a device of {size}")),
        )),
        _ => Ok(()),
    }
}
