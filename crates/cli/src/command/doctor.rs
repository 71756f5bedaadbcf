//! `baio doctor`: which backend works here, why not a better one, and the cure; and what a path can do.
//!
//! Everything is found out by doing it, with the flags that will be used, never by looking at a version.

mod place;

use std::io::{self, Write};

use baio_engine::{Config, Engine};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output::{Align, Answer, Table};
use place::Place;

/// What `doctor` shows.
#[derive(Serialize)]
pub(crate) struct Diagnosis {
    backend: &'static str,
    rejected: Vec<RejectedBackend>,
    features: Vec<Feature>,
    kernel: String,
    uid: u32,
    path: Option<Place>,
}

/// A better backend that does not work here.
#[derive(Serialize)]
struct RejectedBackend {
    backend: &'static str,
    reason: String,
    cure: Option<String>,
}

/// Something that the chosen backend has, or would like to have.
#[derive(Serialize)]
struct Feature {
    name: &'static str,
    available: bool,
    reason: Option<String>,
}

/// Looks around.
pub(crate) fn run(args: DoctorArgs) -> Result<Diagnosis, Failure> {
    let config = Config {
        arena_bytes: 1 << 20,
        // Only what was asked for can be found refused.
        register_arena: true,
        ..Config::default()
    };
    let mut engine = Engine::new(&config).map_err(|error| {
        let error = baio_storage::Error::new("start", "the engine", error);
        Failure::from_storage("doctor", "the engine", &error)
    })?;
    let path = args.path.map(|path| Place::examine(&mut engine, &path)).transpose()?;
    let explained = engine.explain();
    Ok(Diagnosis {
        backend: explained.backend,
        rejected: engine.rejected().iter().map(RejectedBackend::from).collect(),
        features: explained.features.into_iter().map(Feature::from).collect(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        path,
    })
}

impl From<&baio_engine::Rejected> for RejectedBackend {
    fn from(rejected: &baio_engine::Rejected) -> RejectedBackend {
        RejectedBackend {
            backend: rejected.backend,
            reason: rejected.reason.clone(),
            cure: rejected.cure.clone(),
        }
    }
}

impl From<(&'static str, Result<(), String>)> for Feature {
    fn from((name, had): (&'static str, Result<(), String>)) -> Feature {
        Feature {
            name,
            available: had.is_ok(),
            reason: had.err(),
        }
    }
}

impl Answer for Diagnosis {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row(["backend", self.backend]);
        table.row(["kernel", &self.kernel]);
        table.row(["uid", &self.uid.to_string()]);
        for rejected in &self.rejected {
            table.row([format!("not {}", rejected.backend), rejected.sentence()]);
        }
        for feature in &self.features {
            let state = feature
                .reason
                .as_ref()
                .map_or("yes".to_owned(), |why| format!("no: {why}"));
            table.row([feature.name.to_owned(), state]);
        }
        if let Some(place) = &self.path {
            place.add_rows(&mut table);
        }
        table.write(out)
    }
}

impl RejectedBackend {
    fn sentence(&self) -> String {
        match &self.cure {
            Some(cure) => format!("{}; cure: {cure}", self.reason),
            None => self.reason.clone(),
        }
    }
}
