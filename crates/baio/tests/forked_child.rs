//! The claim: a forked child has a copy of its parent's links and none of their threads. Every call there says `Forked`, none waits for
//! ever, and dropping the copies does the parent no harm.

#![allow(unsafe_code)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baio::{
    Access, Backend, CreateOptions, Durability, Errno, File, Link, Local, Log, LogOptions, Operation, Remote, Segment,
    SegmentOp, Wait,
};
use common::broker::Served;
use common::is_readable;

/// What a child has of its parent's.
struct Copies<L: Link> {
    link: L,
    segment: Segment<L>,
    log: Log<L>,
    /// On a link in the parent's own process.
    file: Option<File<L>>,
}

/// 0, or the number of the first call that did not say `Forked`.
fn every_call_refuses<L: Link>(copies: Copies<L>, running: Operation<L, u64>) -> i32 {
    let Copies {
        link,
        segment,
        log,
        file,
    } = copies;
    let says = |error: &baio::Error| error.errno() == Some(Errno::ECHILD);
    if !running.wait().is_err_and(|error| says(&error)) {
        return 1;
    }
    if !segment
        .read_at(0, vec![0; 512])
        .wait()
        .is_err_and(|failed| says(&failed.error))
    {
        return 2;
    }
    let within = segment.write_at(0, vec![0; 512]).within(Duration::from_secs(60));
    if !within.wait().is_err_and(|failed| says(&failed.error)) {
        return 3;
    }
    if !segment
        .sync(Durability::Data)
        .wait()
        .is_err_and(|failed| says(&failed.error))
    {
        return 4;
    }
    if !segment.size().wait().is_err_and(|error| says(&error)) {
        return 5;
    }
    if !link.list().wait().is_err_and(|error| says(&error)) {
        return 6;
    }
    if !link.buffer(4096).is_err_and(|error| says(&error)) || !link.turn(Wait::one()).is_err_and(|error| says(&error)) {
        return 7;
    }
    if !link
        .block_on(std::future::pending::<()>())
        .is_err_and(|error| says(&error))
    {
        return 8;
    }
    if log.append(b"the child's").is_ok() || log.append_durable(b"the child's").wait().is_ok() {
        return 9;
    }
    if !log.close().wait().is_err_and(|error| says(&error)) {
        return 10;
    }
    if let Some(file) = file {
        if !file
            .write_at(0, vec![0; 512])
            .wait()
            .is_err_and(|failed| says(&failed.error))
        {
            return 11;
        }
    }
    // One that the child makes is its own.
    let own = Remote::new().is_ok_and(|own| own.close().is_ok());
    if !own {
        return 12;
    }
    if !link.event_fd().is_err_and(|error| says(&error)) {
        return 14;
    }
    if !link.clone().close().is_err_and(|error| says(&error)) {
        return 13;
    }
    let refusal = link.refusal().map(|fault| baio::Error::new("use", "a link", fault));
    if !refusal.is_some_and(|error| says(&error)) {
        return 15;
    }
    drop((segment, link));
    0
}

fn in_a_child(work: impl FnOnce() -> i32) {
    // SAFETY: the child uses the heap, which the C library keeps usable, and what this test is about; then it ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. A call that waits for ever ends the child by SIGALRM.
        unsafe { libc::alarm(20) };
        let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(100);
        // SAFETY: no handler of the parent's runs.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "it ended by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the call of that number");
}

fn story<L: Link>(link: &L, file: Option<File<L>>) {
    for name in ["a", "log"] {
        link.create_segment(name, &CreateOptions::of_size(1 << 20))
            .wait()
            .unwrap();
    }
    let segment = link.open_segment("a", Access::Write).wait().unwrap();
    let of_log = link.open_segment("log", Access::Write).wait().unwrap();
    let log = of_log.create_log(&LogOptions::default()).wait().unwrap();
    let lsn = log.append_durable(b"the parent's").wait().unwrap();
    let mut page = segment.buffer(4096).unwrap();
    page.fill(7);
    segment.write_at(0, page).durable(Durability::Data).wait().unwrap();

    let copies = Copies {
        link: link.clone(),
        segment: segment.clone(),
        log: log.clone(),
        file: file.clone(),
    };
    let running = segment.size();
    in_a_child(|| every_call_refuses(copies, running));

    // The parent goes on.
    assert!(log.append_durable(b"and another").wait().unwrap() > lsn);
    let read = segment.read_at(0, segment.buffer(4096).unwrap()).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 7));
    log.close().wait().unwrap();
    drop((segment, of_log, log, file));
}

#[test]
fn a_child_is_refused_and_the_parent_goes_on() {
    let (dir, path) = common::image(64 << 20);
    let link = Remote::open(&path).unwrap();
    let plain = dir.path().join("plain");
    let file = File::options().write().create().open(&link, &plain).wait().unwrap();
    story(&link, Some(file));
    link.close().unwrap();
}

#[test]
fn a_child_is_refused_by_a_link_to_a_broker_too() {
    let served = Served::new(|_| {});
    let link = served.connect();
    story(&link, None);
    link.close().unwrap();
}

/// In the parent's own thread. A cached write would say there that all is well, and reach no device.
#[test]
fn a_child_is_refused_by_a_link_of_its_parents_thread_too() {
    let (dir, path) = common::image(64 << 20);
    let link = Local::open_with(&path, &common::cached_options(64, 64)).unwrap();
    let plain = dir.path().join("plain");
    let file = File::options().write().create().open(&link, &plain).wait().unwrap();
    let _event = link.event_fd().unwrap();
    story(&link, Some(file));
    link.close().unwrap();
}

/// Parent and child share the descriptor on which the parent's loop sleeps.
#[test]
fn a_child_takes_no_news_of_its_parent() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "news", 64 << 10);
    let event = volume.event_fd().unwrap();
    let read = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    segment.submit(read).unwrap();
    while volume.in_flight() > 0 {
        volume.turn(Wait::No).unwrap();
    }
    assert!(is_readable(&event), "there is an outcome to take");
    in_a_child(|| {
        let has_taken = volume.next_outcome().is_some();
        i32::from(has_taken) + 2 * i32::from(volume.turn(Wait::No).is_ok())
    });
    assert!(is_readable(&event), "the child has taken the news");
    volume.next_outcome().unwrap().result.unwrap();
}

/// A thread of the child uses the link at any moment while others are forked there: none of these waits for what it holds.
#[test]
fn a_childs_child_is_refused_too() {
    let (_dir, path) = common::image(64 << 20);
    let link = Remote::open(&path).unwrap();
    let (of_child, is_over) = (link.clone(), AtomicBool::new(false));
    in_a_child(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    of_child.in_flight();
                }
            });
            for _ in 0..100 {
                in_a_child(|| {
                    let refused = of_child.list().wait();
                    i32::from(!refused.is_err_and(|error| error.errno() == Some(Errno::ECHILD)))
                });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        0
    });
    link.close().unwrap();
}
