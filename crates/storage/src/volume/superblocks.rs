//! Reading and updating the four copies of the superblock.

use baio_engine::{Durability, Engine};

use crate::error::{Error, Fault, Result};
use crate::segment::layout::{SUPERBLOCK_COPIES, SUPERBLOCK_STEP};
use crate::segment::page::PAGE_BYTES;
use crate::segment::superblock::{self, Chosen, Superblock, SuperblockError};
use crate::volume::device::Device;

/// The current superblock, and the copies to be healed before the next update. Refuses a device that ends too early.
pub(crate) fn read(engine: &mut Engine, device: &Device) -> Result<Chosen> {
    let chosen = find(engine, device, superblock::choose, false)?;
    chosen
        .current
        .check_device(device.size()?)
        .map_err(|error| Error::new("open volume", device.name(), fault(error)))?;
    Ok(chosen)
}

/// What one copy holds: its sequence, or what is wrong with it.
pub(crate) fn read_copy(
    engine: &mut Engine,
    device: &Device,
    at: u64,
    copy: u8,
) -> Result<std::result::Result<u64, SuperblockError>> {
    let page = read_page(engine, device, at)?;
    Ok(Superblock::decode(&page, copy).map(|superblock| superblock.sequence))
}

/// What decides between the four copies.
type Choose = fn([&[u8]; SUPERBLOCK_COPIES]) -> std::result::Result<Chosen, SuperblockError>;

/// The same for a check: whatever the size of the device, and with a single copy left, wherever it is.
pub(crate) fn find_any(engine: &mut Engine, device: &Device) -> Result<Chosen> {
    find(engine, device, superblock::choose_single, true)
}

fn find(engine: &mut Engine, device: &Device, choose: Choose, search_blank: bool) -> Result<Chosen> {
    let front = [
        read_page(engine, device, 0)?,
        read_page(engine, device, SUPERBLOCK_STEP)?,
    ];
    let alone = choose([&front[0], &front[1], &[], &[]]);
    let mut places = superblock::rear_copies_at([&front[0], &front[1]]);
    // Two copies that agree on a newer format have said it all: a search could last for hours and find nothing.
    let is_newer = matches!(
        alone,
        Err(SuperblockError::Version { .. } | SuperblockError::Features { .. })
    );
    let is_worth_it = search_blank || front.iter().any(|page| page.starts_with(&superblock::MAGIC));
    if places.is_empty() && !is_newer && is_worth_it {
        places.extend(search(engine, device)?);
    }
    let mut best = None;
    for [second, third] in places {
        let rear = [read_page(engine, device, second)?, read_page(engine, device, third)?];
        let seen = choose([&front[0], &front[1], &rear[0], &rear[1]]);
        best = Some(match best {
            Some(best) => newer(best, seen),
            None => seen,
        });
    }
    // The front alone decides only if it knows of no rear: a rear of a newer format, or one that contradicts, must be heard.
    best.unwrap_or(alone)
        .map_err(|error| Error::new("open volume", device.name(), fault(error)))
}

/// Of two readings the one with a newer superblock; of two failures the later, which saw more copies.
fn newer(
    one: std::result::Result<Chosen, SuperblockError>,
    two: std::result::Result<Chosen, SuperblockError>,
) -> std::result::Result<Chosen, SuperblockError> {
    match (one, two) {
        (Ok(one), Ok(two)) if one.current.sequence > two.current.sequence => Ok(one),
        (Ok(one), Err(_)) => Ok(one),
        (_, two) => two,
    }
}

/// Copies 2 and 3 when 0 and 1 are damaged: they stand at multiples of 64 KiB.
fn search(engine: &mut Engine, device: &Device) -> Result<Option<[u64; 2]>> {
    let size = device.size()?;
    let mut at = 2 * SUPERBLOCK_STEP;
    while at < size {
        let page = read_page(engine, device, at)?;
        if let Some((_, found)) = superblock::recognise(&page, at) {
            let [_, _, second, third] = found.layout().superblocks_at();
            return Ok(Some([second, third]));
        }
        at += SUPERBLOCK_STEP;
    }
    Ok(None)
}

/// One page; empty where it cannot be read, so that the other copies still decide.
fn read_page(engine: &mut Engine, device: &Device, at: u64) -> Result<Vec<u8>> {
    match device.read(engine, at, PAGE_BYTES) {
        Ok(page) => Ok(page.to_vec()),
        Err(Error {
            fault: Fault::Io(baio_engine::Error::System(_)),
            ..
        }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Rewrites copies that do not hold the current superblock.
pub(crate) fn heal(engine: &mut Engine, device: &Device, chosen: &Chosen) -> Result<()> {
    if chosen.heal.is_empty() {
        return Ok(());
    }
    write_copies(engine, device, &chosen.current, &chosen.heal)
}

/// An update: copies 0 and 1 durably, then 2 and 3 durably. In this order, because a crash in the first step leaves the old
/// pair at the rear, and one in the second the new pair at the front.
pub(crate) fn write(engine: &mut Engine, device: &Device, superblock: &Superblock) -> Result<()> {
    write_copies(engine, device, superblock, &[0, 1])?;
    write_copies(engine, device, superblock, &[2, 3])
}

fn write_copies(engine: &mut Engine, device: &Device, superblock: &Superblock, copies: &[u8]) -> Result<()> {
    let places: [u64; SUPERBLOCK_COPIES] = superblock.layout().superblocks_at();
    let pages: Vec<_> = copies
        .iter()
        .map(|&copy| (places[usize::from(copy)], superblock.encode(copy)))
        .collect();
    let pages: Vec<(u64, &[u8])> = pages.iter().map(|(at, page)| (*at, &page.bytes()[..])).collect();
    device.write_pages(engine, &pages, Durability::Data)
}

/// Sorts the reasons into those that a user tells apart.
pub(crate) fn fault(error: SuperblockError) -> Fault {
    let text = error.to_string();
    match error {
        SuperblockError::NotVolume => Fault::NotVolume(text),
        SuperblockError::Short { .. } => Fault::NotVolume(format!("too small for a baio volume: {text}")),
        SuperblockError::Version { .. } | SuperblockError::Features { .. } => Fault::Version(text),
        _ => Fault::Corrupt(text),
    }
}
