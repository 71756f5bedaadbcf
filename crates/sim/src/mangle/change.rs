//! One change to an image, with its story.

use baio_engine::sim::{Disk, Random};
use baio_storage::segment::layout::{GENERATION_MAX, Layout, Parity, Place};

use super::seal;
use crate::images::Image;

const PAGE: usize = 4096;
const SUPERBLOCK_CHECKSUM_AT: usize = 16;
const PAGE_CHECKSUM_AT: usize = 4;
const SLOT_AT: usize = 64;
const SLOT_BYTES: usize = 1008;

/// Fields by their first byte and length (`docs/inside/disk-format.md`).
const OF_SUPERBLOCK: &[(usize, usize)] = &[
    (8, 4),
    (12, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (112, 4),
    (120, 8),
    (128, 8),
    (136, 8),
    (144, 8),
    (152, 8),
    (160, 8),
    (168, 8),
    (176, 8),
    (184, 8),
    (192, 8),
    (200, 8),
    (208, 8),
    (216, 8),
    (224, 8),
    (232, 8),
    (240, 8),
];
const OF_IMAGE: &[(usize, usize)] = &[(8, 8), (24, 8), (32, 8), (40, 8)];
const OF_INODE: &[(usize, usize)] = &[
    (0, 4),
    (4, 1),
    (5, 8),
    (259, 1),
    (260, 4),
    (268, 4),
    (272, 8),
    (280, 8),
    (296, 8),
    (304, 8),
    (312, 8),
    (320, 8),
    (328, 8),
    (336, 8),
    (352, 8),
    (360, 4),
    (368, 8),
    (376, 8),
    (384, 8),
    (392, 8),
    (416, 8),
    (480, 8),
    (488, 8),
];
const OF_SNAPSHOT: &[(usize, usize)] = &[(24, 8), (32, 8), (40, 8), (64, 8), (72, 8), (80, 8), (88, 8), (96, 8)];

/// Does something to an image; says what.
pub(super) fn choose(image: &Image, earlier: &Disk, random: &mut Random) -> String {
    let (disk, layout) = (&image.disk, &image.layout);
    match random.below(100) {
        0..=19 => superblock_field(disk, layout, random),
        20..=54 => image_field(disk, layout, random),
        55..=61 => snapshot_field(disk, layout, random),
        62..=67 => {
            let (one, two) = (page_of(layout, random), page_of(layout, random));
            let (first, second) = (read(disk, one), read(disk, two));
            disk.poke(one, &second);
            disk.poke(two, &first);
            format!("pages {one} and {two} swapped")
        }
        68..=71 => {
            let (from, to) = (page_of(layout, random), page_of(layout, random));
            disk.poke(to, &read(disk, from));
            format!("page {from} copied to {to}")
        }
        72..=79 => {
            let first = page_of(layout, random);
            let end = first + (1 + random.below(8)) * PAGE as u64;
            for at in (first..end.min(layout.data_at())).step_by(PAGE) {
                disk.poke(at, &read(earlier, at));
            }
            format!("pages {first} to {end} of another time")
        }
        80..=85 => {
            let first = page_of(layout, random);
            let pages = 1 + random.below(40);
            for page in 0..pages {
                disk.poke(first + page * PAGE as u64, &[0; PAGE]);
            }
            format!("{pages} pages from {first} erased")
        }
        86..=93 => {
            let bits = 1 + random.below(24);
            let at = page_of(layout, random);
            let mut page = read(disk, at);
            for _ in 0..bits {
                let bit = random.below(PAGE as u64 * 8) as usize;
                page[bit / 8] ^= 1 << (bit % 8);
            }
            disk.poke(at, &page);
            format!("{bits} bits of page {at}")
        }
        94..=96 => {
            let size = random.below(disk.size() + 1);
            disk.set_size(size);
            format!("cut to {size} bytes")
        }
        _ => {
            let size = disk.size() + random.below(8 << 20);
            disk.set_size(size);
            format!("lengthened to {size} bytes")
        }
    }
}

fn read(disk: &Disk, at: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    disk.read(at, &mut page);
    page
}

/// A page of the metadata, mostly one that has a meaning.
fn page_of(layout: &Layout, random: &mut Random) -> u64 {
    match random.below(10) {
        0..=2 => layout.superblocks_at()[random.below(4) as usize],
        3..=8 => image_of(layout, random).map_or(0, |(_, at)| at),
        _ => random.below(layout.data_at() / PAGE as u64) * PAGE as u64,
    }
}

/// An image of a bucket: its place in table and mirror.
fn image_of(layout: &Layout, random: &mut Random) -> Option<(u64, u64)> {
    let bucket = random.below(layout.buckets());
    let parity = Parity::BOTH[random.below(2) as usize];
    let table = layout.image_at(bucket, parity, Place::Table)?;
    let mirror = layout.image_at(bucket, parity, Place::Mirror)?;
    Some(if random.percent(50) {
        (mirror, table)
    } else {
        (table, mirror)
    })
}

/// What a field may turn out to be.
fn value(page: &[u8; PAGE], (at, len): (usize, usize), random: &mut Random) -> [u8; 8] {
    let mut old = [0; 8];
    old[..len].copy_from_slice(&page[at..at + len]);
    let old = u64::from_le_bytes(old);
    let value = match random.below(14) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - 1,
        4 => old.wrapping_add(1),
        5 => old.wrapping_sub(1),
        6 => random.below(64),
        7 => 1 << random.below(64),
        8 => old ^ 1 << random.below(64),
        9 => random.below(8),
        10 => 1 << 63,
        11 => GENERATION_MAX,
        12 => GENERATION_MAX - 1,
        _ => random.bits(),
    };
    value.to_le_bytes()
}

