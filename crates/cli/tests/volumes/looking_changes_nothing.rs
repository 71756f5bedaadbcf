//! Promise: `list`, `stat` and `log` write nothing, neither to a volume that was closed cleanly nor to one whose owner was
//! killed; and what was acknowledged before the kill is there.

use serde_json::json;

use crate::support::{Holder, Place, Unchanged, has};

fn look(place: &Place) {
    let image = Unchanged::watch(&place.path("vol"));
    for line in [
        "list vol",
        "list vol --json",
        "stat vol",
        "stat vol --json",
        "stat vol#a --json",
        "doctor vol",
    ] {
        place.baio(line).succeeds();
        image.check(line);
    }
    // No log is there, and none is made.
    place.baio("log vol#a").fails_with(1);
    image.check("log vol#a");
}

#[test]
fn at_a_clean_volume() {
    let place = Place::new();
    place.volume("8M", "1M");
    look(&place);
    assert_eq!(place.json("stat vol")["clean"], true);
}

#[test]
fn at_a_volume_after_a_crash() {
    let place = Place::new();
    place.volume("8M", "1M");
    Holder::start(&place).kill();
    look(&place);
    let volume = place.json("stat vol");
    has(&volume, json!({"clean": false, "segments": 1}));
    // The next open to write heals it.
    place.baio("create vol#b --size 4K").succeeds();
    assert_eq!(place.json("stat vol")["clean"], true);
    look(&place);
}

#[test]
fn the_keys_are_the_documented_ones() {
    let place = Place::new();
    place.volume("8M", "1M");
    let keys = |value: &serde_json::Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let segment = [
        "mode",
        "name",
        "owner_gid",
        "owner_uid",
        "reserve_bytes",
        "size_bytes",
        "start_block",
        "state",
    ];
    let listed = place.json("list vol");
    assert_eq!(keys(&listed), ["schema_version", "segments"]);
    assert_eq!(keys(&listed["segments"][0]), segment);
    let mut stat = place.json("stat vol#a");
    stat.as_object_mut().unwrap().remove("schema_version");
    assert_eq!(keys(&stat), segment);
    assert_eq!(stat, listed["segments"][0]);
    let volume = place.json("stat vol");
    let expected = [
        "block_size",
        "clean",
        "format_version",
        "free_bytes",
        "largest_free_bytes",
        "schema_version",
        "segments",
        "segments_max",
        "size_bytes",
        "size_bytes_max",
        "uuid",
        "warnings",
    ];
    assert_eq!(keys(&volume), expected);
    let doctor = place.json("doctor vol");
    assert!(doctor["backend"].is_string() && doctor["rejected"].is_array());
    assert_eq!(doctor["path"]["volume"], true);
}
