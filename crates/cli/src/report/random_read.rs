//! 4 KiB random direct reads of one segment: the library at depths 1, 16 and 64, against blocking threads on the same bytes
//! and against fio, in turn. Each side is a whole process, its processor time from `wait4`.

use std::path::PathBuf;

use baio::{Access, Config, CreateOptions, Durability, Format, Identity, Link, Local, Options, SegmentOp, Wait};

use crate::failure::Failure;
use crate::measure::fio;
use crate::measure::worker::{self, Job};
use crate::report::comparison::{Comparison, Findings, Peer, Side};
use crate::report::{Section, Setting, storage_failure};
use crate::stress::pattern::Random;

const REQUEST: u64 = 4096;
const OWNER: u32 = 1001;
const NAME: &str = "pages";

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let path = setting.dir.join("pages.img");
    let bytes = if setting.quick { 256 << 20 } else { 1 << 30 };
    let (offset, len) = prepare(&path, bytes)?;
    let (runtime, rounds) = setting.measuring();
    let runtime_ms = runtime.as_millis() as u64;
    let have_fio = fio::version().is_some();
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, {rounds} rounds of {runtime_ms} ms a side, median of the ratios",
        bytes >> 20
    ));
    findings
        .lines
        .push("pread: blocking threads, each in a loop of O_DIRECT pread(2) at random blocks of the same bytes".into());
    if !have_fio {
        findings.skip("the comparison with fio", "fio is not installed");
    }
    for depth in [1, 16, 64] {
        let comparison = comparison(&path, offset, len, depth, runtime, have_fio);
        findings.compare(&comparison, rounds)?;
    }
    Ok(Section::of(findings))
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
        let side = Side {
            name: format!("{depth} pread thread{}", if depth == 1 { "" } else { "s" }),
            command: worker::command_line(&pread),
            run: Box::new(move || worker::run(&pread)),
        };
        peers.push(Peer::new(side, &[]));
    }
    if have_fio {
        let path = path.to_owned();
        let side = Side {
            name: "fio io_uring".into(),
            command: fio_job(&path, offset, len, depth, runtime).command_line(),
            run: Box::new(move || fio::run(&fio_job(&path, offset, len, depth, runtime))),
        };
        peers.push(Peer::new(side, &[]));
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
