//! A broker in a thread, over a volume in a file; and a client whose work nobody may disturb.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use baio_broker::host::{Broker, Listener, Options, Stop};
use baio_engine::EngineOptions;
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, FormatOptions, Identity, Limits, SegmentInfo};
use baio_words::Access;
use baio_words::entry::HandleWords;
use baio_words::session::{Answer, BrokerStatus, OwnerStatus, Question};
use rustix::fs::Mode;
use rustix::thread::{Gid, Uid};

use crate::raw::{BLOCK, Client, GUARD, Wire, hello};

/// Waits for what comes by itself.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < GUARD, "never: {what}");
        std::thread::yield_now();
    }
}

/// Few slots, so that requests are held, and little memory.
fn config() -> EngineOptions {
    EngineOptions {
        slots: 32,
        reserved_slots: 8,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

pub(crate) struct House {
    pub(crate) socket: PathBuf,
    stop: Stop,
    ended: mpsc::Receiver<Result<(), String>>,
    dir: tempfile::TempDir,
}

impl House {
    pub(crate) fn new() -> House {
        House::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> House {
        House::built(options, 0, 4096)
    }

    /// With a page cache.
    pub(crate) fn cached() -> House {
        House::cached_of(1 << 20)
    }

    /// With one of so many bytes.
    pub(crate) fn cached_of(bytes: usize) -> House {
        House::built(Options::default(), bytes, 4096)
    }

    /// With a table that is not read in a moment.
    pub(crate) fn of_segments(segments: u64) -> House {
        House::built(Options::default(), 0, segments)
    }

    fn built(options: Options, cache_bytes: usize, segments: u64) -> House {
        let dir = tempfile::tempdir().unwrap();
        // Other users come too.
        rustix::fs::chmod(dir.path(), Mode::from_raw_mode(0o755)).unwrap();
        let (socket, image) = (dir.path().join("socket"), dir.path().join("volume.img"));
        let format = FormatOptions {
            size_bytes: Some((64 << 20) + segments * (9 << 10)),
            segments: Some(segments),
            ..FormatOptions::default()
        };
        Core::format(&image, &format).unwrap();
        let options = Options {
            // So that whoever runs the tests meets the same limits as root: those of the volume.
            quota: Some(Limits {
                blocks: Some(1 << 40),
                segments: Some(1 << 20),
            }),
            ..options
        };
        let listener = Listener::bind(&socket, 0o666).unwrap();
        let (tell, told) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let config = EngineOptions {
                arena_bytes: (4 << 20) + cache_bytes,
                ..config()
            };
            let mut core = Core::open(&image, &config).unwrap();
            if cache_bytes > 0 {
                let cache = CacheOptions {
                    bytes: cache_bytes,
                    ..CacheOptions::default()
                };
                core.use_cache(&cache).unwrap();
            }
            let broker = Broker::new(core, listener, options).unwrap();
            tell.send(broker.stopper()).unwrap();
            let _ = tell_end.send(broker.run().map_err(|error| error.to_string()));
        });
        let stop = told.recv_timeout(GUARD).expect("a broker");
        House {
            socket,
            stop,
            ended,
            dir,
        }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire::connect(&self.socket)
    }

    pub(crate) fn client(&self) -> Client {
        self.wire().greet(&hello()).unwrap()
    }

    /// A client with few places.
    pub(crate) fn narrow(&self, places: u32) -> Client {
        let hello = baio_words::session::Hello { places, ..hello() };
        self.wire().greet(&hello).unwrap()
    }

    /// A client of another user: a thread of its own takes that identity and connects.
    pub(crate) fn wire_of(&self, uid: u32, gid: u32, groups: &[u32]) -> Wire {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        let socket = &self.socket;
        let connect = || {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&groups).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            Wire::connect(socket)
        };
        std::thread::scope(|scope| scope.spawn(connect).join().unwrap())
    }

    pub(crate) fn client_of(&self, uid: u32) -> Client {
        self.wire_of(uid, uid, &[]).greet(&hello()).unwrap()
    }

    /// It is asked to end, and does, properly.
    pub(crate) fn ends(self) {
        self.stop.ask();
        let ended = self
            .ended
            .recv_timeout(GUARD)
            .expect("the broker ends when it is asked to");
        ended.expect("it ends properly");
    }

    /// As [`House::ends`], and what its volume has then.
    pub(crate) fn ends_with(self) -> Vec<SegmentInfo> {
        self.stop.ask();
        self.ended.recv_timeout(GUARD).unwrap().unwrap();
        let mut core = Core::open(&self.dir.path().join("volume.img"), &config()).unwrap();
        core.list(Identity::effective()).unwrap()
    }

    pub(crate) fn stop(&self) {
        self.stop.ask();
    }
}

