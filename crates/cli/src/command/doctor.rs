//! `baio doctor`: which backend works here, why not a better one, and the cure; and what a path can do.
//!
//! It tries each thing, with the flags that will be used, and never judges by a version. What the system says about itself (limits,
//! settings, the queue of a device) only explains the result. It writes to nothing that exists.
//!
//! | file | tells |
//! |---|---|
//! | `verdict.rs` | whether it is well here, in one sentence, and what to do |
//! | `backends.rs` | whether each backend starts here |
//! | `lacks.rs` | what a newer kernel would give |
//! | `system.rs` | settings and limits, and which of them is to blame |
//! | `place.rs` | what a path is and can do |
//! | `modes.rs` | what each caching mode really is there |
//! | `mount`, `device` of `baio-console` | the file system and the device below |
//! | `extents.rs` | space that was preallocated and never written |

mod backends;
mod extents;
mod lacks;
mod modes;
mod place;
mod system;
mod verdict;

use std::io::{self, Write};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table};
use serde::Serialize;

use crate::args::DoctorArgs;
use backends::{Feature, RejectedBackend, Started};
use lacks::Lack;
use place::Place;
use system::System;
use verdict::Task;

/// What `doctor` shows.
#[derive(Serialize)]
pub(crate) struct Diagnosis {
    /// Is it well here? In one sentence, for people.
    verdict: String,
    /// What an administrator should do.
    to_do: Vec<Task>,
    /// The one that an application gets.
    backend: &'static str,
    /// Does any backend work that does not block its caller?
    asynchronous: bool,
    /// The better ones that it does not get.
    rejected: Vec<RejectedBackend>,
    /// What the chosen one has, and what it could not have.
    features: Vec<Feature>,
    /// Every backend, the best first.
    backends: Vec<Started>,
    kernel: String,
    /// What this kernel was found to lack, and what is done instead.
    kernel_lacks: Vec<Lack>,
    uid: u32,
    system: System,
    path: Option<Place>,
    /// Show all of it, or what most people want to know?
    #[serde(skip)]
    is_verbose: bool,
}

/// Looks around.
pub(crate) fn run(args: DoctorArgs) -> Result<Diagnosis, Failure> {
    let mut engine = backends::start_best().map_err(|error| {
        let error = baio::Error::new("start", "the engine", error);
        Failure::from_storage("doctor", "the engine", &error)
    })?;
    // Before anything else takes its share of what is counted there.
    let system = System::look();
    let path = args.path.as_deref();
    let path = path
        .map(|path| Place::examine(&mut engine, path, system.release()))
        .transpose()?;
    let backends = backends::try_all(&engine, &system);
    let explained = engine.explain();
    let mut diagnosis = Diagnosis {
        verdict: String::new(),
        to_do: Vec::new(),
        backend: explained.backend,
        asynchronous: backends.iter().any(Started::works_asynchronously),
        rejected: backends::rejected(&engine, &system),
        features: backends::features(explained, &system),
        backends,
        kernel: system.release().to_owned(),
        kernel_lacks: lacks::found(),
        uid: rustix::process::geteuid().as_raw(),
        system,
        path,
        is_verbose: args.verbose,
    };
    diagnosis.to_do = verdict::tasks(&diagnosis);
    diagnosis.verdict = verdict::sentence(
        diagnosis.backend,
        diagnosis.asynchronous,
        diagnosis.has_broken_volume(),
        &diagnosis.to_do,
    );
    Ok(diagnosis)
}

impl Diagnosis {
    fn has_broken_volume(&self) -> bool {
        self.path.as_ref().is_some_and(Place::is_broken_volume)
    }
}

impl Answer for Diagnosis {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        verdict::write(&self.verdict, &self.to_do, out)?;
        let mut table = Table::without_headings(&[Align::Left, Align::Left]);
        table.row([
            "backend",
            &format!("{} ({})", self.backend, verdict::shown(self.backend)),
        ]);
        if !self.is_verbose {
            table.row(["kernel", &self.kernel]);
            lacks::add_outline(&self.kernel_lacks, &mut table);
            match &self.path {
                Some(place) => place.add_outline(&mut table),
                None => lacks::add_untried(&self.kernel_lacks, &mut table),
            }
            table.write(out)?;
            return writeln!(out, "baio doctor --verbose shows more.");
        }
        for started in &self.backends {
            started.add_rows(&mut table);
        }
        self.system.add_rows(&mut table);
        lacks::add_rows(&self.kernel_lacks, &mut table);
        if self.path.is_none() {
            lacks::add_untried(&self.kernel_lacks, &mut table);
        }
        table.row(["uid", &self.uid.to_string()]);
        if let Some(place) = &self.path {
            place.add_rows(&mut table);
        }
        table.write(out)
    }

    fn exit_status(&self) -> ExitStatus {
        if self.asynchronous && !self.has_broken_volume() {
            ExitStatus::Success
        } else {
            ExitStatus::Failed
        }
    }
}
