//! Reading and updating the four copies of the superblock.

use baio_engine::{Durability, Engine, Errno};

use crate::error::{Error, Fault, Result};
use crate::segment::layout::{SUPERBLOCK_COPIES, SUPERBLOCK_STEP};
use crate::segment::page::{PAGE_BYTES, PageRead};
use crate::segment::superblock::{self, Chosen, Superblock, SuperblockError};
use crate::volume::device::Device;

/// The current superblock, and the copies to be healed before the next update. Refuses a device that ends too early.
pub(crate) fn read(engine: &mut Engine, device: &Device) -> Result<Chosen> {
    let chosen = find(engine, device, superblock::choose, SEARCH_MAX)?;
    chosen
        .current
        .check_device(device.size()?)
        .map_err(|error| Error::new("open volume", device.name(), fault(error)))?;
    Ok(chosen)
}

/// What one copy holds, or what is wrong with it.
pub(crate) fn read_copy(
    engine: &mut Engine,
    device: &Device,
    at: u64,
    copy: u8,
) -> Result<std::result::Result<Superblock, SuperblockError>> {
    let page = CopyPage::read(engine, device, at)?;
    Ok(superblock::decode(page.page(), copy))
}

/// What decides between the four copies.
type Choose = fn([PageRead<'_>; SUPERBLOCK_COPIES]) -> std::result::Result<Chosen, SuperblockError>;

/// The same for a check: whatever the size of the device, and with a single copy left, wherever it is.
pub(crate) fn find_any(engine: &mut Engine, device: &Device) -> Result<Chosen> {
    find(engine, device, superblock::choose_single, u64::MAX)
}

/// The same for a format: is anything of a volume left?
pub(crate) fn find_left(engine: &mut Engine, device: &Device) -> Result<Chosen> {
    find(engine, device, superblock::choose_single, SEARCH_MAX)
}

/// Copies 2 and 3 are looked for in so many places by whoever opens a volume, 64 KiB apart where something is stored: enough
/// for a volume of 2 TB of the usual shape. `check` looks everywhere.
const SEARCH_MAX: u64 = 1 << 16;

/// A copy as it was read; or why it was not: the others may still decide.
enum CopyPage {
    Read(Vec<u8>),
    Unread(Error),
}

impl CopyPage {
    fn read(engine: &mut Engine, device: &Device, at: u64) -> Result<CopyPage> {
        match device.read(engine, at, PAGE_BYTES) {
            Ok(page) => Ok(CopyPage::Read(page.to_vec())),
            Err(error) if error.is_the_devices() => Ok(CopyPage::Unread(error.during("read a superblock of"))),
            Err(error) => Err(error),
        }
    }

    fn page(&self) -> PageRead<'_> {
        match self {
            CopyPage::Read(bytes) => PageRead::Read(bytes),
            CopyPage::Unread(error) => PageRead::Unread(error.errno().unwrap_or(Errno::EIO)),
        }
    }

    fn failed(&self) -> Option<Error> {
        match self {
            CopyPage::Read(_) => None,
            CopyPage::Unread(error) => Some(error.clone()),
        }
    }
}

/// A copy at which nobody has looked.
const UNSEEN: PageRead<'_> = PageRead::Unread(Errno::EIO);

fn find(engine: &mut Engine, device: &Device, choose: Choose, search_max: u64) -> Result<Chosen> {
    let front = [
        CopyPage::read(engine, device, 0)?,
        CopyPage::read(engine, device, SUPERBLOCK_STEP)?,
    ];
    let [first, second] = front.each_ref().map(CopyPage::page);
    let alone = choose([first, second, UNSEEN, UNSEEN]);
    let mut places = superblock::rear_copies_at([first, second]);
    // Two copies that agree on a newer format have said it all.
    let is_newer = superblock::agreed_newer([first, second, UNSEEN, UNSEEN]).is_some();
    let mut searched = Searched::default();
    if places.is_empty() && !is_newer {
        searched = search(engine, device, search_max)?;
        places.extend(searched.places);
    }
    let of_front = front.iter().find_map(CopyPage::failed);
    let mut failed = of_front.or_else(|| searched.failed.clone());
    let mut best = None;
    for [third, fourth] in places {
        let rear = [
            CopyPage::read(engine, device, third)?,
            CopyPage::read(engine, device, fourth)?,
        ];
        let seen = choose([first, second, rear[0].page(), rear[1].page()]);
        failed = failed.or_else(|| rear.iter().find_map(CopyPage::failed));
        best = Some(match best {
            Some(best) => newer(best, seen),
            None => seen,
        });
    }
    // The front alone decides only if it knows of no rear: a rear of a newer format, or one that contradicts, must be heard.
    let chosen = best.unwrap_or(alone);
    match (chosen, failed) {
        // A single copy is believed where the others are damaged for good, not where they may be read later.
        (Ok(chosen), Some(error)) if chosen.heal.len() + 1 == SUPERBLOCK_COPIES => Err(error),
        (Ok(chosen), _) => Ok(chosen),
        (Err(_), Some(error)) if !is_newer => Err(error),
        (Err(SuperblockError::NotVolume), _) => {
            let what = not_volume(device, &searched)?;
            Err(Error::new("open volume", device.name(), Fault::NotVolume(what)))
        }
        (Err(error), _) => Err(Error::new("open volume", device.name(), fault(error))),
    }
}

/// What is there instead of a volume. Nothing may talk anybody into formatting what was not seen to be empty.
fn not_volume(device: &Device, searched: &Searched) -> Result<String> {
    Ok(if device.next_data(0)?.is_none() {
        "not a baio volume: nothing was ever stored here; `baio format` makes one".into()
    } else if searched.ended {
        "not a baio volume: no superblock is stored here".into()
    } else {
        "not a baio volume, or one whose first 128 KiB are damaged: no superblock is stored in the places looked at; \
         `baio check` looks everywhere"
            .into()
    })
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

/// What a search for copies 2 and 3 found.
#[derive(Default)]
struct Searched {
    places: Option<[u64; 2]>,
    /// The first page that could not be read: a copy may be there.
    failed: Option<Error>,
    /// It looked everywhere.
    ended: bool,
}

/// Copies 2 and 3 when 0 and 1 are damaged: they stand at multiples of 64 KiB. What was never written is passed over.
fn search(engine: &mut Engine, device: &Device, most: u64) -> Result<Searched> {
    let size = device.size()?;
    let mut searched = Searched::default();
    let mut at = 2 * SUPERBLOCK_STEP;
    for _ in 0..most {
        let data = device.next_data(at)?.filter(|data| *data < size);
        let Some(data) = data else {
            searched.ended = true;
            break;
        };
        // A page that begins before what is stored there has a part of it.
        at = at.max(data / SUPERBLOCK_STEP * SUPERBLOCK_STEP);
        let page = CopyPage::read(engine, device, at)?;
        if let Some((_, found)) = superblock::recognise(page.page(), at) {
            let [_, _, second, third] = found.layout().superblocks_at();
            searched.places = Some([second, third]);
            break;
        }
        searched.failed = searched.failed.or_else(|| page.failed());
        at += SUPERBLOCK_STEP;
    }
    Ok(searched)
}

/// Rewrites copies that do not hold the current superblock.
pub(crate) fn heal(engine: &mut Engine, device: &Device, chosen: &Chosen) -> Result<()> {
    if chosen.heal.is_empty() {
        return Ok(());
    }
    write_copies(engine, device, &chosen.current, &chosen.heal)
}

/// Begins a new epoch of a volume as it was found: the first update of an opening to write, and of a repair.
pub(crate) fn begin_epoch(
    engine: &mut Engine,
    device: &Device,
    chosen: &Chosen,
    change: impl FnOnce(&mut Superblock),
) -> Result<Superblock> {
    let next = chosen.next_epoch();
    let mut next = next.map_err(|error| Error::new("open volume", device.name(), fault(error)))?;
    change(&mut next);
    match &chosen.mixed {
        None => {
            heal(engine, device, chosen)?;
            write(engine, device, &next)?;
        }
        // Healing them would make the volume look sound before it is.
        Some(mixed) => {
            for copy in mixed.order {
                write_copies(engine, device, &next, &[copy])?;
            }
        }
    }
    Ok(next)
}

/// Refuses to write over the superblock of another owner: whoever opened the volume meanwhile, past the lock, has raised the
/// sequence.
pub(crate) fn must_be_ours(engine: &mut Engine, device: &Device, ours: &Superblock) -> Result<()> {
    let (mut found_ours, mut failed) = (false, None);
    for (copy, at) in (0u8..).zip(ours.layout().superblocks_at()) {
        let page = CopyPage::read(engine, device, at)?;
        match superblock::decode(page.page(), copy) {
            Ok(found) if found == *ours => found_ours = true,
            // A copy that lost its last write is no other owner.
            Ok(found) if found.uuid == ours.uuid && found.sequence < ours.sequence => {}
            Ok(found) => {
                let (found, ours) = (found.sequence, ours.sequence);
                return Err(Error::new(
                    "update the superblock of",
                    device.name(),
                    Fault::Overtaken { found, ours },
                )
                .at(at));
            }
            Err(_) => failed = failed.or_else(|| page.failed()),
        }
    }
    match failed {
        _ if found_ours => Ok(()),
        Some(error) => Err(error),
        None => {
            let (found, ours) = (0, ours.sequence);
            Err(Error::new(
                "update the superblock of",
                device.name(),
                Fault::Overtaken { found, ours },
            ))
        }
    }
}

/// An update: copies 0 and 1 durably, then 2 and 3 durably. In this order, because a crash in the first step leaves the old
/// pair at the rear, and one in the second the new pair at the front.
pub(crate) fn write(engine: &mut Engine, device: &Device, superblock: &Superblock) -> Result<()> {
    if crate::seeded_bug("superblock-copies-at-once") {
        return write_copies(engine, device, superblock, &[0, 1, 2, 3]);
    }
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
        SuperblockError::Unread { errno } => errno.into(),
        SuperblockError::NotVolume => Fault::NotVolume(text),
        SuperblockError::Short { .. } => Fault::NotVolume("it is too small for a baio volume".into()),
        SuperblockError::Version { .. } | SuperblockError::Features { .. } => Fault::Version(text),
        _ => Fault::Corrupt(text),
    }
}
