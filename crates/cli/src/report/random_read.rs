//! 4 KiB random direct reads of one segment: the library at depths 1, 16 and 64, against blocking threads on the same bytes
//! and against fio, in turn. Each side is a whole process, its processor time from `wait4`.

use std::path::PathBuf;

use baio::{Access, Config, CreateOptions, Durability, Format, Identity, Link, Local, Options, SegmentOp, Wait};
use serde_json::json;

use crate::failure::Failure;
use crate::measure::worker::{self, Job};
use crate::measure::{Measurement, fio, median};
use crate::report::{Section, Setting, storage_failure};
use crate::stress::pattern::Random;

const REQUEST: u64 = 4096;
const OWNER: u32 = 1001;
const NAME: &str = "pages";

/// A way to read, and what it is compared with.
struct Side {
    name: String,
    /// What a shell would be given to run it.
    command: String,
    run: Box<dyn Fn() -> Result<Measurement, String>>,
}

/// Ours, and the peers that run in turn with it.
struct Comparison {
    ours: Side,
    peers: Vec<Side>,
}

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let path = setting.dir.join("pages.img");
    let bytes = if setting.quick { 256 << 20 } else { 1 << 30 };
    let (offset, len) = prepare(&path, bytes)?;
    let (runtime, rounds) = setting.measuring();
    let runtime_ms = runtime.as_millis() as u64;
    let have_fio = fio::version().is_some();
    let mut lines = vec![format!(
        "working set {} MiB, {rounds} rounds of {runtime_ms} ms a side, median of the ratios",
        bytes >> 20
    )];
    let mut parts = Vec::new();
    lines
        .push("pread: blocking threads, each in a loop of O_DIRECT pread(2) at random blocks of the same bytes".into());
    if !have_fio {
        lines.push("skipped: the comparison with fio, because fio is not installed".into());
    }
    let mut errors = 0;
    for depth in [1, 16, 64] {
        let comparison = comparison(&path, offset, len, depth, runtime, have_fio);
        let runs = in_turn(&comparison, rounds).map_err(|error| Failure::new("report", "EIO", error))?;
        report(&comparison, &runs, &mut lines, &mut parts);
        let all = runs.iter().flat_map(|(ours, peers)| peers.iter().chain([ours]));
        errors += all.map(|run| run.errors).sum::<u64>();
    }
    if errors > 0 {
        lines.push(format!("{errors} REQUESTS FAILED: these figures mean nothing"));
    }
    Ok(Section {
        name: "",
        shows: "",
        lines,
        verified: errors == 0,
        parts,
        seconds: 0.0,
    })
}

/// A volume with one segment full of noise. Returns where its bytes lie in the volume's file.
fn prepare(path: &PathBuf, bytes: u64) -> Result<(u64, u64), Failure> {
    let format = Format {
        size_bytes: Some(bytes + (64 << 20)),
        ..Format::default()
    };
    baio::format(path, &format).map_err(storage_failure)?;
    let identity = Identity { uid: OWNER, gid: OWNER };
    let config = Config {
        arena_bytes: 16 << 20,
        ..Config::default()
    };
    let volume = Local::open_with(path, &Options { identity, config }).map_err(storage_failure)?;
    volume
        .create_segment(NAME, &CreateOptions::of_size(bytes))
        .map_err(storage_failure)?;
    let segment = volume.open_segment(NAME, Access::Write).map_err(storage_failure)?;
    let mut random = Random::new(1);
    let (mut at, mut under_way) = (0, 0);
    while at < bytes || under_way > 0 {
        while at < bytes && under_way < 8 {
            let mut buffer = segment.buffer(1 << 20).map_err(storage_failure)?;
            for word in buffer.chunks_exact_mut(8) {
                word.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
            }
            let request = segment.request(SegmentOp::Write { offset: at }, buffer);
            volume
                .start(request)
                .map_err(|_| Failure::new("report", "EAGAIN", "every slot is taken"))?;
            at += 1 << 20;
            under_way += 1;
        }
        volume.turn(Wait::one()).map_err(storage_failure)?;
        while let Some(outcome) = volume.next_outcome() {
            outcome.result.map_err(storage_failure)?;
            under_way -= 1;
        }
    }
    let synced = volume
        .block_on(segment.sync(Durability::Data))
        .map_err(storage_failure)?;
    synced.result.map_err(storage_failure)?;
    let info = volume.info().map_err(storage_failure)?;
    let offset = info.data_at_bytes + segment.info().start_block * u64::from(info.block_size);
    drop(segment);
    volume.close().map_err(storage_failure)?;
    Ok((offset, bytes))
}

