//! Sessions: an opening, or a making, and what is done with the log then, all on the record; and the crash states of that record.

use std::sync::Arc;
use std::time::Duration;

use baio_engine::Arena;
use baio_engine::sim::Random;
use baio_storage::log::format::DATA_AT;
use baio_storage::log::{LogError, LogOptions};

use super::follow::Follower;
use super::medium::{Fall, Medium, Write};
use super::model::Model;
use super::rig::{Event, Rig};
use crate::violation::{Kind, Violation};

/// What a log of a workload is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How it is opened.
    pub options: LogOptions,
    /// Bytes of its area at first.
    pub size_bytes: u64,
    /// Bytes that it may grow to.
    pub size_max: u64,
}

impl Shape {
    /// Any that is small: a few batches go round the area.
    #[must_use]
    pub fn by_chance(random: &mut Random) -> Shape {
        let block: u32 = if random.percent(75) { 512 } else { 4096 };
        let windows: &[u32] = if block == 512 { &[1, 2, 3, 8] } else { &[1, 2, 2, 8] };
        let window = random.pick(windows).copied().unwrap_or(1);
        // Images are copied for each state.
        let batches = match (block, window) {
            (512, 8) | (4096, 1 | 2) => 2,
            (512, _) => 5,
            _ => 1,
        };
        let batch = block * (2 + random.below(batches) as u32);
        let least = u64::from(4 * window * batch);
        let more = random.below(6) * u64::from(block);
        let capacity = least + more + if random.percent(30) { least / 2 } else { 0 };
        let capacity = capacity.next_multiple_of(u64::from(block));
        let size_bytes = DATA_AT + capacity;
        let options = LogOptions {
            block_bytes: block,
            window,
            window_short: u32::from(random.percent(20)),
            gather: if random.percent(15) {
                Duration::from_millis(1)
            } else {
                Duration::ZERO
            },
            // With less, batches of two blocks take no record.
            buffer_bytes: random.below(capacity * 2).max(16 * u64::from(block)) as usize,
            batch_bytes_max: batch,
            recent_bytes: random.below(3) as usize * 4096,
            file_bytes: 0,
            salvage: false,
        };
        Shape {
            options,
            size_bytes,
            size_max: size_bytes + 2 * capacity,
        }
    }

    /// The same log, as the next process opens it.
    #[must_use]
    pub fn reopened(&self, random: &mut Random) -> Shape {
        let mut shape = *self;
        if random.percent(30) {
            shape.options.window = random.pick(&[1, 2, 3, 8]).copied().unwrap_or(1);
            shape.options.buffer_bytes = random.below(64 << 10) as usize;
        }
        shape
    }
}

/// Numbers of records: no two have the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers(pub u64);

/// Bytes as a crash left them, and what was promised of them.
#[derive(Clone, Debug)]
pub struct State {
    /// The device.
    pub medium: Medium,
    /// What must hold.
    pub model: Model,
}

/// What happened to a medium.
#[derive(Debug)]
pub struct Session {
    base: State,
    /// In order.
    pub record: Vec<Event>,
}

/// Replicas of one log at a time.
const FOLLOWERS_MAX: u64 = 2;

/// What was done, by name.
pub type Counts = std::collections::BTreeMap<&'static str, u64>;

/// A session under way.
pub struct Driver<'a> {
    /// The log.
    pub rig: Rig,
    /// What it has told so far.
    pub model: Model,
    shape: Shape,
    random: Random,
    numbers: &'a mut Numbers,
    counts: &'a mut Counts,
    folded: usize,
    followers: Vec<Follower>,
    /// So many there have been.
    replicas: u64,
    /// Truncation was asked to go so far, of what was durable then.
    owed: u64,
}

