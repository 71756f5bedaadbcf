//! The promise: when much that the cache has read comes at once, who waits for one outcome gets some before the bytes of all are
//! copied, and the device its next requests meanwhile. Direct requests copy nothing: all are handed on together.

use baio_engine::{Choice, EngineOptions, Open, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Mode, SegmentOp, SegmentRequest};

use crate::harness;

const BLOCK: usize = 16 << 10;
const BLOCKS: u64 = 64;

/// What 64 reads of 16 KiB bring, turn by turn: outcomes, and whether completions were left for the next.
fn turns(mode: Mode) -> Vec<(usize, bool)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 4 * BLOCKS as usize * BLOCK]).unwrap();
    // The backend that carries out in a turn whatever is queued.
    let mut core = Core::new(&EngineOptions {
        backend: Choice::Sync,
        ..harness::config()
    })
    .unwrap();
    let cache = CacheOptions::of_size(2 << 20);
    core.use_cache(&cache).unwrap();
    let handle = core.open_file(&path, &Open::read()).unwrap();
    // In no order, and less than what makes the cache hand its reads to the engine at once.
    let mut turns = Vec::new();
    for part in 0..4 {
        for nth in 0..BLOCKS / 4 - 1 {
            let offset = (nth * 37 % (BLOCKS / 4) + part * BLOCKS / 4) * 4 * BLOCK as u64;
            let memory = core.buffer(BLOCK).unwrap();
            let request = SegmentRequest {
                mode,
                ..SegmentRequest::new(handle, SegmentOp::Read { offset }, memory)
            };
            core.start(request).unwrap();
        }
        let mut left = BLOCKS / 4 - 1;
        while left > 0 {
            core.turn(Wait::one()).unwrap();
            let outcomes = std::iter::from_fn(|| core.next_outcome()).map(|outcome| outcome.result.unwrap());
            let outcomes = outcomes.count();
            turns.push((outcomes, core.engine().completed() > 0));
            left -= outcomes as u64;
        }
    }
    turns
}

#[test]
fn much_that_the_cache_has_read_is_handed_on_in_parts() {
    let turns = turns(Mode::Cached);
    let early = turns.iter().filter(|(_, left)| *left).count();
    assert!(early >= 8, "{turns:?}");
    // Each of these brought what has been read so far, and no less than a part.
    assert!(
        turns.iter().all(|(outcomes, left)| !left || *outcomes >= 4),
        "{turns:?}"
    );
}

#[test]
fn direct_requests_beside_a_cache_are_handed_on_together() {
    let turns = turns(Mode::Direct);
    assert_eq!(turns, [(15, false); 4]);
}
