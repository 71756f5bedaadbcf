//! What single requests do, iteration by iteration, beside what seed 001 reports of the retry-based kernel (§3.1 to §3.5, §7.1, §7.2).
//!
//! The cache does no I/O: it says what it wants of the device and is told how that ended. So here everything happens one step
//! at a time, on a real file past the kernel's cache, and each step is written down: who began, what the device was asked for,
//! which iterations ran when it had answered, who was done. The bytes are checked.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;

use baio_engine::{Caching, Config, Descriptions, Durability, Engine, File, Memory, Open, Policy, Request};
use baio_measure::program::{self, words};
use baio_storage::cache::window::Pattern;
use baio_storage::cache::{Cache, CacheConfig, CacheOp, CacheRequest, CacheStats, Io, IoKind, ObjectId};
use serde::Serialize;

const KIB: u64 = 1 << 10;
const PAGE: u64 = 4 * KIB;
/// Of the file.
pub(crate) const BYTES: u64 = 4 << 20;
const CACHE: usize = 4 << 20;
pub(crate) const READAHEAD: usize = 128 << 10;

/// The byte that writes write.
const WRITTEN: u8 = 0xb5;

#[derive(Clone, Copy)]
enum Ask {
    Read(u64, u64),
    /// Data-durable, as with O_DSYNC.
    Write(u64, u64),
}

struct Scene {
    what: &'static str,
    /// What the paper reports.
    theirs: &'static str,
    /// Pages that are cached before: first, end.
    cached: &'static [(u64, u64)],
    /// Started one after the other, before the device answers anything.
    asks: &'static [Ask],
    /// Reads and writes of the device at most.
    reads_max: f64,
    writes_max: f64,
}

const SCENES: [Scene; 10] = [
    Scene {
        what: "a read of 16 KiB, its first 4 KiB cached",
        theirs: "§3.1: four iterations of 4 KiB; §3.2, with readahead: two, behind 64 KiB read ahead",
        cached: &[(0, 1)],
        asks: &[Ask::Read(0, 16 * KIB)],
        reads_max: 1.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a read of 64 KiB, nothing cached",
        theirs: "§3.2: one readahead, and one iteration when it has ended",
        cached: &[],
        asks: &[Ask::Read(512 * KIB, 64 * KIB)],
        reads_max: 1.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a read of 64 KiB from the middle of a page on, nothing cached",
        theirs: "not told",
        cached: &[],
        asks: &[Ask::Read(512 * KIB + 1000, 64 * KIB)],
        reads_max: 1.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a read of 64 KiB, of which three pages here and there are cached",
        theirs: "§2.2: each iteration goes on where the last one left off",
        cached: &[(128, 129), (133, 134), (140, 141)],
        asks: &[Ask::Read(512 * KIB, 64 * KIB)],
        reads_max: 3.0,
        writes_max: 0.0,
    },
    Scene {
        what: "four reads of 16 KiB at random places, in flight together",
        theirs: "§3.3: 64, 8, 4 and 4 KiB read ahead, then 4 KiB at a time; §3.4, the whole request shown upfront: 64, 20, 20, 20 KiB \
                 and two iterations each",
        cached: &[],
        asks: &[
            Ask::Read(2000 * KIB, 16 * KIB),
            Ask::Read(400 * KIB, 16 * KIB),
            Ask::Read(3000 * KIB, 16 * KIB),
            Ask::Read(1200 * KIB, 16 * KIB),
        ],
        reads_max: 4.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a reader that asks for 128 KiB and takes 8: 0 to 128, 8 to 136, 16 to 144 KiB, ...",
        theirs: "§3.5: confuses the readahead, which takes 0-128, 8-132, 16-140 KiB for no sequence",
        cached: &[],
        asks: &[
            Ask::Read(0, 128 * KIB),
            Ask::Read(8 * KIB, 128 * KIB),
            Ask::Read(16 * KIB, 128 * KIB),
            Ask::Read(24 * KIB, 128 * KIB),
        ],
        reads_max: 4.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a read of 2 MiB, nothing cached",
        theirs: "§3.5: upfront readahead is clipped, so that a large read is a pipeline",
        cached: &[],
        asks: &[Ask::Read(0, 2 << 20)],
        reads_max: 4.0,
        writes_max: 0.0,
    },
    Scene {
        what: "a durable write of 64 KiB",
        theirs: "§7.1: all write-outs at first, then an iteration for each page that is waited for; nothing is dirtied or written again",
        cached: &[],
        asks: &[Ask::Write(512 * KIB, 64 * KIB)],
        reads_max: 0.0,
        writes_max: 1.0,
    },
    Scene {
        what: "a durable write of 64 KiB from the middle of a page on",
        theirs: "not told",
        cached: &[],
        asks: &[Ask::Write(512 * KIB + 1000, 64 * KIB)],
        reads_max: 2.0,
        writes_max: 1.0,
    },
    Scene {
        what: "two durable writes of one page each, in flight together",
        theirs: "§7.2, table 1: with one wait queue for both pages, each wakes the other again and again",
        cached: &[],
        asks: &[Ask::Write(100 * PAGE, PAGE), Ask::Write(300 * PAGE, PAGE)],
        reads_max: 0.0,
        writes_max: 2.0,
    },
];

