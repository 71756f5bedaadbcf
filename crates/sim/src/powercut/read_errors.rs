//! Log and volume on a device whose reads fail at random. A failed read says nothing about the data: an opening gives all that is
//! there, or the device's error. Who would change something for good because of it (`salvage`, a check that repairs) refuses.
//!
//! A state is made, and its power cut or not; then it is opened many times while reads fail, by chance or by place. At its end
//! nothing fails, and everything acknowledged is there.

use baio_engine::sim::Random;

use super::bench::{self, Bench};
use super::place::Place;
use crate::nbd::{Fault, Manner, What};
use baio::{
    Access, CreateOptions, Durability, File, FormatOptions, Link, LinkOptions, Log, LogOptions, Lsn, Problem, Remote,
    Repair, Segment,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const DISK_BYTES: u64 = 16 << 20;
const LOG_BYTES: u64 = 2 << 20;
const SEGMENTS: u64 = 6;
const SEGMENT_BYTES: usize = 64 << 10;
/// A state is opened so often.
const OPENINGS_OF_A_STATE: u64 = 20;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From which all choices follow.
    pub seed: u64,
    /// How many openings.
    pub openings: u64,
    /// Only this state.
    pub only: Option<u64>,
}

/// What came of it.
#[derive(Debug, Default, serde::Serialize)]
pub struct Report {
    /// Openings, checks and repairs while reads failed.
    pub openings: u64,
    /// Of them, those that gave what was asked.
    pub opened: u64,
    /// Of them, those that told the device's error.
    pub refused: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// What was told instead, with the state's number.
    pub wrong: Vec<String>,
}

/// What is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    LogInFile,
    LogInSegment,
    Volume,
}

/// What must be there.
struct State {
    subject: Subject,
    records: Vec<(Lsn, Vec<u8>)>,
}

/// Runs the plan.
///
/// # Errors
/// It cannot run here; why.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let bench = Bench::new(DISK_BYTES, plan.seed)?;
    let mut report = Report::default();
    let first = plan.only.unwrap_or(0);
    let states = plan.openings.div_ceil(OPENINGS_OF_A_STATE);
    let last = plan.only.map_or(states, |only| only + 1);
    for number in first..last {
        let replay = plan.replay(number);
        bench::begins(&replay);
        let mut random = Random::from(&[plan.seed, number, 0x7265_6164]);
        let told = one_state(&bench, &mut random, &mut report);
        bench.disk.heal();
        if let Err(wrong) = told {
            report.wrong.push(format!("{wrong}\nreplay: {replay}"));
        }
    }
    bench::ends();
    report.reads_failed = bench.disk.counts().failed;
    if plan.only.is_none() && report.shows_nothing() {
        let why = "no read failed, or every opening did: nothing was tested";
        report.wrong.push(why.into());
    }
    Ok(report)
}

impl Report {
    /// The kernel's cache may have answered every read, or nothing may have been there to be read.
    fn shows_nothing(&self) -> bool {
        self.reads_failed == 0 || self.refused == 0 || self.opened == 0
    }
}

impl Plan {
    fn replay(&self, number: u64) -> String {
        format!(
            "cargo run --release -p baio-sim -- powercut --read-errors --seed {} --only {number}",
            self.seed
        )
    }
}

