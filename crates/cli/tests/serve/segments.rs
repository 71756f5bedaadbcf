//! Promise: the segments of a volume that a broker serves are made, shown, changed and stressed by the commands that do so with a
//! volume's own, named by the broker's socket; what cannot be done through it says so, with need and cure.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};

use baio::{Access, Link, LogOptions, Remote};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::confined::Confined;
use crate::support::server::Server;
use crate::support::{self, BAIO, Place, has, until};

/// A volume of 16 MiB, `vol`, that is served at `s`.
fn served() -> (Place, Server) {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let server = Server::start(&place, "serve vol --socket s").ready();
    (place, server)
}

/// It ends well, and the volume is found to be whole.
fn is_whole(place: &Place, server: Server) {
    server.signal(Signal::TERM);
    server.ends_well();
    assert_eq!(place.json("stat vol")["clean"], true);
    place.baio("check vol").succeeds();
}

/// The line fails with this status and code, and one line for people as well.
#[track_caller]
fn refused(place: &Place, line: &str, status: i32, code: &str) -> Value {
    let error = place.error(line, status);
    assert_eq!(error["code"], code, "{line}: {error}");
    let told = place.baio(line).fails_with(status);
    let lines: Vec<_> = told.errors().lines().map(str::to_owned).collect();
    assert!(lines.len() == 1 && lines[0].contains("; cure: "), "{line}: {lines:?}");
    assert!(told.out().is_empty(), "{line}");
    error
}

#[track_caller]
fn says(error: &Value, key: &str, words: &str) {
    assert!(error[key].as_str().unwrap().contains(words), "{key}, {words}: {error}");
}

#[test]
fn a_segment_from_its_making_to_its_end() {
    let (place, server) = served();
    let made = place.json("create unix:s#a --size 1M --mode 0640");
    has(&made, json!({"name": "a", "size_bytes": 1 << 20}));
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(made["owner_uid"], uid);
    // Where it lies is nobody's to know.
    let listed = place.json("list unix:s")["segments"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    has(&listed[0], json!({"name": "a", "start_block": null}));
    let text = place.text("list unix:s");
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[3], row[row.len() - 2]), ("a", "0640", "-"), "{text}");
    let whole = format!("unix:{}#{uid}/a", place.path("s").display());
    assert_eq!(place.json(&format!("stat {whole}"))["start_block"], Value::Null);

    let renamed = place.json("rename unix:s#a b");
    assert_eq!(renamed["name"], "b");
    let resized = place.json("resize unix:s#b --size 3M");
    has(&resized, json!({"name": "b", "size_bytes": 3 << 20}));
    assert_eq!(place.json("stat unix:s#b")["size_bytes"], 3 << 20);
    refused(&place, "stat unix:s#a", 1, "ENOENT");
    place.json("delete unix:s#b");
    assert_eq!(place.json("list unix:s")["segments"], Value::Array(Vec::new()));
    is_whole(&place, server);
}

#[test]
fn the_volume_and_who_holds_how_much() {
    let (place, server) = served();
    place.json("create unix:s#a --size 1M");
    let volume = place.json("stat unix:s");
    assert_eq!(volume["segments"], 1);
    let text = place.text("stat unix:s");
    assert!(text.contains("not while it is served"), "{text}");
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(place.json(&format!("quota unix:s {uid}"))["used_bytes"], 1 << 20);
    // It is ours, so its limits are.
    let set = place.json("quota unix:s 4321 --blocks 2M --segments 3");
    has(&set, json!({"limit_bytes": 2 << 20, "limit_segments": 3}));
    let set = place.json("quota unix:s 4321 --segments none");
    has(&set, json!({"limit_bytes": 2 << 20, "limit_segments": null}));
    is_whole(&place, server);
    assert_eq!(place.json("quota vol 4321")["limit_bytes"], 2 << 20);
}

#[test]
fn a_volume_is_checked_and_packed_while_it_is_served() {
    let (place, server) = served();
    for name in ["a", "b", "c"] {
        place.json(&format!("create unix:s#{name} --size 1M"));
    }
    place.json("stress unix:s#c --rw write --once --verify");
    place.json("delete unix:s#a");
    let found = place.json("check unix:s");
    has(&found, json!({"problems": [], "untold": 0, "segments": 2}));
    let text = place.text("check unix:s");
    assert!(text.starts_with("problems  none"), "{text}");
    let packed = place.json("defrag unix:s");
    has(&packed, json!({"segments_moved": 2, "untold": 0}));
    assert_eq!(packed["largest_free_bytes"], packed["free_bytes"]);
    let text = place.text("defrag unix:s");
    assert!(
        text.starts_with("segments moved") && !text.contains("not moved"),
        "{text}"
    );
    assert_eq!(place.json("check unix:s")["problems"], Value::Array(Vec::new()));
    is_whole(&place, server);
}

