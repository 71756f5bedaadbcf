//! Superblock copies from a hostile device: choosing, recognising and decoding never panic, a layout that is believed has an order,
//! and what is believed is believed again when it is encoded. (Its bytes may differ: reserved ones are not looked at, and written as
//! zero.)
//!
//! The input is edits of four good copies. The first byte says which copies then get a right checksum (those whose bit is 0): without
//! one almost every input would end at the checksum.
#![no_main]

use baio_storage::segment::layout::{Geometry, Layout};
use baio_storage::segment::page::{self, PAGE_BYTES, PageRead};
use baio_storage::segment::superblock::{Superblock, choose, choose_single, rear_copies_at, recognise};
use libfuzzer_sys::fuzz_target;

const CHECKSUM_AT: usize = 16;

fn good() -> Vec<[u8; PAGE_BYTES]> {
    let geometry = Geometry {
        block_size: 4096,
        data_blocks: 300,
        data_blocks_max: 1000,
        segments_max: 32,
    };
    let layout = Layout::of(&geometry).expect("this geometry is valid");
    let superblock = Superblock::fresh(layout, [7; 16], [9; 16]);
    (0..4).map(|copy| *superblock.encode(copy).bytes()).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, edits)) = data.split_first() else {
        return;
    };
    let mut copies = good();
    // An edit: which copies (a bit each), two bytes of offset, a byte of length, the bytes.
    let mut rest = edits;
    while let [which, low, high, len, tail @ ..] = rest {
        // Most of the page is reserved, so most edits aim at the first 288 bytes.
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % if which & 16 == 0 { 288 } else { PAGE_BYTES };
        let bytes = &tail[..tail.len().min(usize::from(*len) % 16)];
        let end = (offset + bytes.len()).min(PAGE_BYTES);
        for (_, copy) in copies.iter_mut().enumerate().filter(|(at, _)| which >> at & 1 == 1) {
            copy[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
        rest = &tail[bytes.len()..];
    }
    for (at, copy) in copies.iter_mut().enumerate() {
        if flags >> at & 1 == 0 {
            let sum = page::checksum(copy, CHECKSUM_AT);
            copy[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let pages = [&copies[0][..], &copies[1][..], &copies[2][..], &copies[3][..]].map(PageRead::Read);
    for chosen in [choose(pages), choose_single(pages)].into_iter().flatten() {
        let layout = *chosen.current.layout();
        assert!(
            layout.data_at() <= layout.end(),
            "a layout that was believed has an order"
        );
        let _ = chosen.current.successor().map(|next| next.encode(0));
        let _ = chosen.current.next_epoch();
        let _ = chosen.current.resized(layout.end() + 4096);
        let _ = chosen.current.check_device(layout.end());
    }
    let _ = rear_copies_at([pages[0], pages[1]]);
    for (copy, bytes) in copies.iter().enumerate() {
        let _ = recognise(PageRead::Read(bytes), (copy as u64) << 16);
        if let Ok(superblock) = Superblock::decode(bytes, copy as u8) {
            let again = Superblock::decode(superblock.encode(copy as u8).bytes(), copy as u8);
            assert!(again.is_ok(), "what was believed is believed again when it is written");
        }
    }
});
