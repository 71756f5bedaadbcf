//! The four images of a bucket from a hostile device: what is believed, healed, buried or looked up never panics, and a heal
//! leaves a bucket that needs no second one.
#![no_main]

use baio_storage::segment::bucket::{self, BucketId, Image, Pair};
use baio_storage::segment::inode::{AllocSeq, Inode};
use baio_storage::segment::layout::{Geometry, Place};
use baio_storage::segment::page::{self, PAGE_BYTES, PageRead};
use baio_storage::segment::salvage::Salvage;
use libfuzzer_sys::fuzz_target;

const CHECKSUM_AT: usize = 4;
const GEOMETRY: Geometry = Geometry {
    block_size: 4096,
    data_blocks: 300,
    data_blocks_max: 1000,
    segments_max: 32,
};
const ID: BucketId = BucketId {
    uuid: [7; 16],
    bucket: 3,
};

/// Generations 1 and 2 of a bucket, as an update leaves them.
fn good() -> [[u8; PAGE_BYTES]; 2] {
    let mut inode = Inode::free();
    inode.alloc_seq = AllocSeq { epoch: 1, counter: 1 };
    let first = Image::initial(ID).next(0, &inode, 1).expect("the first image");
    let second = first.image().next(1, &inode, 1).expect("the second image");
    [*second.page().bytes(), *first.page().bytes()]
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, edits)) = data.split_first() else {
        return;
    };
    let [even, odd] = good();
    let mut pages = [even, odd, even, odd];
    let mut rest = edits;
    while let [which, low, high, len, tail @ ..] = rest {
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % if which & 16 == 0 { 512 } else { PAGE_BYTES };
        let bytes = &tail[..tail.len().min(usize::from(*len) % 32)];
        let end = (offset + bytes.len()).min(PAGE_BYTES);
        for (_, page) in pages.iter_mut().enumerate().filter(|(at, _)| which >> at & 1 == 1) {
            page[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
        rest = &tail[bytes.len()..];
    }
    for (at, page) in pages.iter_mut().enumerate() {
        match (flags >> at & 1, flags >> (at + 4) & 1) {
            (0, 0) => {
                let sum = page::checksum(page, CHECKSUM_AT);
                page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
            }
            (1, 1) => page.fill(0),
            _ => {}
        }
    }
    let [table_even, table_odd, mirror_even, mirror_odd] = pages.each_ref().map(|page| PageRead::Read(&page[..]));
    let table = Pair::read(table_even, table_odd, ID);
    let mirror = Pair::read(mirror_even, mirror_odd, ID);
    let _ = bucket::view(&table);
    let _ = bucket::view_with_mirror(&table, &mirror, ID);
    for image in [&table, &mirror].into_iter().filter_map(|pair| pair.newest()) {
        for slot in 0..4 {
            if let Some(bytes) = image.slot_bytes(slot) {
                let _ = Salvage::of(bytes, &GEOMETRY).runs().count();
            }
            if let Some(Ok(inode)) = image.slot(slot, &GEOMETRY) {
                assert!(inode.validate(&GEOMETRY).is_ok(), "what was decoded is valid");
                let _ = image.next(slot, &inode.tombstone([1; 16]), image.epoch());
                // Not the same bytes: reserved ones are ignored when read and written as zero.
                assert_eq!(
                    Inode::decode(&inode.encode(), &GEOMETRY).as_ref(),
                    Ok(&inode),
                    "what was decoded is decoded again from its bytes"
                );
            }
        }
    }
    let Ok(healing) = bucket::heal(&table, &mirror, 0, ID) else {
        return;
    };
    let mut healed = pages;
    let at = |place: Place, parity: usize| match place {
        Place::Table => parity,
        Place::Mirror => 2 + parity,
    };
    for &place in healing.rewrite {
        healed[at(place, healing.winner.parity().index())] = *healing.winner.bytes();
    }
    for (place, bytes) in bucket::bury(&table, &mirror, &healing.winner) {
        healed[at(place, healing.winner.parity().other().index())] = *bytes;
    }
    let [table_even, table_odd, mirror_even, mirror_odd] = healed.each_ref().map(|page| PageRead::Read(page));
    let (table, mirror) = (
        Pair::read(table_even, table_odd, ID),
        Pair::read(mirror_even, mirror_odd, ID),
    );
    let again = bucket::heal(&table, &mirror, 0, ID).expect("a healed bucket can be read");
    assert_eq!(
        again.winner.generation(),
        healing.winner.generation(),
        "a heal does not change who wins"
    );
    assert!(again.rewrite.is_empty(), "a healed bucket needs no second heal");
});
