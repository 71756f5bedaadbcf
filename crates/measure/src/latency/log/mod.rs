//! Appending small records that must be durable, and be known to be: seed 002's question. "A dedicated thread pulling transactions off a
//! queue and doing the blocking synchronous writes ... can easily max out any real device's bandwidth, but incurs more latency than should
//! be absolutely needed due to the extra context switching."
//!
//! A *side* is somebody who takes appends. All are loaded in the same way, by the same code, in turn: A B A B, the median of the rounds.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `appender.rs` | what a side must do |
//! | `own.rs` | our own log, in the thread that appends or behind a service |
//! | `stream.rs` | records gathered into batches, for the peers |
//! | `thread.rs` | peers with a thread that writes: write and fdatasync, or one direct data-synchronous write |
//! | `bare.rs` | a peer that keeps no log: one write for each record |
//! | `load.rs` | closed loop with one thread or many, open loop |
//! | `show.rs` | what came out |

use std::path::Path;

use baio::{Local, LogOptions, Remote};
use baio_console::failure::Failure;
use baio_console::interrupt;
use baio_engine::Choice;
use baio_stress::{Ground, Wish};

use super::COMMAND;
use super::args::LatencyArgs;
use super::below::Below;

mod appender;
pub(super) mod args;
mod bare;
mod load;
mod own;
mod show;
mod stream;
mod thread;

use args::{LogArgs, Peer};
use load::{Kind, Load, Loaded};
pub(super) use show::Told;

/// Bytes of a file that is made.
const SIZE_DEFAULT: u64 = 256 << 20;

/// Where a side writes.
#[derive(Clone, Copy, Debug)]
struct Area<'a> {
    path: &'a Path,
    /// Of a segment, whose volume `path` is: the owner and the name.
    segment: Option<(u32, &'a str)>,
    /// Bytes of it; behind the last one a side begins again at the first.
    size: u64,
    /// Direct writes are whole blocks of so many bytes.
    block: u64,
    /// Bytes of each record, without what a side adds.
    record: usize,
}

pub(super) fn run(args: &LatencyArgs) -> Result<Told, Failure> {
    let record = args.log.record_size.bytes();
    let load = Load::of(&args.log);
    let who = Who::all(&args.log, &load);
    let refused = |who: &Who| Some((who.name(), who.refusal(&load)?));
    if let Some((name, [said, need, cure])) = who.iter().find_map(refused) {
        let refusal = Failure::usage(COMMAND, said).on(format!("--peer {name}"));
        return Err(refusal.needing(need).cured_by(cure));
    }
    let options = log_options(&args.log)?;
    let ground = Ground::prepare(&Wish {
        command: COMMAND,
        target: &args.target,
        force: args.force,
        request_size: None,
        requests: 1,
        // Room for a few batches.
        bytes_min: 4 * stream::batch_bytes(record as usize) as u64,
        size: args.size.map(|size| size.bytes()),
        size_default: SIZE_DEFAULT,
    })?;
    if ground.segment().is_some() && !args.log.peers.is_empty() {
        return Err(Failure::usage(COMMAND, "the peers write to files and devices alone")
            .on(args.target.to_string())
            .needing("a file or a device, or --log alone")
            .cured_by("name a file, or leave out --peer"));
    }
    let area = Area {
        path: &ground.path,
        segment: ground.segment(),
        size: ground.size / ground.request_size * ground.request_size,
        block: ground.request_size,
        record: record as usize,
    };
    let rounds = args.log.rounds.unwrap_or(if who.len() > 1 { 3 } else { 1 });
    let mut sides: Vec<(Who, Vec<Loaded>)> = who.into_iter().map(|who| (who, Vec::new())).collect();
    for _ in 0..rounds {
        for (who, measured) in &mut sides {
            if interrupt::came().is_some() {
                break;
            }
            let one = who.load(area, load, args.backend.into(), &options);
            let one = one.map_err(|said| failed(*who, &args.target.to_string(), said))?;
            // A round that a signal ended before it counted anything says nothing.
            measured.extend((one.tally.latency.count() > 0 || interrupt::came().is_none()).then_some(one));
        }
    }
    sides.retain(|(_, measured)| !measured.is_empty());
    let has_log = matches!(sides.first(), Some((Who::Log | Who::LogService, _)));
    let sides: Vec<_> = sides.into_iter().map(|(who, rounds)| (who.name(), rounds)).collect();
    Ok(Told::of(args, load, Below::look(&ground), &sides, has_log))
}

