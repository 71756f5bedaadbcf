//! Promise: `stress --mode cached` goes through our own page cache, whose every block is right, and tells what the cache did: a
//! set that fits is read once, a durable write is one write of the device, and no iteration was in vain.

use serde_json::json;

use crate::support::{Place, has};

const BLOCK: usize = 4096;

#[test]
fn stamps_are_right_through_a_cache_smaller_than_what_is_written() {
    let place = Place::new();
    place.volume("8M", "1M");
    place.write("f", &vec![0; 256 * BLOCK]);
    for target in ["f", "vol#a"] {
        for line in [
            "--rw randwrite --once",
            "--rw randwrite --once --durability data",
            "--stages write,randrw,read --runtime 300ms",
            "--stages randrw,randread --runtime 300ms --durability data --request-size 16K",
        ] {
            let line = format!("stress {target} --mode cached --cache 256K --depth 16 --verify {line}");
            let told = place.json(&line);
            has(&told, json!({"mode": "cached", "errors": 0}));
            let cache = &told["cache"];
            assert_eq!(cache["spurious_wakeups"], 0, "{line}: {cache}");
            assert!(cache["device_writes"].as_u64().unwrap() > 0, "{line}: {cache}");
            // What was written is there when the program has ended, and carries its stamps.
            if line.contains("--once") {
                let read = place.json(&format!("stress {target} --rw randread --once --verify"));
                assert_eq!(read["verified"], 256, "{line}");
            }
        }
    }
    let told = place.json("stress vol#a --mode cached --stages randread,randread --once --cache 2M");
    has(&told["cache"], json!({"misses": 256, "hits": 256}));
}

#[test]
fn what_the_cache_did_is_told() {
    let place = Place::new();
    place.write("f", &vec![0; 64 * BLOCK]);
    let cache = |line: &str| {
        let told = place.json(&format!("stress f --mode cached {line}"));
        assert_eq!(told["errors"], 0, "{line}");
        (told["requests"].as_u64().unwrap(), told["cache"].clone())
    };
    let (requests, told) = cache("--stages randread,randread --once --cache 1M");
    assert_eq!(requests, 128);
    has(
        &told,
        json!({"misses": 64, "hits": 64, "device_reads": 64, "evictions": 0}),
    );
    let (requests, told) = cache("--rw randwrite --once --depth 1 --durability data --cache 1M");
    assert_eq!(requests, 64);
    has(&told, json!({"device_writes": 64, "device_reads": 0}));
    let (_, told) = cache("--rw read --depth 1 --cache 128K --once");
    assert!(told["readahead_used"].as_u64().unwrap() > 32, "{told}");
    assert!(told["device_reads"].as_u64().unwrap() < 32, "{told}");
    // What was there before is found, the rest is not.
    let (requests, told) = cache("--rw randread --once --cache 1M --warm 50");
    assert_eq!(requests, 64);
    has(
        &told,
        json!({"hits": 32, "misses": 32, "device_reads": 32, "pages_read": 32}),
    );
    // Only what goes through the cache is counted.
    let direct = place.json("stress f --rw randread --once");
    assert!(direct.get("cache").is_none(), "{direct}");
}

#[test]
fn so_many_bytes_are_written_and_synced_at_the_end() {
    let place = Place::new();
    place.write("f", &vec![0; 64 * BLOCK]);
    let line = "stress f --mode cached --cache 1M --rw randwrite --io-size 4M --end-sync";
    let told = place.json(line);
    let blocks = (4 << 20) / BLOCK as u64;
    has(&told, json!({"requests": blocks, "errors": 0}));
    // The set fits, so each block reaches the device once, with the sync, however often it was written.
    let cache = &told["cache"];
    let written = cache["pages_written"].as_u64().unwrap();
    assert!((60..=64).contains(&written), "{cache}");
    has(cache, json!({"flushes": 1, "cleaner_writes": 0}));
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
    let line = "stress f --rw write --threads 2 --io-size 1M --end-sync";
    let told = place.json(line);
    assert_eq!(told["requests"], 256);
    for refused in ["--io-size 1K", "--io-size 1M --once"] {
        place.baio(&format!("stress f {refused}")).fails_with(2);
    }
}
