//! Sessions: a volume is opened, looked at, and used, on the record.
//!
//! The record of a session carries marks. Mark 0: the opening is acknowledged, and what it served has been seen. Mark `n`: the
//! `n`-th operation is. So at every place of the record it is known what the user has been told ([`Session::expectation`]).
//!
//! | file | what it does |
//! |---|---|
//! | `guide.rs` | which operation comes next: by chance, or by a script |
//! | `driver.rs` | does it on a volume, and holds the answer against the model |
//! | `together.rs` | several operations at a time |
//! | `counts.rs` | how many of each kind |

use baio_engine::sim::Disk;
use baio_engine::sim::crash::{Crash, Replay};
use baio_engine::sim::log::Record;

use crate::model::{Model, Op};
use crate::oracle::Expectation;
use crate::stamp::{Instance, Version};
use crate::violation::Violation;

mod counts;
mod driver;
mod guide;
mod together;

pub use counts::Counts;
pub use driver::Driver;
pub use guide::{ByChance, Guide, Script, Step};

/// A disk after a power cut or a kill, and what may be expected of it.
#[derive(Clone, Debug)]
pub struct State {
    /// The disk as the next opening reads it.
    pub disk: Disk,
    /// What of it no later power cut can take away.
    pub base: Disk,
    /// The rest, written but not flushed: after a kill. Without marks.
    pub tail: Vec<Record>,
    /// What must be there.
    pub expectation: Expectation,
}

impl State {
    /// After a power cut all that is there is there for good.
    #[must_use]
    pub fn after_power_cut(disk: Disk, expectation: Expectation) -> State {
        State {
            base: disk.copy(),
            disk,
            tail: Vec::new(),
            expectation,
        }
    }
}

/// A session that has ended, with its record.
#[derive(Clone, Debug)]
pub struct Session {
    /// The disk before the record.
    pub base: Disk,
    /// What the killed process before this one had not flushed, then what this session did.
    pub record: Vec<Record>,
    /// How many records are the killed process's.
    pub inherited: usize,
    /// What could be expected before the opening was acknowledged.
    pub before: Expectation,
    /// What the user had been told after so many operations.
    pub models: Vec<Model>,
    /// The operations.
    pub ops: Vec<Op>,
}

impl Session {
    /// The disk when so many records have happened, all of them wholly.
    #[must_use]
    pub fn disk_at(&self, prefix: usize) -> Disk {
        Replay::new(&self.base, &self.record).disk(Crash::clean(prefix))
    }

    /// Its process is gone, and everything it wrote is on the medium.
    #[must_use]
    pub fn end(&self) -> State {
        let end = self.record.len();
        State::after_power_cut(self.disk_at(end), self.expectation(end))
    }

    /// What must be there when so many records have happened.
    #[must_use]
    pub fn expectation(&self, prefix: usize) -> Expectation {
        let mark = self.record.iter().take(prefix).rev().find_map(|record| match record {
            Record::Mark(mark) => Some(*mark as usize),
            _ => None,
        });
        let Some(acknowledged) = mark else {
            return self.before.clone();
        };
        Expectation {
            model: self.models.get(acknowledged).cloned().unwrap_or_default(),
            under_way: self.ops.get(acknowledged).cloned(),
        }
    }
}

/// Names for lives and writes, each given once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    instance: Instance,
    version: Version,
}

impl Ids {
    fn instance(&mut self) -> Instance {
        self.instance += 1;
        self.instance
    }

    fn version(&mut self) -> Version {
        self.version += 1;
        self.version
    }
}

/// Runs a session on a disk: opens the volume, and does what `guide` says until it says no more.
///
/// # Errors
/// The volume does not open, is not what was promised, or an operation fails that should not.
pub fn run_session(state: State, guide: &mut dyn Guide, counts: &mut Counts) -> Result<Session, Violation> {
    let State {
        disk,
        base,
        tail,
        expectation,
    } = state;
    disk.record();
    let mut driver = Driver::open(disk, &expectation, guide.seed())?;
    counts.open += 1;
    driver.disk().mark(0);
    let mut models = vec![driver.model().clone()];
    let mut ops: Vec<Op> = Vec::new();
    while let Some(wanted) = guide.next(driver.model(), driver.is_open()) {
        let done = driver
            .perform(wanted.clone(), guide.seed())
            .map_err(|violation| violation.after(format!("{wanted:?} after {ops:?}")))?;
        counts.count(&done);
        ops.push(done);
        models.push(driver.model().clone());
        driver.disk().mark(ops.len() as u64);
    }
    // The process is gone, and closes nothing.
    let disk = driver.kill();
    let inherited = tail.len();
    let mut record = tail;
    record.extend(disk.take_record());
    Ok(Session {
        base,
        record,
        inherited,
        before: expectation,
        models,
        ops,
    })
}
