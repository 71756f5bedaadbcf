//! Making a volume.
//!
//! Everything in front of the data area is made to read as zero, which means never written; then the superblock is written,
//! its first pair durably before its second. A volume that was there before is first made unrecognisable, durably, so that
//! no crash leaves a mixture of two.

use std::path::Path;

use baio_engine::{Create, Durability, Engine, Kind};

use crate::error::{Error, Fault, Result};
use crate::segment::layout::{BLOCK_SIZE_MIN, Layout, SUPERBLOCK_STEP};
use crate::segment::page::PAGE_BYTES;
use crate::segment::superblock::{MAGIC, SnapshotNote, Superblock};
use crate::volume::device::{Device, Hold};
use crate::volume::superblocks;

/// What the volume is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Format {
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
}

impl Default for Format {
    fn default() -> Format {
        Format {
            size_bytes: None,
            max_size_bytes: None,
            block_size: BLOCK_SIZE_MIN,
            segments: None,
            force: false,
        }
    }
}

/// Formats `path`, which is made if it is missing and a size is given.
///
/// # Errors
/// Refuses a volume, and anything that is not empty, unless forced; nothing is changed then. Else what the system said.
pub(crate) fn format(engine: &mut Engine, path: &Path, format: &Format) -> Result<Superblock> {
    let existed = path.exists();
    if !existed && format.size_bytes.is_none() {
        let missing = Error::new(
            "format",
            path.display().to_string(),
            Fault::BadSize("no such file, and no size to make one".into()),
        );
        return Err(missing);
    }
    // A plan that cannot be must not leave a file behind.
    if let Some(size_bytes) = format.size_bytes {
        plan(path, size_bytes, format)?;
    }
    let create = if existed { Create::Never } else { Create::New };
    let device = Device::open(path, Hold::Exclusive, create)?;
    let made = (|| {
        if !format.force {
            refuse_occupied(engine, &device)?;
        }
        write_volume(engine, &device, format)
    })();
    device.close(engine);
    if made.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Formats a simulated disk.
///
/// # Errors
/// As [`format`].
pub fn format_simulated(engine: &mut Engine, file: &baio_engine::File, format: &Format) -> Result<Superblock> {
    write_volume(engine, &Device::simulated(file.clone()), format)
}

fn plan(path: &Path, size_bytes: u64, format: &Format) -> Result<Layout> {
    let max = format.max_size_bytes.unwrap_or(size_bytes);
    Layout::plan(size_bytes, max, format.block_size, format.segments)
        .map(|(_, layout)| layout)
        .map_err(|error| Error::new("format", path.display().to_string(), error))
}

/// Nothing that somebody might miss is overwritten unasked: a volume, or any byte where a volume would begin.
fn refuse_occupied(engine: &mut Engine, device: &Device) -> Result<()> {
    let size = device.size()?;
    let head = device.read(
        engine,
        0,
        (2 * SUPERBLOCK_STEP).min(size).next_multiple_of(PAGE_BYTES as u64) as usize,
    )?;
    let occupied = |what: &str| Err(Error::new("format", device.name(), Fault::Occupied(what.into())));
    let second = head.get(SUPERBLOCK_STEP as usize..).unwrap_or(&[]);
    if head.starts_with(&MAGIC) || second.starts_with(&MAGIC) {
        return occupied("it holds a baio volume");
    }
    if head.iter().any(|&byte| byte != 0) {
        return occupied("it holds data of something else");
    }
    Ok(())
}

fn write_volume(engine: &mut Engine, device: &Device, format: &Format) -> Result<Superblock> {
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
    device.sync(engine, Durability::Full)?;
    Ok(superblock)
}

/// Destroys all four copies of a superblock that is there. The table of the old volume is cleared after this.
fn make_unrecognisable(engine: &mut Engine, device: &Device) -> Result<()> {
    let Ok(old) = superblocks::read(engine, device) else {
        return Ok(());
    };
    let zero = [0; PAGE_BYTES];
    let places = old.current.layout().superblocks_at();
    let pages: Vec<(u64, &[u8])> = places.iter().map(|&at| (at, &zero[..])).collect();
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
        Kind::Block | Kind::Simulated if asked > size => Err(Error::new(
            "format",
            device.name(),
            Fault::BadSize(format!("asked for {asked} bytes on a device of {size}")),
        )),
        _ => Ok(()),
    }
}
