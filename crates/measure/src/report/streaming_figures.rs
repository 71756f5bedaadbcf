//! Seed 001's figures 1 and 2: streaming random reads (§3.6) and streaming random O_SYNC writes (§7.3) through a cache, by the
//! size of a request, 64 in flight, on a file of which nothing is cached. Theirs showed the kernel before and after the changes
//! and AIO-DIO, which the changed kernel matched.

use baio_console::failure::Failure;

use crate::figures::fio::Rw;
use crate::report::comparison::Findings;
use crate::report::files::written_file;
use crate::report::streaming::{Stream, Table, file_system};
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;

/// KiB of a request, and whether the quick report has it.
const SIZES: [(u64, bool); 5] = [(4, true), (8, false), (16, false), (32, false), (64, true)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (bytes, rounds) = setting.reading_once();
    let (runtime, _) = setting.measuring_many();
    let file = setting.dir.join("streaming-figures.file");
    written_file(&file, bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "{} MiB, {DEPTH} in flight, each block once or {} ms; our cache has as many bytes",
        bytes >> 20,
        runtime.as_millis()
    ));
    let place = file_system(&setting.dir);
    for (figure, rw) in [
        ("figure 1: random read", Rw::RandomRead),
        ("figure 2: random O_SYNC write", Rw::RandomWrite),
    ] {
        let mut table = Table {
            file: file.clone(),
            bytes,
            depth: DEPTH,
            batch: 1,
            runtime,
            rounds,
            is_quick: setting.quick,
            rows: Vec::new(),
        };
        for (kib, is_quick) in SIZES {
            if !is_quick && setting.quick {
                continue;
            }
            let stream = Stream {
                name: figure,
                rw,
                request: kib << 10,
                is_synced: rw == Rw::RandomWrite,
                ends_synced: false,
                warm_percent: None,
            };
            table.take(&mut findings, &place, &stream)?;
        }
        table.show(&mut findings);
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&file);
    Ok(Section::of(findings))
}