/// Makes a log on this medium, over whatever is there (what was appended to it is `gone`), and uses it so often.
///
/// # Errors
/// A broken promise.
pub fn make(
    arena: &Arc<Arena>,
    shape: &Shape,
    base: State,
    random: &mut Random,
    ops: u64,
    numbers: &mut Numbers,
    counts: &mut Counts,
) -> Result<Session, Violation> {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.bits().to_le_bytes());
    let with = Random::from(&[random.bits()]);
    let rig = Rig::create(arena, base.medium.clone(), shape.size_bytes, uuid, &shape.options, with)?;
    let model = base.model.clone();
    Driver::new(rig, &model, shape, random, numbers, counts).run(base, ops)
}

/// Opens a log as a crash left it, and uses it so often.
///
/// # Errors
/// A broken promise.
pub fn go_on(
    arena: &Arc<Arena>,
    shape: &Shape,
    mut state: State,
    random: &mut Random,
    ops: u64,
    numbers: &mut Numbers,
    counts: &mut Counts,
) -> Result<Session, Violation> {
    let model = state.model.clone();
    state.model.is_opened_again();
    let with = Random::from(&[random.bits()]);
    let mut rig = Rig::open(arena, state.medium.clone(), &shape.options, with)?;
    if random.percent(30) {
        // Batches of which no watermark tells are written once more.
        *counts.entry("cached_openings").or_default() += 1;
        rig.goes_through_a_cache();
    }
    if random.percent(6) {
        *counts.entry("failed_openings").or_default() += 1;
        rig.fails_in = Some(random.below(3) as u32);
    }
    Driver::new(rig, &model, shape, random, numbers, counts).run(state, ops)
}