/// What came of a scene.
#[derive(Serialize)]
pub(crate) struct Played {
    pub(crate) what: &'static str,
    pub(crate) theirs: &'static str,
    /// One line a step.
    pub(crate) steps: Vec<String>,
    pub(crate) counts: [Counted; 4],
    /// Requests that failed, or brought the wrong bytes.
    pub(crate) wrong: u64,
}

/// Something that was counted, and what it may be at most.
#[derive(Serialize)]
pub(crate) struct Counted {
    pub(crate) said: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: f64,
    pub(crate) most: f64,
}

fn main() -> ExitCode {
    program::tell(words("request_traces FILE of 4 MiB, which is written over").and_then(|(path, _)| run(&path)))
}

/// Plays every scene on a file of [`BYTES`] bytes.
pub(crate) fn run(path: &Path) -> Result<Vec<Played>, String> {
    SCENES.iter().map(|scene| play(path, scene)).collect()
}

fn play(path: &Path, scene: &Scene) -> Result<Played, String> {
    let mut trace = Trace::open(path)?;
    trace.hint(Pattern::Random)?;
    for &(first, end) in scene.cached {
        trace.ask(Ask::Read(first * PAGE, (end - first) * PAGE))?;
        while trace.answer()? {}
    }
    trace.hint(Pattern::Unknown)?;
    trace.lines.clear();
    let before = trace.cache.stats();
    for &ask in scene.asks {
        trace.ask(ask)?;
    }
    while trace.answer()? {}
    let after = trace.cache.stats();
    let since = |of: fn(&CacheStats) -> u64| (of(&after) - of(&before)) as f64;
    let pages: u64 = scene.asks.iter().map(|&ask| pages(ask)).sum();
    let iterations_max = pages as f64 + scene.asks.len() as f64;
    let counts = [
        (
            "iterations",
            "iterations",
            since(|stats| stats.iterations),
            iterations_max,
        ),
        (
            "reads of the device",
            "device_reads",
            since(|stats| stats.fills),
            scene.reads_max,
        ),
        (
            "writes of the device",
            "device_writes",
            since(|stats| stats.writes),
            scene.writes_max,
        ),
        (
            "iterations in vain",
            "spurious_wakeups",
            since(|stats| stats.spurious_wakeups),
            0.0,
        ),
    ];
    Ok(Played {
        what: scene.what,
        theirs: scene.theirs,
        steps: trace.lines,
        counts: counts.map(|(said, key, value, most)| Counted { said, key, value, most }),
        wrong: trace.wrong,
    })
}

fn pages(ask: Ask) -> u64 {
    let (Ask::Read(offset, len) | Ask::Write(offset, len)) = ask;
    (offset + len).div_ceil(PAGE) - offset / PAGE
}

/// A cache with the file under it, and what was written down.
struct Trace {
    engine: Engine,
    file: File,
    cache: Cache,
    object: ObjectId,
    /// What the file holds once everything is done.
    bytes: Vec<u8>,
    asks: Vec<Ask>,
    /// What the device has not answered yet.
    wanted: VecDeque<Io>,
    lines: Vec<String>,
    /// Requests that failed, or brought the wrong bytes.
    wrong: u64,
}

