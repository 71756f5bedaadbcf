//! Promise: on files and pipes the output and the counts of records are those of GNU dd, whatever the operands.

use crate::support::{self, Place, assert_same, random_bytes};

/// The operands that are combined; a `*` marks those that make no sense on standard output.
const OPERANDS: [&str; 20] = [
    "",
    "bs=1 count=700",
    "bs=513",
    "bs=4096 count=3",
    "bs=4K skip=1",
    "bs=5000 skip=2 count=3",
    "bs=64K",
    "bs=1000 seek=3*",
    "bs=1000 seek=3 conv=notrunc*",
    "bs=4096 seek=1 skip=1 count=2 conv=notrunc*",
    "bs=4096 seek=700B conv=notrunc*",
    "bs=100 seek=30000 conv=notrunc,fsync*",
    "bs=4K count=9000 iflag=count_bytes",
    "bs=4K count=0",
    "bs=4K count=3Bx1",
    "bs=512 skip=777 iflag=skip_bytes seek=4099 oflag=seek_bytes*",
    "bs=1M skip=1",
    "ibs=1024 obs=1024 seek=1 conv=notrunc,fdatasync*",
    "bs=2x512 iflag=fullblock",
    "bs=7 skip=9 seek=11 count=13 conv=notrunc*",
];

const SIZES: [usize; 7] = [0, 1, 511, 4096, 4097, 20_000, 65_536];

fn oracle_is_gnu(place: &Place) -> bool {
    let told = place.gnu_dd("--version", b"");
    String::from_utf8_lossy(told.out()).contains("coreutils")
}

#[test]
fn from_file_to_file() {
    let place = Place::new();
    if !oracle_is_gnu(&place) {
        return;
    }
    let old = random_bytes(10_000, 9);
    for (index, size) in SIZES.iter().enumerate() {
        place.write("in", &random_bytes(*size, index as u64));
        for (number, operands) in OPERANDS.iter().enumerate() {
            let operands = operands.trim_end_matches('*');
            place.write("theirs", &old);
            place.write("ours", &old);
            let theirs = place.gnu_dd(&format!("if=in of=theirs {operands}"), b"");
            let depth = [1, 2, 16, 64][number % 4];
            let ours = place.baio(&format!("dd if=in of=ours iodepth={depth} {operands}"));
            let what = format!("{size} bytes, {operands}");
            assert_eq!(ours.status(), theirs.status(), "{what}: {}", ours.errors());
            assert_eq!(ours.records(), theirs.records(), "{what}");
            assert_same(&place.read("ours"), &place.read("theirs"), &what);
        }
    }
}

#[test]
fn from_file_to_pipe() {
    let place = Place::new();
    if !oracle_is_gnu(&place) {
        return;
    }
    place.write("in", &random_bytes(30_001, 5));
    for operands in OPERANDS.iter().filter(|operands| !operands.ends_with('*')) {
        let theirs = place.gnu_dd(&format!("if=in {operands}"), b"");
        let ours = place.baio(&format!("dd if=in iodepth=8 {operands}"));
        assert_eq!(ours.records(), theirs.records(), "{operands}");
        assert_same(ours.out(), theirs.out(), operands);
    }
}

/// Small enough for one read of a pipe, so that both see the same short reads.
#[test]
fn from_pipe_to_file() {
    let place = Place::new();
    if !oracle_is_gnu(&place) {
        return;
    }
    let old = random_bytes(6_000, 9);
    for size in [0, 1, 511, 4096] {
        let input = random_bytes(size, size as u64);
        for operands in OPERANDS {
            let operands = operands.trim_end_matches('*');
            place.write("theirs", &old);
            place.write("ours", &old);
            let theirs = place.gnu_dd(&format!("of=theirs {operands}"), &input);
            let ours = place.baio_fed(&format!("dd of=ours {operands}"), &input);
            assert_eq!(ours.records(), theirs.records(), "{size} bytes, {operands}");
            assert_same(&place.read("ours"), &place.read("theirs"), operands);
        }
    }
}

/// The kernel ends large reads of them early when it has something else to do.
#[test]
fn from_devices_that_never_end() {
    let place = Place::new();
    for device in ["/dev/zero", "/dev/urandom"] {
        let line = format!("dd if={device} of=out bs=3M count=7 skip=1 iodepth=4");
        let told = place.baio(&line).succeeds();
        assert_eq!(told.records(), ["7+0 records in", "7+0 records out"], "{device}");
        assert_eq!(place.read("out").len(), 21 << 20);
    }
}

/// A copy onto itself goes one record after the other: what was just written is read again.
#[test]
fn onto_itself() {
    let place = Place::new();
    if !oracle_is_gnu(&place) {
        return;
    }
    let bytes = random_bytes(50_000, 4);
    for operands in [
        "bs=1000 seek=2 count=40",
        "bs=4096 skip=1 count=9",
        "bs=10 seek=1 count=900",
    ] {
        place.write("theirs", &bytes);
        place.write("ours", &bytes);
        let theirs = place.gnu_dd(&format!("if=theirs of=theirs conv=notrunc {operands}"), b"");
        let ours = place.baio(&format!("dd if=ours of=ours conv=notrunc iodepth=16 {operands}"));
        assert_eq!(ours.records(), theirs.records(), "{operands}");
        assert_same(&place.read("ours"), &place.read("theirs"), operands);
    }
}

/// A file stands for the segment: the same bytes must be in both, whatever the alignment.
#[test]
fn into_a_segment() {
    let place = Place::new();
    if !oracle_is_gnu(&place) {
        return;
    }
    place.volume("4M", "256K");
    let old = random_bytes(256 << 10, 6);
    place.write("old", &old);
    for size in SIZES {
        place.write("in", &random_bytes(size, size as u64 + 1));
        for operands in OPERANDS {
            let operands = operands.trim_end_matches('*');
            place.baio("dd if=old of=vol#a bs=64K").succeeds();
            place.write("model", &old);
            if operands.contains("30000") {
                continue; // Beyond the end of the segment: another story.
            }
            let theirs = place.gnu_dd(&format!("if=in of=model {operands} conv=notrunc"), b"");
            let ours = place
                .baio(&format!("dd if=in of=vol#a {operands} iodepth=4"))
                .succeeds();
            assert_eq!(ours.records(), theirs.records(), "{size} bytes, {operands}");
            place.baio("dd if=vol#a of=now bs=64K").succeeds();
            assert_same(&place.read("now"), &place.read("model"), operands);
        }
    }
}

#[test]
fn standard_streams_keep_their_positions() {
    let place = Place::new();
    place.write("in", b"0123456789");
    let script = format!(
        "({b} dd bs=3 count=1; {b} dd bs=2 skip=1 count=1; cat) < in > out; printf x >> out; {b} dd if=in bs=2 count=1 >> out",
        b = support::BAIO
    );
    let mut child = place.spawn("sh", ["-c", &script]);
    assert!(child.wait().unwrap().success());
    assert_eq!(place.read("out"), b"01256789x01");
}
