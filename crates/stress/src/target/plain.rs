//! Files and devices, straight through an engine: they are never opened as a volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_engine::{
    Caching, Create, Descriptions, Durability, Engine, Errno, File, Memory, Open, Policy, Rejected, Request,
    SetupError, Stats, Wait,
};
use baio_storage::{Error, Fault};

use super::{Ended, Target, config, told};
use crate::job::{Job, Lane, Objects};
use crate::schedule::Piece;

/// The files of one lane.
pub(crate) struct Plain {
    // Before the files: dropping it waits until the kernel has let go of them.
    engine: Engine,
    /// One an object; only those that the lane touches are open.
    files: Vec<Option<File>>,
    read: Policy,
    write: Policy,
}

impl Target for Plain {
    type Shared = ();

    fn share(_: &Job) -> Result<(), Failure> {
        Ok(())
    }

    fn open(job: &Job, lane: usize, _: &Arc<()>) -> Result<Plain, Failure> {
        let lane = &job.lanes[lane];
        let Objects::Files(paths) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a segment is no plain file"));
        };
        let mut engine = start(job, lane)?;
        let caching = job.mode.caching();
        let options = Open {
            write: job.writes(),
            descriptions: Descriptions::Only(match caching {
                // The two share a description.
                Caching::Uncached => Caching::Kernel,
                other => other,
            }),
            create: Create::Never,
            claim_device: false,
        };
        let touched = |object: usize| lane.streams.iter().any(|stream| stream.object == object);
        let mut files = Vec::with_capacity(paths.len());
        for (object, path) in paths.iter().enumerate() {
            let open = || {
                File::open(path, &options)
                    .map_err(|error| told(job, path, Error::new("open", path.display().to_string(), error)))
            };
            files.push(touched(object).then(open).transpose()?);
        }
        for file in files.iter().flatten() {
            engine.attach(file);
        }
        let policy = Policy {
            caching,
            ..Policy::default()
        };
        Ok(Plain {
            engine,
            files,
            read: policy,
            write: policy.durable(job.durability),
        })
    }

    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.engine.buffer(len).map(Memory::Own)
    }

    fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let Some(Some(file)) = self.files.get(piece.object) else {
            return Err(memory);
        };
        let request = if piece.write {
            Request::write(file, piece.offset, memory, self.write)
        } else {
            Request::read(file, piece.offset, memory, self.read)
        };
        match self.engine.submit(request.tagged(tag)) {
            Ok(_) => Ok(()),
            Err(request) => Err(request.memory),
        }
    }

    fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        self.engine.turn(wait).map(drop).map_err(Fault::Io)
    }

    fn next(&mut self) -> Option<Ended> {
        let completion = self.engine.next_completion()?;
        Some(Ended {
            tag: completion.tag,
            memory: completion.memory,
            result: completion.result.map_err(Fault::Io),
        })
    }

    fn sync(&mut self, object: usize, durability: Durability) -> Result<(), Fault> {
        let Some(Some(file)) = self.files.get(object) else {
            return Ok(());
        };
        let completion = self.engine.run(Request::sync(file, durability));
        completion.result.map(drop).map_err(Fault::Io)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn backend(&self) -> &'static str {
        self.engine.explain().backend
    }

    fn close(mut self) -> Result<(), Failure> {
        for file in self.files.iter().flatten() {
            self.engine.detach(file);
        }
        Ok(())
    }

    fn end(_: Arc<()>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Starts an engine. Locked memory that a ring has just given back counts for a moment longer; an ordinary user, who has
/// little of it, would then get a lesser backend than the one that made the file a moment ago.
fn start(job: &Job, lane: &Lane) -> Result<Engine, Failure> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(20);
    let config = config(job, lane);
    let short = |started: &Result<Engine, SetupError>| match started {
        Ok(engine) => engine.rejected().iter().any(is_short_of_memory),
        Err(error) => error.errno == Errno::ENOMEM,
    };
    let mut started = Engine::new(&config);
    for _ in 0..TRIES {
        if !short(&started) {
            break;
        }
        drop(started);
        std::thread::sleep(PAUSE);
        started = Engine::new(&config);
    }
    let engine = started.map_err(|error| {
        let error = Error::new("start", "the engine", error);
        Failure::from_storage(job.command, "the engine", &error)
    })?;
    tell_rejected(job, &engine);
    Ok(engine)
}

fn is_short_of_memory(rejected: &Rejected) -> bool {
    rejected.reason.starts_with(Errno::ENOMEM.name())
}

/// Nothing falls back silently; once is enough for all lanes.
fn tell_rejected(job: &Job, engine: &Engine) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if engine.rejected().is_empty() || TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    for rejected in engine.rejected() {
        let cure = rejected
            .cure
            .as_ref()
            .map_or_else(String::new, |cure| format!("; cure: {cure}"));
        diagnostics::say(format_args!(
            "baio: {}: not the {} backend: {}{cure}",
            job.command, rejected.backend, rejected.reason
        ));
    }
}
