//! The promise: a link to a broker shows who uses it, and how much; one to no broker says that there is none.

use baio::{Access, CreateOptions, Link, Remote};

use crate::common::broker::Served;

#[test]
fn who_uses_it_and_how_much() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let before = volume.status().wait().unwrap();
    assert!(before.started_at_unix > 0);
    let uid = volume.identity().uid;
    assert!(before.owners.iter().map(|owner| owner.uid).eq([uid]));
    volume
        .create_segment("a", &CreateOptions::of_size(1 << 20))
        .wait()
        .unwrap();
    let a = volume.open_segment("a", Access::Write).wait().unwrap();
    a.write_at(0, a.buffer(8192).unwrap()).wait().unwrap();
    a.read_at(0, a.buffer(4096).unwrap()).wait().unwrap();
    let other = served.connect();
    let status = volume.status().wait().unwrap();
    let owner = status.owners[0];
    assert_eq!((owner.clients, owner.handles), (2, 1));
    assert_eq!((owner.requests, owner.bytes_written, owner.bytes_read), (2, 8192, 4096));
    assert_eq!(
        (owner.in_flight, owner.held, owner.errors, owner.violations),
        (0, 0, 0, 0)
    );
    assert!(owner.latency_p50 <= owner.latency_p99 && !owner.latency_p99.is_zero());
    other.close().unwrap();
}

#[test]
fn a_service_of_this_process_is_no_broker() {
    let error = Remote::new().unwrap().status().wait().unwrap_err();
    assert_eq!(error.code(), "EOPNOTSUPP");
    assert_eq!(error.need().as_deref(), Some("a link to a broker"));
    assert!(error.cure().is_some());
}
