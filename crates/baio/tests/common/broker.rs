//! A broker in a thread of the test's process.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use baio::{CacheConfig, Core, Format, Limits, Remote};
use baio_broker::host::{Broker, Listener, Options, Stop};

pub struct Served {
    pub dir: tempfile::TempDir,
    pub socket: PathBuf,
    stop: Stop,
    thread: Option<JoinHandle<baio::Result<()>>>,
}

impl Served {
    /// With a page cache of 64 pages.
    pub fn new(change: impl FnOnce(&mut Options) + Send + 'static) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        let format = Format {
            size_bytes: Some(64 << 20),
            segments: Some(1000),
            ..Format::default()
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
            let mut core = Core::open(&path, &config())?;
            core.use_cache(&CacheConfig {
                bytes: 64 * 4096,
                ..CacheConfig::default()
            })?;
            let broker = Broker::new(core, Listener::bind(&at, 0o600).expect("a socket"), options)?;
            tell.send(broker.stopper()).unwrap();
            broker.run()
        });
        Served {
            dir,
            socket,
            stop: told.recv().expect("a broker"),
            thread: Some(thread),
        }
    }

    pub fn connect(&self) -> Remote {
        Remote::connect(&self.socket).unwrap()
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

fn config() -> baio::Config {
    super::options(baio::Backend::Auto, 256).config
}
