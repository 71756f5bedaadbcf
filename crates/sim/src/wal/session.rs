//! Sessions: an opening of the volume, its logs and its pages, and what a database does then, on the record.

use std::task::{Poll, Waker};

use baio_engine::sim::crash::{Crash, Replay, cuts};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Fault, Faults, Random, Trigger};
use baio_engine::{Durability, Memory, Wait};
use baio_storage::log::{LogAnswer, LogError, LogRequest, Lsn, RecordReader, WaitKey};
use baio_storage::{Core, Error, Handle, HeldLog, LogReply, SegmentOp, SegmentRequest, Ticket};

use super::database::{Database, State, Told};
use super::pages::{PAGE_BYTES, PAGE_SECTORS, PAGES};
use super::scene::{self, Scene};
use crate::log::model::{self, Group, Seen};
use crate::log::workload::{Counts, Numbers};
use crate::observe::{failed, run};
use crate::stamp;
use crate::violation::{Kind, Violation};

/// What happened to a disk.
#[derive(Debug)]
pub struct Session {
    base: Disk,
    before: Vec<Database>,
    /// In order; its marks say how much was told.
    pub record: Vec<Record>,
    told: Vec<(usize, Told)>,
}

impl Session {
    /// What is promised behind so many records.
    #[must_use]
    pub fn promised(&self, prefix: usize) -> Vec<Database> {
        let mut databases = self.before.clone();
        for database in &mut databases {
            database.log.is_opened_again();
        }
        let marks = self.record[..prefix].iter().rev();
        let mut marks = marks.filter_map(|record| match record {
            Record::Mark(told) => Some(*told as usize),
            _ => None,
        });
        for (nth, told) in &self.told[..marks.next().unwrap_or(0)] {
            databases[*nth].told(told);
        }
        databases
    }

    /// For states in the order of the record.
    #[must_use]
    pub fn replay(&self) -> Replay<'_> {
        Replay::new(&self.base, &self.record)
    }

    /// Any crash of the record.
    #[must_use]
    pub fn crash(&self, random: &mut Random) -> Crash {
        let prefix = random.below(self.record.len() as u64 + 1) as usize;
        let cuts = cuts(&self.record, prefix);
        random.pick(&cuts).copied().unwrap_or(Crash::clean(prefix))
    }
}

/// One database of a process.
#[derive(Debug)]
struct Open {
    held: HeldLog,
    handle: Handle,
    /// As it was told last.
    durable: u64,
}

/// A process on a disk.
#[derive(Debug)]
pub struct Driver<'a> {
    scene: Scene,
    disk: Disk,
    core: Option<Core>,
    open: Vec<Open>,
    databases: Vec<Database>,
    told: Vec<(usize, Told)>,
    random: Random,
    numbers: &'a mut Numbers,
    counts: &'a mut Counts,
    /// The device is about to fail, or has.
    fails: bool,
}

/// Opens what a crash left, and uses it so often.
///
/// # Errors
/// A broken promise.
pub fn go_on(
    scene: &Scene,
    state: State,
    random: &mut Random,
    ops: u64,
    numbers: &mut Numbers,
    counts: &mut Counts,
) -> Result<Session, Violation> {
    let (base, before) = (state.disk.copy(), state.databases.clone());
    state.disk.record();
    let mut driver = Driver::open(scene, state, random, numbers, counts)?;
    driver.redo()?;
    for _ in 0..ops {
        if !driver.step()? {
            break;
        }
    }
    // The process is gone, and closes nothing.
    let Driver {
        core, disk, told, open, ..
    } = driver;
    drop((open, core));
    let record = disk.take_record();
    Ok(Session {
        base,
        before,
        record,
        told,
    })
}

