//! Where the stories take place: a link, and a segment or a plain file on it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use baio::{
    Access, Backend, Core, CreateOptions, EngineOptions, File, FormatOptions, Identity, Limits, Link, LinkOptions,
    Local, LogOptions, Opened, Remote, Result,
};
use baio_broker::host;

pub(crate) trait Made: Link {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Self>;
    fn connect(socket: &Path) -> Result<Self>;
}

impl Made for Local {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Local> {
        Local::open_with(path, options)
    }

    fn connect(_: &Path) -> Result<Local> {
        panic!("no local link goes to a broker")
    }
}

impl Made for Remote {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Remote> {
        Remote::open_with(path, options)
    }

    fn connect(socket: &Path) -> Result<Remote> {
        Remote::connect(socket)
    }
}

/// One of the places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) backend: Backend,
    pub(crate) is_file: bool,
    pub(crate) block_bytes: u32,
    /// A broker serves the volume.
    pub(crate) is_far: bool,
}

/// A volume, and a plain file beside it.
pub(crate) struct Rig {
    pub(crate) place: Place,
    broker: Option<Broker>,
    _dir: tempfile::TempDir,
    pub(crate) volume: PathBuf,
    pub(crate) file: PathBuf,
}

pub(crate) const LOG_BYTES: u64 = 1 << 20;

impl Rig {
    pub(crate) fn new(place: Place) -> Rig {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let volume = dir.path().join("volume.img");
        let format = FormatOptions {
            size_bytes: Some(16 << 20),
            segments: Some(256),
            ..FormatOptions::default()
        };
        baio::format(&volume, &format).unwrap();
        let file = dir.path().join("file");
        std::fs::File::create(&file).unwrap().set_len(LOG_BYTES).unwrap();
        let broker = place.is_far.then(|| Broker::new(&volume, place.backend));
        let rig = Rig {
            place,
            broker,
            _dir: dir,
            volume,
            file,
        };
        match place.is_far {
            true => make_segments(&rig.link::<Remote>()),
            false => make_segments(&rig.link::<Local>()),
        }
        rig
    }

    pub(crate) fn link<L: Made>(&self) -> L {
        if let Some(broker) = &self.broker {
            return L::connect(&broker.socket).unwrap();
        }
        let options = LinkOptions {
            identity: Identity::new(0, 0),
            engine: EngineOptions {
                backend: self.place.backend,
                slots: 32,
                arena_bytes: 16 << 20,
                ..EngineOptions::default()
            },
            ..LinkOptions::default()
        };
        L::open_with(&self.volume, &options).unwrap()
    }

    /// Where the log is to be.
    pub(crate) fn opened<L: Link>(&self, link: &L) -> Opened<L> {
        match self.place.is_file {
            true => {
                let file = File::options().write().direct().open(link, &self.file).wait().unwrap();
                (*file).clone()
            }
            false => segment(link, "log"),
        }
    }

    pub(crate) fn options(&self) -> LogOptions {
        LogOptions {
            block_bytes: self.place.block_bytes,
            batch_bytes_max: 32 << 10,
            ..LogOptions::default()
        }
    }
}

fn make_segments<L: Link>(link: &L) {
    for name in ["log", "other"] {
        let size = CreateOptions::of_size(LOG_BYTES);
        link.create_segment(name, &size).wait().unwrap();
    }
    link.clone().close().unwrap();
}

/// A broker in a thread of the test.
pub(crate) struct Broker {
    pub(crate) socket: PathBuf,
    stop: host::Stop,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Broker {
    pub(crate) fn new(volume: &Path, backend: Backend) -> Broker {
        let (volume, socket) = (volume.to_owned(), volume.with_file_name("socket"));
        let listener = host::Listener::bind(&socket, 0o600).unwrap();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let config = EngineOptions {
                backend,
                slots: 64,
                arena_bytes: 16 << 20,
                ..EngineOptions::default()
            };
            let core = Core::open(&volume, &config)?;
            let options = host::Options {
                quota: Some(Limits::default()),
                ..host::Options::default()
            };
            let broker = host::Broker::new(core, listener, options)?;
            tell.send(broker.stopper()).unwrap();
            broker.run()
        });
        Broker {
            socket,
            stop: told.recv().expect("a broker"),
            thread: Some(thread),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn segment<L: Link>(link: &L, name: &str) -> Opened<L> {
    (*link.open_segment(name, Access::Write).wait().unwrap()).clone()
}

/// Tells a story in every place; one that hangs fails, and says where.
pub(crate) fn everywhere<L: Made>(story: fn(&Rig)) {
    let backends = [Backend::Sync, Backend::Threads, Backend::Aio, Backend::Uring];
    for (nth, backend) in backends.into_iter().enumerate() {
        // Each of the four once with two backends.
        let blocks = if nth % 2 == 0 { [512, 4096] } else { [4096, 512] };
        for (is_file, block_bytes) in [false, true].into_iter().zip(blocks) {
            let place = Place {
                backend,
                is_file,
                block_bytes,
                is_far: false,
            };
            tell(place, story);
        }
    }
}

/// Tells a story of a service, and of a broker.
pub(crate) fn near_and_far(place: Place, story: fn(&Rig)) {
    for is_far in [false, true] {
        tell(Place { is_far, ..place }, story);
    }
}

/// The same as everywhere through a broker.
pub(crate) fn far(story: fn(&Rig)) {
    for (backend, block_bytes) in [(Backend::Threads, 512), (Backend::Uring, 4096)] {
        let place = Place {
            backend,
            is_file: false,
            block_bytes,
            is_far: true,
        };
        tell(place, story);
    }
}

fn tell(place: Place, story: fn(&Rig)) {
    const STUCK: Duration = Duration::from_secs(40);
    let (done, told) = mpsc::channel();
    let run = move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| story(&Rig::new(place)))));
    };
    let thread = std::thread::Builder::new()
        .name(format!("{place:?}"))
        .spawn(run)
        .unwrap();
    match told.recv_timeout(STUCK) {
        Ok(ended) => {
            thread.join().unwrap();
            ended.unwrap_or_else(|panic| resume_unwind(panic));
        }
        Err(_) => panic!("it hangs: {place:?}"),
    }
}

/// The payloads of the records from there to the durable end.
pub(crate) fn payloads<L: Link>(log: &baio::Log<L>) -> Vec<Vec<u8>> {
    let mut records = log.records(log.head_lsn());
    let mut all = Vec::new();
    while let Some(record) = records.next_record().wait().unwrap() {
        all.push(record.payload().to_vec());
    }
    all
}

pub(crate) fn numbered(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number % 300) as usize, number as u8);
    bytes
}
