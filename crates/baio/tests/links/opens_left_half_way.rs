//! An open may wait for as long as another likes, as that of a pipe does. It holds up no close, and once it is left and the link is closed
//! it changes nothing.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use baio::{File, Link, Local, Remote, Wait};

use crate::common;
use crate::common::story::tell_of;

fn a_close_leaves_many_that_hang<L: Link>(link: L) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = common::fifo(dir.path());
    let mut opens: Vec<_> = (0..2000).map(|_| Box::pin(File::open(&link, &path))).collect();
    for open in &mut opens {
        let _ = open.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let _ = link.turn(Wait::No);
    std::thread::sleep(Duration::from_millis(200));
    link.close().unwrap();
}

#[test]
fn a_close_in_this_thread_leaves_many_that_hang() {
    tell_of(|| {
        let link = Local::new().unwrap();
        let _driver = link.drive();
        a_close_leaves_many_that_hang(link);
    });
}

#[test]
fn a_close_of_a_service_leaves_many_that_hang() {
    tell_of(|| a_close_leaves_many_that_hang(Remote::new().unwrap()));
}

/// What is in the file after the close is another's.
#[test]
fn an_open_that_was_left_cuts_nothing_after_the_close() {
    tell_of(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        for round in 0..200 {
            std::fs::write(&path, b"old").unwrap();
            let link = Local::new().unwrap();
            let driver = link.drive();
            let open = File::options().write().create().truncate().open(&link, &path);
            drop(common::begun(open));
            drop(driver);
            link.close().unwrap();
            std::fs::write(&path, b"written after the close").unwrap();
            std::thread::sleep(Duration::from_millis(3));
            assert!(!std::fs::read(&path).unwrap().is_empty(), "round {round}");
        }
    });
}
