//! Promise: `baio latency --peer` appends records through each peer, in a closed and in an open loop, and they really are on the target; all
//! sides are loaded alike, in turn.

use serde_json::json;

use crate::support::refusals;
use crate::support::{Place, has};

const PEERS: [&str; 2] = ["thread-fdatasync", "thread-direct"];

#[test]
fn each_peer_writes_its_records_from_the_beginning() {
    let place = Place::new();
    for peer in PEERS {
        place.write("f", &[0; 32 << 20]);
        let line = format!("latency f --peer {peer} --waiting 4 --record-size 100 --runtime 500ms");
        let told = place.json(&line);
        let side = &told["sides"][0];
        assert_eq!((&side["side"], &told["waiting"]), (&peer.into(), &4.into()));
        for key in [
            "appends_per_second",
            "cpu_us_per_append",
            "batches",
            "records_per_batch_mean",
        ] {
            assert!(side[key].as_f64().unwrap() > 0.0, "{peer}: {key}: {side}");
        }
        assert!(side["records_per_batch_max"].as_f64().unwrap() <= 4.0, "{side}");
        let bytes = place.read("f");
        assert_eq!(bytes.len(), 32 << 20);
        // The first record: its length, its bytes, zeros to 8.
        assert_eq!(bytes[..8], 100_u64.to_le_bytes(), "{peer}");
        assert!(
            bytes[8..108].iter().any(|byte| *byte != 0) && bytes[108..112] == [0; 4],
            "{peer}"
        );
    }
}

#[test]
fn sides_take_turns_under_every_load() {
    let place = Place::new();
    place.write("f", &[0; 32 << 20]);
    let all = PEERS.map(|peer| format!("--peer {peer}")).join(" ");
    let told = place.json(&format!("latency f {all} --rate 500 --runtime 300ms"));
    has(&told, json!({"rate": 500, "waiting": null}));
    let sides = told["sides"].as_array().unwrap();
    assert_eq!(
        sides
            .iter()
            .map(|side| side["side"].as_str().unwrap())
            .collect::<Vec<_>>(),
        PEERS
    );
    for side in sides {
        assert_eq!(side["rounds"].as_array().unwrap().len(), 3, "{side}");
        assert!(side["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{side}");
    }
    let line = "latency f --peer thread-fdatasync --peer thread-direct --threads 3 --rounds 2 --runtime 60ms";
    let text = place.text(line);
    assert!(text.starts_with("f: durable records of 256 B, 3 threads"), "{text}");
    assert!(text.contains("the median of 2 rounds"), "{text}");
}

#[test]
fn a_bare_write_carries_each_record_alone() {
    let place = Place::new();
    place.write("f", &[0; 32 << 20]);
    for load in ["--waiting 1", "--rate 300"] {
        let line = format!("latency f --log --peer bare {load} --record-size 700 --rounds 1 --runtime 200ms");
        let told = place.json(&line);
        let side = &told["sides"][1];
        assert_eq!(side["side"], "bare");
        assert_eq!(side["records_per_batch_mean"], 1.0, "{side}");
        assert!(side["batch_bytes_mean"].as_f64().unwrap() >= 708.0, "{side}");
        assert!(told["ratios"][0]["latency_us_p50"].as_f64().unwrap() > 0.0, "{told}");
    }
    assert_eq!(place.read("f")[..8], 700_u64.to_le_bytes());
}

#[test]
fn our_log_is_loaded_as_they_are() {
    let place = Place::new();
    place.write("f", &[0; 32 << 20]);
    for (load, side) in [
        ("--waiting 16", "log"),
        ("--rate 300", "log"),
        ("--threads 3", "log-service"),
    ] {
        let line = format!("latency f --log --peer thread-direct {load} --rounds 2 --runtime 300ms");
        let told = place.json(&line);
        let sides = told["sides"].as_array().unwrap();
        assert_eq!(
            (&sides[0]["side"], sides.len()),
            (&side.into(), 2),
            "the log first: {told}"
        );
        for figures in sides {
            assert!(figures["appends_per_second"].as_f64().unwrap() > 0.0, "{figures}");
            assert!(figures["records_per_batch_mean"].as_f64().unwrap() >= 1.0, "{figures}");
        }
        let ratio = &told["ratios"][0];
        has(ratio, json!({"side": side, "peer": "thread-direct"}));
        assert!(ratio["appends_per_second"].as_f64().unwrap() > 0.0, "{ratio}");
    }
    let line = "latency f --log --service --waiting 8 --runtime 200ms";
    let done = place.baio(line).succeeds();
    assert!(done.text().contains("log-service"));
}

#[test]
fn our_log_in_a_segment() {
    let place = Place::new();
    place.volume("32M", "8M");
    for service in ["", "--service"] {
        let line = format!("latency vol#a --log {service} --waiting 4 --runtime 300ms");
        let told = place.json(&line);
        assert!(told["sides"][0]["appends_per_second"].as_f64().unwrap() > 0.0, "{told}");
        let stat = place.json("stat vol");
        assert_eq!(stat["clean"], true, "closed: {stat}");
    }
    place.baio("check vol").succeeds();
}

#[test]
fn a_log_that_is_appended_to_longer_than_it_is_large() {
    let place = Place::new();
    // Each lap gives old records up.
    let line = "latency new --size 8M --log --waiting 64 --record-size 64K --runtime 2s";
    let told = place.json(line);
    let side = &told["sides"][0];
    assert!(side["appends_per_second"].as_f64().unwrap() > 0.0, "{side}");
}

#[test]
fn records_as_large_as_they_may_be() {
    let place = Place::new();
    let line = "latency new --size 64M --peer thread-direct --peer thread-fdatasync --waiting 60 --record-size 1M --rounds 1 --runtime 60ms";
    let told = place.json(line);
    for side in told["sides"].as_array().unwrap() {
        assert_eq!(side["records_per_batch_max"], 1.0, "{side}");
    }
}

#[test]
fn what_cannot_be_or_must_not_be() {
    refusals::refuses(&[
        ("latency vol --peer thread-direct", 1, "EEXIST"),
        ("latency vol#a --peer thread-direct", 2, "EUSAGE"),
        ("latency f --peer thread-direct", 2, "EUSAGE"),
        ("latency f --peer nobody", 2, "EUSAGE"),
        ("latency f --peer bare --threads 2", 2, "EUSAGE"),
        ("latency f --peer bare", 2, "EUSAGE"),
        ("latency f --peer thread-direct --threads 2 --rate 5", 2, "EUSAGE"),
        ("latency f --peer thread-direct --writes 5", 2, "EUSAGE"),
        ("latency f --peer thread-direct --write", 2, "EUSAGE"),
        ("latency f --peer thread-direct --record-size 2M", 2, "EUSAGE"),
        ("latency f --peer thread-direct --rate 0", 2, "EUSAGE"),
        ("latency vol --log", 1, "EEXIST"),
        ("latency f --service", 2, "EUSAGE"),
        ("latency f --peer thread-direct --service", 2, "EUSAGE"),
        ("latency f --waiting 5", 2, "EUSAGE"),
        ("latency f --record-size 5", 2, "EUSAGE"),
    ]);
}
