//! What the tests of the volume share: short words for requests, children that can be killed, and a device that can be
//! told to be slow or to fail.

#![allow(dead_code)] // Every theme uses its own part of this.

#[path = "../../../engine/tests/backends/bent.rs"]
pub(crate) mod bent;
pub(crate) mod image_text;
pub(crate) mod images;
pub(crate) mod known;
pub(crate) mod loop_device;
#[path = "../../../../tests/test_name.rs"]
mod test_name;
pub(crate) mod through_cache;

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use baio_engine::backend::{Backend, Done};
pub(crate) use baio_engine::sim::Random;
use baio_engine::sim::{Disk, Flash, Profile, Sim};
use baio_engine::{Durability, Engine, EngineOptions, Errno, File, Memory, RequestId, Slots, Wait};
use baio_storage::{
    Access, Core, CreateOptions, Error, FormatOptions, Handle, Identity, Outcome, SegmentOp, SegmentRequest, Ticket,
    format_on,
};

use bent::Bend;
pub(crate) use test_name::TestName;

pub(crate) const ME: Identity = Identity::new(1000, 1000);
pub(crate) const STRANGER: Identity = Identity::new(1001, 1001);
pub(crate) const ROOT: Identity = Identity::new(0, 0);
pub(crate) const BLOCK: usize = 4096;

/// So many of the segments that a volume can have may tenants make.
pub(crate) fn open_to_tenants(segments_max: u64) -> u64 {
    segments_max - (segments_max / 16).max(2)
}

/// A small engine: tests start many.
pub(crate) fn config() -> EngineOptions {
    EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

pub(crate) fn format(path: &Path, size_bytes: u64) {
    let options = FormatOptions {
        size_bytes: Some(size_bytes),
        ..FormatOptions::default()
    };
    Core::format(path, &options).unwrap();
}

pub(crate) fn open(path: &Path) -> Core {
    Core::open(path, &config()).unwrap()
}

pub(crate) fn create(core: &mut Core, name: &str, size_bytes: u64) {
    core.create(ME, ME.uid, name, &CreateOptions::of_size(size_bytes))
        .unwrap();
}

pub(crate) fn open_write(core: &mut Core, name: &str) -> Handle {
    core.open_segment(ME, ME.uid, name, Access::Write).unwrap().0
}

/// Starts a request, turning the core while its table is full.
pub(crate) fn start(core: &mut Core, mut request: SegmentRequest) -> Ticket {
    loop {
        match core.start(request) {
            Ok(ticket) => return ticket,
            Err(back) => request = back,
        }
        core.turn(Wait::one()).unwrap();
    }
}

pub(crate) fn run(core: &mut Core, request: SegmentRequest) -> Outcome {
    let ticket = start(core, request);
    core.wait(ticket).unwrap().unwrap()
}

pub(crate) fn write_request(core: &Core, handle: Handle, offset: u64, bytes: &[u8]) -> SegmentRequest {
    let mut buffer = core.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    SegmentRequest::new(handle, SegmentOp::Write { offset }, buffer)
}

pub(crate) fn read_request(core: &Core, handle: Handle, offset: u64, len: usize) -> SegmentRequest {
    SegmentRequest::new(handle, SegmentOp::Read { offset }, core.buffer(len).unwrap())
}

pub(crate) fn sync_request(handle: Handle) -> SegmentRequest {
    SegmentRequest {
        durability: Durability::Data,
        ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
    }
}

pub(crate) fn write(core: &mut Core, handle: Handle, offset: u64, bytes: &[u8]) -> Result<u32, Error> {
    let request = write_request(core, handle, offset, bytes);
    run(core, request).result
}

pub(crate) fn read(core: &mut Core, handle: Handle, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let request = read_request(core, handle, offset, len);
    let outcome = run(core, request);
    let got = outcome.result? as usize;
    Ok(outcome.memory.into_buffer().unwrap()[..got].to_vec())
}

pub(crate) fn sync(core: &mut Core, handle: Handle) -> Result<u32, Error> {
    run(core, sync_request(handle)).result
}

/// What tells a test that it runs in a child, and as what.
const ROLE: &str = "BAIO_TEST_ROLE";

/// The role of this process, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This test binary again, to run one of its tests as a child. Stderr is its line to the parent: unlike stdout, the test
/// runner writes nothing there by itself.
pub(crate) fn child(test: TestName, role: &str) -> Command {
    child_at(&std::env::current_exe().unwrap(), test, role)
}

/// The same of a copy of it.
pub(crate) fn child_at(program: &Path, test: TestName, role: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args([test.0, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// What a simulated device is told to do with the results of its requests, in the order in which they end.
#[derive(Default)]
pub(crate) struct Whims {
    /// Results seen so far.
    pub(crate) seen: u64,
    /// From this one on...
    pub(crate) fail_from: Option<u64>,
    /// ...so many fail with EIO, although the device did what was asked.
    pub(crate) fail_count: u64,
    /// ...or, with this, move no byte and give no reason.
    pub(crate) stall: bool,
    /// Results that come while this is set are kept back...
    pub(crate) hold: bool,
    /// ...for so many turns; later ones overtake them.
    pub(crate) hold_turns: u64,
    /// Transfers stop after so many bytes, and have to be continued.
    pub(crate) short: Option<i32>,
    /// So many turns fail.
    pub(crate) broken_turns: u64,
}

/// [`Whims`] that a test tells and the device obeys.
#[derive(Clone, Default)]
pub(crate) struct Mood(Arc<Mutex<Whims>>);

impl Mood {
    pub(crate) fn borrow(&self) -> MutexGuard<'_, Whims> {
        self.borrow_mut()
    }

    pub(crate) fn borrow_mut(&self) -> MutexGuard<'_, Whims> {
        self.0.lock().unwrap()
    }
}

/// The simulated machine with a device that obeys [`Whims`].
pub(crate) struct Moody {
    whims: Mood,
    held: VecDeque<(u64, RequestId, i32)>,
    turns: u64,
}

impl Bend for Moody {
    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.turns += 1;
        sim.turn(slots, wait, done)?;
        let mut whims = self.whims.borrow_mut();
        let until = if whims.hold { self.turns + whims.hold_turns } else { 0 };
        self.held.extend(done.raw.drain(..).map(|(id, raw)| (until, id, raw)));
        if whims.broken_turns > 0 {
            whims.broken_turns -= 1;
            return Err(Errno::EBUSY);
        }
        for _ in 0..self.held.len() {
            let Some((until, id, raw)) = self.held.pop_front() else {
                break;
            };
            if until > self.turns {
                self.held.push_back((until, id, raw));
                continue;
            }
            let fails = whims
                .fail_from
                .is_some_and(|from| (from..from + whims.fail_count).contains(&whims.seen));
            whims.seen += 1;
            let raw = whims.short.map_or(raw, |most| raw.min(most));
            let failure = if whims.stall { 0 } else { -Errno::EIO.raw() };
            done.raw.push((id, if fails { failure } else { raw }));
        }
        Ok(())
    }
}

/// A formatted simulated disk.
pub(crate) fn simulated_disk(format: &FormatOptions) -> Disk {
    let disk = Disk::new(format.size_bytes.unwrap());
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config()).unwrap();
    format_on(&mut engine, &File::simulated(&disk, "disk"), format).unwrap();
    disk
}

