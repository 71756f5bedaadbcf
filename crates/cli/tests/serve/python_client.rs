//! Promise: `docs/inside/shm-protocol.md` is enough to write a client from. `python/client.py` was written from that page alone, and
//! does a day's work at a broker that `baio serve` runs.

use std::path::Path;
use std::process::Command;

use crate::support::server::Server;
use crate::support::{Done, Place, skip};

/// Whether there is a Python that is new enough.
fn has_python() -> bool {
    let is_new = "import sys; sys.exit(sys.version_info < (3, 11))";
    let asked = Command::new("python3").args(["-c", is_new]).output();
    asked.is_ok_and(|output| output.status.success())
}

#[test]
fn a_client_in_python_does_a_days_work() {
    if !cfg!(target_arch = "x86_64") {
        return skip("needs x86-64");
    }
    if !has_python() {
        return skip("needs python3");
    }
    let place = Place::new();
    place.baio("format vol.img --size 16M --segments 800").succeeds();
    let _server = Server::start(&place, "serve vol.img --socket vol.sock").ready();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client.py");
    // One that hangs is killed one day.
    let words = [
        "-s",
        "KILL",
        "300",
        "python3",
        "-B",
        script.to_str().unwrap(),
        "vol.sock",
    ];
    let done = Done(place.spawn("timeout", words).wait_with_output().unwrap());
    let seen = done.text();
    assert_eq!(done.status(), 0, "{seen}{}", done.errors());
    assert_eq!(done.errors(), "");
    for line in [
        "right welcome to vol",
        "right failed: create vol#",
        "right batch: 64 writes to a broker that slept, doorbells: 1",
        "right written: 262144 bytes",
        "right read back: 262144 bytes, the same",
        "right woken by a doorbell",
        "right read at the end: nothing",
        "right read across the end: 4096 bytes",
        "right failed: write beyond the end, which is 262144",
        "right close: 64 requests before it were done",
        "right failed: the handle is not valid any more",
        "right listed: 100 segments",
        "right deleted: none is left",
        "right every place is free again",
    ] {
        assert!(
            seen.lines().any(|seen| seen.starts_with(line)),
            "no `{line}` in: {seen}"
        );
    }
}
