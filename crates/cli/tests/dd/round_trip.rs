//! Promise: what is copied into a segment comes back, bit for bit, with 32 requests in flight; and the segment keeps the
//! bytes behind it.

use crate::support::{Place, assert_same, random_bytes};

const MIB: usize = 1 << 20;

fn there_and_back(bytes: usize, segment: usize, bs: &str) {
    let place = Place::new();
    place.volume(&format!("{}M", segment / MIB + 8), &segment.to_string());
    let old = vec![0xa5; segment];
    place.write("old", &old);
    place.baio("dd if=old of=vol#a bs=1M").succeeds();
    let new = random_bytes(bytes, 1);
    place.write("new", &new);

    let told = place.json(&format!("dd if=new of=vol#a bs={bs} iodepth=32 conv=fsync"));
    assert_eq!(told["bytes"], bytes);
    assert_eq!(told["depth"], 32);
    assert_eq!(told["records_in_partial"], 1);
    let full_depth = if told["backend"] == "sync" { 1 } else { 32 };
    assert_eq!(told["in_flight_max"], full_depth, "{told}");
    let back = format!("dd --json if=vol#a of=back bs={bs} iodepth=32 count={bytes} iflag=count_bytes");
    let told = place.baio(&back).succeeds().json();
    assert_eq!(told["in_flight_max"], full_depth, "{told}");
    assert_same(&new, &place.read("back"), "what came back");

    place
        .baio(&format!("dd if=vol#a of=rest bs=64K skip={bytes} iflag=skip_bytes"))
        .succeeds();
    assert_same(&old[bytes..], &place.read("rest"), "what lies behind it");
}

#[test]
fn twenty_mebibytes_and_one_byte() {
    there_and_back(20 * MIB + 1, 21 * MIB, "64K");
}

#[test]
fn from_one_volume_to_another_at_odd_offsets() {
    let place = Place::new();
    place.volume("16M", "4M");
    place.baio("format other --size 16M").succeeds();
    place.baio("create other#b --size 5M").succeeds();
    let new = random_bytes(4 * MIB, 2);
    place.write("new", &new);
    place.baio("dd if=new of=vol#a bs=64K").succeeds();
    let line = "dd if=vol#a of=other#b bs=16K iodepth=8 skip=1001 iflag=skip_bytes seek=777 oflag=seek_bytes";
    place.baio(line).succeeds();
    place.baio("dd if=other#b of=back bs=64K").succeeds();
    let mut expected = vec![0; 5 * MIB];
    expected[777..777 + new.len() - 1001].copy_from_slice(&new[1001..]);
    assert_same(&expected, &place.read("back"), "the other volume's segment");
}

#[test]
fn within_one_volume() {
    let place = Place::new();
    place.volume("16M", "4M");
    place.baio("create vol#b --size 4M").succeeds();
    let new = random_bytes(4 * MIB, 3);
    place.write("new", &new);
    place.baio("dd if=new of=vol#a bs=64K").succeeds();
    place
        .baio("dd if=vol#a of=vol#b bs=64K iodepth=32 conv=fdatasync")
        .succeeds();
    place.baio("dd if=vol#b of=back bs=1M").succeeds();
    assert_same(&new, &place.read("back"), "the other segment");
    assert_eq!(place.json("stat vol")["clean"], true);
}