/// A client beside all that happens. Its segment stays as it is, and its requests end.
pub(crate) struct Victim {
    pub(crate) client: Client,
    handle: HandleWords,
    turns: u64,
}

const CANARY_BYTES: u32 = 8 * BLOCK;

impl Victim {
    pub(crate) fn new(house: &House) -> Victim {
        Victim::of(house.client())
    }

    pub(crate) fn of(mut client: Client) -> Victim {
        let handle = client.made("canary", 2 * u64::from(CANARY_BYTES));
        let written = client.write(handle, 0, &canary());
        assert_eq!(written.result, Ok(CANARY_BYTES));
        Victim {
            client,
            handle,
            turns: 0,
        }
    }

    /// It works as ever, and nothing has touched what it wrote.
    pub(crate) fn goes_on(&mut self) {
        self.reads();
        self.turns += 1;
        let block = [self.turns as u8; BLOCK as usize];
        let offset = u64::from(CANARY_BYTES) + self.turns % 8 * u64::from(BLOCK);
        assert_eq!(self.client.write(self.handle, offset, &block).result, Ok(BLOCK));
        let (ended, bytes) = self.client.read(self.handle, offset, BLOCK);
        assert!(ended.result == Ok(BLOCK) && bytes == block);
        assert_eq!(self.client.sync(self.handle).result, Ok(0));
        let info = self.client.ask(&Question::Info);
        assert!(matches!(info, Answer::Volume(_)), "{info:?}");
    }

    /// One request: nothing has touched what it wrote.
    pub(crate) fn reads(&mut self) {
        let (ended, bytes) = self.client.read(self.handle, 0, CANARY_BYTES);
        assert_eq!(ended.result, Ok(CANARY_BYTES));
        assert!(bytes == canary(), "somebody has written over the canary");
    }

    pub(crate) fn status(&mut self) -> BrokerStatus {
        status(&mut self.client)
    }

    /// The row of its own user.
    pub(crate) fn row(&mut self) -> OwnerStatus {
        let uid = self.client.uid();
        let status = self.status();
        *status
            .owners
            .iter()
            .find(|row| row.uid == uid)
            .expect("a row of one's own")
    }

    /// Waits until of its user's sessions only so many are there, and nothing of the others is left.
    pub(crate) fn is_left_with(&mut self, sessions: u32) {
        until("the others have gone, and all that was theirs", || {
            let row = self.row();
            (row.clients, row.handles, row.in_flight, row.held) == (sessions, 1, 0, 0)
        });
    }
}

fn canary() -> Vec<u8> {
    (0..CANARY_BYTES)
        .map(|at| (at * 31 + 7) as u8 ^ (at >> 8) as u8)
        .collect()
}

pub(crate) fn status(client: &mut Client) -> BrokerStatus {
    let answer = client.ask(&Question::Status);
    let Answer::Status(status) = answer else {
        panic!("{answer:?}")
    };
    status
}

/// Somebody else's number.
pub(crate) const STRANGER: u32 = 4242;

/// Says that this test is skipped unless it is run by root.
pub(crate) fn is_root() -> bool {
    use std::io::Write;
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let test = std::thread::current();
        let line = format!("SKIPPED: {}: needs root\n", test.name().unwrap_or("a test"));
        // In one piece: others write there too, and `.ci/run` reads the line.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    is_root
}

/// Opens what a client made, to read.
pub(crate) fn opens(client: &mut Client, owner_uid: u32, name: &str) -> Result<HandleWords, String> {
    client.open_of(owner_uid, name, Access::Read)
}

/// Runs this in a process of its own: what it counts is the whole process's.
pub(crate) fn alone(story: impl FnOnce()) {
    alone_lacking("", story);
}

/// The same, as on a kernel without these lines of the table (`baio_process::kernel`).
pub(crate) fn alone_lacking(lines: &str, story: impl FnOnce()) {
    const ALONE: &str = "BAIO_TEST_ALONE";
    let thread = std::thread::current();
    let name = thread.name().expect("tests have names").to_owned();
    if std::env::var_os(ALONE).is_some() {
        return story();
    }
    let others = std::env::var(baio_process::kernel::LACKS).unwrap_or_default();
    let told = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, "1")
        .env(baio_process::kernel::LACKS, format!("{others},{lines}"))
        .output()
        .unwrap();
    let (said, failed) = (
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr),
    );
    assert!(told.status.success() && said.contains("1 passed"), "{said}\n{failed}");
}

/// This process may have few descriptors, and has all of them now.
pub(crate) fn hoard() -> Vec<std::fs::File> {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(256);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    hoard_more(&mut hoard);
    hoard
}

/// And those that have become free.
pub(crate) fn hoard_more(hoard: &mut Vec<std::fs::File>) {
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
}

/// Descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