fn fio_job(path: &std::path::Path, offset: u64, len: u64, depth: u32, runtime: std::time::Duration) -> fio::Job<'_> {
    fio::Job {
        path,
        offset,
        len,
        request_size: REQUEST,
        depth,
        runtime,
    }
}

fn comparison(
    path: &std::path::Path,
    offset: u64,
    len: u64,
    depth: u32,
    runtime: std::time::Duration,
    have_fio: bool,
) -> Comparison {
    let runtime_ms = runtime.as_millis() as u64;
    let ours = Job::Segment {
        volume: path.to_owned(),
        owner_uid: OWNER,
        name: NAME.to_owned(),
        request_size: REQUEST,
        depth,
        runtime_ms,
    };
    let mut peers = Vec::new();
    // One request at a time is compared with one thread, many with as many threads.
    if matches!(depth, 1 | 64) {
        let pread = Job::Pread {
            path: path.to_owned(),
            offset,
            len,
            request_size: REQUEST,
            threads: depth,
            runtime_ms,
        };
        peers.push(Side {
            name: format!("{depth} pread thread{}", if depth == 1 { "" } else { "s" }),
            command: worker::command_line(&pread),
            run: Box::new(move || worker::run(&pread)),
        });
    }
    if have_fio {
        let path = path.to_owned();
        peers.push(Side {
            name: "fio io_uring".into(),
            command: fio_job(&path, offset, len, depth, runtime).command_line(),
            run: Box::new(move || fio::run(&fio_job(&path, offset, len, depth, runtime))),
        });
    }
    Comparison {
        ours: Side {
            name: format!("segment, depth {depth}"),
            command: worker::command_line(&ours),
            run: Box::new(move || worker::run(&ours)),
        },
        peers,
    }
}

/// Ours, peer, ours, peer: A B A B for each peer, so that the machine's drift meets both.
fn in_turn(comparison: &Comparison, rounds: usize) -> Result<Vec<(Measurement, Vec<Measurement>)>, String> {
    (0..rounds)
        .map(|_| {
            let ours = (comparison.ours.run)()?;
            let peers = comparison
                .peers
                .iter()
                .map(|peer| (peer.run)())
                .collect::<Result<_, _>>()?;
            Ok((ours, peers))
        })
        .collect()
}

fn report(
    comparison: &Comparison,
    runs: &[(Measurement, Vec<Measurement>)],
    lines: &mut Vec<String>,
    parts: &mut Vec<serde_json::Value>,
) {
    let middle =
        |pick: &dyn Fn(&Measurement) -> f64| median(&runs.iter().map(|(ours, _)| pick(ours)).collect::<Vec<_>>());
    lines.push(format!(
        "{}: {:.0} requests/s, {:.2} us CPU and {:.2} system calls a request, p50 {:.0} us, p99 {:.0} us",
        comparison.ours.name,
        middle(&|m| m.iops),
        middle(&|m| m.cpu_us_per_request),
        middle(&|m| m.system_calls_per_request.unwrap_or(0.0)),
        middle(&|m| m.latency_us.p50.unwrap_or(f64::NAN)),
        middle(&|m| m.latency_us.p99.unwrap_or(f64::NAN)),
    ));
    let mut against = Vec::new();
    for (index, peer) in comparison.peers.iter().enumerate() {
        let ratio = |pick: &dyn Fn(&Measurement) -> f64| {
            let ratios: Vec<f64> = runs
                .iter()
                .map(|(ours, peers)| pick(ours) / pick(&peers[index]))
                .collect();
            median(&ratios)
        };
        let throughput = ratio(&|m| m.iops);
        let cpu = ratio(&|m| m.cpu_us_per_request);
        lines.push(format!(
            "  against {}: {throughput:.2} of its requests/s at {cpu:.2} of its CPU a request",
            peer.name
        ));
        lines.push(format!("    {}", peer.command));
        let peer_runs: Vec<_> = runs.iter().map(|(_, peers)| &peers[index]).collect();
        against.push(json!({
            "peer": peer.name,
            "command": peer.command,
            "iops_ratio": throughput,
            "cpu_ratio": cpu,
            "runs": peer_runs,
        }));
    }
    let ours: Vec<_> = runs.iter().map(|(ours, _)| ours).collect();
    parts.push(json!({
        "part": comparison.ours.name,
        "command": comparison.ours.command,
        "runs": ours,
        "against": against,
    }));
}
