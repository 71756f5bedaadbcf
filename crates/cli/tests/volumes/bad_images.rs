//! Promise: an image that is no volume, or not this program's, or not whole, gives one clear error with its cure, and
//! nothing about it changes, whatever is tried.

use std::fs::OpenOptions;

use crate::support::{Place, Unchanged, random_bytes};

/// Everything that opens a volume.
const ATTEMPTS: [&str; 8] = [
    "list vol --json",
    "stat vol --json",
    "stat vol#a --json",
    "create vol#new --size 4K --json",
    "delete vol#a --json",
    "dd if=in of=vol#a --json",
    "dd if=vol#a of=out --json",
    "dd if=vol#a of=vol#b --json",
];

#[track_caller]
fn everything_fails(place: &Place, code: &str, word: &str) {
    place.write("in", b"something");
    let image = Unchanged::watch(&place.path("vol"));
    for attempt in ATTEMPTS {
        let error = place.baio(attempt).fails_with(1).error();
        assert_eq!(error["code"], code, "{attempt}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(word), "{attempt}: {message}");
        assert!(error["object"].as_str().unwrap().starts_with("vol"), "{error}");
        image.check(attempt);
        assert!(!place.path("out").exists(), "{attempt} left an output behind");
    }
}

#[test]
fn random_bytes_are_no_volume() {
    let place = Place::new();
    place.write("vol", &random_bytes(1 << 20, 1));
    everything_fails(&place, "ENOTVOLUME", "superblock");
    let image = Unchanged::watch(&place.path("vol"));
    for line in ["check vol", "check vol --repair"] {
        assert_eq!(place.error(line, 1)["code"], "ENOTVOLUME");
        image.check(line);
    }
}

#[test]
fn an_empty_file_is_no_volume() {
    let place = Place::new();
    place.write("vol", b"");
    everything_fails(&place, "ENOTVOLUME", "");
}

#[test]
fn somebody_elses_file_system_is_no_volume() {
    let place = Place::new();
    let mut image = vec![0; 4 << 20];
    image[1080..1082].copy_from_slice(&[0x53, 0xef]); // The magic of ext4.
    image[4096..8192].copy_from_slice(&random_bytes(4096, 2));
    place.write("vol", &image);
    everything_fails(&place, "ENOTVOLUME", "");
    let before = Unchanged::watch(&place.path("vol"));
    let error = place.error("format vol", 1);
    assert_eq!(error["code"], "EEXIST");
    before.check("format without --force");
}

#[test]
fn a_truncated_volume_is_damaged() {
    let place = Place::new();
    place.volume("8M", "1M");
    let file = OpenOptions::new().write(true).open(place.path("vol")).unwrap();
    file.set_len(3 << 20).unwrap();
    everything_fails(&place, "ECORRUPT", "3145728");
}

#[test]
fn a_newer_volume_is_left_alone() {
    let place = Place::new();
    place.volume("8M", "1M");
    let mut image = place.read("vol");
    let place_of = |at: usize, image: &[u8]| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    for copy in [0, 65536, place_of(168, &image), place_of(176, &image)] {
        let page = &mut image[copy..copy + 4096];
        page[8..12].copy_from_slice(&7u32.to_le_bytes());
        page[16..20].fill(0);
        let checksum = crc32c::crc32c(page);
        page[16..20].copy_from_slice(&checksum.to_le_bytes());
    }
    place.write("vol", &image);
    everything_fails(&place, "EVERSION", "7");
}

#[test]
fn a_volume_is_not_written_over() {
    let place = Place::new();
    place.volume("8M", "1M");
    place.write("in", &random_bytes(100_000, 3));
    let image = Unchanged::watch(&place.path("vol"));
    for attempt in [
        "dd if=in of=vol --json",
        "dd if=in of=vol conv=notrunc seek=100 --json",
        "format vol --json",
    ] {
        let error = place.baio(attempt).fails_with(1).error();
        assert_eq!(error["code"], "EEXIST", "{attempt}: {error}");
        image.check(attempt);
    }
}
