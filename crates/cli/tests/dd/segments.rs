//! Promise: a segment is to `baio dd` what a device is to GNU dd, whatever the operands, the backend and the mode are: a file stands for it
//! there. And with `verify=blake3` what was written is read again.

use std::io::Write;

use rustix::process::Signal;

use crate::support::gnu;
use crate::support::server::Server;
use crate::support::{self, BAIO, Done, Place, assert_same, random_bytes};

const SIZE: usize = 64 << 10;

/// All of it fits.
const LINES: &[&str] = &[
    "bs=1 count=700",
    "bs=513",
    "bs=64K",
    "bs=5000 skip=2 count=3",
    "bs=7 skip=9 seek=11 count=13",
    "bs=4096 seek=1 skip=1 count=2",
    "bs=512 skip=777 iflag=skip_bytes seek=4099 oflag=seek_bytes",
    "ibs=100 obs=300",
    "ibs=1000 obs=1 count=3",
    "ibs=4096 obs=8192",
    "ibs=512 obs=4096 seek=3",
    "ibs=5000 obs=3000 skip=1 seek=2",
    "bs=100 count=7B seek=4090B",
    "bs=1000 conv=swab",
    "bs=1000 conv=sync",
    "bs=1000 conv=sync,noerror seek=5",
    "ibs=70 obs=4096 conv=ucase count=100",
    "ibs=71 obs=1000 conv=swab count=100",
    "bs=1000 conv=sparse",
    "bs=4096 conv=sparse seek=1",
    "bs=4096 oflag=dsync",
    "bs=777 oflag=sync count=5 seek=9",
    "bs=4096 count=2 conv=fsync,lcase",
    "bs=3 count=3 seek=1365",
];

/// Runs the line on a segment and on the file that stands for it.
#[track_caller]
fn both(place: &Place, line: &str, more: &str) {
    let theirs = place.gnu_dd(&format!("{} conv=notrunc", line.replace('@', "model")), b"");
    let ours = place.baio(&format!("dd {} {more}", line.replace('@', "vol#a")));
    let what = format!("{line} {more}: {}", ours.errors());
    assert_eq!(ours.status(), theirs.status(), "{what}");
    assert_eq!(ours.records(), theirs.records(), "{what}");
    assert_same(ours.out(), theirs.out(), &what);
}

fn prepared() -> Option<Place> {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return None;
    }
    place.volume("4M", "64K");
    let mut input = random_bytes(20_000, 1);
    input[4096..12_000].fill(0);
    place.write("in", &input);
    let old = random_bytes(SIZE, 2);
    place.write("old", &old);
    place.write("model", &old);
    place.baio("dd if=old of=vol#a bs=4K").succeeds();
    Some(place)
}

#[track_caller]
fn same(place: &Place, what: &str) {
    place.baio("dd if=vol#a of=now bs=64K").succeeds();
    assert_same(&place.read("now"), &place.read("model"), what);
}

#[test]
fn into_a_segment_in_order() {
    let Some(place) = prepared() else { return };
    for line in LINES {
        for more in ["", "mode=cached backend=threads"] {
            both(&place, &format!("if=in of=@ {line}"), more);
            same(&place, line);
        }
    }
    let told = place.baio("check vol").succeeds();
    assert_eq!(told.errors(), "");
}

#[test]
fn out_of_a_segment_in_order() {
    let Some(place) = prepared() else { return };
    for line in LINES {
        let line = line.replace("conv=", "conv=notrunc,");
        // A pipe has no positions, and nothing to make durable.
        let line: Vec<&str> = line
            .split(' ')
            .filter(|word| !word.starts_with("seek") && !word.contains("sync"))
            .collect();
        both(&place, &format!("if=@ {}", line.join(" ")), "");
        both(&place, &format!("if=@ {} skip=3", line.join(" ")), "mode=cached");
    }
}

#[test]
fn a_segment_over_itself() {
    let Some(place) = prepared() else { return };
    for line in [
        "ibs=100 obs=300 count=50 seek=1",
        "bs=1000 conv=swab seek=3 count=9",
        "bs=1000 seek=1 count=30",
    ] {
        both(&place, &format!("if=@ of=@ {line}"), "");
        same(&place, line);
    }
}

/// Behind a broker it is the same; one without a cache says what it lacks, and changes nothing.
#[test]
fn behind_a_broker() {
    let Some(place) = prepared() else { return };
    let server = Server::start(&place, "serve vol --socket s").ready();
    for line in LINES {
        let theirs = place.gnu_dd(&format!("if=in of=model {line} conv=notrunc"), b"");
        let ours = place.baio(&format!("dd if=in of=unix:s#a {line}"));
        assert_eq!(ours.records(), theirs.records(), "{line}: {}", ours.errors());
    }
    server.signal(Signal::TERM);
    server.ends_well();
    same(&place, "a broker");

    let server = Server::start(&place, "serve vol --socket s --cache 0").ready();
    let error = place.error("dd if=in of=unix:s#a bs=100 count=3 seek=1", 1);
    assert_eq!(error["code"], "EOPNOTSUPP", "{error}");
    place.baio("dd if=in of=unix:s#a bs=4096 count=3").succeeds();
    place.gnu_dd("if=in of=model bs=4096 count=3 conv=notrunc", b"");
    server.signal(Signal::TERM);
    server.ends_well();
    same(&place, "a broker without a cache");
}

