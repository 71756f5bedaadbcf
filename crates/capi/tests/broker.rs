//! A C program over a broker: it writes, reads back and makes durable; and a broker that is not there, or goes, is an error with a cure.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use baio::{CacheOptions, Core, EngineOptions, FormatOptions, Limits};
use baio_broker::host::{Broker, Listener, Options, Stop};
use common::{ended_well, test_program};

/// A broker in a thread of this process, with a volume that has a page cache.
struct Served {
    dir: tempfile::TempDir,
    socket: PathBuf,
    stop: Stop,
    thread: Option<JoinHandle<baio::Result<()>>>,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let (volume, socket) = (dir.path().join("volume.img"), dir.path().join("socket"));
        let format = FormatOptions {
            size_bytes: Some(16 << 20),
            ..FormatOptions::default()
        };
        baio::format(&volume, &format).unwrap();
        let at = socket.clone();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            let cache = CacheOptions {
                bytes: 64 * 4096,
                ..CacheOptions::default()
            };
            let config = EngineOptions {
                slots: 256,
                // The frames of the cache are a part of it.
                arena_bytes: (8 << 20) + cache.bytes,
                ..EngineOptions::default()
            };
            let options = Options {
                name: "served".into(),
                // Whoever runs the tests is to meet the same limits.
                quota: Some(Limits {
                    blocks: Some(1 << 40),
                    segments: Some(1 << 20),
                }),
                ..Options::default()
            };
            let mut core = Core::open(&volume, &config)?;
            core.use_cache(&cache)?;
            let broker = Broker::new(core, Listener::bind(&at, 0o600).expect("a socket"), options)?;
            tell.send(broker.stopper()).unwrap();
            broker.run()
        });
        let stop = told.recv().expect("a broker");
        Served {
            dir,
            socket,
            stop,
            thread: Some(thread),
        }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends it, and looks whether it ended well.
    fn end(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_broker_serves_a_c_program() {
    let mut served = Served::new();
    let output = test_program("tests/broker.c", served.dir())
        .arg(&served.socket)
        .output()
        .unwrap();
    ended_well(&output, "tests/broker.c");
    served.end();
}

#[test]
fn a_broker_that_is_not_there_is_an_error_with_a_cure() {
    let dir = tempfile::tempdir().unwrap();
    let output = test_program("tests/no_broker.c", dir.path())
        .arg(dir.path().join("nobody"))
        .output()
        .unwrap();
    ended_well(&output, "tests/no_broker.c");
}

#[test]
fn a_broker_that_ends_gives_errors_and_the_buffers_back() {
    let mut served = Served::new();
    let mut program = test_program("tests/broker_ends.c", served.dir())
        .arg(&served.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = BufReader::new(program.stdout.take().unwrap()).read_line(&mut line);
    assert!(said.unwrap() > 0 || !program.wait().unwrap().success());
    served.end();
    let _ = program.stdin.take().unwrap().write_all(b"it has ended\n");
    ended_well(&program.wait_with_output().unwrap(), "tests/broker_ends.c");
}
