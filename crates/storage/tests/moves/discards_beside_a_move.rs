//! The promise: a discard that waits for a move keeps nobody from the cache meanwhile, however much of the segment it is about.

use baio_engine::sim::{Flash, Profile};
use baio_engine::{Memory, Wait};
use baio_storage::{FormatOptions, Mode, SegmentOp, SegmentRequest};

use crate::harness::through_cache::{B, begin_read, end, get, got, open_cached, put};
use crate::harness::{self, BLOCK, ME, create, open_write, start};

/// Many chunks of the move, so that it is under way for long.
const BLOCKS: u64 = 1024;

#[test]
fn a_cached_read_ends_while_a_discard_of_its_range_waits_for_the_move() {
    // The first cached request on a segment finds what waits, too.
    for first in [Mode::Cached, Mode::Direct] {
        let disk = harness::simulated_disk(&FormatOptions::of_size(16 << 20));
        disk.set_profile(Profile::Flash(Flash::default()));
        let mut core = open_cached(&disk, 64);
        create(&mut core, "data", BLOCKS * B);
        let handle = open_write(&mut core, "data");
        let far = BLOCKS - 2;
        put(&mut core, handle, 5, &[6; BLOCK], first);
        put(&mut core, handle, far, &[7; BLOCK], Mode::Direct);
        let id = core.begin_move(ME, ME.uid, "data", Some(2048)).unwrap();
        for _ in 0..30 {
            core.turn(Wait::one()).unwrap();
        }
        let (offset, len) = (0, (BLOCKS - 1) * B);
        let op = SegmentOp::Discard { offset, len };
        let discard = start(&mut core, SegmentRequest::new(handle, op, Memory::None));
        for _ in 0..5 {
            core.turn(Wait::one()).unwrap();
        }
        let read = begin_read(&mut core, handle, far, 1, Mode::Cached);
        let read = end(&mut core, read);
        assert!(core.take_answer(&id).is_none(), "the move is under way");
        assert!(core.poll(discard, None).is_pending(), "and the discard waits for it");
        assert_eq!(got(read), [7; BLOCK]);
        end(&mut core, discard).result.unwrap();
        for (block, mode) in [
            (5, Mode::Cached),
            (far, Mode::Cached),
            (5, Mode::Direct),
            (far, Mode::Direct),
        ] {
            assert_eq!(get(&mut core, handle, block, 1, mode), [0; BLOCK]);
        }
        assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
    }
}
