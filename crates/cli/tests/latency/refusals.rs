//! Promise: what `baio latency` must not or cannot do is refused before anything is changed, with need and cure.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::support::confined::Confined;
use crate::support::refusals;
use crate::support::{self, BAIO, Done, Place, Unchanged};

#[test]
fn nothing_precious_is_written_over_unasked() {
    let writes = ["latency vol --writes 10", "latency vol --writes 10 --same-block"];
    let place = refusals::refuses_to_overwrite_a_volume(&writes, "stress vol --rw read --once");
    let before = place.read("vol");
    place.baio("latency vol --writes 200 --force").succeeds();
    assert!(before[..512] != place.read("vol")[..512], "whoever insists gets it");
}

#[test]
fn results_replace_neither_the_target_nor_a_volume() {
    let place = Place::new();
    place.volume("16M", "1M");
    place.write("f", &support::random_bytes(64 << 10, 1));
    std::os::unix::fs::symlink("f", place.path("link")).unwrap();
    let file = Unchanged::watch(&place.path("f"));
    let volume = Unchanged::watch(&place.path("vol"));
    for (line, status, code) in [
        ("--csv f", 2, "EUSAGE"),
        ("--csv link", 2, "EUSAGE"),
        ("--csv vol", 1, "EEXIST"),
        ("--csv .", 1, "EISDIR"),
        ("--csv missing/x", 1, "ENOENT"),
    ] {
        let error = place.error(&format!("latency f --writes 10 {line}"), status);
        assert_eq!(error["code"], code, "{line}: {error}");
        file.check(line);
        volume.check(line);
        assert!(
            !place.path("new").exists(),
            "{line}: a file without results does not stay"
        );
    }
    for (line, status) in [("--csv missing/x", 1), ("--csv new", 2), ("--csv f", 2)] {
        // Of what is to be made too: neither it nor a file without results stays.
        let target = if line == "--csv f" { "f" } else { "new" };
        place
            .baio(&format!("latency {target} --writes 10 {line}"))
            .fails_with(status);
        file.check(line);
        assert!(!place.path("new").exists(), "{line}");
    }
    // A link is somebody's, wherever it leads.
    std::os::unix::fs::symlink("made.csv", place.path("times.csv")).unwrap();
    place.baio("latency vol --writes 10 --csv times.csv").fails_with(1);
    assert!(place.path("times.csv").symlink_metadata().is_ok());
    // Of a segment the volume is the target.
    place.baio("latency vol#a --writes 10 --csv vol").fails_with(1);
    volume.check("its own volume");
    place.write("old.csv", &[b'x'; 100_000]);
    place.baio("latency f --writes 10 --csv old.csv").succeeds();
    assert!(
        place.read("old.csv").starts_with(b"scheduler,write,"),
        "an ordinary file is"
    );
    assert!(!place.read("old.csv").contains(&b'x'), "whole");
}

/// Of what may be written and not read nobody can say that it is no volume.
#[test]
fn results_do_not_replace_a_volume_that_may_only_be_written() {
    let place = Place::new();
    place.volume("4M", "1M");
    place.write("f", &support::random_bytes(64 << 10, 1));
    let before = place.read("vol");
    let mode = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    mode("", 0o755);
    mode("f", 0o666);
    mode("vol", 0o222);
    let [f, vol] = ["f", "vol"].map(|name| place.path(name).display().to_string());
    let csv = ["latency", &f, "--writes", "10", "--csv", &vol];
    let over = ["stress", &vol, "--rw", "write", "--once", "--force"];
    for words in [&csv, &over] {
        let told = Done(Confined::new().run(BAIO, words)).fails_with(1);
        assert!(told.errors().contains("may hold a baio volume"), "{}", told.errors());
    }
    mode("vol", 0o644);
    assert!(place.read("vol") == before);
}

#[test]
fn command_lines_that_make_no_sense() {
    refusals::refuses(&[
        ("latency", 2, "EUSAGE"),
        ("latency f", 2, "EUSAGE"),
        ("latency f --writes 1 --request-size 0", 2, "EUSAGE"),
        ("latency f --writes 1 --request-size 128K", 2, "EUSAGE"),
        ("latency f --writes 1 --request-size 16383P", 2, "EUSAGE"),
        ("latency f --writes 1 --backend foo", 2, "EUSAGE"),
        ("latency f --durable", 2, "EUSAGE"),
        ("latency f --writes 0", 2, "EUSAGE"),
        ("latency f --writes 16385", 2, "EUSAGE"),
        ("latency f --writes 1000 --request-size 4K", 2, "EUSAGE"),
        ("latency f --writes 10 --log", 2, "EUSAGE"),
        ("latency f --same-block", 2, "EUSAGE"),
        ("latency f --csv x", 2, "EUSAGE"),
        ("latency f --schedulers", 2, "EUSAGE"),
        ("latency new --size 4K --writes 1000", 2, "EUSAGE"),
        ("latency new --log --gather 3s", 2, "EUSAGE"),
        ("latency new --writes 1 --size 8191P", 1, "ENOSPC"),
        ("latency . --writes 1", 1, "EISDIR"),
        ("latency /dev/null --writes 1", 1, "EINVAL"),
        ("latency vol#a --writes 1 --request-size 512", 2, "EUSAGE"),
        ("latency vol#a --writes 1 --size 2M", 2, "EUSAGE"),
        ("latency vol#b --writes 1", 1, "ENOENT"),
        ("latency unix:/run/x#a --writes 1", 1, "EOPNOTSUPP"),
    ]);
}

#[test]
fn a_segment_of_somebody_else() {
    let (writes, reads) = ("latency vol#12345/b --writes 1", "stress vol#12345/b --rw read --once");
    refusals::asks_before_writing_a_segment_of_somebody_else(writes, reads);
}
