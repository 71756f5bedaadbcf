//! The backends that the tests run over, and what a test needs from each: an engine, files, pipes.
//!
//! A new backend is one line in [`BACKENDS`].

#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

pub(crate) mod bent;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use baio_engine::sim::Random;
use baio_engine::sim::{Disk, Sim};
use baio_engine::{
    Caching, Choice, Completion, Engine, EngineOptions, Errno, Error, File, Memory, Open, Policy, Request, SetupError,
    Wait,
};

/// Longer than anything takes that goes on at all, also on an emulated machine whose host leaves it without a processor for half a
/// minute. The contract names a case that has hung for two.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100);

/// One backend.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What is unusual about it, if anything; and other rows whose limits it has too.
    pub(crate) variant: &'static str,
    pub(crate) alike: &'static str,
    /// The backend that its engine names.
    pub(crate) explains: &'static str,
    start: fn(&EngineOptions) -> Result<Engine, SetupError>,
    files: Files,
}

/// What a backend reads and writes.
enum Files {
    Real,
    Simulated,
    /// On a device that has a backend of its own.
    Foreign(fn(&[u8]) -> File),
    /// Of the kernel's and such in turn.
    Mixed(fn(&[u8]) -> File),
}

pub(crate) const BACKENDS: &[Row] = &[
    Row::real("sync", |config| start(Choice::Sync, config)),
    Row::real("threads", |config| start(Choice::Threads, config)),
    Row::real("aio", |config| start(Choice::Aio, config)),
    Row::real("uring", |config| start(Choice::Uring, config)),
    Row::simulated("sim", |config| Engine::simulated(Sim::new(1)?, config)),
];

impl Row {
    pub(crate) const fn real(name: &'static str, start: fn(&EngineOptions) -> Result<Engine, SetupError>) -> Row {
        Row {
            name,
            variant: "",
            alike: "",
            explains: name,
            start,
            files: Files::Real,
        }
    }

    /// The same backend, used in another way.
    pub(crate) const fn variant(self, variant: &'static str) -> Row {
        Row { variant, ..self }
    }

    /// In an engine of this backend, which it helps.
    pub(crate) const fn helping(self, explains: &'static str) -> Row {
        Row { explains, ..self }
    }

    /// Of the files that a case makes, every second is such a one, and the limits are those of this row too.
    pub(crate) const fn mixed_with(self, alike: &'static str, file: fn(&[u8]) -> File) -> Row {
        let files = Files::Mixed(file);
        Row { files, alike, ..self }
    }

    /// By which names lists of what is not supported mean it.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alike.split(' '))
    }

    pub(crate) fn has_limits_of(&self, name: &str) -> bool {
        self.limits().any(|limit| limit == name)
    }

    /// How reports call it.
    pub(crate) fn title(&self) -> String {
        match self.variant {
            "" => self.name.to_owned(),
            variant => format!("{} {variant}", self.name),
        }
    }

    /// A backend of one's own, and files with these bytes on the device that it serves.
    pub(crate) const fn foreign(
        name: &'static str,
        start: fn(&EngineOptions) -> Result<Engine, SetupError>,
        file: fn(&[u8]) -> File,
    ) -> Row {
        Row {
            name,
            variant: "",
            alike: "",
            explains: name,
            start,
            files: Files::Foreign(file),
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.files, Files::Simulated)
    }

    /// Has it files that come, grow and go, pipes and sockets, or only disks?
    pub(crate) fn has_files(&self) -> bool {
        matches!(self.files, Files::Real | Files::Mixed(_))
    }

    const fn simulated(name: &'static str, start: fn(&EngineOptions) -> Result<Engine, SetupError>) -> Row {
        Row {
            name,
            variant: "",
            alike: "",
            explains: name,
            start,
            files: Files::Simulated,
        }
    }
}

pub(crate) fn start(backend: Choice, config: &EngineOptions) -> Result<Engine, SetupError> {
    Engine::new(&EngineOptions { backend, ..*config })
}

/// Why a case did not run to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The backend cannot do this. Must be on the list of what is not supported.
    Refused(String),
    /// This machine cannot show it (no root, no direct I/O on the file system).
    Skipped(String),
}

/// The outcome of a case; what is wrong panics.
pub(crate) type Case = Result<(), Stop>;