impl<'a> Driver<'a> {
    /// Opens volume, logs and pages, and looks whether all is as promised.
    ///
    /// # Errors
    /// It is not.
    pub fn open(
        scene: &Scene,
        state: State,
        random: &mut Random,
        numbers: &'a mut Numbers,
        counts: &'a mut Counts,
    ) -> Result<Driver<'a>, Violation> {
        let State { disk, databases } = state;
        let core = scene.core(&disk, random.bits())?;
        let mut driver = Driver {
            scene: *scene,
            disk,
            core: Some(core),
            open: Vec::new(),
            databases,
            told: Vec::new(),
            random: Random::from(&[random.bits()]),
            numbers,
            counts,
            fails: false,
        };
        for nth in 0..driver.databases.len() {
            let say = |violation: Violation| violation.after(format!("database {nth}"));
            driver.open_database(nth).map_err(say)?;
        }
        Ok(driver)
    }

    fn open_database(&mut self, nth: usize) -> Result<(), Violation> {
        let options = self.scene.log;
        let core = self.core()?;
        let log = scene::open_segment(core, &scene::log_name(nth))?;
        let handle = scene::open_segment(core, &scene::pages_name(nth))?;
        let question = core.begin_open_log(log, &options);
        let question = question.map_err(|error| failed("open a log", &error))?;
        let (held, recovered) = scene::opened(core.wait_log(&question))?;
        let seen = read_log(core, &held, recovered.head)?;
        let buffer = core.buffer(PAGES as usize * PAGE_BYTES);
        let buffer = buffer.map_err(|error| failed("read the pages", &error))?;
        let request = SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, buffer);
        let memory = run(core, request).map_err(|error| failed("read the pages", &error))?;
        let bytes = memory.into_buffer();
        let bytes = bytes.ok_or_else(|| Violation::new(Kind::Failed, "a read lost its memory"))?;
        let sectors: Vec<_> = bytes.chunks(stamp::SECTOR).map(stamp::read).collect();
        core.set_log(handle, held.id())
            .map_err(|error| failed("put pages under their log", &error))?;
        let database = &self.databases[nth];
        let groups = database.log.check(&recovered, &seen, false)?;
        database.pages.check(nth, &sectors, &recovered, &seen)?;
        *self.counts.entry("records_read").or_default() += seen.len() as u64;
        *self.counts.entry("pages_changed").or_default() += changed(&sectors);
        self.open.push(Open {
            held,
            handle,
            durable: recovered.next.0,
        });
        self.tell(nth, Told::Log(model::Told::Opened { recovered, groups }));
        Ok(())
    }

    fn core(&mut self) -> Result<&mut Core, Violation> {
        self.core
            .as_mut()
            .ok_or_else(|| Violation::new(Kind::Failed, "the volume is closed"))
    }

    fn tell(&mut self, nth: usize, told: Told) {
        self.databases[nth].told(&told);
        self.told.push((nth, told));
        self.disk.mark(self.told.len() as u64);
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Every page gets the bytes that the log knows of it.
    fn redo(&mut self) -> Result<(), Violation> {
        for nth in 0..self.open.len() {
            let groups = self.databases[nth].log.groups.clone();
            for page in 0..PAGES {
                let Some(number) = self.databases[nth].pages.last(page) else {
                    continue;
                };
                let with =
                    |group: &&Group| (0..group.lens.len() as u64).any(|at| group.first + at == u64::from(number));
                if let Some(group) = groups.iter().find(with) {
                    self.change(nth, page, number, group.lsn)?;
                }
            }
        }
        Ok(())
    }

    /// Gives a page the bytes of a change.
    fn change(&mut self, nth: usize, page: u64, number: u32, lsn: u64) -> Result<(), Violation> {
        let handle = self.open[nth].handle;
        let core = self.core()?;
        let pin = core.pin_now(handle, page).map_err(|error| failed("pin", &error))?;
        let changed = match core.change_now(&pin, lsn) {
            Ok(bytes) => {
                stamp::fill(bytes, nth as u16 + 1, page * PAGE_SECTORS as u64, number);
                Ok(())
            }
            Err(error) => Err(failed("change", &error)),
        };
        core.unpin(pin);
        changed
    }

    /// False: the session is over.
    fn step(&mut self) -> Result<bool, Violation> {
        let nth = self.random.below(self.open.len() as u64) as usize;
        let done = match self.random.below(100) {
            0..=56 => self.append(nth),
            57..=69 => self.turns(),
            70..=76 => self.wait(nth),
            // Whom a device that fails has made anything safe for, nobody says.
            77..=88 if self.fails => self.turns(),
            77..=83 => self.sync(nth),
            84..=88 => self.checkpoint(nth),
            93 if !self.fails => {
                self.fail();
                Ok(())
            }
            94 if !self.fails => return self.close().map(|()| false),
            _ => self.turns(),
        };
        match done {
            Ok(()) => {}
            // What a device that fails leaves undone is told: that is all that can be asked.
            Err(violation) if self.fails && violation.kind == Kind::Failed => return Ok(false),
            Err(violation) => return Err(violation),
        }
        self.look()?;
        Ok(true)
    }

    /// What the logs tell now.
    fn look(&mut self) -> Result<(), Violation> {
        for nth in 0..self.open.len() {
            let open = &mut self.open[nth];
            let durable = open.held.appender().durable_lsn().0;
            if durable < open.durable {
                let story = format!("the durable LSN went from {} to {durable}", open.durable);
                return Err(Violation::new(Kind::Order, story));
            }
            if durable > open.durable {
                open.durable = durable;
                self.tell(nth, Told::Log(model::Told::Durable(durable)));
            }
        }
        Ok(())
    }

    fn append(&mut self, nth: usize) -> Result<(), Violation> {
        let records = if self.random.percent(75) {
            1
        } else {
            2 + self.random.below(2)
        };
        let batch = u64::from(self.scene.log.batch_bytes_max);
        let (mut lens, mut pages): (Vec<u32>, Vec<u64>) = (Vec::new(), Vec::new());
        for _ in 0..records {
            let len = if self.random.percent(70) { 200 } else { 2 * batch };
            lens.push(self.random.below(len) as u32);
            // Few pages are changed often.
            let of = if self.random.percent(50) { 4 } else { PAGES };
            let page = self.random.below(of);
            pages.push(
                (0..PAGES)
                    .map(|more| (page + more) % PAGES)
                    .find(|page| !pages.contains(page))
                    .unwrap_or(page),
            );
        }
        let first = self.numbers.0;
        let payloads: Vec<Vec<u8>> = lens
            .iter()
            .zip(first..)
            .map(|(&len, number)| payload(number, len))
            .collect();
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let lsn = match self.open[nth].held.appender().quiet().append_all(&payloads) {
            Ok(lsn) => lsn.0,
            Err(LogError::TooLong { .. }) => return Ok(()),
            Err(LogError::WouldBlock | LogError::Full) => {
                self.count("would_block");
                return if self.fails { self.turns() } else { self.checkpoint(nth) };
            }
            Err(error) => return Err(Violation::new(Kind::Failed, format!("an append: {error}"))),
        };
        self.numbers.0 += records;
        self.count("appends");
        let group = Group { first, lens, lsn };
        self.tell(nth, Told::Appended(group, pages.clone()));
        if self.random.percent(20) {
            self.turns()?;
        }
        for (page, number) in pages.into_iter().zip(first as u32..) {
            self.change(nth, page, number, lsn)?;
        }
        Ok(())
    }

    fn turns(&mut self) -> Result<(), Violation> {
        for _ in 0..=self.random.below(6) {
            let sleeps = self.random.percent(60);
            let core = self.core()?;
            let wait = if sleeps && core.in_flight() > 0 {
                Wait::one()
            } else {
                Wait::No
            };
            core.turn(wait).map_err(|error| failed("turn", &error))?;
            self.look()?;
        }
        Ok(())
    }

    /// Until all that was appended is durable.
    fn wait(&mut self, nth: usize) -> Result<(), Violation> {
        self.count("waits");
        let lsn = self.databases[nth].log.given;
        for _ in 0..TURNS_MAX {
            let appender = self.open[nth].held.appender();
            if appender.durable_lsn().0 > lsn {
                return Ok(());
            }
            let mut key = WaitKey::default();
            if let Poll::Ready(Err(error)) = appender.poll_durable(Lsn(lsn), &mut key, Waker::noop()) {
                return Err(Violation::new(Kind::Failed, format!("wait for a log: {error}")));
            }
            let turned = self.core()?.turn(Wait::one());
            turned.map_err(|error| failed("turn", &error))?;
        }
        Err(Violation::new(Kind::Lost, "it never becomes durable"))
    }

    fn end(&mut self, ticket: Result<Ticket, Error>) -> Result<(), Violation> {
        let say = |error: Error| failed("make pages safe", &error);
        let ticket = ticket.map_err(say)?;
        match self.core()?.wait(ticket).map_err(say)? {
            Some(outcome) => outcome.result.map(drop).map_err(say),
            None => Err(Violation::new(Kind::Failed, "a sync without an outcome")),
        }
    }

    fn sync(&mut self, nth: usize) -> Result<(), Violation> {
        self.count("syncs");
        let (last, handle) = (self.numbers.0 as u32 - 1, self.open[nth].handle);
        let request = SegmentRequest {
            durability: Durability::Data,
            ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
        };
        let full = |_| Error::new("sync", "pages", baio_engine::Error::Indeterminate);
        let ticket = self.core()?.start(request).map_err(full);
        self.end(ticket)?;
        self.tell(nth, Told::Synced(last));
        Ok(())
    }

    /// What the log says up to here is safe in the pages, and is given up.
    fn checkpoint(&mut self, nth: usize) -> Result<(), Violation> {
        self.count("checkpoints");
        let lsn = self.open[nth].held.appender().durable_lsn();
        if self.random.percent(50) {
            let handle = self.open[nth].handle;
            let ticket = self.core()?.flush_to(handle, lsn.0);
            self.end(ticket)?;
        } else {
            self.sync(nth)?;
        }
        let id = self.open[nth].held.id();
        self.tell(nth, Told::Log(model::Told::TruncateAsked(lsn.0)));
        let say = |error: Error| failed("truncate", &error);
        let question = self
            .core()?
            .begin_on_log(id, LogRequest::Truncate { to: lsn })
            .map_err(say)?;
        if self.random.percent(30) {
            self.core()?.abandon_log(question);
            return Ok(());
        }
        if let LogReply::Done(LogAnswer::Head(head)) = self.core()?.wait_log(&question).map_err(say)? {
            self.tell(nth, Told::Log(model::Told::Head(head.0)));
        }
        Ok(())
    }

    /// One of the next writes fails, a log's or a page's.
    fn fail(&mut self) {
        self.count("failed_writes");
        self.fails = true;
        let fault = if self.random.percent(50) {
            Fault::WriteError
        } else {
            Fault::TornWrite
        };
        let nth = 1 + self.random.below(6);
        self.disk.set_faults(Faults::none().when(Trigger::nth(fault, nth)));
    }

    fn close(&mut self) -> Result<(), Violation> {
        self.count("closes");
        let last = self.numbers.0 as u32 - 1;
        for nth in 0..self.open.len() {
            self.tell(nth, Told::Log(model::Told::CloseAsked));
        }
        if let Some(core) = self.core.take() {
            core.close().map_err(|error| failed("close", &error))?;
        }
        for nth in 0..self.open.len() {
            self.tell(nth, Told::Log(model::Told::Closed));
            self.tell(nth, Told::Synced(last));
        }
        Ok(())
    }
}

/// Turns after which what is waited for never comes.
const TURNS_MAX: u32 = 20_000;

fn payload(number: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    model::fill(number, &mut bytes);
    bytes
}

fn changed(sectors: &[stamp::Content]) -> u64 {
    let changed = |sector: &&stamp::Content| **sector != stamp::Content::Zero;
    sectors.iter().filter(changed).count() as u64 / PAGE_SECTORS as u64
}

fn read_log(core: &mut Core, held: &HeldLog, from: Lsn) -> Result<Vec<Seen>, Violation> {
    let say = |error: Error| failed("read a log", &error);
    let mut reader = RecordReader::new(from);
    let mut seen = Vec::new();
    loop {
        let from = reader.next_batch();
        let question = core.begin_on_log(held.id(), LogRequest::Read { from }).map_err(say)?;
        match core.wait_log(&question).map_err(say)? {
            LogReply::Done(LogAnswer::Batches(Some(batches))) if !batches.ranges().is_empty() => {
                model::see(&mut reader, &batches, from, &mut seen)?;
            }
            LogReply::Done(LogAnswer::Batches(_)) => return Ok(seen),
            other => return Err(Violation::new(Kind::Failed, format!("a read gave {other:?}"))),
        }
    }
}
