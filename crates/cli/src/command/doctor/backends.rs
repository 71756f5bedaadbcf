//! Which backend is taken here, and what of every other: each is started once, in the size that engines have by default.
//!
//! The one that `Auto` takes is kept; what it tried before and did not take is not tried again, because a ring just closed
//! still counts against the limit on locked memory for a moment.

use baio_console::output::Table;
use baio_engine::{Choice, Config, Engine, Explain, Rejected, SetupError};
use serde::Serialize;

use super::system::{Blame, System};

/// The one whose requests block the caller.
const BLOCKING: Choice = Choice::Sync;

/// Whether a backend starts here, why not, and the cure.
#[derive(Serialize)]
pub(super) struct Started {
    pub(super) backend: &'static str,
    starts: bool,
    chosen: bool,
    /// False for one that blocks its caller.
    asynchronous: bool,
    /// What the system said.
    reason: Option<String>,
    /// What of this system stands in the way, where that can be told.
    cause: Option<String>,
    /// What to do about it.
    cure: Option<String>,
    features: Vec<Feature>,
}

/// A better backend that does not work here.
#[derive(Clone, Serialize)]
pub(super) struct RejectedBackend {
    backend: &'static str,
    reason: String,
    cause: Option<String>,
    cure: Option<String>,
}

/// Something that a backend has, or would like to have.
#[derive(Clone, Serialize)]
pub(super) struct Feature {
    name: &'static str,
    available: bool,
    reason: Option<String>,
    cause: Option<String>,
    cure: Option<String>,
}

/// Starts the engine that an application would get.
pub(super) fn start_best() -> Result<Engine, SetupError> {
    Engine::new(&Config {
        // Only what was asked for can be found refused.
        register_arena: true,
        ..config(Choice::Auto)
    })
}

fn config(backend: Choice) -> Config {
    Config {
        backend,
        arena_bytes: 1 << 20,
        ..Config::default()
    }
}

/// What each backend came to, the best first; `engine` runs on the chosen one.
pub(super) fn try_all(engine: &Engine, system: &System) -> Vec<Started> {
    let chosen = engine.explain();
    let rejected = engine.rejected();
    let mut all: Vec<Started> = rejected.iter().map(|why| Started::refused(why, system)).collect();
    let name = chosen.backend;
    all.push(Started::running(chosen, true, system));
    // They are listed the simplest first.
    for choice in Choice::ALL.into_iter().rev().filter(|&choice| choice != Choice::Auto) {
        let known = choice.name();
        if known != name && !rejected.iter().any(|why| why.backend == known) {
            all.push(match Engine::new(&config(choice)) {
                Ok(engine) => Started::running(engine.explain(), false, system),
                Err(error) => Started::refused(&refusal(known, error), system),
            });
        }
    }
    all
}

/// The better backends that the engine did not take.
pub(super) fn rejected(engine: &Engine, system: &System) -> Vec<RejectedBackend> {
    let told = engine.rejected().iter().map(|why| RejectedBackend::of(why, system));
    told.collect()
}

/// The chosen backend's features.
pub(super) fn features(explained: Explain, system: &System) -> Vec<Feature> {
    let features = explained.features.into_iter();
    features.map(|(name, had)| Feature::of(name, had, system)).collect()
}

fn refusal(backend: &'static str, error: SetupError) -> Rejected {
    Rejected {
        backend,
        reason: error.errno.to_string(),
        cure: error.cure,
    }
}

/// What is blamed knows this system; the backend's own cure knows only what the error may mean.
fn parted(blame: Option<Blame>, cure: Option<String>) -> (Option<String>, Option<String>) {
    match blame {
        Some(blame) => (Some(blame.cause), Some(blame.cure)),
        None => (None, cure),
    }
}

impl Started {
    fn refused(why: &Rejected, system: &System) -> Started {
        let why = RejectedBackend::of(why, system);
        Started {
            backend: why.backend,
            starts: false,
            chosen: false,
            asynchronous: why.backend != BLOCKING.name(),
            reason: Some(why.reason),
            cause: why.cause,
            cure: why.cure,
            features: Vec::new(),
        }
    }

    fn running(explained: Explain, chosen: bool, system: &System) -> Started {
        Started {
            backend: explained.backend,
            starts: true,
            chosen,
            asynchronous: explained.backend != BLOCKING.name(),
            reason: None,
            cause: None,
            cure: None,
            features: features(explained, system),
        }
    }

    /// Can I/O be asynchronous with it, here?
    pub(super) fn works_asynchronously(&self) -> bool {
        self.starts && self.asynchronous
    }

    /// Shows it.
    pub(super) fn add_rows(&self, table: &mut Table) {
        let state = match (&self.reason, self.asynchronous) {
            (Some(reason), _) => sentence("no: ", reason, self.cause.as_ref(), self.cure.as_ref()),
            (None, asynchronous) => {
                let but = if asynchronous { "" } else { ", but blocks its caller" };
                let chosen = if self.chosen { ", and is chosen" } else { "" };
                format!("starts{but}{chosen}")
            }
        };
        table.row([format!("backend {}", self.backend), state]);
        for feature in &self.features {
            let state = feature.reason.as_ref().map_or("yes".into(), |reason| {
                sentence("no: ", reason, feature.cause.as_ref(), feature.cure.as_ref())
            });
            table.row([format!("  {}", feature.name), state]);
        }
    }
}

fn sentence(start: &str, reason: &str, cause: Option<&String>, cure: Option<&String>) -> String {
    let mut sentence = format!("{start}{reason}");
    for (name, part) in [("cause", cause), ("cure", cure)] {
        if let Some(part) = part {
            sentence.push_str(&format!("; {name}: {part}"));
        }
    }
    sentence
}

impl RejectedBackend {
    fn of(why: &Rejected, system: &System) -> RejectedBackend {
        let (cause, cure) = parted(system.blames(why.backend, &why.reason), why.cure.clone());
        RejectedBackend {
            backend: why.backend,
            reason: why.reason.clone(),
            cause,
            cure,
        }
    }
}

impl Feature {
    fn of(name: &'static str, had: Result<(), String>, system: &System) -> Feature {
        let reason = had.err();
        let blame = reason.as_ref().and_then(|reason| system.blames(name, reason));
        let (cause, cure) = parted(blame, None);
        Feature {
            name,
            available: reason.is_none(),
            reason,
            cause,
            cure,
        }
    }
}
