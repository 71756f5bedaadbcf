//! Volumes of all sizes, and geometries that cannot be.

use super::*;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn plan(size: u64) -> Layout {
    Layout::plan(size, size, 4096, None).unwrap().1
}

#[test]
fn one_mebibyte_works() {
    let layout = plan(MIB);
    assert_eq!(layout.superblocks_at(), [0, 64 * KIB, 256 * KIB, 320 * KIB]);
    assert_eq!(
        (layout.table_at(), layout.mirror_at(), layout.buckets()),
        (128 * KIB, 192 * KIB, 8)
    );
    assert_eq!((layout.bitmap_at(), layout.bitmap_pages()), (324 * KIB, 1));
    assert_eq!((layout.data_at(), layout.end()), (328 * KIB, MIB));
    assert_eq!(layout.geometry().data_blocks, 174);
    assert_eq!(layout.geometry().segments_max, 16);
    for block_size in [8192, 16384, 32768, 65536] {
        let (geometry, layout) = Layout::plan(MIB, MIB, block_size, None).unwrap();
        assert!(
            layout.data_at().is_multiple_of(u64::from(block_size)) && layout.end() <= MIB,
            "{geometry:?}"
        );
    }
}

#[test]
fn sixty_four_mebibytes_begin_to_align() {
    assert_eq!((plan(64 * MIB).data_at(), plan(64 * MIB).end()), (MIB, 64 * MIB));
    let below = plan(64 * MIB - 4096);
    assert_eq!(below.data_at(), 328 * KIB);
    assert!(below.end() > 63 * MIB);
}

#[test]
fn one_gibibyte_has_one_segment_per_thousand_blocks() {
    let layout = plan(GIB);
    let geometry = layout.geometry();
    assert_eq!(geometry.segments_max, geometry.data_blocks_max / 1000);
    assert_eq!((layout.data_at(), layout.end()), (3 * MIB, GIB));
}

#[test]
fn eight_tebibytes_spend_a_quarter_of_a_percent() {
    let layout = plan(8 * TIB);
    assert_eq!(layout.end(), 8 * TIB);
    assert!(layout.data_at() < 8 * TIB / 400);
    let last = layout.buckets() - 1;
    assert_eq!(
        layout.image_at(last, Parity::Odd, Place::Table),
        Some(layout.mirror_at() - 4096)
    );
    let mirror_end = layout.image_at(last, Parity::Odd, Place::Mirror).unwrap() + 4096;
    assert!(mirror_end <= layout.superblocks_at()[2]);
    assert_eq!(layout.bucket_at(last + 1, Place::Table), None);
}

#[test]
fn growth_is_reserved() {
    let (small, layout) = Layout::plan(64 * MIB, TIB, 4096, Some(64)).unwrap();
    let grown = layout.resized(GIB).unwrap();
    assert_eq!((grown.data_at(), grown.end()), (layout.data_at(), GIB));
    assert_eq!(
        layout.resized(2 * TIB).unwrap().geometry().data_blocks,
        small.data_blocks_max
    );
    assert_eq!(layout.resized(2 * TIB).unwrap().end(), TIB);
}

#[test]
fn refusals_say_what_is_needed() {
    let Err(LayoutError::TooSmall { least_bytes, .. }) = Layout::plan(300 * KIB, 300 * KIB, 4096, None) else {
        panic!("300 KiB hold no volume");
    };
    assert_eq!(least_bytes, 332 * KIB);
    assert!(Layout::plan(least_bytes, least_bytes, 4096, None).is_ok());
    assert!(Layout::plan(least_bytes - 1, least_bytes - 1, 4096, None).is_err());
    let Err(LayoutError::TooSmall { least_bytes, .. }) = Layout::plan(MIB, TIB, 4096, None) else {
        panic!("the tables of a tebibyte do not fit into a mebibyte");
    };
    assert!(Layout::plan(least_bytes, TIB, 4096, None).is_ok());
    assert_eq!(
        Layout::plan(MIB, MIB, 6000, None),
        Err(LayoutError::BlockSize { found: 6000 })
    );
    assert_eq!(
        Layout::plan(MIB, 1, 4096, None),
        Err(LayoutError::MaxBelowSize {
            size_bytes: MIB,
            max_size_bytes: 1
        })
    );
    assert_eq!(Layout::plan(MIB, MIB, 4096, Some(u64::MAX)), Err(LayoutError::Overflow));
    assert!(Layout::plan(u64::MAX, u64::MAX, 4096, None).unwrap().1.end_max() <= END_MAX);
}

proptest! {
    #[test]
    fn plans_are_ordered_tight_and_reproducible(
        size in 0..16 * TIB, extra in 0..TIB, shift in 12u32..=16, segments in proptest::option::of(0u64..100_000),
    ) {
        let Ok((geometry, layout)) = Layout::plan(size, size + extra, 1 << shift, segments) else { return Ok(()) };
        prop_assert_eq!(Layout::of(&geometry), Ok(layout));
        prop_assert!(layout.end() <= size && layout.end_max() <= size + extra);
        prop_assert!(size + extra - layout.end_max() < 2 * DATA_ALIGNMENT);
        let zones = [
            0, SUPERBLOCK_STEP, layout.table_at(), layout.mirror_at(), layout.superblocks_at()[2],
            layout.superblocks_at()[3], layout.bitmap_at(), layout.data_at(), layout.end(),
        ];
        prop_assert!(zones.is_sorted_by(|a, b| a < b), "{:?}", zones);
        prop_assert!(layout.bitmap_at() + layout.bitmap_pages() * 4096 <= layout.data_at());
        prop_assert!(layout.data_at().is_multiple_of(1 << shift));
        let last = geometry.data_blocks - 1;
        prop_assert_eq!(layout.block_at(last).map(|at| at + (1 << shift)), Some(layout.end()));
        prop_assert_eq!(layout.block_at(last + 1), None);
        prop_assert_eq!(layout.run_at(last, 2), None);
        prop_assert_eq!(layout.run_at(u64::MAX, 2), None);
    }

    #[test]
    fn any_geometry_gives_a_layout_or_an_error(
        block_size in any::<u32>(), data_blocks in any::<u64>(), data_blocks_max in any::<u64>(),
        segments_max in any::<u64>(), shift in 0u32..64,
    ) {
        let geometry = Geometry {
            block_size: if shift % 2 == 0 { 4096 } else { block_size },
            data_blocks: data_blocks >> shift,
            data_blocks_max: data_blocks_max >> shift,
            segments_max: segments_max >> shift,
        };
        if let Ok(layout) = Layout::of(&geometry) {
            prop_assert!(layout.end() <= layout.end_max() && layout.end_max() <= END_MAX);
        }
    }
}