fn one_state(bench: &Bench, random: &mut Random, report: &mut Report) -> Result<(), Failure> {
    let subjects = [Subject::LogInFile, Subject::LogInSegment, Subject::Volume];
    let subject = *random.pick(&subjects).ok_or("no subject")?;
    let state = make(bench, subject, random).map_err(|error| format!("a state cannot be made: {error}"))?;
    let mut wrong = Vec::new();
    for _ in 0..OPENINGS_OF_A_STATE {
        report.openings += 1;
        let failed_before = bench.disk.counts().failed;
        let told = state.open(bench, random);
        let has_failed = bench.disk.counts().failed > failed_before;
        bench.disk.heal();
        match told {
            Told::All => report.opened += 1,
            Told::Refused(_) if has_failed => report.refused += 1,
            Told::Refused(error) => wrong.push(format!("no read failed, and yet: {error}")),
            Told::Wrong(what) => wrong.push(what),
        }
    }
    if let Told::Wrong(what) | Told::Refused(what) = state.open_sound(bench) {
        wrong.push(format!("and at the end, when nothing fails any more: {what}"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    wrong.dedup();
    Err(format!("{subject:?}: {}", wrong.join("\n  ")).into())
}

/// Reads fail by chance anywhere, always in one place, or the first ones pass.
fn failing(random: &mut Random) -> Fault {
    let chance_ppm = *random
        .pick(&[20_000, 100_000, 300_000, 700_000, 1_000_000])
        .unwrap_or(&100_000);
    let mut fault = Fault {
        chance_ppm,
        ..Fault::all(What::Read)
    };
    if random.percent(40) {
        let from = random.below(DISK_BYTES / 4);
        fault.place = from..from + 1 + random.below(64 << 10);
        fault.chance_ppm = 1_000_000;
    }
    if random.percent(50) {
        fault.after = random.below(20);
    }
    if random.percent(30) {
        fault.times = 1 + random.below(3);
    }
    fault
}

fn record(random: &mut Random, number: u64) -> Vec<u8> {
    let len = 8 + random.below(3000) as usize;
    let bytes = number.to_le_bytes().into_iter().cycle();
    bytes.take(len).collect()
}

fn page_of(segment: u64) -> Vec<u8> {
    vec![segment as u8 + 1; SEGMENT_BYTES]
}

fn name_of(segment: u64) -> String {
    format!("segment-{segment}")
}

fn log_options(salvage: bool) -> LogOptions {
    LogOptions {
        batch_bytes_max: 16 << 10,
        salvage,
        ..LogOptions::default()
    }
}

/// Makes a state: at its end the link is closed, or the power is cut under it.
fn make(bench: &Bench, subject: Subject, random: &mut Random) -> Result<State, Failure> {
    bench.disk.blank();
    let path = bench.device();
    let is_cut = random.percent(70);
    let mut state = State {
        subject,
        records: Vec::new(),
    };
    let link = if subject == Subject::LogInFile {
        Remote::new()?
    } else {
        baio::format(
            &path,
            &FormatOptions {
                force: true,
                ..FormatOptions::default()
            },
        )?;
        Remote::open(&path)?
    };
    let log = match subject {
        Subject::LogInFile => {
            let file = File::options().write().open(&link, &path).wait()?;
            Some(file.create_log(&log_options(false)).wait()?)
        }
        Subject::LogInSegment => {
            link.create_segment("log", &CreateOptions::of_size(LOG_BYTES)).wait()?;
            let segment = link.open_segment("log", Access::Write).wait()?;
            Some(segment.create_log(&log_options(false)).wait()?)
        }
        Subject::Volume => None,
    };
    match &log {
        Some(log) => state.append(log, random)?,
        None => fill(&link)?,
    }
    if is_cut {
        bench.disk.cut(Manner::Torn);
    } else if let Some(log) = &log {
        log.close().wait()?;
    }
    drop(log);
    let closed = link.close();
    bench.disk.power_on();
    if !is_cut {
        closed?;
    }
    Ok(state)
}

fn fill(link: &Remote) -> Result<(), Failure> {
    for number in 0..SEGMENTS {
        link.create_segment(&name_of(number), &CreateOptions::of_size(SEGMENT_BYTES as u64))
            .wait()?;
        let segment = link.open_segment(&name_of(number), Access::Write).wait()?;
        let mut buffer = segment.buffer(SEGMENT_BYTES)?;
        buffer.copy_from_slice(&page_of(number));
        segment.write_at(0, buffer).durable(Durability::Data).wait()?;
    }
    Ok(())
}

enum Told {
    All,
    Refused(String),
    Wrong(String),
}

impl Told {
    /// An errno of the device is all that may be said; whatever is said of the data is wrong.
    fn of(error: &baio::Error) -> Told {
        let said = error.to_string();
        let judges = [
            "salvage",
            "restore",
            "no log is there",
            "not a volume",
            "baio format",
            "lost",
        ];
        let is_the_devices = error.code() == "EIO" && error.errno() == Some(baio::Errno::EIO);
        match is_the_devices && !judges.iter().any(|word| said.contains(word)) {
            true => Told::Refused(said),
            false => Told::Wrong(format!("[{}] {said}", error.code())),
        }
    }
}

impl State {
    fn append(&mut self, log: &Log<Remote>, random: &mut Random) -> Result<(), Failure> {
        let mut last = Lsn(0);
        for number in 0..5 + random.below(120) {
            let record = record(random, number);
            last = log.append(&record)?;
            self.records.push((last, record));
            if random.percent(30) {
                log.durable(last).wait()?;
            }
        }
        log.durable(last).wait()?;
        Ok(())
    }

    /// Opens it in one of the ways that there are, while reads fail.
    fn open(&self, bench: &Bench, random: &mut Random) -> Told {
        let fault = failing(random);
        if self.subject == Subject::Volume && random.percent(50) {
            return checked(bench, fault, random.percent(50));
        }
        bench.disk.fail(fault);
        self.open_so(bench, random.percent(40))
    }

    fn open_sound(&self, bench: &Bench) -> Told {
        self.open_so(bench, false)
    }

    fn open_so(&self, bench: &Bench, salvage: bool) -> Told {
        match self.look(bench, salvage) {
            Ok(told) => told,
            Err(error) => match Told::of(&error) {
                Told::Wrong(what) if salvage => Told::Wrong(format!("with salvage: {what}")),
                told => told,
            },
        }
    }

    fn look(&self, bench: &Bench, salvage: bool) -> baio::Result<Told> {
        let path = bench.device();
        let link = match self.subject {
            Subject::LogInFile => Remote::new()?,
            Subject::LogInSegment | Subject::Volume => Remote::open_with(&path, &LinkOptions::default())?,
        };
        let log = match self.subject {
            Subject::LogInFile => {
                let file = File::options().write().open(&link, &path).wait()?;
                file.open_log(&log_options(salvage)).wait()?
            }
            Subject::LogInSegment => {
                let segment = link.open_segment("log", Access::Write).wait()?;
                segment.open_log(&log_options(salvage)).wait()?
            }
            Subject::Volume => return volume_has_all(&link),
        };
        if !log.found().holes.is_empty() {
            return Ok(Told::Wrong(format!(
                "holes where nothing is missing: {:?}",
                log.found().holes
            )));
        }
        self.log_has_all(&log)
    }

    fn log_has_all(&self, log: &Log<Remote>) -> baio::Result<Told> {
        let mut records = log.records(log.head_lsn());
        for (lsn, payload) in &self.records {
            let found = records.next_record().wait()?;
            let is_it = found.is_some_and(|record| record.lsn() == *lsn && record.payload() == payload);
            if !is_it {
                return Ok(Told::Wrong(format!(
                    "the record at LSN {lsn} was durable, and is not there"
                )));
            }
        }
        Ok(Told::All)
    }
}

fn volume_has_all(link: &Remote) -> baio::Result<Told> {
    for number in 0..SEGMENTS {
        let segment: Segment<Remote> = link.open_segment(&name_of(number), Access::Write).wait()?;
        let read = segment.read_at(0, segment.buffer(SEGMENT_BYTES)?).wait()?;
        if read.buffer[..] != page_of(number) {
            let what = format!("{} does not hold what was durable", name_of(number));
            return Ok(Told::Wrong(what));
        }
    }
    Ok(Told::All)
}

/// A check says of what it could not read that it could not, and names nothing else that it would not name on a sound device. One
/// that repairs refuses.
fn checked(bench: &Bench, fault: Fault, repair: bool) -> Told {
    let sound = match baio_storage::check(&bench.device(), false, &mut |_| {}) {
        Ok(report) => report,
        Err(error) => return Told::Wrong(format!("nothing fails, and a check says: {error}")),
    };
    bench.disk.fail(fault);
    let failed_before = bench.disk.counts().failed;
    let told = baio_storage::check(&bench.device(), repair, &mut |_| {});
    let has_failed = bench.disk.counts().failed > failed_before;
    let report = match told {
        Ok(report) => report,
        Err(error) => return Told::of(&error),
    };
    let is_there = |problem: &Problem| {
        let mut known = sound.problems.iter();
        known.any(|known| known.kind == problem.kind && known.place == problem.place)
    };
    let invented = |problem: &&Problem| !is_there(problem) && problem.repair != Repair::Unread;
    match report.problems.iter().find(invented) {
        Some(problem) => Told::Wrong(format!("a check judges what it could not read: {problem:?}")),
        None if repair && has_failed => Told::Wrong(format!("a check repairs while reads fail: {:?}", report.problems)),
        None => Told::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_that_all_end_alike_show_nothing() {
        let report = |opened, refused, reads_failed| Report {
            openings: opened + refused,
            opened,
            refused,
            reads_failed,
            wrong: Vec::new(),
        };
        assert!(report(20, 0, 0).shows_nothing(), "somebody else answered the reads");
        assert!(report(20, 0, 5).shows_nothing());
        assert!(report(0, 20, 50).shows_nothing());
        assert!(!report(10, 10, 50).shows_nothing());
    }
}
