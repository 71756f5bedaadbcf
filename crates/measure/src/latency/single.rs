//! One request at a time: what ioping does, with the points of the distribution and a histogram.

use std::io::{self, Write};
use std::time::Instant;

use baio_console::failure::Failure;
use baio_console::interrupt::{self, Interrupt};
use baio_console::size::format_size;
use baio_engine::{Durability, Wait};
use baio_stress::{Ground, Latency, Manner, Random, Recorder, Subject, Wish};
use serde::Serialize;
use serde_json::Value;

use super::args::LatencyArgs;
use super::below::{self, Below};
use super::show::{self, Bucket};
use super::{COMMAND, SIZE_DEFAULT, Shown};

/// What came out.
#[derive(Serialize)]
pub(crate) struct Told {
    target: String,
    operation: &'static str,
    request_size: u64,
    size_bytes: u64,
    mode: &'static str,
    durability: &'static str,
    backend: &'static str,
    below: Below,
    /// Requests that were counted; one before them was not.
    requests: u64,
    errors: u64,
    latency_us: Latency,
    histogram: Vec<Bucket>,
    /// The signal that ended it before all requests were made.
    ended_early: Option<Interrupt>,
    /// The first request that failed, which ended the run.
    first_error: Option<Value>,
}

pub(super) fn run(args: &LatencyArgs) -> Result<Told, Failure> {
    if args.durable && !args.write {
        return Err(Failure::usage(COMMAND, "a read makes nothing durable")
            .on("--durable")
            .needing("--write")
            .cured_by("leave out --durable, or add --write"));
    }
    let ground = Ground::prepare(&Wish {
        command: COMMAND,
        target: &args.target,
        write: args.write,
        force: args.force,
        request_size: args.request_size.map(|size| size.bytes()),
        request_size_default: 4096,
        requests: 1,
        bytes_min: 0,
        size: args.size.map(|size| size.bytes()),
        size_default: SIZE_DEFAULT,
    })?;
    let durability = if args.durable {
        Durability::Data
    } else {
        Durability::None
    };
    let mut subject = ground.open(Manner {
        backend: args.backend,
        durability,
        depth: 1,
    })?;
    let backend = subject.backend();
    let mut recorder = Recorder::new();
    let ended = requests(args, &ground, &mut subject, &mut recorder);
    let ended_early = interrupt::came();
    let closed = subject.close();
    let failed = ended?;
    closed?;
    Ok(Told {
        target: args.target.to_string(),
        operation: if args.write { "write" } else { "read" },
        request_size: ground.request_size,
        size_bytes: ground.size,
        mode: ground.mode(),
        durability: below::name(durability),
        backend,
        below: Below::look(&ground),
        requests: recorder.count(),
        errors: u64::from(failed.is_some()),
        latency_us: recorder.latency(),
        histogram: show::histogram(&recorder),
        ended_early,
        first_error: failed.map(|failure| {
            failure.tell();
            failure.to_json()["error"].take()
        }),
    })
}

/// Makes them one after the other, until a signal comes, and gives the first failure, which ends it.
fn requests(
    args: &LatencyArgs,
    ground: &Ground,
    subject: &mut Subject,
    recorder: &mut Recorder,
) -> Result<Option<Failure>, Failure> {
    let mut random = Random::new(u64::from(std::process::id()));
    // The first pays for whatever is done only once.
    for number in 0..=args.count {
        if interrupt::came().is_some() {
            break;
        }
        let offset = random.below(ground.size / ground.request_size) * ground.request_size;
        let Some(memory) = subject.buffer() else {
            return Err(Failure::new(COMMAND, "ENOMEM", "no buffer came back"));
        };
        let begun = Instant::now();
        if subject.start(args.write, offset, memory, 0).is_err() {
            return Err(Failure::new(COMMAND, "EAGAIN", "every slot is taken"));
        }
        let reply = loop {
            subject.turn(Wait::one())?;
            if let Some(reply) = subject.next_reply() {
                break reply;
            }
        };
        let latency = begun.elapsed();
        subject.give_back(reply.memory);
        if let Some(failure) = subject.failure_of(args.write, offset, reply.result) {
            return Ok(Some(failure));
        }
        if number > 0 {
            recorder.record(latency);
        }
        if number < args.count && !args.interval.is_zero() {
            interrupt::pause(args.interval);
        }
    }
    Ok(None)
}

impl Shown for Told {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let durable = match self.durability {
            "none" => String::new(),
            level => format!("{level}-durable "),
        };
        writeln!(
            out,
            "{}: {} {durable}{}s of {}, {}, {} ({}): {}",
            self.target,
            self.requests,
            self.operation,
            format_size(self.request_size),
            super::mode(self.mode),
            self.backend,
            self.below.sentence(),
            show::points(&self.latency_us),
        )?;
        show::write_histogram(&self.histogram, out)
    }

    fn errors(&self) -> u64 {
        self.errors
    }

    fn ended_early(&self) -> Option<Interrupt> {
        self.ended_early
    }
}