/// A volume of 64 segments on a simulated disk that takes its time.
pub(crate) fn slow_volume(size_bytes: u64) -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(size_bytes),
        segments: Some(64),
        ..FormatOptions::default()
    });
    disk.set_profile(Profile::Flash(Flash::default()));
    disk
}

/// Opens the volume on a disk, on a machine with this seed.
pub(crate) fn open_with_seed(disk: &Disk, seed: u64) -> Core {
    let engine = Engine::simulated(Sim::new(seed).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "disk"), &config()).unwrap()
}

/// A simulated machine whose device can be made moody.
pub(crate) fn moody() -> (Box<dyn Backend>, Mood) {
    let whims = Mood::default();
    let moody = Moody {
        whims: whims.clone(),
        held: VecDeque::new(),
        turns: 0,
    };
    (bent::backend(2, moody), whims)
}

/// Opens the volume on a disk whose device can be made moody.
pub(crate) fn open_moody(disk: &Disk, config: &EngineOptions) -> (Core, Mood) {
    let (backend, whims) = moody();
    let engine = Engine::with_backend(backend, config).unwrap();
    let core = Core::open_on(engine, &File::simulated(disk, "disk"), config).unwrap();
    (core, whims)
}

pub(crate) fn open_simulated(disk: &Disk) -> Core {
    open_moody(disk, &config()).0
}

/// What a skip says that only root can do without: `.ci/run` looks for these words, and runs the test again as root.
pub(crate) const NEEDS_ROOT: &str = "needs root";

/// Says, by its name, that this test is skipped, or a part of it, and why.
pub(crate) fn skip(why: &str) {
    let test = std::thread::current();
    tell(&format!("SKIPPED: {}: {why}", test.name().unwrap_or("a test")));
}

/// Says that this test is skipped unless it is run by root.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(NEEDS_ROOT);
    }
    is_root
}

/// Writes where the test's output capture does not reach, so that a skip is always seen.
pub(crate) fn tell(line: &str) {
    use std::io::Write;
    // In one piece: others write there too, and `.ci/run` reads the line.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
