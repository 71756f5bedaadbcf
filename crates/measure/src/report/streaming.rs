//! Streams of requests through a cache, as aio-stress makes them: seed 000's table, and seed 001's figures 1 and 2.
//!
//! All compare the same four ways, here and there: the kernel's asynchronous I/O through its cache as it is (theirs "vanilla"),
//! the same made asynchronous (theirs "patched", ours the cache of our own), and direct ones, which are what can be had at all.

use std::path::Path;
use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::{Measurement, Rw, warm_bytes};
use serde_json::json;

use crate::figures::fio::{self, Engine};
use crate::figures::middle;
use crate::figures::stress::Run;
use crate::report::charts::{DOCUMENT, OURS, PEER, Sweep, linear, logarithmic};
use crate::report::comparison::{Peer, Side};
use crate::report::files::warm;
use crate::report::findings::Findings;
use crate::report::places::Site;
use crate::report::record::Chart;
use crate::report::setting::Setting;

/// The ways, in the order of the tables.
const WAYS: [&str; 4] = [
    "ours, cached",
    "libaio, the kernel's cache",
    "ours, direct",
    "libaio, direct",
];

const DEPTH: u32 = 64;

/// One row of a table.
#[derive(Clone, Copy)]
struct Stream {
    name: &'static str,
    rw: Rw,
    kib: u64,
    then: Then,
    /// Also in the quick report.
    is_quick: bool,
}

/// What is done beside the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// Each is durable when it ends: O_SYNC.
    EachSynced,
    /// One sync at the end, whose time counts.
    Sync,
    /// So many percent of the file are cached beforehand.
    Warm(u8),
}

/// Of seed 000, with records of 64 KiB.
const fn row(name: &'static str, rw: Rw, then: Then, is_quick: bool) -> Stream {
    Stream {
        name,
        rw,
        kib: 64,
        then,
        is_quick,
    }
}

const ROWS: [Stream; 11] = [
    row("random read", Rw::RandomRead, Then::Nothing, true),
    row("random read, 25 % cached", Rw::RandomRead, Then::Warm(25), false),
    row("random read, 50 % cached", Rw::RandomRead, Then::Warm(50), true),
    row("random read, 75 % cached", Rw::RandomRead, Then::Warm(75), false),
    row("random O_SYNC write", Rw::RandomWrite, Then::EachSynced, true),
    row("sequential read", Rw::Read, Then::Nothing, false),
    row("sequential O_SYNC write", Rw::Write, Then::EachSynced, false),
    row("random write", Rw::RandomWrite, Then::Nothing, false),
    row("random write and sync", Rw::RandomWrite, Then::Sync, true),
    row("sequential write", Rw::Write, Then::Nothing, false),
    row("sequential write and sync", Rw::Write, Then::Sync, false),
];

/// Seed 000's table: aio-stress throughput with 64 KiB records, 64 in flight, 8 at a time, on a file of 1 GiB of which nothing is
/// cached; and, because the patches were "mainly relevant in the case of reads of uncached or partially cached files", the random
/// reads again with a part of it cached beforehand.
///
/// `aio-stress -s 1g -r 64k -d 64 -i 8 -b 8 -a 4k` is what was run. Here fio's libaio is the kernel's own AIO ("vanilla"), and our
/// cache stands where the patched kernel stood.
pub(super) fn table(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    const BATCH: u32 = 8;
    let (bytes, ms, rounds) = setting.either((setting.working_set / 8, 400, 1), (setting.working_set / 8, 300, 2));
    findings.lines.push(format!(
        "{} MiB, records of 64 KiB, {DEPTH} in flight, {BATCH} at a time, each once; our cache has as many bytes",
        bytes >> 20
    ));
    findings.lines.push(PRINTED.to_owned());
    let file = Site::file(setting, "aio-stress-table", bytes)?;
    let table = Table {
        file: &file,
        batch: BATCH,
        runtime: Duration::from_millis(ms),
        rounds,
        is_quick: setting.quick,
    };
    let place = file_system(&setting.dir);
    let taken = table.take(findings, &place, &ROWS)?;
    findings.charts.extend(by_share(&place, &taken));
    Ok(())
}