/// Our log, as it is asked for; what it does not take it refuses itself.
fn log_options(args: &LogArgs) -> Result<LogOptions, Failure> {
    if args.gather >= args.runtime {
        return Err(Failure::usage(COMMAND, "no batch would be written while it runs")
            .on("--gather")
            .needing("less than --runtime")
            .cured_by("name a shorter time, or a longer --runtime"));
    }
    let mut options = LogOptions {
        gather: args.gather,
        window_short: args.window_short.unwrap_or(0),
        ..LogOptions::default()
    };
    if let Some(window) = args.window {
        options.window = window;
    }
    if let Some(size) = args.batch_max {
        options.batch_bytes_max = u32::try_from(size.bytes()).map_err(|_| {
            Failure::usage(COMMAND, "a batch is not so long")
                .on("--batch-max")
                .needing("a multiple of 4096 bytes, up to 16M")
                .cured_by("name a shorter one")
        })?;
    }
    Ok(options)
}

/// A side.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// Our log, driven by whoever appends.
    Log,
    /// Our log behind a service.
    LogService,
    Peer(Peer),
}

impl Who {
    /// Those that are asked for, the log first.
    fn all(args: &LogArgs, load: &Load) -> Vec<Who> {
        let of_many = matches!(load.kind, Kind::Threads(_));
        let log = match args.service || of_many {
            true => Who::LogService,
            false => Who::Log,
        };
        let peers = args.peers.iter().copied().map(Who::Peer);
        args.log.then_some(log).into_iter().chain(peers).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Who::Log => "log",
            Who::LogService => "log-service",
            Who::Peer(peer) => peer.name(),
        }
    }

    /// Why it cannot be loaded so, if it cannot; what it needs, and what to do.
    fn refusal(self, load: &Load) -> Option<[&'static str; 3]> {
        let is_bare = matches!(self, Who::Peer(Peer::Bare));
        let one_thread_only = is_bare || matches!(self, Who::Log);
        match load.kind {
            Kind::Threads(_) if one_thread_only => Some([
                "it has no thread of its own, so one thread alone can append",
                "--waiting or --rate",
                "leave out --threads, or name a peer with a thread",
            ]),
            Kind::Waiting(2..) if is_bare => Some([
                "it writes one record at a time",
                "--waiting 1 or --rate",
                "add --waiting 1, or leave this peer out",
            ]),
            _ => None,
        }
    }

    /// One round, from its beginning to its end.
    fn load(self, area: Area<'_>, load: Load, backend: Choice, options: &LogOptions) -> Result<Loaded, String> {
        // The batches are known at the end. A load that failed has none: nothing is waited for then.
        let (loaded, batches) = match self {
            Who::Log => {
                let log = own::Own::<Local>::create(area, backend, options)?;
                (load.by_one(&log, area.record)?, log.end()?)
            }
            Who::LogService => {
                let log = own::Own::<Remote>::create(area, backend, options)?;
                (load.by_many(&log, area.record)?, log.end()?)
            }
            Who::Peer(peer @ (Peer::ThreadFdatasync | Peer::ThreadDirect)) => {
                let writer = thread::Writer::start(area, peer == Peer::ThreadDirect)?;
                (load.by_many(&writer, area.record)?, writer.end()?)
            }
            Who::Peer(Peer::Bare) => {
                let bare = bare::Bare::new(area)?;
                (load.by_one(&bare, area.record)?, bare.end())
            }
        };
        Ok(Loaded { batches, ..loaded })
    }
}

fn failed(who: Who, target: &str, said: String) -> Failure {
    Failure::new(COMMAND, "EIO", format!("{}: {said}", who.name()))
        .on(target)
        .needing("a target to which it can append")
        .cured_by("leave this side out, or see what the system says of the target")
}
