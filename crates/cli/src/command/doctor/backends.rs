//! Which backend `Auto` takes here, and whether the others work. Each is started once, in the size that engines have by default.
//!
//! The engine that `Auto` made is kept, and the backends that it tried before are not tried again: a ring that was just closed still counts
//! against the limit of locked memory for a moment.

use baio::{EngineOptions, SetupError};
use baio_console::output::Table;
use baio_engine::{Choice, Engine, Explain, Rejected};
use serde::Serialize;

use super::system::System;
use super::verdict::{self, Task};

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
    #[serde(flatten)]
    refusal: Refusal,
    features: Vec<Feature>,
}

/// Why something is not to be had; nothing where it is.
#[derive(Clone, Default, Serialize)]
struct Refusal {
    /// What the system said.
    reason: Option<String>,
    /// What of this system stands in the way, where that can be told.
    cause: Option<String>,
    /// What to do about it.
    cure: Option<String>,
}

/// A better backend that does not work here.
#[derive(Clone, Serialize)]
pub(super) struct RejectedBackend {
    backend: &'static str,
    #[serde(flatten)]
    refusal: Refusal,
}

/// Something that a backend has, or would like to have.
#[derive(Clone, Serialize)]
pub(super) struct Feature {
    name: &'static str,
    available: bool,
    #[serde(flatten)]
    refusal: Refusal,
}

/// Starts the engine that an application would get.
pub(super) fn start_best() -> Result<Engine, SetupError> {
    Engine::new(&EngineOptions {
        // Only what was asked for can be found refused.
        register_arena: true,
        ..config(Choice::Auto)
    })
}

fn config(backend: Choice) -> EngineOptions {
    EngineOptions {
        backend,
        arena_bytes: 1 << 20,
        ..EngineOptions::default()
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

impl Refusal {
    /// Of a backend or a feature. What is blamed knows this system; the backend's own cure knows only what the error may mean.
    fn of(name: &str, reason: String, cure: Option<String>, system: &System) -> Refusal {
        let (cause, cure) = match system.blames(name, &reason) {
            Some(blame) => (Some(blame.cause), Some(blame.cure)),
            None => (None, cure),
        };
        Refusal {
            reason: Some(reason),
            cause,
            cure,
        }
    }

    /// In one sentence; none where nothing was refused.
    fn sentence(&self) -> Option<String> {
        let mut sentence = format!("no: {}", self.reason.as_ref()?);
        for (name, part) in [("cause", &self.cause), ("cure", &self.cure)] {
            if let Some(part) = part {
                sentence.push_str(&format!("; {name}: {part}"));
            }
        }
        Some(sentence)
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
            refusal: why.refusal,
            features: Vec::new(),
        }
    }

    fn running(explained: Explain, chosen: bool, system: &System) -> Started {
        Started {
            backend: explained.backend,
            starts: true,
            chosen,
            asynchronous: explained.backend != BLOCKING.name(),
            refusal: Refusal::default(),
            features: features(explained, system),
        }
    }

    /// Can I/O be asynchronous with it, here?
    pub(super) fn works_asynchronously(&self) -> bool {
        self.starts && self.asynchronous
    }

    /// Shows it.
    pub(super) fn add_rows(&self, table: &mut Table) {
        let state = self.refusal.sentence().unwrap_or_else(|| {
            let but = if self.asynchronous {
                ""
            } else {
                ", but blocks its caller"
            };
            let chosen = if self.chosen { ", and is chosen" } else { "" };
            format!("starts{but}{chosen}")
        });
        table.row([format!("backend {}", self.backend), state]);
        for feature in &self.features {
            let state = feature.refusal.sentence().unwrap_or_else(|| "yes".into());
            table.row([format!("  {}", feature.name), state]);
        }
    }
}

impl RejectedBackend {
    /// What to do to get it.
    pub(super) fn task(&self) -> Option<Task> {
        let because = self.refusal.cause.as_ref().or(self.refusal.reason.as_ref())?;
        let because = format!("{} does not work: {because}", verdict::shown(self.backend));
        Some(Task::new(because, self.refusal.cure.as_deref()?))
    }

    fn of(why: &Rejected, system: &System) -> RejectedBackend {
        RejectedBackend {
            backend: why.backend,
            refusal: Refusal::of(why.backend, why.reason.clone(), why.cure.clone(), system),
        }
    }
}

impl Feature {
    /// What to do to get it, where a setting of this machine refuses it: what only another kernel has is for nobody to do.
    pub(super) fn task(&self) -> Option<Task> {
        let because = format!("{} is refused: {}", self.name, self.refusal.cause.as_ref()?);
        Some(Task::new(because, self.refusal.cure.as_deref()?))
    }

    fn of(name: &'static str, had: Result<(), String>, system: &System) -> Feature {
        Feature {
            name,
            available: had.is_ok(),
            refusal: had
                .err()
                .map(|reason| Refusal::of(name, reason, None, system))
                .unwrap_or_default(),
        }
    }
}
