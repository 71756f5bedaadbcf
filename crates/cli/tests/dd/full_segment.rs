//! Promise: a segment is like a device of its size: dd writes what fits, counts it, and fails with ENOSPC.

use crate::support::{Place, assert_same, random_bytes};

const SIZE: usize = 1 << 20;

#[test]
fn what_fits_is_written_and_counted() {
    let place = Place::new();
    place.volume("8M", "1M");
    let bytes = random_bytes(SIZE + 5000, 1);
    place.write("in", &bytes);
    let told = place.baio("dd if=in of=vol#a bs=300000 iodepth=8").fails_with(1);
    assert_eq!(told.records(), ["3+1 records in", "3+0 records out"]);
    assert!(
        told.errors().contains("1048576 bytes (1.0 MB, 1.0 MiB) copied"),
        "{}",
        told.errors()
    );
    let told = place
        .baio("dd --json if=in of=vol#a bs=300000 iodepth=8 status=none")
        .fails_with(1);
    assert_eq!(told.errors(), "");
    let error = told.error();
    assert_eq!((&error["code"], &error["offset"]), (&"ENOSPC".into(), &SIZE.into()));
    assert_eq!(error["object"], "vol#a");

    place.baio("dd if=vol#a of=back bs=1M").succeeds();
    assert_same(&bytes[..SIZE], &place.read("back"), "what fits");
    let segment = place.baio("stat vol#a --json").succeeds().json();
    assert_eq!(segment["size_bytes"], SIZE);
    assert_eq!(
        place.baio("stat vol --json").json()["clean"],
        true,
        "closed cleanly, although it failed"
    );
}

#[test]
fn what_fits_exactly_does_not_fail() {
    let place = Place::new();
    place.volume("8M", "1M");
    let bytes = random_bytes(SIZE, 2);
    place.write("in", &bytes);
    place.baio("dd if=in of=vol#a bs=64K").succeeds();
    place.baio_fed("dd of=vol#a bs=64K iflag=fullblock", &bytes).succeeds();
    place.baio("dd if=/dev/zero of=vol#a bs=64K count=16").succeeds();
    place.baio("dd if=/dev/null of=vol#a bs=64K seek=16").succeeds();
}

#[test]
fn streams_fail_at_the_same_byte() {
    let place = Place::new();
    place.volume("8M", "1M");
    let bytes = random_bytes(SIZE + 1, 3);
    let told = place
        .baio_fed("dd --json of=vol#a bs=64K iflag=fullblock", &bytes)
        .fails_with(1);
    assert_eq!(told.records(), ["16+1 records in", "16+0 records out"]);
    assert_eq!(told.error()["offset"], SIZE);
    let told = place
        .baio("dd --json if=/dev/zero of=vol#a bs=64K seek=15")
        .fails_with(1);
    assert_eq!(told.records(), ["2+0 records in", "1+0 records out"]);
    let told = place
        .baio("dd --json if=/dev/zero of=vol#a bs=64K seek=100")
        .fails_with(1);
    assert_eq!(told.error()["offset"], 100 * 65536);
    place.baio("dd if=vol#a of=back bs=1M").succeeds();
    assert_same(&bytes[..15 * 65536], &place.read("back")[..15 * 65536], "the beginning");
}

#[test]
fn other_full_outputs_fail_too() {
    let place = Place::new();
    place.write("in", &random_bytes(100_000, 4));
    let told = place.baio("dd if=in of=/dev/full bs=4K").fails_with(1);
    assert_eq!(told.records(), ["1+0 records in", "0+0 records out"]);
    assert!(told.errors().contains("ENOSPC"), "{}", told.errors());
}
