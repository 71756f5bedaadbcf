//! A whole image from a hostile hand: looking writes nothing, repairing and opening never panic, and what `check --repair` says
//! is whole opens and can be read.
//!
//! The input is edits of the metadata of a good volume, each followed by a right checksum where it asks for one.
#![no_main]

use baio_engine::sim::Disk;
use baio_sim::{observe, world};
use baio_storage::segment::page::{self, PAGE_BYTES};
use baio_storage::{CreateOptions, Identity};
use libfuzzer_sys::fuzz_target;

const PAGE: u64 = PAGE_BYTES as u64;

thread_local! {
    static GOOD: Disk = good().expect("a volume on an honest disk");
}

fn user(uid: u32) -> Identity {
    let mut who = Identity::effective();
    (who.uid, who.gid) = (uid, uid);
    who
}

/// A volume with segments of two owners, some deleted, closed cleanly.
fn good() -> Option<Disk> {
    let world = world::World::new(1).ok()?;
    let mut core = world::open(&world.disk, 2).ok()?;
    for uid in [1000, 1001] {
        for name in ["a", "b", "c"] {
            core.create(user(uid), uid, name, &CreateOptions::of_size(8192)).ok()?;
        }
        core.delete(user(uid), uid, "b").ok()?;
    }
    core.close().ok()?;
    Some(world.disk)
}

/// Where the checksum of a page stands, by its magic.
fn checksum_at(page: &[u8; PAGE_BYTES]) -> usize {
    if page.starts_with(b"BAIOVOL\0") { 16 } else { 4 }
}

fn edit(disk: &Disk, mut rest: &[u8]) {
    /// Before the first data block of [`world::shape`].
    const METADATA_BYTES: u64 = 328 << 10;
    while let [how, page_low, page_high, low, high, len, tail @ ..] = rest {
        let at = u64::from(u16::from_le_bytes([*page_low, *page_high])) % (METADATA_BYTES / PAGE) * PAGE;
        let mut page = [0; PAGE_BYTES];
        disk.read(at, &mut page);
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % if how & 1 == 0 { 512 } else { PAGE_BYTES };
        let bytes = &tail[..tail.len().min(usize::from(*len) % 32)];
        let end = (offset + bytes.len()).min(PAGE_BYTES);
        page[offset..end].copy_from_slice(&bytes[..end - offset]);
        if how & 2 == 0 {
            let field = checksum_at(&page);
            let sum = page::checksum(&page, field);
            page[field..field + 4].copy_from_slice(&sum.to_le_bytes());
        }
        disk.poke(at, &page);
        rest = &tail[bytes.len()..];
    }
}

fuzz_target!(|data: &[u8]| {
    let disk = GOOD.with(Disk::copy);
    edit(&disk, data);
    let before = disk.fingerprint();
    let looked = world::check(&disk, 3, false);
    assert_eq!(disk.fingerprint(), before, "looking wrote");
    let _ = world::check(&disk, 4, true);
    drop(looked);
    if let Ok(mut core) = world::open(&disk, 5) {
        let _ = observe::observe(&mut core);
        let _ = core.create(user(1000), 1000, "new", &CreateOptions::of_size(4096));
        let _ = core.close();
    }
});
