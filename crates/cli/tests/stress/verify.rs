//! Promise: `--verify` writes every block with a stamp and checks every block that it reads; a byte that is not what it must
//! be ends the run with status 3, naming file, offset, expected and found. `--once` touches each block exactly once.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::support::{Done, Place, has};

const BLOCK: usize = 4096;

/// The generation that a stamp tells: how often the run wrote the block.
fn generations(bytes: &[u8]) -> Vec<u64> {
    let word = |block: &[u8]| u64::from_le_bytes(block[24..32].try_into().unwrap());
    bytes.chunks(BLOCK).map(word).collect()
}

fn flip(place: &Place, name: &str, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path(name))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn verified(done: &Done) -> u64 {
    done.json()["verified"].as_u64().unwrap()
}

#[test]
fn once_is_each_block_exactly_once() {
    for line in [
        "--threads 1",
        "--threads 3 --depth 5",
        "--batch 8 --iterations 3",
        "--backend sync",
    ] {
        let place = Place::new();
        // Not a power of two, so that the permutation has numbers to send round again.
        place.write("f", &vec![0; 777 * BLOCK]);
        let told = place
            .baio(&format!("stress f --rw randwrite --once --verify {line} --json"))
            .succeeds();
        assert_eq!(told.json()["requests"], 777, "{line}");
        assert_eq!(
            generations(&place.read("f")),
            vec![1; 777],
            "{line}: some block was written twice or never"
        );
        let read = place
            .baio(&format!("stress f --rw randread --once --verify {line} --json"))
            .succeeds();
        assert_eq!(verified(&read), 777, "{line}");
    }
}

#[test]
fn once_on_a_segment() {
    let place = Place::new();
    place.volume("16M", "2M");
    place.baio("stress vol#a --rw randwrite --once --verify").succeeds();
    place.baio("dd if=vol#a of=copy bs=64K").succeeds();
    assert_eq!(generations(&place.read("copy")), vec![1; 512]);
    let read = place.baio("stress vol#a --rw read --once --verify --json").succeeds();
    assert_eq!(verified(&read), 512);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let place = Place::new();
    place
        .baio("stress f --size 256K --rw write --once --verify --seed 9")
        .succeeds();
    for (at, said) in [
        (5 * BLOCK as u64, "found no stamp"),
        (6 * BLOCK as u64 + 16, "offset 24580"),
        (7 * BLOCK as u64 + 4095, "byte 4095 of the block damaged"),
    ] {
        flip(&place, "f", at);
        for rw in ["read", "randread"] {
            let done = place
                .baio(&format!("stress f --rw {rw} --once --verify --seed 9 --json"))
                .fails_with(3);
            let error = done.error();
            assert_eq!(error["code"], "EVERIFY");
            assert_eq!(error["object"], "f");
            assert_eq!(error["offset"], at);
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("expected the stamp of seed 9") && message.contains(said),
                "{message}"
            );
        }
        flip(&place, "f", at);
    }
    place.baio("stress f --rw read --once --verify --seed 9").succeeds();
    place.baio("stress f --rw read --once --verify --seed 8").fails_with(3);
}

#[test]
fn a_flipped_bit_in_a_segment() {
    let place = Place::new();
    place.volume("16M", "2M");
    place.baio("stress vol#a --rw write --once --verify").succeeds();
    let mut bytes = place
        .baio("dd if=vol#a bs=4K skip=3 count=1 status=none")
        .succeeds()
        .out()
        .to_vec();
    bytes[100] ^= 1;
    place
        .baio_fed("dd of=vol#a bs=4K seek=3 status=none", &bytes)
        .succeeds();
    let error = place.error("stress vol#a --rw randread --once --verify --shared-memory", 3);
    has(&error, json!({"object": "vol#a", "offset": 3 * 4096 + 100}));
}

#[test]
fn what_nobody_stamped_is_no_match_for_a_run_that_only_reads() {
    let place = Place::new();
    place.write("f", &[0; 64 << 10]);
    place.baio("stress f --rw read --once --verify").fails_with(3);
    // A run that writes checks what it wrote, and tells how much it could not check.
    let told = place.json("stress f --rw randrw --once --verify");
    assert_eq!(told["verified"], 0);
    assert_eq!(told["unverified"], told["parts"][0]["requests"]);
}

#[test]
fn a_file_made_for_the_run_is_known_from_the_start() {
    let place = Place::new();
    let told = place.json("stress f --size 1M --rw randrw --once --verify");
    assert_eq!(told["unverified"], 0);
    assert_eq!(told["verified"], told["parts"][0]["requests"]);
}

#[test]
fn reads_and_writes_that_crowd_a_few_blocks() {
    let place = Place::new();
    place.volume("16M", "64K");
    for target in ["f --size 32K", "vol#a"] {
        for line in ["--rw randrw", "--rw randwrite", "--rw write", "--rw randrw --batch 32"] {
            let line = format!("stress {target} {line} --depth 32 --runtime 60ms --verify --json");
            place.baio(&line).succeeds();
        }
        let stages = format!("stress {target} --stages write,randwrite,read,randrw,read --verify --json");
        let told = place.baio(&stages).succeeds().json();
        assert_eq!(told["unverified"], 0, "{told}");
    }
    // Streams that overlap, on threads of their own.
    let line = "stress g --size 64K --rw randrw --contexts 4 --offset 4K --threads 4 --runtime 100ms --verify";
    place.baio(line).succeeds();
}