/// A problem that lies on the disk is told through the broker as it is told by `check` of the volume itself.
#[test]
fn what_is_wrong_is_told_through_the_broker() {
    let (place, server) = served();
    place.json("create unix:s#a --size 1M");
    // The second copy of the superblock, which nobody reads while the volume is open.
    let file = std::fs::OpenOptions::new().write(true).open(place.path("vol")).unwrap();
    file.write_all_at(&[0xa5; 4096], 65536).unwrap();
    file.sync_all().unwrap();
    let found = place.baio("check unix:s --json").fails_with(3).json();
    assert_eq!(found["problems"][0]["kind"], "superblock", "{found}");
    assert_eq!(found["problems"][0]["repair"], "repairable", "{found}");
    let text = place.baio("check unix:s").fails_with(3).text();
    assert!(
        text.contains("superblock") && !text.contains(place.path("vol").to_str().unwrap()),
        "{text}"
    );
    server.signal(Signal::TERM);
    server.ends_well();
}

#[test]
fn what_is_stressed_reads_as_it_was_written() {
    let (place, server) = served();
    place.json("create unix:s#a --size 2M");
    for mode in ["direct", "cached"] {
        let line = "--stages write,randread,randwrite,read --once --verify --request-size 4K --depth 8";
        let told = place.json(&format!("stress unix:s#a {line} --mode {mode}"));
        has(&told, json!({"requests": 2048, "errors": 0}));
        has(&told, json!({"verified": 1024, "unverified": 0}));
        has(&told, json!({"mode": mode, "backend": "broker"}));
    }
    let told = place.json("stress unix:s#a --rw randrw --once --threads 3");
    has(&told, json!({"threads": 3, "errors": 0}));
    is_whole(&place, server);
}

#[test]
fn what_is_not_there() {
    let (place, server) = served();
    place.json("create unix:s#a --size 1M");
    for line in [
        "stat unix:s#b",
        "delete unix:s#b",
        "rename unix:s#b c",
        "resize unix:s#b --size 1M",
        "stress unix:s#b --rw read --once",
    ] {
        let error = refused(&place, line, 1, "ENOENT");
        assert_eq!(error["object"], "unix:s#b", "{line}");
        says(&error, "cure", "baio list");
    }
    let error = refused(&place, "create unix:s#a --size 1M", 1, "EEXIST");
    says(&error, "cure", "another name");
    // Whoever is not root has a quota from the broker, which is met first.
    let code = match rustix::process::geteuid().is_root() {
        true => "ENOSPC",
        false => "EDQUOT",
    };
    refused(&place, "create unix:s#c --size 1G", 1, code);
    place.write("file", b"no socket");
    for (line, code) in [
        ("list unix:missing", "ENOENT"),
        ("create unix:missing#a --size 1M", "ENOENT"),
        ("stat unix:file#a", "ECONNREFUSED"),
    ] {
        let error = refused(&place, line, 1, code);
        says(&error, "need", "a broker that runs");
        says(&error, "cure", "baio serve");
    }
    is_whole(&place, server);
    // It took its socket with it.
    refused(&place, "list unix:s", 1, "ENOENT");
}

/// What `log` shows of a log is the same through the broker, beside who has it open, and in the volume itself.
#[test]
fn a_log_is_looked_at() {
    let (place, server) = served();
    place.json("create unix:s#a --size 3M");
    refused(&place, "log unix:s#a", 1, "ENOTLOG");
    refused(&place, "log unix:s#b", 1, "ENOENT");
    refused(&place, "log unix:s", 2, "EUSAGE");
    let link = Remote::connect(place.path("s")).unwrap();
    let segment = link.open_segment("a", Access::Write).wait().unwrap();
    let log = segment.create_log(&LogOptions::default()).wait().unwrap();
    log.append(b"debit 5").unwrap();
    log.append_durable(&vec![7; 300_000]).wait().unwrap();
    let line = "log unix:s#a --payload text";
    let beside = place.json(line);
    assert_eq!(beside["records"].as_array().unwrap().len(), 2, "{beside}");
    assert_eq!(beside["records"][0]["payload"], "debit 5");
    assert_eq!(
        (&beside["clean"], &beside["records"][1]["bytes"]),
        (&false.into(), &300_000.into())
    );
    log.close().wait().unwrap();
    drop((log, segment));
    link.close().unwrap();
    let told = place.json(line);
    assert_eq!(told["clean"], true);
    is_whole(&place, server);
    assert_eq!(place.json("log vol#a --payload text"), told);
}

