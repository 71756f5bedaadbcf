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
//! | `stream.rs` | records gathered into batches, for the peers |
//! | `thread.rs` | peers with a thread that writes: write and fdatasync, or one direct data-synchronous write |
//! | `queue.rs` | peers without one: the submitting thread posts batches itself, by libaio or POSIX AIO |
//! | `sys.rs` | the calls of these two |
//! | `load.rs` | closed loop with one thread or many, open loop |
//! | `show.rs` | what came out |

use std::path::Path;

use baio_console::failure::Failure;
use baio_stress::{Ground, Wish};

use super::COMMAND;
use super::args::LatencyArgs;
use super::below::Below;

mod appender;
pub(super) mod args;
mod load;
mod queue;
mod show;
mod stream;
mod sys;
mod thread;

use args::Peer;
use load::{Load, Loaded};
pub(super) use show::Told;

/// Bytes of a file that is made.
const SIZE_DEFAULT: u64 = 256 << 20;

/// Where a side writes.
#[derive(Clone, Copy, Debug)]
struct Area<'a> {
    path: &'a Path,
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
    if let Some(peer) = args.log.peers.iter().find(|peer| !peer.takes(&load)) {
        let said = "it has no thread of its own, so one thread alone can append";
        return Err(Failure::usage(COMMAND, said)
            .on(format!("--peer {}", peer.name()))
            .needing("--waiting or --rate")
            .cured_by("leave out --threads, or name a peer with a thread"));
    }
    let ground = Ground::prepare(&Wish {
        command: COMMAND,
        target: &args.target,
        write: true,
        force: args.force,
        request_size: None,
        request_size_default: 512,
        // Room for a few batches.
        requests: 4 * stream::batch_bytes(record as usize) as u64 / 512,
        size: args.size.map(|size| size.bytes()),
        size_default: SIZE_DEFAULT,
    })?;
    if ground.is_segment() {
        return Err(Failure::usage(COMMAND, "the peers write to files and devices alone")
            .on(args.target.to_string())
            .needing("a file or a device")
            .cured_by("name a file"));
    }
    let area = Area {
        path: &ground.path,
        size: ground.size / ground.request_size * ground.request_size,
        block: ground.request_size,
        record: record as usize,
    };
    let rounds = args.log.rounds.unwrap_or(if args.log.peers.len() > 1 { 3 } else { 1 });
    let mut sides: Vec<(Peer, Vec<Loaded>)> = args.log.peers.iter().map(|&peer| (peer, Vec::new())).collect();
    for _ in 0..rounds {
        for (peer, measured) in &mut sides {
            measured.push(one(*peer, area, load).map_err(|said| failed(*peer, &args.target.to_string(), said))?);
        }
    }
    Ok(Told::of(args, load, Below::look(&ground), sides))
}

/// One round of one side, from its beginning to its end.
fn one(peer: Peer, area: Area<'_>, load: Load) -> Result<Loaded, String> {
    match peer {
        Peer::ThreadFdatasync | Peer::ThreadDirect => {
            let writer = thread::Writer::start(area, peer == Peer::ThreadDirect)?;
            let loaded = match load {
                Load::Threads { .. } => load.by_many(&writer, area.record),
                _ => load.by_one(&writer, area.record),
            };
            finish(loaded, writer.end())
        }
        Peer::Libaio => by_queue(sys::Native::new(area.path)?, area, load),
        Peer::PosixAio => by_queue(sys::Posix::new(area.path)?, area, load),
    }
}

fn by_queue(calls: impl sys::Calls, area: Area<'_>, load: Load) -> Result<Loaded, String> {
    let queue = queue::Queue::new(calls, area)?;
    let loaded = load.by_one(&queue, area.record);
    finish(loaded, queue.end())
}

/// The failure of the load is the first; the batches are known at the end.
fn finish(loaded: Result<Loaded, String>, batches: Result<stream::Batches, String>) -> Result<Loaded, String> {
    let mut loaded = loaded?;
    loaded.batches = batches?;
    Ok(loaded)
}

fn failed(peer: Peer, target: &str, said: String) -> Failure {
    Failure::new(COMMAND, "EIO", format!("{}: {said}", peer.name()))
        .on(target)
        .needing("a target to which this peer can append")
        .cured_by("leave this --peer out, or see what the system says of the target")
}
