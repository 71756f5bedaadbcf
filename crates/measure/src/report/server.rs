//! Seed 001 §9: disk and communications in one loop. A server answers many connections and reads a block of the disk for each
//! message, as our engine lets it, with sockets and disk in one queue; and as it is done otherwise, by epoll and a pool of threads that block
//! in pread(2).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use baio_console::failure::Failure;

use crate::figures::worker;
use crate::figures::worker::server::{BLOCK, Server};
use crate::report::Setting;
use crate::report::comparison::{Findings, Peer, Side};
use crate::report::files::settle;
use crate::report::marks::{Figure, Mark, cpu, rate};
use crate::report::places::Site;

const BYTES: u64 = 64 << 20;

/// Connections at which the marks are.
const MARKED: u32 = 64;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.either((Duration::from_millis(300), 1), (Duration::from_millis(400), 5));
    let bytes = BYTES.min(setting.working_set);
    let file = Site::file(setting, "server", bytes)?;
    let blocks = bytes / BLOCK as u64;
    number(&file.path, blocks).map_err(|error| {
        Failure::new("report", "EIO", error)
            .on(file.path.display().to_string())
            .needing("room for a working file")
            .cured_by("name another directory by --dir")
    })?;
    findings.lines.push(format!(
        "a direct read of 4 KiB of {} MiB for each message of N connections, each from a client that waits for its answer; {rounds} \
         rounds of {} ms a side, median of the ratios; processor time is the server's",
        bytes >> 20,
        runtime.as_millis()
    ));
    let swept: &[u32] = setting.either(&[4, MARKED], &[1, 4, 16, MARKED, 256]);
    for &connections in swept {
        let side = |name: String, pool| {
            let job = worker::Job::Server(Server {
                path: file.path.clone(),
                blocks,
                connections,
                runtime_ms: runtime.as_millis() as u64,
                pool,
            });
            Side::worker(name, job)
        };
        let marks: &[Mark] = if connections == MARKED {
            &[rate(1.0), cpu(1.0)]
        } else {
            &[]
        };
        let peer = |threads: &u32| Peer {
            also: &[Figure::ContextSwitches, Figure::P50, Figure::P99],
            ..Peer::new(
                side(format!("epoll and {threads} threads that read"), Some(*threads)),
                marks.iter().copied(),
            )
        };
        let ours = side(format!("sockets and disk in one loop, {connections} connections"), None);
        findings.compare(rounds, ours, [16, 64].iter().map(peer).collect())?;
    }
    Ok(())
}

/// Each block begins with its number.
fn number(path: &Path, blocks: u64) -> Result<(), String> {
    let written = || {
        let file = OpenOptions::new().write(true).open(path)?;
        (0..blocks).try_for_each(|block| file.write_all_at(&block.to_le_bytes(), block * BLOCK as u64))
    };
    written().map_err(|error| format!("number the blocks: {error}"))?;
    settle(path)
}