#[test]
fn what_needs_the_volume_itself_says_so() {
    let (place, server) = served();
    place.json("create unix:s#a --size 1M");
    for line in [
        "check unix:s --repair",
        "format unix:s --size 1M",
        "resize unix:s --size 32M",
        "latency unix:s#a --writes 1",
        "metrics unix:s",
        "serve unix:s --socket other",
    ] {
        let error = refused(&place, line, 1, "EOPNOTSUPP");
        assert!(
            error["object"].as_str().unwrap().starts_with("unix:s"),
            "{line}: {error}"
        );
        says(&error, "message", "broker");
    }
    for (line, word) in [
        ("create unix:s --size 1M", "PATH#"),
        ("delete unix:s", "PATH#"),
        ("list unix:s#a", "PATH"),
        ("quota unix:s#a 0", "PATH"),
        ("check unix:s#a", "PATH"),
        ("defrag unix:s#a", "PATH"),
        ("stress unix:s --rw read --once", "PATH#"),
        ("stat unix:", "unix:SOCKET"),
    ] {
        says(&refused(&place, line, 2, "EUSAGE"), "need", word);
    }
    assert!(!place.path("other").exists());
    is_whole(&place, server);
}

/// Requests that a broker has had by now.
fn requests(place: &Place) -> u64 {
    place.json("serve --status --socket s")["totals"]["requests"]
        .as_u64()
        .unwrap()
}

/// It ends by a signal or is killed: whoever measured through it has the figures until then, and the reason.
#[test]
fn a_broker_that_ends_under_a_run_is_named_and_what_was_measured_is_told() {
    for (signal, options) in [
        (Signal::KILL, "--rw randread --depth 1"),
        (Signal::KILL, "--rw randwrite --depth 16"),
        (Signal::TERM, "--rw randread --depth 16 --threads 3"),
        (Signal::TERM, "--rw randwrite --depth 1 --mode cached"),
    ] {
        let (place, server) = served();
        place.baio("create unix:s#a --size 1M").succeeds();
        let line = format!("stress unix:s#a --runtime 900 {options} --json");
        let child = place.spawn(support::BAIO, line.split_whitespace());
        until("it is at work", || requests(&place) > 100);
        server.signal(signal);
        let done = support::Done(child.wait_with_output().unwrap()).fails_with(1);
        let told = done.json();
        assert_eq!(told["ended_early"], "the broker has ended", "{options}: {told}");
        assert!(
            told["requests"].as_u64().unwrap() > 0 && told["iops"].as_f64().unwrap() > 0.0,
            "{told}"
        );
        assert_eq!(told["first_error"]["code"], "EPIPE");
        says(&told["first_error"], "cure", "start it again");
        let lines = done.errors();
        assert!(
            lines.contains("the broker has ended; needed: a broker that runs"),
            "{lines}"
        );
    }
}

/// What dd has written is counted, and it says why it goes no further.
#[test]
fn a_broker_that_ends_under_a_copy_is_named() {
    for line in [
        "dd of=unix:s#a bs=4K",
        "dd of=unix:s#a bs=4K iodepth=1 conv=swab",
        "dd of=unix:s#a ibs=4K obs=8K",
    ] {
        let (place, server) = served();
        place.baio("create unix:s#a --size 1M").succeeds();
        let mut child = place.spawn(support::BAIO, line.split_whitespace());
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&[1; 64 << 10]).unwrap();
        until("it writes", || requests(&place) > 0);
        server.signal(Signal::KILL);
        drop(server);
        // It may have gone by then.
        let _ = pipe.write_all(&[2; 64 << 10]);
        drop(pipe);
        let done = support::Done(child.wait_with_output().unwrap()).fails_with(1);
        let errors = done.errors();
        assert!(
            errors.contains("the broker has ended; needed: a broker that runs"),
            "{line}: {errors}"
        );
        assert_eq!(done.records().len(), 2, "{errors}");
    }
}

/// Whether a segment of somebody else is there is the same nobody's business to each command.
#[test]
fn of_others_segments_each_command_says_the_same() {
    if !support::is_root() {
        return; // Two users are needed.
    }
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let server = Server::start(&place, "serve vol --socket s --mode 0666").ready();
    place.json("create unix:s#a --size 64K");
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["a", "absent"] {
        let target = format!("unix:{}#0/{name}", place.path("s").display());
        let from = format!("if={target}");
        let lines: [&[&str]; 4] = [
            &["stat", &target],
            &["dd", &from, "of=/dev/null"],
            &["delete", &target],
            &["resize", &target, "--size", "4K"],
        ];
        for line in lines {
            let output = Confined::new().run(BAIO, line);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains("uid 65534 may not do this"), "{line:?}: {told}");
        }
    }
    is_whole(&place, server);
}
