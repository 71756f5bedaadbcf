//! Promise: on files and pipes the output and the counts of records are those of GNU dd, whatever the operands.

use crate::support::gnu;
use crate::support::{Place, assert_same, random_bytes};

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

/// A pipe gives so much in one read, so that both see the same short reads.
const OF_A_PIPE: usize = 4096;

#[test]
fn from_files_and_pipes_to_files_and_pipes() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    let mut found = Vec::new();
    for (index, size) in SIZES.into_iter().enumerate() {
        place.write("in", &random_bytes(size, index as u64));
        for operands in OPERANDS {
            let has_positions = operands.ends_with('*');
            let operands = operands.trim_end_matches('*');
            found.extend(gnu::differences(&place, ("in", "old", operands)));
            if size <= OF_A_PIPE {
                found.extend(gnu::differences(&place, ("|in", "old", operands)));
            }
            if !has_positions {
                found.extend(gnu::differences(&place, ("in", "pipe", operands)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
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
    if !gnu::is_there(&place) {
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
