//! The claim: a program may block any signal in its own threads and read it from a signalfd; no thread of ours lets one through, whatever
//! link it has and whatever it asks of it. The kernel says so of each (`SigBlk`, proc_pid_status(5)).

#![cfg(feature = "metrics")]

mod common;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use baio::{Access, Backend, CreateOptions, File, Link, LinkOptions, LogOptions, Metrics, Reconnect, Remote, Wait};
use common::broker::Served;

/// All but KILL and STOP, which nobody can block, and the two that the C library keeps for itself.
const ALL: u64 = !(1 << 8 | 1 << 18 | 1 << 31 | 1 << 32);

/// The threads of this process that have a name of ours, and of them those that some signal reaches.
fn ours() -> (BTreeSet<String>, Vec<String>) {
    let (mut names, mut reached) = (BTreeSet::new(), Vec::new());
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // It may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (Some(name), Some(mask)) = (field("Name:"), field("SigBlk:")) else {
            continue;
        };
        if name.starts_with("baio-") {
            names.insert(name.to_owned());
            if u64::from_str_radix(mask, 16).unwrap() & ALL != ALL {
                reached.push(format!("{name}: {mask}"));
            }
        }
    }
    (names, reached)
}

/// Looks until a thread of this name has been there. None that is there meanwhile is reached by any signal.
fn see(name: &str, seen: &mut BTreeSet<String>) {
    let begun = Instant::now();
    loop {
        let (names, reached) = ours();
        assert!(reached.is_empty(), "signals reach {reached:?}");
        seen.extend(names);
        if seen.contains(name) {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{name} is not among {seen:?}"
        );
        std::thread::yield_now();
    }
}

fn on(backend: Backend) -> LinkOptions {
    let mut options = LinkOptions::default();
    options.engine.backend = backend;
    options
}

#[test]
fn no_signal_reaches_any_of_our_threads() {
    let mut seen = BTreeSet::new();
    let mut served = Served::new(|_| {});
    let far = LinkOptions {
        reconnect: Reconnect::Within(Duration::from_secs(60)),
        ..LinkOptions::default()
    };
    let goes_on = Remote::connect_with(&served.socket, "", &far).unwrap();
    let far = served.connect();
    far.create_segment("log", &CreateOptions::of_size(1 << 20))
        .wait()
        .unwrap();
    let segment = far.open_segment("log", Access::Write).wait().unwrap();

    // A future that is polled where nobody reaps.
    {
        let mut read = pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
        let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        see("baio-helper", &mut seen);
    }
    let log = segment.create_log(&LogOptions::default()).wait().unwrap();
    log.append_durable(b"record").wait().unwrap();
    see("baio-logs", &mut seen);
    far.check().wait().unwrap();

    let place = tempfile::tempdir().unwrap();
    let metrics = baio::metrics::serve(place.path().join("metrics"), Metrics::default).unwrap();
    see("baio-metrics", &mut seen);

    // A pipe whose other end nobody opens holds up the thread that opens it.
    let near = Remote::new_with(&on(Backend::Auto)).unwrap();
    see("baio-service", &mut seen);
    let pipe = common::fifo(place.path());
    let mut open = Box::pin(File::open(&near, &pipe));
    let _ = open.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let _ = near.turn(Wait::No);
    see("baio-open", &mut seen);
    drop(open);
    near.close().unwrap();

    for (backend, name) in [(Backend::Threads, "baio-threads"), (Backend::Aio, "baio-aio")] {
        let Ok(link) = Remote::new_with(&on(backend)) else {
            continue; // No AIO in this kernel.
        };
        let path = place.path().join(name);
        let file = File::options().write().create().open(&link, &path).wait().unwrap();
        file.write_at(0, vec![1; 4096]).wait().unwrap();
        file.truncate(1 << 20).wait().unwrap();
        see(name, &mut seen);
        drop(file);
        link.close().unwrap();
    }

    // What looks for the next broker, once somebody asks.
    served.end();
    let mut asked = Box::pin(goes_on.info());
    let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    see("baio-reconnect", &mut seen);
    drop(asked);
    drop((log, segment, far, goes_on, metrics));
    println!("looked at {seen:?}");
}
