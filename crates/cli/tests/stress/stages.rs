//! Promise: stages follow one another in the order in which they were typed, each once through everything, and what one
//! wrote is synced before the next begins.

use crate::support::Place;

#[test]
fn each_stage_is_a_part_and_what_was_written_is_synced() {
    let place = Place::new();
    place.volume("16M", "1M");
    for target in ["f --size 1M", "vol#a"] {
        let line = format!("stress {target} --stages write,read,randwrite,randread,randrw");
        let told = place.json(&line);
        let parts = told["parts"].as_array().unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["write", "read", "randwrite", "randread", "randrw read", "randrw write"]
        );
        for part in parts {
            let name = part["part"].as_str().unwrap();
            let synced = part["sync_seconds"].as_f64().unwrap() > 0.0;
            assert_eq!(
                synced,
                name.contains("write") || name.contains("randrw"),
                "{target} {name}"
            );
            if !name.contains("randrw") {
                assert_eq!(part["requests"], 256, "{target} {name}");
            }
        }
        assert_eq!(told["requests"], 5 * 256);
    }
}

#[test]
fn stages_may_last_a_time_each() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    let told = place.json("stress f --size 64K --stages read,randread --runtime 60ms");
    for part in told["parts"].as_array().unwrap() {
        assert!(part["seconds"].as_f64().unwrap() >= 0.06, "{part}");
        assert!(
            part["requests"].as_u64().unwrap() > 16,
            "begins again at its end: {part}"
        );
    }
}

#[test]
fn a_single_pattern_is_not_synced_unasked() {
    let place = Place::new();
    let told = place.json("stress f --size 64K --rw write --once");
    assert_eq!(told["sync_seconds"], 0.0);
}
