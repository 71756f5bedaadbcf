//! What the program does, counted for `baio run` where it asks for that.

#![allow(unsafe_code)]

use baio_engine::shared::What;
use baio_shim::counters::{self, Library, Operation, Sheet};

extern "C" fn at_load() {
    counters::load(Library::PosixAio);
}

// SAFETY: the linker gathers what lies in this section, and the loader calls each as a function of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Where to count, if anywhere.
pub(crate) fn sheet() -> Option<&'static Sheet> {
    counters::sheet(Library::PosixAio)
}

/// Nanoseconds of a clock that only goes on; 0 where nothing is counted.
pub(crate) fn now() -> u64 {
    if sheet().is_none() {
        return 0;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// What a call is counted as.
pub(crate) fn operation(what: &What) -> Operation {
    match what {
        What::Read { .. } | What::ReadList { .. } => Operation::Read,
        What::Write { .. } | What::WriteList { .. } => Operation::Write,
        What::Sync { .. } => Operation::Sync,
        What::Poll { .. } => Operation::Poll,
    }
}
