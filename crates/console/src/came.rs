//! Which signal has come that a command ends by, and whether anybody has looked.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use signal_hook::consts::SIGTERM;

use crate::exit_status::ExitStatus;

/// Which one came; 0 before.
pub(crate) static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Somebody has looked once: the measuring is under way, and looks again when something has ended.
pub(crate) static LOOKED: AtomicBool = AtomicBool::new(false);

/// Why a command ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// SIGINT, as by Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl Interrupt {
    /// With which the program ends.
    pub fn exit_status(self) -> ExitStatus {
        match self {
            Interrupt::Interrupted => ExitStatus::Interrupted,
            Interrupt::Terminated => ExitStatus::Terminated,
        }
    }
}

/// As its text.
impl Serialize for Interrupt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interrupt::Interrupted => "interrupted by SIGINT",
            Interrupt::Terminated => "ended by SIGTERM",
        })
    }
}

/// Is the command to end? A number alone is looked at, and nothing on the strength of it.
pub fn came() -> Option<Interrupt> {
    LOOKED.store(true, Ordering::Relaxed);
    match CAME.get()?.load(Ordering::Relaxed) {
        0 => None,
        signal if signal == SIGTERM as usize => Some(Interrupt::Terminated),
        _ => Some(Interrupt::Interrupted),
    }
}