impl Trace {
    fn open(path: &Path) -> Result<Trace, String> {
        let mut engine = Engine::new(&Config {
            arena_bytes: CACHE + (8 << 20),
            ..Config::default()
        })
        .map_err(|error| error.to_string())?;
        let open = Open {
            descriptions: Descriptions::Only(Caching::Direct),
            ..Open::write()
        };
        let file = File::open(path, &open).map_err(|error| error.to_string())?;
        engine.attach(&file);
        let config = CacheConfig {
            bytes: CACHE,
            ..CacheConfig::default()
        };
        let mut cache = Cache::new(engine.arena(), config).map_err(|error| error.to_string())?;
        let object = cache.add(BYTES, READAHEAD);
        Ok(Trace {
            engine,
            file,
            cache,
            object,
            bytes: std::fs::read(path).map_err(|error| error.to_string())?,
            asks: Vec::new(),
            wanted: VecDeque::new(),
            lines: Vec::new(),
            wrong: 0,
        })
    }

    fn hint(&mut self, pattern: Pattern) -> Result<(), String> {
        self.cache.hint(self.object, pattern).map_err(|error| error.to_string())
    }

    /// Starts a request, and writes down what came of it at once.
    fn ask(&mut self, ask: Ask) -> Result<(), String> {
        let (Ask::Read(offset, len) | Ask::Write(offset, len)) = ask;
        let mut buffer = self.engine.buffer(len as usize).ok_or("no buffer")?;
        let (op, word) = match ask {
            Ask::Read(..) => (CacheOp::Read { offset }, "read"),
            Ask::Write(..) => {
                buffer.fill(WRITTEN);
                self.bytes[offset as usize..][..len as usize].fill(WRITTEN);
                let durability = Durability::Data;
                (CacheOp::Write { offset, durability }, "write")
            }
        };
        let number = self.asks.len();
        self.asks.push(ask);
        let before = self.cache.stats();
        let request = CacheRequest {
            object: self.object,
            op,
            memory: buffer.into(),
            hint: Default::default(),
        };
        self.cache.start(number as u64, request);
        self.note(&format!("{word} of {} at {} starts", size(len), size(offset)), &before);
        Ok(())
    }

    /// The device answers what it was asked first; false when it was asked nothing.
    fn answer(&mut self) -> Result<bool, String> {
        let Some(io) = self.wanted.pop_front() else {
            return Ok(false);
        };
        let told = said(&io.kind);
        let policy = Policy::direct();
        let request = match io.kind {
            IoKind::Read { offset, .. } => Request::read(&self.file, offset, io.memory, policy),
            IoKind::Write { offset, durability, .. } => {
                Request::write(&self.file, offset, io.memory, policy.durable(durability))
            }
            IoKind::Sync { durability } => Request::sync(&self.file, durability),
        };
        let ended = self.engine.run(request);
        let before = self.cache.stats();
        let result = ended.result.map_err(|error| error.errno());
        self.cache.io_ended(io.id, result, ended.memory);
        self.note(&format!("{told} has ended"), &before);
        Ok(true)
    }

    /// Writes down a step: what began it, how many iterations ran, what the device is asked for now, who is done.
    fn note(&mut self, event: &str, before: &CacheStats) {
        let mut asked = Vec::new();
        while let Some(io) = self.cache.next_io() {
            asked.push(said(&io.kind));
            self.wanted.push_back(io);
        }
        let iterations = self.cache.stats().iterations - before.iterations;
        let mut line = format!(
            "{event}: {iterations} iteration{}",
            if iterations == 1 { "" } else { "s" }
        );
        if !asked.is_empty() {
            line += &format!("; the device is asked for {}", asked.join(", "));
        }
        while let Some(done) = self.cache.next_done() {
            let ask = self.asks[done.owner as usize];
            let (Ask::Read(offset, len) | Ask::Write(offset, len)) = ask;
            let right = match (&done.memory, ask) {
                (Memory::Own(buffer), Ask::Read(..)) => buffer[..] == self.bytes[offset as usize..][..len as usize],
                (_, Ask::Read(..)) => false,
                (_, Ask::Write(..)) => true,
            };
            if done.result != Ok(len as u32) || !right {
                self.wrong += 1;
            }
            line += &format!("; {} at {} done after {}", size(len), size(offset), done.iterations);
        }
        self.lines.push(line);
    }
}

fn said(kind: &IoKind) -> String {
    match *kind {
        IoKind::Read { offset, len } => format!("a read of {} at {}", size(len.into()), size(offset)),
        IoKind::Write { offset, len, .. } => format!("a write of {} at {}", size(len.into()), size(offset)),
        IoKind::Sync { .. } => "a flush".to_owned(),
    }
}

fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(KIB) {
        format!("{} KiB", bytes / KIB)
    } else {
        format!("{bytes}")
    }
}