/// Seed 001's figures 1 and 2: streaming random reads (§3.6) and streaming random O_SYNC writes (§7.3) through a cache, by the size
/// of a request, 64 in flight, on a file of which nothing is cached. Theirs showed the kernel before and after the changes and
/// AIO-DIO, which the changed kernel matched.
pub(super) fn figures(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (bytes, rounds) = setting.reading_once();
    let (runtime, _) = setting.measuring_many();
    let file = Site::file(setting, "streaming-figures", bytes)?;
    findings.lines.push(format!(
        "{} MiB, {DEPTH} in flight, each block once or {} ms; our cache has as many bytes",
        bytes >> 20,
        runtime.as_millis()
    ));
    let table = Table {
        file: &file,
        batch: 1,
        runtime,
        rounds,
        is_quick: setting.quick,
    };
    for (name, rw, then) in [
        ("figure 1: random read", Rw::RandomRead, Then::Nothing),
        ("figure 2: random O_SYNC write", Rw::RandomWrite, Then::EachSynced),
    ] {
        let rows = [4, 8, 16, 32, 64].map(|kib| Stream {
            kib,
            ..row(name, rw, then, matches!(kib, 4 | 64))
        });
        let taken = table.take(findings, &file_system(&setting.dir), &rows)?;
        let mut sweep = Sweep::new(name, logarithmic("a request", "KiB"), linear("throughput", "MB/s"));
        for (stream, values) in &taken {
            draw(&mut sweep, stream.kib as f64, values);
        }
        let showed = "a graph without numbers: with the changes about twice the throughput from 4 to 64 KiB, as much as direct I/O";
        let here =
            "our cache where the changed kernel stood, libaio through the kernel's cache as it is, and direct I/O";
        findings.charts.extend(sweep.chart(showed, here));
    }
    Ok(())
}

/// What seed 000 printed.
const PRINTED: &str = "the document's table, in MB/s, patched and vanilla: random read 23.91 and 10.08, random O_SYNC write 15.84 and 8.86, \
                       sequential read 33.00 and 31.49, sequential O_SYNC write 32.60 and 8.68, random write 30.90 and 31.09, sequential \
                       write 30.09 and 30.84 (its disks did 40 MB/s, on ext2)";

/// Random reads, by how much of the file is cached beforehand.
fn by_share(place: &str, taken: &[(Stream, [Option<f64>; 4])]) -> Option<Chart> {
    let title = format!("64 KiB random reads of a partly cached file, {place}");
    let mut sweep = Sweep::new(title, linear("of the file cached", "%"), linear("throughput", "MB/s"));
    for (stream, values) in taken.iter().filter(|(stream, _)| stream.rw == Rw::RandomRead) {
        let share = match stream.then {
            Then::Warm(percent) => f64::from(percent),
            _ => 0.0,
        };
        draw(&mut sweep, share, values);
    }
    for (name, value) in [
        ("document, patched", 23.91),
        ("document, vanilla", 10.08),
        ("document, direct", 18.98),
    ] {
        sweep.point(name, DOCUMENT, 0.0, value);
    }
    let showed = "23.91 MB/s with the patches, 10.08 without, 18.98 direct, of a file that is not cached; nothing of a partly cached one";
    let here = "our cache where the patched kernel stood, libaio through the kernel's cache, and direct I/O";
    sweep.chart(showed, here)
}

/// Each way at one place.
fn draw(sweep: &mut Sweep, at: f64, values: &[Option<f64>; 4]) {
    for (way, value) in WAYS.iter().zip(values) {
        let whose = if way.starts_with("ours") { OURS } else { PEER };
        sweep.point(way, whose, at, value.unwrap_or(f64::NAN));
    }
}

/// Megabytes a second of each row that was taken, in each way.
type Taken = Vec<(Stream, [Option<f64>; 4])>;

/// What all rows have.
struct Table<'a> {
    file: &'a Site,
    /// Requests handed over together.
    batch: u32,
    /// A run ends with its last block, or then.
    runtime: Duration,
    rounds: usize,
    /// Without the last way.
    is_quick: bool,
}