impl<'a> Driver<'a> {
    fn new(
        rig: Rig,
        model: &Model,
        shape: &Shape,
        random: &mut Random,
        numbers: &'a mut Numbers,
        counts: &'a mut Counts,
    ) -> Driver<'a> {
        Driver {
            rig,
            model: model.clone(),
            shape: *shape,
            random: Random::from(&[random.bits()]),
            numbers,
            counts,
            folded: 0,
            followers: Vec::new(),
            replicas: 0,
            owed: 0,
        }
    }

    fn run(mut self, base: State, ops: u64) -> Result<Session, Violation> {
        let recovered = match self.rig.opened()? {
            Ok(recovered) => recovered,
            Err(error) if !base.model.is_made && is_no_log(&error) => {
                // The making was cut short, and there is no log: that is the end.
                let record = self.rig.record;
                return Ok(Session { base, record });
            }
            Err(LogError::Failed { .. }) if self.rig.has_failed => {
                let record = self.rig.record;
                return Ok(Session { base, record });
            }
            Err(error) => {
                let story = format!("{error}\n  {}", super::rot::describe(&base.medium));
                return Err(Violation::new(Kind::Refused, story));
            }
        };
        let seen = self.rig.read(recovered.head)?;
        if self.model.is_former(&seen) {
            let record = self.rig.record;
            return Ok(Session { base, record });
        }
        let groups = self.model.check(&recovered, &seen, false)?;
        self.rig.served(recovered, groups);
        self.fold();
        for _ in 0..ops {
            let goes_on = self.step()?;
            self.fold();
            if !goes_on {
                break;
            }
        }
        if self.random.percent(40) {
            self.rig.drain()?;
        }
        let record = self.rig.record;
        Ok(Session { base, record })
    }

    fn fold(&mut self) {
        for event in &self.rig.record[self.folded..] {
            if let Event::Told(told) = event {
                self.model.told(told);
            }
        }
        self.folded = self.rig.record.len();
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// False: the session is over.
    fn step(&mut self) -> Result<bool, Violation> {
        if self.rig.has_failed && self.random.percent(40) {
            return Ok(false);
        }
        match self.random.below(117) {
            0..=44 => self.append()?,
            45..=64 => {
                for _ in 0..=self.random.below(3) {
                    self.rig.end_one(false)?;
                }
            }
            65..=69 => {
                self.count("drains");
                self.rig.drain()?;
                self.fold();
                self.truncation_is_there()?;
            }
            70..=81 => self.truncate()?,
            82..=85 => {
                self.count("idles");
                self.rig.pass(Duration::from_millis(1 + self.random.below(300)))?;
            }
            86..=87 => {
                self.count("notes");
                self.rig.note_watermark()?;
            }
            88..=92 => self.read()?,
            93..=94 => self.grow()?,
            95 => {
                self.count("failed_writes");
                self.rig.fails_in = Some(self.random.below(3) as u32);
            }
            96 => {
                self.count("closes");
                self.rig.close()?;
                for _ in 0..self.random.below(12) {
                    self.rig.end_one(false)?;
                }
                return Ok(false);
            }
            97..=113 => self.follow()?,
            114 => {
                self.count("misreads");
                let is_over = self.rig.misread_percent > 0;
                self.rig.misread_percent = if is_over { 0 } else { 30 };
            }
            _ => {
                self.rig.pass(Duration::from_millis(1))?;
            }
        }
        Ok(true)
    }

    fn follow(&mut self) -> Result<(), Violation> {
        self.count("follows");
        let many = self.followers.len() as u64;
        if many == 0 || many < FOLLOWERS_MAX && self.random.percent(20) {
            // What a log that has failed holds only the next opening knows.
            if !self.rig.has_failed {
                self.count("replicas");
                self.replicas += 1;
                let follower = Follower::new(&mut self.rig, self.replicas, &mut self.random);
                self.followers.push(follower);
            }
            return Ok(());
        }
        let at = self.random.below(many) as usize;
        if self.random.percent(6) {
            self.followers.swap_remove(at).leave(&mut self.rig);
            return Ok(());
        }
        self.followers[at].step(&mut self.rig, &self.model, &mut self.random)
    }

    /// Everything has ended: truncation has come as far as nobody is in its way.
    fn truncation_is_there(&mut self) -> Result<(), Violation> {
        // What could not be read was not given up.
        if self.rig.has_failed || self.rig.has_misread {
            return Ok(());
        }
        self.followers
            .iter()
            .try_for_each(|follower| follower.is_told(self.owed))?;
        let held = self.followers.iter().map(Follower::from).min().unwrap_or(u64::MAX);
        if held < self.owed {
            self.count("held_up");
        }
        let (head, to) = (self.rig.head().0, self.owed.min(held));
        let kept = self.model.groups.iter().filter(|group| (head..to).contains(&group.lsn));
        if kept.count() > 1 {
            let story = format!("truncation to {to} is over, and the head is {head}");
            return Err(Violation::new(Kind::Space, story));
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), Violation> {
        let batch = u64::from(self.shape.options.batch_bytes_max);
        let records = if self.random.percent(70) {
            1
        } else {
            2 + self.random.below(4)
        };
        let lens: Vec<u32> = (0..records)
            .map(|_| match self.random.below(20) {
                0 => 0,
                1..=11 => self.random.below(200),
                12..=16 => self.random.below(batch),
                17..=18 => self.random.below(3 * batch),
                _ => self.random.below(8 * batch),
            } as u32)
            .collect();
        let first = self.numbers.0;
        self.numbers.0 += records;
        match self.rig.append(first, &lens, self.model.given)? {
            Ok(_) => {
                self.count(if records > 1 { "groups" } else { "appends" });
                if lens.iter().any(|&len| u64::from(len) > batch) {
                    self.count("large");
                }
                if self.random.percent(30) {
                    self.rig.pump();
                }
                Ok(())
            }
            Err(LogError::WouldBlock | LogError::Full) => {
                self.count("would_block");
                for _ in 0..2 {
                    self.rig.end_one(false)?;
                }
                self.truncate()
            }
            Err(LogError::TooLong { .. }) => Ok(()),
            Err(LogError::Failed { .. }) if self.rig.has_failed => Ok(()),
            Err(error) => Err(Violation::new(Kind::Failed, format!("an append: {error}"))),
        }
    }

    fn truncate(&mut self) -> Result<(), Violation> {
        self.count("truncates");
        let to = match self.random.below(10) {
            0..=5 => self.rig.durable(),
            6 => self.model.given + 8 * self.random.below(100),
            7 => self.model.given,
            _ => {
                let lsn = self.random.pick(&self.model.groups).map_or(0, |group| group.lsn);
                lsn.saturating_sub(8 * self.random.below(3))
            }
        };
        self.owed = self.owed.max(to.min(self.rig.durable()));
        self.rig.truncate(to)
    }

    fn read(&mut self) -> Result<(), Violation> {
        self.count("reads");
        if self.rig.has_failed {
            return Ok(());
        }
        let from = self.rig.head();
        let seen = self.rig.read(from)?;
        self.fold();
        let durable = self.rig.durable();
        let groups = self.model.check_prefix(from.0, &seen)?;
        let missing = self.model.groups.get(groups).filter(|group| group.lsn < durable);
        match missing {
            Some(group) => Err(Violation::new(
                Kind::Lost,
                format!("LSN {} is durable, and is not read", group.lsn),
            )),
            None => Ok(()),
        }
    }

    fn grow(&mut self) -> Result<(), Violation> {
        self.count("grows");
        let block = u64::from(self.shape.options.block_bytes);
        let size = self.rig.size_bytes().min(self.shape.size_max);
        let more = block * (1 + self.random.below(24));
        self.rig.grow((size + more).min(self.shape.size_max))
    }
}

/// Is that what an area says in which a log was not made to its end?
#[must_use]
pub fn is_no_log(error: &LogError) -> bool {
    matches!(error, LogError::NotLog | LogError::NotMade | LogError::HeaderLost)
}

/// Goes through the record of a session; what it holds at each moment.
pub struct Replay<'a> {
    session: &'a Session,
    medium: Medium,
    model: Model,
    doubtful: Vec<(usize, Write)>,
    /// Those of which nobody knows how much is there, and that nobody writes any more.
    failed: Vec<Write>,
    at: usize,
}