#[test]
fn each_backend_and_each_mode() {
    let place = Place::new();
    place.volume("4M", "64K");
    let bytes = random_bytes(50_001, 3);
    place.write("in", &bytes);
    for backend in ["auto", "sync", "threads", "aio", "uring"] {
        for mode in ["direct", "cached", "kernel", "uncached"] {
            for blocks in ["bs=4K", "ibs=4K obs=1000"] {
                let more = format!("{blocks} backend={backend} mode={mode}");
                let there = place.baio(&format!("dd if=in of=vol#a {more} conv=fdatasync"));
                let errors = there.errors();
                if errors.contains("io_uring") || errors.contains("O_DIRECT") {
                    support::skip(&format!("{more} is not there: {errors}"));
                    continue;
                }
                there.succeeds();
                place
                    .baio(&format!("dd if=vol#a of=back count=50001B {more}"))
                    .succeeds();
                assert_same(&place.read("back"), &bytes, &more);
                place.baio(&format!("dd if=in of=back {more}")).succeeds();
                assert_same(&place.read("back"), &bytes, &more);
            }
        }
    }
}

/// The hash of what was written, as the answer has it.
fn hash(done: &Done) -> String {
    done.json()["blake3"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn what_was_written_is_read_again() {
    let place = Place::new();
    place.volume("64M", "20M");
    let bytes = random_bytes((17 << 20) + 777, 4);
    place.write("in", &bytes);
    let whole = blake3::hash(&bytes).to_hex().to_string();
    for line in [
        "if=in of=out bs=64K",
        "if=in of=out bs=1M iodepth=3 oflag=direct",
        "if=in of=out ibs=1M obs=70000 seek=3",
        "if=in of=out bs=100000 seek=5 conv=notrunc",
        "if=in of=vol#a bs=64K iodepth=32",
        "if=in of=vol#a bs=100000 seek=3",
        "if=in of=vol#a ibs=1M obs=300000 mode=cached",
    ] {
        let told = place.baio(&format!("dd --json {line} verify=blake3")).succeeds();
        assert_eq!(hash(&told), whole, "{line}");
        assert!(told.errors().contains(&whole), "{line}: {}", told.errors());
    }
    let told = place.baio("dd --json if=in of=out bs=1M").succeeds();
    assert_eq!(hash(&told), "none");
    let told = place
        .baio("dd --json if=in of=out bs=64K count=3 verify=blake3 conv=swab,ucase status=none")
        .succeeds();
    assert_eq!(hash(&told), blake3::hash(&place.read("out")).to_hex().as_str());
    assert_eq!(told.errors(), "");
    for line in ["if=in verify=blake3 count=1", "if=in of=/dev/null verify=blake3"] {
        let told = place.baio(&format!("dd {line}")).fails_with(1);
        assert!(told.errors().contains("cannot be read back"), "{}", told.errors());
    }
    let told = place.baio("dd if=in of=out conv=sparse verify=blake3").fails_with(1);
    assert!(told.errors().contains("cannot combine"), "{}", told.errors());
}

/// Somebody writes there between the copy and its look back.
#[test]
fn what_is_not_there_any_more_is_told() {
    let place = Place::new();
    for line in ["bs=100", "ibs=100 obs=50", "bs=100 oflag=dsync conv=notrunc"] {
        let line = format!("dd --json of=out {line} verify=blake3");
        let mut child = place.spawn(BAIO, line.split(' '));
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&random_bytes(300, 5)).unwrap();
        // It is written: nothing more is to come.
        while std::fs::read(place.path("out")).map_or(0, |bytes| bytes.len()) < 300 {}
        let mut changed = place.read("out");
        changed[100] ^= 1;
        place.write("out", &changed);
        drop(pipe);
        let done = Done(child.wait_with_output().unwrap()).fails_with(3);
        let error = done.error();
        assert_eq!(error["code"], "EVERIFY", "{error}");
        assert_eq!(done.records()[0], "3+0 records in");
        std::fs::remove_file(place.path("out")).unwrap();
    }
}

/// Zeros that are passed over need room too, or a copy of a device of zeros would never end.
#[test]
fn zeros_that_do_not_fit_are_not_passed_over() {
    let Some(place) = prepared() else { return };
    let done = place.baio("dd if=/dev/zero of=vol#a bs=1000 conv=sparse");
    assert_eq!(done.status(), 1, "{}", done.errors());
    assert!(done.errors().contains("no space left"), "{}", done.errors());
}

#[test]
fn what_a_segment_has_not_is_refused_and_changes_nothing() {
    let Some(place) = prepared() else { return };
    let before = place.baio("dd if=vol#a").succeeds().out().to_vec();
    for word in ["oflag=append conv=notrunc", "oflag=directory", "conv=excl"] {
        let done = place.baio(&format!("dd if=in of=vol#a {word}"));
        assert_eq!(done.status(), 1, "{word}");
        assert!(done.errors().contains("a segment has no"), "{word}: {}", done.errors());
    }
    assert_same(place.baio("dd if=vol#a").out(), &before, "what was refused");
}
