//! A broker in a thread of the test's process.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use baio::{CacheOptions, Core, FormatOptions, Limits, Remote};
use baio_broker::host::{Broker, Figures, Listener, Options, Stop};
use baio_storage::Counters;

pub struct Served {
    pub dir: tempfile::TempDir,
    pub socket: PathBuf,
    stop: Stop,
    figures: Figures,
    thread: Option<JoinHandle<baio::Result<()>>>,
}

impl Served {
    /// With a page cache of 64 pages.
    pub fn new(change: impl FnOnce(&mut Options) + Send + 'static) -> Served {
        let cache = CacheOptions {
            bytes: 64 * 4096,
            ..CacheOptions::default()
        };
        Served::with(64 << 20, cache, change)
    }

    /// A volume of so many bytes, with this page cache.
    pub fn with(size_bytes: u64, cache: CacheOptions, change: impl FnOnce(&mut Options) + Send + 'static) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        let format = FormatOptions {
            size_bytes: Some(size_bytes),
            segments: Some(1000),
            ..FormatOptions::default()
        };
        baio::format(&path, &format).unwrap();
        let socket = dir.path().join("socket");
        let at = socket.clone();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            let mut options = Options {
                name: "served".into(),
                // So that whoever runs the tests meets the same limits as root: those of the volume.
                quota: Some(Limits {
                    blocks: Some(1 << 40),
                    segments: Some(1 << 20),
                }),
                ..Options::default()
            };
            change(&mut options);
            let mut config = super::options(baio::Backend::Auto, 256).engine;
            // The cache's frames are a part of the arena.
            config.arena_bytes += cache.bytes;
            let mut core = Core::open(&path, &config)?;
            core.use_cache(&cache)?;
            let broker = Broker::new(core, Listener::bind(&at, 0o600).expect("a socket"), options)?;
            tell.send((broker.stopper(), broker.figures())).unwrap();
            broker.run()
        });
        let (stop, figures) = told.recv().expect("a broker");
        Served {
            dir,
            socket,
            stop,
            figures,
            thread: Some(thread),
        }
    }

    pub fn connect(&self) -> Remote {
        Remote::connect(&self.socket).unwrap()
    }

    /// All counters of its core, as they are now.
    pub fn counters(&self) -> Counters {
        let snapshot = self.figures.look(Duration::from_secs(60));
        snapshot.expect("a broker that answers").counters
    }

    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Ends it, and looks whether it ended well. The volume is still there.
    pub fn end(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub fn volume(&self) -> PathBuf {
        self.dir.path().join("volume.img")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
