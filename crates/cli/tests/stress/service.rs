//! Promise: `baio stress --service` works on a segment through a service thread, and there many threads share one segment:
//! each gets its own outcomes back, all of them, whichever thread took them from the link.

use serde_json::Value;

use crate::support::Place;

/// An outcome that went astray would be waited for without end.
#[track_caller]
fn stress(place: &Place, line: &str) -> Value {
    place.in_a_minute(&format!("stress {line} --json")).succeeds().json()
}

#[test]
fn threads_share_a_segment_and_every_block_is_right() {
    let place = Place::new();
    place.volume("32M", "8M");
    for threads in [1, 4] {
        let line =
            format!("vol#a --service --threads {threads} --depth 8 --stages write,randread,randwrite,read --verify");
        let told = stress(&place, &line);
        assert_eq!(told["service"], true);
        assert_eq!(told["requests"], 4 * 2048, "{threads}");
        assert_eq!(told["errors"], 0, "{threads}");
        assert_eq!(told["verified"], 2 * 2048, "{threads}");
    }
    assert_eq!(place.json("stat vol")["clean"], true, "it is given back");
    // What went through the service is what the volume's own thread finds.
    let told = stress(&place, "vol#a --rw read --once --verify");
    assert_eq!(told["verified"], 2048);
}

#[test]
fn each_thread_keeps_its_depth_under_way_and_touches_its_share_once() {
    let place = Place::new();
    place.volume("32M", "6M");
    for (options, under_way) in [("--depth 4 --threads 3", 12), ("--depth 16 --batch 4 --threads 2", 32)] {
        for turn in ["", "--one-turn"] {
            let told = stress(&place, &format!("vol#a --service --once {options} {turn}"));
            assert_eq!(told["in_flight_max"], under_way, "{options} {turn}");
            assert_eq!(told["requests"], 1536, "{options} {turn}");
        }
    }
}

#[test]
fn buffers_may_be_shared_memory() {
    let place = Place::new();
    place.volume("16M", "1M");
    let told = stress(&place, "vol#a --service --shared-memory --stages write,read --verify");
    assert_eq!(told["verified"], 256);
}
