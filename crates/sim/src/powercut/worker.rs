//! What every worker has: the device, choices, and a way to say what it does. It runs in a process of its own, which is killed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use baio::{Backend, EngineOptions, LinkOptions};
use baio_engine::sim::Random;

use super::marks::{MARKS, Marks};

/// What goes wrong in a worker, or where its work is judged.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a line begins with that tells of a panic.
pub const PANIC: &str = "PANIC ";

/// From now on every panic of this process is said on a line, also one that somebody catches, and one of the core's own thread: whatever
/// fails, nothing panics. It asks for no lock of a worker's, who may be who panics.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.to_string().replace('\n', " ");
        // Nobody listens any more: this process is about to be killed.
        let _ = std::io::stdout()
            .lock()
            .write_all(format!("{PANIC}{said}\n").as_bytes());
    }));
}

/// What a worker is told on its command line.
#[derive(Clone, Debug)]
pub struct Task {
    /// The story.
    pub story: String,
    /// The device.
    pub device: PathBuf,
    /// A folder for files of its own, which survives.
    pub beside: PathBuf,
    /// From which its choices follow.
    pub seed: u64,
    /// Numbers from here on are free.
    pub first: u64,
}

/// A worker. Threads share it.
#[derive(Debug)]
pub struct Worker {
    /// What it was told.
    pub task: Task,
    next: AtomicU64,
    /// How many lines were said, and who marks them in the record of the device, if it has one.
    said: Mutex<(u64, Option<Marks>)>,
}

impl Worker {
    /// One with this task.
    #[must_use]
    pub fn new(task: Task) -> Worker {
        let name = std::fs::read_to_string(task.beside.join(MARKS)).ok();
        Worker {
            next: AtomicU64::new(task.first),
            said: Mutex::new((0, name.and_then(|name| Marks::new(&name).ok()))),
            task,
        }
    }

    /// A number that nobody has had.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Choices of one of its threads.
    #[must_use]
    pub fn random(&self, thread: u64) -> Random {
        Random::from(&[self.task.seed, thread, 0x776f_726b])
    }

    /// Says a line. It has left this process when this returns, and is marked in the record of the device.
    pub fn say(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody listens any more: this process is about to be killed.
        let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
        said.0 += 1;
        if let (count, Some(marks)) = &*said {
            // The device is gone: its record has ended.
            let _ = marks.put(*count);
        }
    }

    /// Says that a write is about to begin, and gives its number.
    pub fn writes(&self, place: u64, first: u64, count: u64) -> u64 {
        let version = self.number();
        self.say(&format!("w {place} {first} {count} {version}"));
        version
    }

    /// Says that a write was acknowledged.
    pub fn wrote(&self, version: u64, is_durable: bool) {
        self.say(&format!("{} {version}", if is_durable { 'd' } else { 'p' }));
    }

    /// Runs this in threads, each with a number. Each says what went wrong with it: one that meets only what another's error has left
    /// names no device.
    ///
    /// # Errors
    /// The first of theirs, when all have ended.
    pub fn in_threads(&self, count: u64, work: impl Fn(u64) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
        let work = |number| work(number).inspect_err(|error| self.say(&format!("! {error}")));
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(_) => Err("a panic".into()),
            })
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.task.device
    }
}

/// Options with one of the backends that work here.
#[must_use]
pub fn options(random: &mut Random) -> LinkOptions {
    let backend = *random.pick(&Backend::ALL).unwrap_or(&Backend::Auto);
    let with = |backend| LinkOptions {
        engine: EngineOptions {
            backend,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    };
    match baio::Remote::new_with(&with(backend)) {
        Ok(_) => with(backend),
        Err(_) => with(Backend::Auto),
    }
}
