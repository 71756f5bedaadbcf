//! 4 KiB random direct writes: one file against eight of the same size together, and against fio.
//!
//! Many writes to one object must go on side by side: where each waits for the object's lock, eight objects are faster than
//! one (seed 001 §5.1). All files are really written before.

use std::path::PathBuf;

use baio_console::failure::Failure;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::Run;
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_file;
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;
const FILES: u32 = 8;

const AGAINST_MANY: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];
const AGAINST_FIO: &[Mark] = &[Mark::at_least(Figure::Requests, 0.97)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let bytes = setting.working_set;
    let (runtime, rounds) = setting.measuring();
    let one = setting.dir.join("random-write.file");
    let many = setting.dir.join("random-write.many");
    let parts: Vec<PathBuf> = (0..FILES)
        .map(|number| setting.dir.join(format!("random-write.many.{number}")))
        .collect();
    written_file(&one, bytes)?;
    for part in &parts {
        written_file(part, bytes / u64::from(FILES))?;
    }
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, written before; {rounds} rounds of {} ms a side, median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    let run = |path: &PathBuf| Run::new(&path.display().to_string(), "randwrite", DEPTH, runtime);
    let (files, turn) = (FILES.to_string(), ["--iterations", "1"]);
    let eight = run(&many).with(&["--files", &files]).with(&turn);
    let peer = fio::Job::new(
        Engine::IoUring,
        fio::Rw::RandomWrite,
        vec![one.clone()],
        bytes,
        DEPTH,
        runtime,
    );
    let comparison = Comparison {
        ours: Side::stress(format!("one file, depth {DEPTH}"), run(&one).with(&turn)),
        peers: vec![
            Peer::new(
                Side::stress(format!("ours on {FILES} files of the same total"), eight),
                AGAINST_MANY,
            ),
            Peer::new(Side::fio(peer), AGAINST_FIO),
        ],
    };
    findings.compare(&comparison, rounds)?;
    for path in parts.iter().chain([&one]) {
        // The next experiment needs the room.
        let _ = std::fs::remove_file(path);
    }
    Ok(Section::of(findings))
}
