//! Promise: one snapshot has the counters of all parts of a core, and agrees with what each part says of itself.

use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Counters};

use crate::harness::{BLOCK, config, create, format, open_write, run, write_request};

#[test]
fn of_a_core_with_a_volume_and_a_cache() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    format(&path, 8 << 20);
    let mut core = Core::open(&path, &config()).unwrap();
    let before = core.counters();
    assert!(before.cache.is_none());
    core.use_cache(&CacheOptions::of_size(1 << 20)).unwrap();
    create(&mut core, "a", 16 * BLOCK as u64);
    let handle = open_write(&mut core, "a");
    let request = write_request(&core, handle, 0, &[1; BLOCK]);
    run(&mut core, request).result.unwrap();

    let buffer = core.buffer(BLOCK).unwrap();
    let after = core.counters();
    assert_eq!(after.engine, core.stats());
    assert_eq!(after.cache, core.cache_stats());
    let info = core.volume_info().unwrap();
    let volume = after.volume.unwrap();
    assert_eq!(volume.size_bytes, info.size_bytes);
    assert_eq!(volume.free_bytes, info.free_bytes);
    assert_eq!((volume.segments, volume.segments_max), (1, info.segments_max));
    assert_eq!((volume.quarantined, volume.latched), (0, false));
    assert_eq!(before.volume.unwrap().free_bytes, info.free_bytes + 16 * BLOCK as u64);

    let bytes = |counters: &Counters, op: &str| {
        let those = counters.requests.iter().filter(|one| one.op == op);
        those.map(|one| one.bytes).sum::<u64>()
    };
    assert_eq!(bytes(&after, "write"), after.engine.bytes_written);
    assert!(bytes(&after, "write") > bytes(&before, "write"));
    for one in &after.requests {
        assert!(["direct", "kernel", "uncached"].contains(&one.mode));
        assert_eq!(one.errors, 0);
        assert!(one.completions > 0 && one.latency.count() <= one.completions);
    }
    assert_eq!(after.in_flight, 0);
    let arena = core.engine().arena();
    assert_eq!(after.arena_bytes, arena.size() as u64);
    assert!(after.arena_free_bytes <= after.arena_bytes - buffer.len() as u64);
    core.close().unwrap();
}

#[test]
fn of_a_core_without_a_volume() {
    let core = Core::new(&config()).unwrap();
    let counters = core.counters();
    assert!(counters.volume.is_none() && counters.cache.is_none());
    assert_eq!(counters.arena_free_bytes, core.engine().arena().free_bytes() as u64);
}
