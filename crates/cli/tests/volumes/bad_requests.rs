//! Promise: a request that cannot be served has an error of its own, with object, need and cure, and does not change a
//! byte of the volume, not even its epoch.

use serde_json::Value;

use crate::support::{Place, Unchanged, random_bytes};

/// Runs `baio` with arguments that may hold anything.
fn baio(place: &Place, words: &[&str]) -> (i32, Value) {
    let done = place.words(words.iter().chain(&["--json"]));
    (done.status(), done.error())
}

#[track_caller]
fn refused(place: &Place, words: &[&str], status: i32, code: &str, word: &str) {
    let image = Unchanged::watch(&place.path("vol"));
    let (found, error) = baio(place, words);
    assert_eq!((found, &error["code"]), (status, &code.into()), "{words:?}: {error}");
    assert!(error["message"].as_str().unwrap().contains(word), "{words:?}: {error}");
    image.check(&format!("{words:?}"));
}

#[test]
fn names_that_no_segment_can_have() {
    let place = Place::new();
    place.volume("8M", "1M");
    let long = format!("vol#{}", "x".repeat(256));
    let create = |target| ["create", target, "--size", "4K"];
    refused(&place, &create(&long), 1, "ENAMETOOLONG", "256");
    refused(&place, &create("vol#"), 2, "EUSAGE", "no segment name");
    refused(
        &place,
        &create("vol#0/a/b"),
        2,
        "EUSAGE",
        "no segment can have this name",
    );
    refused(&place, &create("vol#a/b"), 2, "EUSAGE", "not a uid");
    refused(&place, &create("vol#a#b"), 2, "EUSAGE", "no volume 'vol#a'");
    refused(&place, &create("vol#a\u{7}b"), 1, "EINVAL", "control");
    refused(&place, &create("vol#a\nb"), 1, "EINVAL", "control");
    refused(&place, &create("vol#a"), 1, "EEXIST", "exists");
    for command in ["stat", "delete"] {
        refused(&place, &[command, &long], 1, "ENAMETOOLONG", "256");
        refused(&place, &[command, "vol#a\tb"], 1, "EINVAL", "control");
    }
    refused(&place, &["dd", "if=vol#a\tb", "of=x"], 1, "EINVAL", "control");
    refused(&place, &["stat", "vol#b"], 1, "ENOENT", "no such segment");
}

#[test]
fn a_name_of_255_bytes_is_good() {
    let place = Place::new();
    place.volume("8M", "1M");
    let long = format!("create vol#{} --size 4K", "y".repeat(255));
    place.baio(&long).succeeds();
}

#[test]
fn sizes_that_do_not_fit() {
    let place = Place::new();
    place.volume("8M", "1M");
    refused(&place, &["create", "vol#b", "--size", "1G"], 1, "ENOSPC", "1073741824");
    refused(
        &place,
        &["create", "vol#b", "--size", "0"],
        1,
        "EINVAL",
        "at least one byte",
    );
    refused(
        &place,
        &["create", "vol#7/b", "--size", "4K", "--owner", "8"],
        2,
        "EUSAGE",
        "owner",
    );
    refused(
        &place,
        &["dd", "if=vol#a", "of=x", "bs=1G", "conv=swab"],
        1,
        "EUSAGE",
        "memory",
    );
}

#[test]
fn every_place_of_the_table_taken() {
    let place = Place::new();
    place.baio("format vol --size 8M --segments 16").succeeds();
    for number in 0..16 {
        place.baio(&format!("create vol#{number} --size 4K")).succeeds();
    }
    refused(
        &place,
        &["create", "vol#more", "--size", "4K"],
        1,
        "ENOSPC",
        "16 segments",
    );
}

#[test]
fn direct_io_at_an_odd_offset() {
    let place = Place::new();
    place.volume("8M", "1M");
    place.write("in", &random_bytes(100_000, 1));
    place.write("old", &random_bytes(100_000, 2));
    let old = Unchanged::watch(&place.path("old"));
    let image = Unchanged::watch(&place.path("vol"));
    for (words, offset) in [
        (["dd", "if=in", "of=vol#a", "skip=1B", "iflag=direct"], 1),
        (["dd", "if=vol#a", "of=old", "seek=513B", "oflag=direct"], 513),
    ] {
        let (status, error) = baio(&place, &words);
        assert_eq!(
            (status, &error["code"], &error["offset"]),
            (1, &"EINVAL".into(), &offset.into()),
            "{error}"
        );
        assert!(error["need"].as_str().unwrap().contains("multiple of"), "{error}");
        old.check("a refused copy");
        image.check("a refused copy");
    }
}

#[test]
fn inputs_that_are_not_there() {
    let place = Place::new();
    place.volume("8M", "1M");
    refused(&place, &["dd", "if=nothing", "of=vol#a"], 1, "ENOENT", "nothing");
    refused(&place, &["dd", "if=.", "of=vol#a"], 1, "EISDIR", "directory");
    refused(&place, &["create", "vol", "--size", "4K"], 2, "EUSAGE", "not a segment");
    refused(&place, &["list", "vol#a"], 2, "EUSAGE", "a segment");
}
