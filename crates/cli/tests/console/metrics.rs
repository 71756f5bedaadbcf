//! Promise: `baio metrics` says what is wrong where no process shows its counters. What it shows of one that does: `serve/metrics.rs`.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use crate::support::Place;

#[test]
fn where_there_is_no_metrics_socket() {
    let place = Place::new();
    let error = place.error("metrics none.sock", 1);
    assert_eq!(error["code"], "ENOENT", "{error}");
    assert_eq!(error["object"], "none.sock");
    place.write("file", b"no socket");
    let error = place.error("metrics file", 1);
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
        let error = place.error("metrics other.sock", 1);
        assert_eq!(error["code"], "EPROTO", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said) && !message.contains('\x1b'), "{message}");
    }
    other.join().unwrap();

    // Nobody takes the connection, and the time is over at once.
    let _listener = UnixListener::bind(place.path("mute.sock")).unwrap();
    for time in ["0s", "50ms"] {
        let error = place.error(&format!("metrics mute.sock --timeout {time}"), 1);
        assert_eq!(error["code"], "ETIMEDOUT", "{error}");
        assert!(error["cure"].as_str().unwrap().contains("--timeout"), "{error}");
    }
}
