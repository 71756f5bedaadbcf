//! Changing a volume's inodes by hand, as a broken program or a crash would leave them: right images with wrong numbers.

use baio_engine::sim::Disk;
use baio_storage::segment::bucket::{BucketId, Pair};
use baio_storage::segment::inode::{INODE_BYTES, Inode, InodeState};
use baio_storage::segment::layout::{BUCKET_BYTES, Place, SLOTS_PER_BUCKET};
use baio_storage::segment::page::{self, PageRead};
use baio_storage::segment::probe::SlotAddress;
use baio_storage::segment::superblock::Superblock;

use super::BLOCK;

pub(crate) fn superblock(disk: &Disk) -> Superblock {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    Superblock::decode(&page, 0).unwrap()
}

/// Calls `change` with the bytes of every slot; where it says so, they are written as the next generation of the bucket.
pub(crate) fn tamper_bytes(disk: &Disk, mut change: impl FnMut(SlotAddress, &mut [u8; INODE_BYTES]) -> bool) {
    let superblock = superblock(disk);
    let layout = superblock.layout();
    for bucket in 0..layout.buckets() {
        let mut bytes = [0; BUCKET_BYTES as usize];
        disk.read(layout.bucket_at(bucket, Place::Table).unwrap(), &mut bytes);
        let uuid = superblock.uuid;
        let pair = Pair::read(
            PageRead::Read(&bytes[..BLOCK]),
            PageRead::Read(&bytes[BLOCK..]),
            BucketId { uuid, bucket },
        );
        let image = pair.newest().unwrap();
        for slot in 0..SLOTS_PER_BUCKET {
            let mut bytes = *image.slot_bytes(slot).unwrap();
            if !change(SlotAddress { bucket, slot }, &mut bytes) {
                continue;
            }
            let next = image.next(slot, &Inode::free(), superblock.epoch).unwrap();
            let mut page = *next.page().bytes();
            page[64 + slot * INODE_BYTES..][..INODE_BYTES].copy_from_slice(&bytes);
            let checksum = page::checksum(&page, 4);
            page[4..8].copy_from_slice(&checksum.to_le_bytes());
            for place in [Place::Table, Place::Mirror] {
                disk.poke(layout.image_at(bucket, next.parity(), place).unwrap(), &page);
            }
            break; // The image is another one now.
        }
    }
}

/// Changes one slot.
pub(crate) fn put(disk: &Disk, at: SlotAddress, inode: &Inode) {
    tamper_bytes(disk, |address, bytes| {
        *bytes = inode.encode();
        address == at
    });
}

/// Every inode that is a segment, and where it is.
pub(crate) fn segments(disk: &Disk) -> Vec<(SlotAddress, Inode)> {
    let geometry = *superblock(disk).geometry();
    let mut found = Vec::new();
    tamper_bytes(disk, |address, bytes| {
        if let Ok(inode) = Inode::decode(bytes, &geometry)
            && inode.state.is_segment()
        {
            found.push((address, inode));
        }
        false
    });
    found
}

/// A segment by its name.
pub(crate) fn find(disk: &Disk, name: &str) -> (SlotAddress, Inode) {
    let is_it = |(_, inode): &(SlotAddress, Inode)| inode.name.as_ref().is_some_and(|found| found.as_str() == name);
    segments(disk).into_iter().find(is_it).unwrap()
}

/// Changes the inode of a segment.
pub(crate) fn tamper(disk: &Disk, name: &str, change: impl Fn(&mut Inode)) {
    let (address, mut inode) = find(disk, name);
    change(&mut inode);
    put(disk, address, &inode);
}

/// A slot that a name may go into: a free one in its home bucket.
pub(crate) fn home(disk: &Disk, owner_uid: u32, name: &str) -> SlotAddress {
    use baio_storage::segment::name::{Key, SegmentName};
    let superblock = superblock(disk);
    let key = Key::segment(owner_uid, SegmentName::new(name).unwrap());
    let bucket = key.hash(&superblock.hash_seed) % superblock.layout().buckets();
    let mut free = None;
    tamper_bytes(disk, |address, bytes| {
        if address.bucket == bucket && bytes.iter().all(|byte| *byte == 0) && free.is_none() {
            free = Some(address);
        }
        false
    });
    free.unwrap()
}

pub(crate) fn state_of(disk: &Disk, at: SlotAddress) -> InodeState {
    let geometry = *superblock(disk).geometry();
    let mut state = InodeState::Free;
    tamper_bytes(disk, |address, bytes| {
        if address == at {
            state = Inode::decode(bytes, &geometry).unwrap().state;
        }
        false
    });
    state
}

/// Changes all four copies of the superblock.
pub(crate) fn tamper_superblock(disk: &Disk, change: impl FnOnce(&mut Superblock)) {
    let mut superblock = superblock(disk);
    change(&mut superblock);
    for (copy, at) in (0..).zip(superblock.layout().superblocks_at()) {
        disk.poke(at, superblock.encode(copy).bytes());
    }
}

/// Takes the note of the snapshot out of the superblock, and makes it look like the end of a killed process.
pub(crate) fn forget_clean_close(disk: &Disk) {
    tamper_superblock(disk, |superblock| {
        (superblock.clean_epoch, superblock.snapshot) = (0, None)
    });
}