impl<'a> Replay<'a> {
    /// From its beginning on.
    #[must_use]
    pub fn new(session: &'a Session) -> Replay<'a> {
        Replay {
            session,
            medium: session.base.medium.clone(),
            model: session.base.model.clone(),
            doubtful: Vec::new(),
            failed: Vec::new(),
            at: 0,
        }
    }

    /// The first bytes of a write are durable, and nobody writes the others.
    fn land(&mut self, number: usize, bytes: usize) {
        if let Some(write) = self.take(number) {
            let bytes = &write.bytes[..bytes.min(write.bytes.len())];
            self.medium.write(write.offset, bytes);
            let landed = write.offset..write.offset + bytes.len() as u64;
            let failed = std::mem::take(&mut self.failed);
            self.failed = failed.into_iter().flat_map(|write| write.without(&landed)).collect();
        }
    }

    fn take(&mut self, number: usize) -> Option<Write> {
        let at = self.doubtful.iter().position(|(of, _)| *of == number)?;
        Some(self.doubtful.remove(at).1)
    }

    /// Behind so many events, that are at least as many as before: as a power cut, or a kill, leaves it.
    pub fn state(&mut self, events: usize, how: Fall, random: &mut Random) -> State {
        while self.at < events {
            match &self.session.record[self.at] {
                Event::Begun(number, write) => self.doubtful.push((*number, write.clone())),
                Event::Ended(number) => {
                    self.land(*number, usize::MAX);
                }
                Event::Short(number, bytes) => self.land(*number, *bytes),
                Event::Failed(number) => {
                    let write = self.take(*number);
                    self.failed.extend(write);
                }
                Event::Synced => self.medium.sync(),
                Event::Told(told) => self.model.told(told),
            }
            self.at += 1;
        }
        let mut medium = self.medium.clone();
        let under_way = self.doubtful.iter().map(|(_, write)| write);
        let doubtful = self.failed.iter().chain(under_way).cloned().collect();
        medium.fall(how, doubtful, random);
        State {
            medium,
            model: self.model.clone(),
        }
    }
}
