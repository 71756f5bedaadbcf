//! Promise: a metrics socket answers whoever may connect, with the figures of that moment, whatever other peers do; it replaces
//! what a dead process left, nothing else, and leaves nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio::Metrics;
use baio::metrics::{MetricsServer, serve};

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A place for a socket, and a server that counts how often it was asked.
fn served() -> (tempfile::TempDir, PathBuf, MetricsServer) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("metrics.sock");
    let asked = Arc::new(AtomicU64::new(0));
    let server = serve(&path, move || {
        let mut metrics = Metrics::default();
        metrics.engine.requests = asked.fetch_add(1, Ordering::Relaxed) + 1;
        metrics
    });
    (place, path, server.unwrap())
}

fn ask(path: &Path, request: &[u8]) -> io::Result<String> {
    let mut peer = UnixStream::connect(path)?;
    peer.write_all(request)?;
    let mut answer = String::new();
    peer.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn each_answer_is_of_its_own_moment() {
    let (_place, path, server) = served();
    assert_eq!(server.path(), path);
    for round in 1..=3 {
        let answer = ask(&path, GET).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(head.contains("application/openmetrics-text"), "{head}");
        let line = format!("baio_engine_requests_total {round}");
        assert!(body.lines().any(|found| found == line), "{body}");
        assert!(body.ends_with("# EOF\n"));
    }
}

#[test]
fn what_is_no_get_of_the_metrics_is_refused() {
    let (_place, path, _server) = served();
    for (request, status) in [
        (&b"GET /other HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics HTTP/2\r\n\r\n", "505"),
        (b"nonsense\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
    ] {
        let answer = ask(&path, request).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let head = ask(&path, b"HEAD / HTTP/1.0\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn a_request_without_end_is_refused() {
    let (_place, path, _server) = served();
    let mut long = b"GET /metrics HTTP/1.1\r\nCookie: ".to_vec();
    long.resize(10 << 10, b'x');
    let answer = ask(&path, &long).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // One that does not stop at all is cut off.
    let mut peer = UnixStream::connect(&path).unwrap();
    peer.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let failed = (0..10_000).find_map(|_| peer.write_all(&[b'x'; 4096]).err());
    // A reset where something was left unread (unix_release_sock, net/unix/af_unix.c).
    let kind = failed.map(|error| error.kind());
    assert!(
        matches!(kind, Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)),
        "{kind:?}"
    );
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 OK"));
}

/// More of them than the socket's queue holds, connected before: none was sent away to come to the one that asks.
#[test]
fn who_says_nothing_keeps_nobody_waiting() {
    let (_place, path, _server) = served();
    let mut half: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for (nth, peer) in half.iter_mut().enumerate() {
        peer.write_all(&b"GET /metr"[..nth % 9]).unwrap();
    }
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 OK"));
    for peer in &mut half {
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    // However many there are: who came first goes.
    let more: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 OK"));
    for peer in &mut half {
        let told = peer.read(&mut [0; 1]);
        let is_left = matches!(&told, Err(error) if error.kind() == ErrorKind::WouldBlock);
        assert!(!is_left, "it is served still: {told:?}");
    }
    let mut last = more.last().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn who_does_not_read_is_left() {
    let (_place, path, _server) = served();
    // The answer may fit into the socket: what counts is that the next one is answered.
    let mut deaf: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for peer in &mut deaf {
        peer.write_all(GET).unwrap();
    }
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn the_end_does_not_wait_for_peers_and_removes_the_socket() {
    let (_place, path, server) = served();
    let metadata = std::fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let mut silent: Vec<UnixStream> = (0..30).map(|_| UnixStream::connect(&path).unwrap()).collect();
    drop(server);
    for peer in &mut silent {
        let told = peer.read(&mut [0; 1]);
        assert!(matches!(&told, Ok(0)) || told.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
    assert!(!path.exists());
    assert!(ask(&path, GET).is_err());
}

#[test]
fn a_dead_socket_is_replaced_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("metrics.sock");
    drop(UnixListener::bind(&path).unwrap());
    let server = serve(&path, Metrics::default).unwrap();
    let second = serve(&path, Metrics::default).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::AddrInUse, "{second}");
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 OK"));
    drop(server);

    std::fs::write(&path, b"precious").unwrap();
    let refused = serve(&path, Metrics::default).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();

    std::os::unix::fs::symlink(place.path().join("elsewhere"), &path).unwrap();
    let refused = serve(&path, Metrics::default).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    assert!(serve(place.path().join("none/metrics.sock"), Metrics::default).is_err());
    assert!(serve(place.path().join("x".repeat(200)), Metrics::default).is_err());
}

#[test]
fn a_socket_that_somebody_put_in_its_place_stays() {
    let (_place, path, server) = served();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn a_snapshot_that_panics_is_no_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("metrics.sock");
    let first = AtomicU64::new(0);
    let _server = serve(&path, move || {
        assert!(first.fetch_add(1, Ordering::Relaxed) > 0, "the first one fails");
        Metrics::default()
    });
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 500 "));
    assert!(ask(&path, GET).unwrap().starts_with("HTTP/1.1 200 "));
}

/// The command that everybody has.
#[test]
fn curl_can_read_it() {
    let (_place, path, _server) = served();
    let curl = std::process::Command::new("curl")
        .args(["--silent", "--fail", "--max-time", "10", "--unix-socket"])
        .arg(&path)
        .arg("http://localhost/metrics")
        .output();
    let Ok(answer) = curl else {
        return eprintln!("skipped: curl is not installed");
    };
    assert!(answer.status.success(), "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.stdout).contains("baio_engine_requests_total 1"));
}
