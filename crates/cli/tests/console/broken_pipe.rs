//! Promise: a reader that goes away early ends a copy with an error and a count, and a listing without a word. What nobody can read on
//! standard error changes no result. Nor does a limit of file sizes end anything but by an error.

use std::io::Read;

use crate::support::{BAIO, Done, Place};

#[test]
fn a_copy_into_it_fails() {
    let place = Place::new();
    place.volume("8M", "4M");
    let mut child = place.spawn(BAIO, ["dd", "if=vol#a", "bs=64K", "iodepth=8"]);
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 10]).unwrap();
    drop(reader);
    let told = Done(child.wait_with_output().unwrap()).fails_with(1);
    assert!(told.errors().contains("EPIPE"), "{}", told.errors());
    assert!(
        told.errors().contains("cure: let it read to the end"),
        "{}",
        told.errors()
    );
    assert_eq!(told.records().len(), 2);
    assert_eq!(place.json("stat vol")["clean"], true);
}

#[test]
fn a_listing_into_it_does_not() {
    let place = Place::new();
    place.volume("8M", "1M");
    for line in [["list", "vol"], ["stat", "vol"], ["doctor", "vol"]] {
        let mut child = place.spawn(BAIO, line);
        drop(child.stdout.take());
        let told = Done(child.wait_with_output().unwrap()).succeeds();
        assert_eq!(told.errors(), "");
    }
}

#[test]
fn messages_that_cannot_be_written_change_nothing() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    for line in [
        "stress new --rw write --size 64K --once",
        "latency new --size 64K --writes 3",
        "report --quick --working-set 4M --only segments --out out",
        "report --resume --quick --working-set 4M --only segments --out again",
    ] {
        for errors in ["2>/dev/full", "2>&-"] {
            let told = place.shell(&format!("exec {BAIO} {line} {errors}"));
            assert_ne!(told.status(), 101, "a panic: {line} {errors}");
            // A report of so little may miss its marks.
            assert!(
                line.starts_with("report") || told.status() == 0,
                "{line} {errors}: {}",
                told.status()
            );
            let _ = std::fs::remove_file(place.path("new"));
        }
    }
}

/// An answer that nobody gets is none: also where nobody was there from the beginning, or there is no room for it.
#[test]
fn an_answer_that_cannot_be_given_is_a_failure() {
    let place = Place::new();
    place.volume("8M", "1M");
    for line in [
        "--help",
        "dd --help",
        "--version",
        "list vol",
        "stat vol#a --json",
        "doctor vol",
    ] {
        for (given_to, status, code) in [(">/dev/full", 1, "ENOSPC"), (">&-", 1, "EBADF"), (">/dev/null", 0, "")] {
            let told = place.shell(&format!("{BAIO} {line} {given_to}"));
            assert_eq!(told.status(), status, "{line} {given_to}: {}", told.errors());
            let said = match code {
                "EBADF" => "Bad file descriptor",
                "ENOSPC" => "No space left on device",
                _ => "",
            };
            assert!(told.errors().contains(said), "{line} {given_to}: {}", told.errors());
        }
    }
    // A failure that was to be the object is told on standard error.
    for given_to in [">/dev/full", ">&-"] {
        let told = place.shell(&format!("{BAIO} stat missing --json {given_to}"));
        assert_eq!(told.status(), 1, "{given_to}: {}", told.errors());
        assert!(told.errors().contains("stat missing"), "{given_to}: {}", told.errors());
    }
    // Where there is no answer on it, its absence is no failure.
    place.write("in", b"x");
    place
        .shell(&format!("{BAIO} dd if=in of=out status=none >&-"))
        .succeeds();
}

#[test]
fn a_limit_of_file_sizes_ends_nothing() {
    let place = Place::new();
    place.volume("8M", "1M");
    for line in [
        "dd if=/dev/zero of=out bs=64K count=4 backend=sync --json",
        "dd if=/dev/zero of=out bs=64K count=4 --json",
        "dd if=/dev/zero of=vol#a bs=64K count=16 --json",
        "format other --size 4M --json",
        "create vol#b --size 1M --json",
        "resize vol#a --size 2M --json",
        "stress out --rw write --size 1M --once --json",
        "latency new --size 1M --writes 3 --json",
    ] {
        let told = place.shell(&format!("ulimit -f 128; exec {BAIO} {line}"));
        assert_eq!(told.status(), 1, "{line}");
        let error = &told.json()["error"];
        assert_eq!(error["code"], "EFBIG", "{line}: {error}");
        let cure = error["cure"].as_str().unwrap_or_default();
        assert!(cure.contains("ulimit -f"), "{line}: {error}");
    }
    // The volume heals when it is opened without the limit.
    place.baio("resize vol#a --size 2M").succeeds();
}
