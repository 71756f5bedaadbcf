//! Where and how long to work, and what every experiment asks of the machine.

use std::path::PathBuf;
use std::time::Duration;

use baio_console::failure::Failure;
use baio_engine::{Choice, Engine, EngineOptions, SetupError};

use crate::report::target::Target;

/// Working sets are cut to whole multiples of this: they divide into files and into any request.
pub(super) const WORKING_SET_STEP: u64 = 1 << 20;

/// Where and how long to work.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// A directory of our own, removed at the end.
    pub(crate) dir: PathBuf,
    /// The bytes to be carried; `None` takes this program's own, repeated.
    pub(crate) input: Option<PathBuf>,
    pub(crate) quick: bool,
    /// Bytes of the working set of an experiment, a multiple of [`WORKING_SET_STEP`].
    pub(crate) working_set: u64,
    /// Segments of the experiment that makes many.
    pub(crate) segments: u64,
    /// What is only read, instead of files of our own.
    pub(crate) target: Option<Target>,
}

impl Setting {
    /// Of the quick report, or of the other.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long one measured run takes, and how many rounds there are.
    pub(crate) fn measuring(&self) -> (Duration, usize) {
        self.either((Duration::from_millis(400), 2), (Duration::from_millis(500), 3))
    }

    /// The same for an experiment of many lines.
    pub(crate) fn measuring_many(&self) -> (Duration, usize) {
        self.either((Duration::from_millis(200), 2), (Duration::from_millis(300), 3))
    }

    /// How many bytes an experiment reads that reads each once, and how many rounds there are: one makes no verdict.
    pub(crate) fn reading_once(&self) -> (u64, usize) {
        (self.working_set / 8, 2)
    }
}

/// A storage error names its own object.
pub(super) fn storage_failure(error: baio::Error) -> Failure {
    Failure::from_storage("report", error.object.clone(), &error)
}

/// Why a backend is not to be had here; `None` where it works.
pub(super) fn unavailable(backend: &str) -> Option<String> {
    match backend.parse() {
        Ok(choice) => small_engine(choice).err().map(|error| error.to_string()),
        Err(error) => Some(error),
    }
}

pub(super) fn small_engine(backend: Choice) -> Result<Engine, SetupError> {
    Engine::new(&EngineOptions {
        backend,
        slots: 8,
        arena_bytes: 1,
        ..EngineOptions::default()
    })
}

/// Bytes of the working set that is asked for, or usual.
///
/// # Errors
/// There are too few.
pub(super) fn working_set_of(quick: bool, asked: Option<u64>) -> Result<u64, Failure> {
    let Some(asked) = asked else {
        return Ok(if quick { 256 << 20 } else { 1 << 30 });
    };
    match asked / WORKING_SET_STEP * WORKING_SET_STEP {
        0 => Err(
            Failure::usage("report", format!("{asked} bytes are too few to work on"))
                .on("--working-set")
                .needing("at least 1M")
                .cured_by("choose a larger one, or leave it out"),
        ),
        bytes => Ok(bytes),
    }
}

/// How much of a target an experiment uses that would have so much of a file of its own.
pub(super) fn at_most(working_set: u64, target: &Target) -> u64 {
    working_set.min(target.bytes / WORKING_SET_STEP * WORKING_SET_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_set_is_no_larger_than_the_target() {
        let target = Target {
            path: "/f".into(),
            is_device: false,
            bytes: (5 << 20) + 17,
        };
        assert_eq!(at_most(1 << 30, &target), 5 << 20);
        assert_eq!(at_most(2 << 20, &target), 2 << 20);
    }
}