fn set(page: &mut [u8; PAGE], field: (usize, usize), random: &mut Random) {
    let value = value(page, field, random);
    let (at, len) = field;
    page[at..at + len].copy_from_slice(&value[..len]);
}

/// One, two or all copies, with a right checksum as a rule, each with its own number.
fn superblock_field(disk: &Disk, layout: &Layout, random: &mut Random) -> String {
    let first = random.below(4) as usize;
    let copies: &[usize] = match random.below(3) {
        0 => &[first],
        1 if first < 2 => &[0, 1],
        1 => &[2, 3],
        _ => &[0, 1, 2, 3],
    };
    let places = layout.superblocks_at();
    let mut page = read(disk, places[first]);
    let fields = 1 + random.below(2);
    let mut touched = Vec::new();
    for _ in 0..fields {
        let &field = random.pick(OF_SUPERBLOCK).unwrap_or(&(64, 8));
        set(&mut page, field, random);
        touched.push(field.0);
    }
    let sealed = random.percent(90);
    for &copy in copies {
        let mut page = page;
        if !touched.contains(&12) {
            page[12..16].copy_from_slice(&(copy as u32).to_le_bytes());
        }
        if sealed {
            seal(&mut page, SUPERBLOCK_CHECKSUM_AT);
        }
        disk.poke(places[copy], &page);
    }
    format!("superblock copies {copies:?}: fields at {touched:?}, sealed: {sealed}")
}

/// Of one image, or of table and mirror alike.
fn image_field(disk: &Disk, layout: &Layout, random: &mut Random) -> String {
    let written = |random: &mut Random| {
        let tries = (0..30).filter_map(|_| image_of(layout, random));
        let mut places: Vec<(u64, u64)> = tries.collect();
        places.retain(|(at, _)| read(disk, *at)[..4] != [0; 4]);
        places.first().copied()
    };
    let Some((one, other)) = written(random) else {
        return "no image is written".into();
    };
    let mut page = read(disk, one);
    let mut touched = Vec::new();
    for _ in 0..1 + random.below(3) {
        let field = if random.percent(15) {
            random.pick(OF_IMAGE).copied().unwrap_or((40, 8))
        } else {
            let slot = random.below(4) as usize;
            let (at, len) = random.pick(OF_INODE).copied().unwrap_or((0, 4));
            (SLOT_AT + slot * SLOT_BYTES + at, len)
        };
        set(&mut page, field, random);
        touched.push(field.0);
    }
    let (sealed, both) = (random.percent(92), random.percent(60));
    if sealed {
        seal(&mut page, PAGE_CHECKSUM_AT);
    }
    disk.poke(one, &page);
    if both {
        disk.poke(other, &page);
    }
    format!("image at {one}: fields at {touched:?}, sealed: {sealed}, its other copy alike: {both}")
}

fn snapshot_field(disk: &Disk, layout: &Layout, random: &mut Random) -> String {
    let at = match random.percent(50) {
        true => layout.bitmap_at(),
        false => layout.superblocks_at()[2] + PAGE as u64,
    };
    let mut page = read(disk, at);
    let &field = random.pick(OF_SNAPSHOT).unwrap_or(&(64, 8));
    set(&mut page, field, random);
    seal(&mut page, PAGE_CHECKSUM_AT);
    disk.poke(at, &page);
    format!("snapshot page at {at}: field at {}", field.0)
}
