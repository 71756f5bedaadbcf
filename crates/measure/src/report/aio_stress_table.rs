//! Seed 000's table: aio-stress throughput with 64 KiB records, 64 in flight, 8 at a time, on a file of 1 GiB of which nothing
//! is cached; and, because the patches were "mainly relevant in the case of reads of uncached or partially cached files", the
//! random reads again with a part of it cached beforehand.
//!
//! `aio-stress -s 1g -r 64k -d 64 -i 8 -b 8 -a 4k` is what was run. Here fio's libaio is the kernel's own AIO ("vanilla"), and our
//! cache stands where the patched kernel stood.

use std::path::Path;
use std::time::Duration;

use baio_console::failure::Failure;

use crate::figures::fio::Rw;
use crate::report::comparison::Findings;
use crate::report::ext2::on_ext2;
use crate::report::files::written_file;
use crate::report::streaming::{Stream, Table, file_system};
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;
const BATCH: u32 = 8;

const fn row(name: &'static str, rw: Rw) -> Stream {
    Stream {
        name,
        rw,
        request: 64 << 10,
        is_synced: false,
        ends_synced: false,
        warm_percent: None,
    }
}

const fn o_sync(name: &'static str, rw: Rw) -> Stream {
    Stream {
        is_synced: true,
        ..row(name, rw)
    }
}

const fn with_sync(name: &'static str, rw: Rw) -> Stream {
    Stream {
        ends_synced: true,
        ..row(name, rw)
    }
}

const fn partly(name: &'static str, percent: u8) -> Stream {
    Stream {
        warm_percent: Some(percent),
        ..row(name, Rw::RandomRead)
    }
}

/// The rows, and whether the quick report has them.
const ROWS: [(Stream, bool); 11] = [
    (row("random read", Rw::RandomRead), true),
    (partly("random read, 25 % cached", 25), false),
    (partly("random read, 50 % cached", 50), true),
    (partly("random read, 75 % cached", 75), false),
    (o_sync("random O_SYNC write", Rw::RandomWrite), true),
    (row("sequential read", Rw::Read), false),
    (o_sync("sequential O_SYNC write", Rw::Write), false),
    (row("random write", Rw::RandomWrite), false),
    (with_sync("random write and sync", Rw::RandomWrite), true),
    (row("sequential write", Rw::Write), false),
    (with_sync("sequential write and sync", Rw::Write), false),
];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let mut findings = Findings::default();
    let quick = setting.quick;
    let bytes = if quick {
        setting.working_set / 8
    } else {
        setting.working_set
    };
    findings.lines.push(format!(
        "{} MiB, records of 64 KiB, {DEPTH} in flight, {BATCH} at a time, each once; our cache has as many bytes",
        bytes >> 20
    ));
    table(&mut findings, &setting.dir, &file_system(&setting.dir), bytes, quick)?;
    let on_another = on_ext2(&setting.dir, bytes, |place| {
        let mut findings = Findings::default();
        table(&mut findings, place, "ext2 on a loop device", bytes, quick).map(|()| findings)
    });
    match on_another {
        Ok(done) => findings.take_over(done?),
        Err(reason) => findings.skip("ext2", &reason),
    }
    Ok(Section::of(findings))
}

fn table(findings: &mut Findings, dir: &Path, place: &str, bytes: u64, quick: bool) -> Result<(), Failure> {
    let file = dir.join("aio-stress-table.file");
    written_file(&file, bytes)?;
    let (runtime, rounds) = if quick {
        (Duration::from_millis(400), 1)
    } else {
        (Duration::from_secs(3), 3)
    };
    let mut table = Table {
        file,
        bytes,
        depth: DEPTH,
        batch: BATCH,
        runtime,
        rounds,
        is_quick: quick,
        rows: Vec::new(),
    };
    for (stream, is_quick) in &ROWS {
        if *is_quick || !quick {
            table.take(findings, place, stream)?;
        }
    }
    table.show(findings);
    // What comes next needs the room.
    let _ = std::fs::remove_file(&table.file);
    Ok(())
}