impl Table<'_> {
    /// Takes the rows and shows them, one below the other.
    ///
    /// # Errors
    /// Our side failed.
    fn take(&self, findings: &mut Findings, place: &str, rows: &[Stream]) -> Result<Taken, Failure> {
        let (mut taken, mut table) = (Vec::new(), Vec::new());
        for stream in rows.iter().filter(|row| row.is_quick || !self.is_quick) {
            let name = format!("{}, {} KiB, {place}", stream.name, stream.kib);
            let values = self.megabytes(findings, &name, stream)?;
            let mut row = json!({ "row": name });
            for (way, value) in WAYS.iter().zip(values) {
                row[way] = json!(value);
            }
            table.push(row);
            taken.push((*stream, values));
        }
        findings
            .parts
            .push(json!({ "part": "megabytes a second", "rows": table }));
        Ok(taken)
    }

    /// Megabytes a second in each way that was taken.
    fn megabytes(&self, findings: &mut Findings, name: &str, stream: &Stream) -> Result<[Option<f64>; 4], Failure> {
        let ours = Side {
            name: format!("{name}: cached"),
            ..self.prepared(stream, true, self.ours(stream, "cached"))
        };
        let mut peers = vec![
            Peer::new(self.prepared(stream, false, self.libaio(stream, false)), []),
            Peer::new(self.prepared(stream, true, self.ours(stream, "direct")), []),
        ];
        if !self.is_quick {
            let theirs = self.prepared(stream, true, self.libaio(stream, true));
            peers.push(Peer::new(theirs, []));
        }
        let runs = findings.compare(self.rounds, ours, peers)?;
        let sides = [&runs.ours[..], runs.peer(0), runs.peer(1), runs.peer(2)];
        let megabytes = |runs: &[Measurement]| middle(runs, |run| run.bytes_per_second / 1e6);
        Ok(sides.map(|runs| (!runs.is_empty()).then(|| megabytes(runs))))
    }

    fn ours(&self, stream: &Stream, mode: &str) -> Side {
        let words = format!(
            "--request-size {} --batch {} --mode {mode}",
            stream.kib << 10,
            self.batch
        );
        let mut run = Run::once(&self.file.target, stream.rw.name(), DEPTH)
            .at_most(self.runtime)
            .with(&words);
        if mode == "cached" {
            // As the kernel's, which has all the memory there is, it holds the file.
            run = run.with(&format!("--cache {}", self.file.bytes));
        }
        run = match stream.then {
            Then::Warm(percent) if mode == "cached" => run.with(&format!("--warm {percent}")),
            Then::EachSynced => run.with("--durability full"),
            Then::Sync => run.with("--end-sync"),
            Then::Nothing | Then::Warm(_) => run,
        };
        Side::by(format!("ours, {mode}"), run).synced()
    }

    fn libaio(&self, stream: &Stream, direct: bool) -> Side {
        let files = vec![self.file.path.clone()];
        let job = fio::Job::new(Engine::Libaio, stream.rw, files, self.file.bytes, DEPTH).with(&format!(
            "--bs={} --iodepth_batch_submit={} --runtime={}ms",
            stream.kib << 10,
            self.batch,
            self.runtime.as_millis()
        ));
        let job = if direct { job } else { job.buffered() };
        Side::fio(match stream.then {
            Then::Warm(_) if !direct => job.with("--invalidate=0"),
            Then::EachSynced => job.with("--sync=sync"),
            Then::Sync => job.with("--end_fsync=1"),
            Then::Nothing | Then::Warm(_) => job,
        })
    }

    /// Begins with nothing in the kernel's cache, or with what is to be there.
    fn prepared(&self, stream: &Stream, is_empty: bool, side: Side) -> Side {
        let file = self.file.path.clone();
        match stream.then {
            Then::Warm(percent) if !is_empty => {
                let bytes = warm_bytes(self.file.bytes, percent, stream.kib << 10);
                Side {
                    command: format!("{} (the first {bytes} bytes are cached)", side.command),
                    ..side.after(move || warm(&file, bytes))
                }
            }
            _ => side.cold(&file),
        }
    }
}

/// The name of the file system there, as far as it matters here.
pub(super) fn file_system(dir: &Path) -> String {
    /// `EXT4_SUPER_MAGIC`, linux/magic.h.
    const EXT4: u64 = 0xef53;
    match rustix::fs::statfs(dir).map(|told| told.f_type as u64) {
        Ok(EXT4) => "ext4".into(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "a file system".into(),
    }
}
