//! Promise: `stress --mode cached` goes through our own page cache, whose every block is right, and tells what the cache did: a
//! set that fits is read once, a durable write is one write of the device, and no iteration was in vain.

use crate::support::Place;

const BLOCK: usize = 4096;

#[test]
fn stamps_are_right_through_a_cache_smaller_than_the_file() {
    let place = Place::new();
    place.write("f", &vec![0; 256 * BLOCK]);
    for line in [
        "--rw randwrite --once",
        "--rw randwrite --once --durability data",
        "--stages write,randrw,read --runtime 300ms",
        "--stages randrw,randread --runtime 300ms --durability data --request-size 16K",
    ] {
        let told = place
            .baio(&format!(
                "stress f --mode cached --cache 256K --depth 16 --verify {line} --json"
            ))
            .succeeds()
            .json();
        assert_eq!(told["mode"], "cached", "{line}");
        assert_eq!(told["errors"], 0, "{line}");
        let cache = &told["cache"];
        assert_eq!(cache["spurious_wakeups"], 0, "{line}: {cache}");
        // What was written is in the file when the program has ended, and carries its stamps.
        if line.contains("--once") {
            let read = place
                .baio("stress f --rw randread --once --verify --json")
                .succeeds()
                .json();
            assert_eq!(read["verified"], 256, "{line}");
        }
    }
}

#[test]
fn a_segment_is_cached_as_a_file_is() {
    let place = Place::new();
    place.volume("8M", "1M");
    for line in [
        "--rw randwrite --once",
        "--rw randwrite --once --durability data",
        "--stages write,randrw,read --runtime 300ms",
    ] {
        let told = place
            .baio(&format!(
                "stress vol#a --mode cached --cache 256K --size 1M --depth 16 --verify {line} --json"
            ))
            .succeeds()
            .json();
        assert_eq!(
            (&told["mode"], &told["errors"]),
            (&"cached".into(), &0.into()),
            "{line}"
        );
        let cache = &told["cache"];
        assert_eq!(cache["spurious_wakeups"], 0, "{line}: {cache}");
        assert!(cache["device_writes"].as_u64().unwrap() > 0, "{line}: {cache}");
        if line.contains("--once") {
            let read = place
                .baio("stress vol#a --rw randread --once --verify --size 1M --json")
                .succeeds()
                .json();
            assert_eq!(read["verified"], 256, "{line}");
        }
    }
    let told = place
        .baio("stress vol#a --mode cached --stages randread,randread --once --size 1M --cache 2M --json")
        .succeeds()
        .json();
    assert_eq!(
        (&told["cache"]["misses"], &told["cache"]["hits"]),
        (&256.into(), &256.into()),
        "{told}"
    );
}

#[test]
fn what_the_cache_did_is_told() {
    let place = Place::new();
    place.write("f", &vec![0; 64 * BLOCK]);
    let cache = |line: &str| {
        let told = place
            .baio(&format!("stress f --mode cached {line} --json"))
            .succeeds()
            .json();
        assert_eq!(told["errors"], 0, "{line}");
        (told["requests"].as_u64().unwrap(), told["cache"].clone())
    };
    let (requests, told) = cache("--stages randread,randread --once --cache 1M");
    assert_eq!(requests, 128);
    assert_eq!(
        (
            &told["misses"],
            &told["hits"],
            &told["device_reads"],
            &told["evictions"]
        ),
        (&64.into(), &64.into(), &64.into(), &0.into()),
        "{told}"
    );
    let (requests, told) = cache("--rw randwrite --once --depth 1 --durability data --cache 1M");
    assert_eq!(
        (requests, &told["device_writes"], &told["device_reads"]),
        (64, &64.into(), &0.into()),
        "{told}"
    );
    let (_, told) = cache("--rw read --depth 1 --cache 128K --once");
    assert!(told["readahead_used"].as_u64().unwrap() > 32, "{told}");
    assert!(told["device_reads"].as_u64().unwrap() < 32, "{told}");
    // What was there before is found, the rest is not.
    let (requests, told) = cache("--rw randread --once --cache 1M --warm 50");
    assert_eq!(
        (requests, &told["hits"], &told["misses"], &told["device_reads"]),
        (64, &32.into(), &32.into(), &32.into()),
        "{told}"
    );
    assert_eq!(told["pages_read"], 32, "{told}");
    // Only what goes through the cache is counted.
    let direct = place.baio("stress f --rw randread --once --json").succeeds().json();
    assert!(direct.get("cache").is_none(), "{direct}");
}

#[test]
fn so_many_bytes_are_written_and_synced_at_the_end() {
    let place = Place::new();
    place.write("f", &vec![0; 64 * BLOCK]);
    let line = "stress f --mode cached --cache 1M --rw randwrite --io-size 4M --end-sync --json";
    let told = place.baio(line).succeeds().json();
    let blocks = (4 << 20) / BLOCK as u64;
    assert_eq!((&told["requests"], &told["errors"]), (&blocks.into(), &0.into()));
    // The set fits, so each block reaches the device once, with the sync, however often it was written.
    let cache = &told["cache"];
    let written = cache["pages_written"].as_u64().unwrap();
    assert!((60..=64).contains(&written), "{cache}");
    assert_eq!(
        (&cache["flushes"], &cache["cleaner_writes"]),
        (&1.into(), &0.into()),
        "{cache}"
    );
    for key in ["foreground_writes", "waits_for_room", "waits_for_frame", "device_reads"] {
        assert_eq!(cache[key], 0, "{key} of {cache}");
    }
    let each = cache["device_writes_per_request"].as_f64().unwrap();
    assert!(each > 0.0 && each < 0.01, "{cache}");
    let [without, with, seconds, sync] = ["bytes_per_second", "synced_bytes_per_second", "seconds", "sync_seconds"]
        .map(|key| told[key].as_f64().unwrap());
    assert!(sync > 0.0 && with < without, "{told}");
    let expected = (4 << 20) as f64 / (seconds + sync);
    assert!((with / expected - 1.0).abs() < 0.01, "{with} {expected}");
    // Several threads share the bytes; other modes and patterns take the options too.
    let line = "stress f --rw write --threads 2 --io-size 1M --end-sync --json";
    let told = place.baio(line).succeeds().json();
    assert_eq!(told["requests"], 256);
    for refused in ["--io-size 1K", "--io-size 1M --once"] {
        place.baio(&format!("stress f {refused}")).fails_with(2);
    }
}