/// A backend with a directory for its files.
pub(crate) struct Bench {
    pub(crate) row: &'static Row,
    /// Files made so far.
    files: AtomicUsize,
    dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(row: &'static Row) -> Bench {
        // Under the target directory: /tmp is often a tmpfs, which has no direct I/O. A test that has changed its user gets
        // one that it can write to.
        let parent = std::env::var_os("BAIO_TEST_DIRECTORY").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
        let dir = tempfile::tempdir_in(parent).expect("a directory for test files");
        let files = AtomicUsize::new(0);
        Bench { row, files, dir }
    }

    /// Those of these backends that start here; of each that does not it is said why.
    pub(crate) fn each(is_wanted: fn(&Row) -> bool) -> impl Iterator<Item = Bench> {
        let wanted = BACKENDS.iter().filter(move |row| is_wanted(row));
        wanted.map(Bench::new).filter(|bench| {
            let started = bench.starts_in_time();
            started
                .map_err(|why| tell(&format!("skipped {}: does not start here: {why}", bench.row.name)))
                .is_ok()
        })
    }

    /// A case begins: which of its files are foreign depends on its name, and on no other case.
    pub(crate) fn begin(&self, case: &str) {
        self.files.store(case.len() % 2, Ordering::Relaxed);
    }

    pub(crate) fn config() -> EngineOptions {
        EngineOptions {
            slots: 64,
            reserved_slots: 4,
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine_with(&Bench::config())
    }

    pub(crate) fn engine_with(&self, config: &EngineOptions) -> Engine {
        self.engine_in_time(config).expect("the backend started before")
    }

    /// The kernel gives a closed ring's share of RLIMIT_MEMLOCK back a moment later; an ordinary user with a small one has
    /// to wait for it. AIO events are the whole machine's, and another test may just be showing what happens without any.
    fn engine_in_time(&self, config: &EngineOptions) -> Result<Engine, SetupError> {
        const TRIES: u32 = 3000;
        for _ in 1..TRIES {
            match (self.row.start)(config) {
                Err(error) if matches!(error.errno, Errno::ENOMEM | Errno::EAGAIN) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
        (self.row.start)(config)
    }

    /// The same for an engine larger than what an ordinary user may be given.
    pub(crate) fn engine_if_it_fits(&self, config: &EngineOptions) -> Result<Engine, Stop> {
        match (self.row.start)(config) {
            Ok(engine) => Ok(engine),
            Err(error) if matches!(error.errno, Errno::ENOMEM | Errno::EAGAIN) => Err(Stop::Skipped(error.to_string())),
            Err(error) => panic!("{error}"),
        }
    }

    /// `Err` with the reason when the backend does not start here.
    pub(crate) fn starts(&self) -> Result<(), String> {
        (self.row.start)(&Bench::config()).map(drop).map_err(|e| e.to_string())
    }

    /// The same, when what another test may have taken for a moment has come back.
    pub(crate) fn starts_in_time(&self) -> Result<(), String> {
        self.engine_in_time(&Bench::config())
            .map(drop)
            .map_err(|e| e.to_string())
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.row.is_simulated()
    }

    pub(crate) fn has_files(&self) -> bool {
        self.row.has_files()
    }

    /// Has each request ended when its turn returns?
    pub(crate) fn ends_in_its_turn(&self) -> bool {
        matches!(self.row.name, "sync" | "ram")
    }

    /// A path for a new file; a backend that has only disks has none.
    pub(crate) fn path(&self) -> Result<PathBuf, Stop> {
        if !self.has_files() {
            return Err(Stop::Refused("it has disks, no files".into()));
        }
        let file = tempfile::NamedTempFile::new_in(self.dir.path()).expect("a new file");
        Ok(file.into_temp_path().keep().expect("a kept file"))
    }

    /// A file with these bytes, open for writing in every mode that it gives.
    pub(crate) fn file(&self, bytes: &[u8]) -> File {
        let path = match (&self.row.files, self.path()) {
            (Files::Foreign(file), _) => return file(bytes),
            (Files::Mixed(file), _) if self.files.fetch_add(1, Ordering::Relaxed) % 2 == 1 => return file(bytes),
            (_, Ok(path)) => path,
            (_, Err(_)) => {
                let disk = Disk::new(bytes.len() as u64);
                disk.poke(0, bytes);
                return File::simulated(&disk, "disk");
            }
        };
        std::fs::write(&path, bytes).expect("bytes of a test file");
        let file = File::open(&path, &Open::write()).expect("a test file");
        // On disk and clean, so that a direct request meets no page that is still to be written.
        rustix::fs::fsync(std::fs::File::open(&path).expect("a test file")).expect("a synced test file");
        file
    }

    /// A simulated disk of so many bytes and its file, for cases that look into the record.
    pub(crate) fn disk(&self, size: u64) -> Option<(Disk, File)> {
        let disk = Disk::new(size);
        let file = File::simulated(&disk, "disk");
        self.is_simulated().then_some((disk, file))
    }

    /// Both ends of a pipe: to read from, to write to.
    pub(crate) fn pipe(&self) -> Result<(File, OwnedFd), Stop> {
        let (reader, writer) = self.raw_pipe()?;
        let reader = File::from_fd(reader, "a pipe").expect("the reading end");
        Ok((reader, writer))
    }

    pub(crate) fn raw_pipe(&self) -> Result<(OwnedFd, OwnedFd), Stop> {
        if !self.has_files() {
            return Err(Stop::Refused("it has disks, no pipes".into()));
        }
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Ok((reader.into(), writer.into()))
    }
}

/// The modes that requests to `file` can be made in here.
pub(crate) fn policies(file: &File) -> impl Iterator<Item = Policy> {
    [Policy::kernel(), Policy::direct()]
        .into_iter()
        .filter(|policy| file.gives(policy.caching))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Direct requests, or the reason why there are none.
pub(crate) fn direct(file: &File) -> Result<Policy, Stop> {
    if file.gives(Caching::Direct) {
        Ok(Policy::direct())
    } else {
        Err(Stop::Skipped("the file system has no direct I/O".into()))
    }
}

/// `len` bytes that differ from their neighbours and from those of other seeds.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    Random(seed).bytes(len)
}

/// An arena buffer with these bytes.
pub(crate) fn buffer(engine: &Engine, bytes: &[u8]) -> baio_engine::Buffer {
    let mut buffer = engine.buffer(bytes.len()).expect("room in the arena");
    buffer.copy_from_slice(bytes);
    buffer
}

/// An arena buffer of so many bytes, none of which a read is likely to leave as it is.
pub(crate) fn blank(engine: &Engine, len: usize) -> baio_engine::Buffer {
    buffer(engine, &vec![0xa5; len])
}

/// Submits and turns until the request has completed.
pub(crate) fn finish(engine: &mut Engine, request: Request) -> Completion {
    engine.submit(request).expect("a free slot");
    next(engine)
}

/// Reads into a blank buffer.
pub(crate) fn read(engine: &mut Engine, file: &File, offset: u64, len: usize, policy: Policy) -> Completion {
    let memory = blank(engine, len);
    finish(engine, Request::read(file, offset, memory, policy))
}

/// Writes these bytes.
pub(crate) fn write(engine: &mut Engine, file: &File, offset: u64, bytes: &[u8], policy: Policy) -> Completion {
    let memory = buffer(engine, bytes);
    finish(engine, Request::write(file, offset, memory, policy))
}

/// Turns until something has completed.
pub(crate) fn next(engine: &mut Engine) -> Completion {
    loop {
        if let Some(completion) = engine.next_completion() {
            return completion;
        }
        assert!(
            engine.in_flight() > 0,
            "nothing is in flight, and nothing has completed"
        );
        engine.turn(Wait::one()).expect("a turn");
    }
}

/// The error of a request that must fail; a typed refusal of the backend stops the case instead.
pub(crate) fn refused(completion: &Completion) -> Result<(), Stop> {
    match completion.result {
        Err(Error::Unsupported { operation, backend }) => {
            Err(Stop::Refused(format!("{backend} refuses `{operation}`")))
        }
        _ => Ok(()),
    }
}

/// The bytes of a request's memory.
pub(crate) fn bytes_of(memory: &Memory) -> &[u8] {
    match memory {
        Memory::Own(buffer) => buffer,
        Memory::Shared(frozen) => frozen,
        other => panic!("no plain bytes: {other:?}"),
    }
}

pub(crate) fn own(memory: Memory) -> baio_engine::Buffer {
    match memory {
        Memory::Own(buffer) => buffer,
        other => panic!("not a buffer: {other:?}"),
    }
}

/// Writes where the test's output capture does not reach, so that counts and skips are always seen.
pub(crate) fn tell(line: &str) {
    // In one piece: others write there too, and `.ci/run` reads the line.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
