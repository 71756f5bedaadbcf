//! Files and devices, straight through an engine: they are never opened as a volume.

use baio_engine::{
    Caching, Create, Descriptions, Durability, Engine, File, Memory, Open, Policy, Request, Stats, Wait,
};
use baio_storage::{Error, Fault};

use super::{Ended, Target, config, told};
use crate::failure::Failure;
use crate::stress::job::{Job, Lane, Objects};
use crate::stress::schedule::Piece;

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
    fn open(job: &Job, lane: &Lane) -> Result<Plain, Failure> {
        let Objects::Files(paths) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a segment is no plain file"));
        };
        let mut engine = Engine::new(&config(job, lane)).map_err(|error| {
            let error = Error::new("start", "the engine", error);
            Failure::from_storage(job.command, "the engine", &error)
        })?;
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
}
