//! Promise: `baio metrics` shows the counters of a process that runs, as text and as JSON, and says what is wrong where it cannot.
//!
//! The process is this test's own program, run again: it writes to a segment and keeps its latest figures where its metrics
//! socket finds them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use baio_engine::EngineOptions;
use baio_storage::{Access, Core, Identity, SegmentOp, SegmentRequest};
use serde_json::Value;

use crate::support::{Place, TestName};

const PLACE: &str = "BAIO_TEST_PLACE";

/// No test: the other process, until its standard input ends.
#[test]
#[ignore = "run by the tests below"]
fn the_server() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let place = Path::new(&place);
    let me = Identity::effective();
    let mut core = Core::open(&place.join("vol"), &EngineOptions::default()).unwrap();
    let (handle, _) = core.open_segment(me, me.uid, "a", Access::Write).unwrap();
    let latest = Arc::new(Mutex::new(baio::Metrics::from(core.counters())));
    let shown = Arc::clone(&latest);
    let server = baio::metrics::serve(place.join("metrics.sock"), move || shown.lock().unwrap().clone()).unwrap();
    println!("serves");
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "write");
        let buffer = core.buffer(4096).unwrap();
        let request = SegmentRequest::new(handle, SegmentOp::Write { offset: 0 }, buffer);
        let ticket = core.start(request).unwrap();
        core.wait(ticket).unwrap().unwrap().result.unwrap();
        *latest.lock().unwrap() = core.counters().into();
        println!("written");
    }
    drop(server);
    core.close().unwrap();
}

struct Server {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Server {
    fn start(place: &Place) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TestName::of(the_server).0, "--exact", "--ignored", "--nocapture"])
            .env(PLACE, place.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Server { child, lines };
        server.hears("serves");
        server
    }

    fn hears(&mut self, word: &str) {
        assert!(self.lines.any(|line| line.unwrap() == word), "the process has ended");
    }

    fn writes(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"write\n").unwrap();
        self.hears("written");
    }
}

fn value(answer: &Value, name: &str, labels: &Value) -> Value {
    let samples = answer["samples"].as_array().unwrap();
    let found = samples
        .iter()
        .find(|sample| sample["name"] == name && (labels.is_null() || &sample["labels"] == labels));
    found.unwrap_or_else(|| panic!("{name} {labels} is not in {answer}"))["value"].clone()
}

#[test]
fn of_a_process_that_writes() {
    let place = Place::new();
    place.volume("8M", "1M");
    let mut server = Server::start(&place);
    let written = |answer: &Value| {
        value(answer, "baio_engine_written_bytes_total", &Value::Null)
            .as_u64()
            .unwrap()
    };
    let before = place.baio("metrics metrics.sock --json").succeeds().json();
    for _ in 0..3 {
        server.writes();
    }
    let after = place.baio("metrics metrics.sock --json").succeeds().json();
    assert_eq!(written(&after), written(&before) + 3 * 4096);
    assert_eq!(value(&after, "baio_volume_segments", &Value::Null), 1);
    assert_eq!(
        value(&after, "baio_volume_size_bytes", &Value::Null),
        place.baio("stat vol --json").json()["size_bytes"]
    );
    let labels = serde_json::json!({ "op": "write", "mode": "direct", "outcome": "error" });
    assert_eq!(value(&after, "baio_requests_total", &labels), 0);

    let text = place.baio("metrics metrics.sock").succeeds();
    let text = String::from_utf8(text.out().to_vec()).unwrap();
    let line = format!("baio_engine_written_bytes_total {}", written(&after));
    assert!(text.lines().any(|found| found == line), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");

    // It removes its socket when it ends, and leaves it when it is killed.
    drop(server.child.stdin.take());
    assert!(server.child.wait().unwrap().success());
    assert!(!place.path("metrics.sock").exists());
    let mut server = Server::start(&place);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let error = place.baio("metrics metrics.sock --json").fails_with(1).error();
    assert_eq!(error["code"], "ECONNREFUSED", "{error}");
    assert!(error["cure"].as_str().unwrap().contains("start the process"), "{error}");
    let mut server = Server::start(&place);
    server.writes();
    place.baio("metrics metrics.sock").succeeds();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

#[test]
fn where_there_is_no_metrics_socket() {
    let place = Place::new();
    let error = place.baio("metrics none.sock --json").fails_with(1).error();
    assert_eq!(error["code"], "ENOENT", "{error}");
    assert_eq!(error["object"], "none.sock");
    place.write("file", b"no socket");
    let error = place.baio("metrics file --json").fails_with(1).error();
    assert_eq!(error["code"], "ECONNREFUSED", "{error}");

    let listener = UnixListener::bind(place.path("other.sock")).unwrap();
    let other = std::thread::spawn(move || {
        for answer in [
            &b"hello\x1b[31m\n"[..],
            b"HTTP/1.1 500 \x1b[31m\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n\x1b\n",
        ] {
            let (mut peer, _) = listener.accept().unwrap();
            let _ = peer.read(&mut [0; 1024]).unwrap();
            peer.write_all(answer).unwrap();
        }
    });
    for said in ["not a metrics socket", "500", "not in the text format of Prometheus"] {
        let error = place.baio("metrics other.sock --json").fails_with(1).error();
        assert_eq!(error["code"], "EPROTO", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said) && !message.contains('\x1b'), "{message}");
    }
    other.join().unwrap();

    // Nobody takes the connection, and the time is over at once.
    let _listener = UnixListener::bind(place.path("mute.sock")).unwrap();
    for time in ["0s", "50ms"] {
        let line = format!("metrics mute.sock --timeout {time} --json");
        let error = place.baio(&line).fails_with(1).error();
        assert_eq!(error["code"], "ETIMEDOUT", "{error}");
        assert!(error["cure"].as_str().unwrap().contains("--timeout"), "{error}");
    }
}
