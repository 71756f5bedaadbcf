//! How long a disk takes: one file per kind of disk.
//!
//! A profile decides which of the waiting jobs begins now and when it ends. It moves no bytes.

use std::collections::VecDeque;

use crate::backend::sim::job::Job;
use crate::backend::sim::random::Random;
use crate::policy::Time;

mod flash;
mod instant;
mod rotating;

pub use flash::Flash;
pub use rotating::Rotating;

use instant::InstantState;

/// What kind of disk it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Profile {
    /// Everything ends in the moment in which it begins, in order.
    #[default]
    Instant,
    /// Tens of microseconds, many at a time.
    Flash(Flash),
    /// Arms and platters: milliseconds, one at a time, cleverly ordered.
    Rotating(Rotating),
}

/// What keeps a disk busy.
#[derive(Debug)]
pub(crate) enum Busy {
    /// A request's iteration.
    Job(Job),
    /// Its own business, of this many bytes: destaging its cache.
    Own(u64),
}

/// The inside of a disk with a profile. `next` takes what begins now from the queue, with the time of its end; none
/// means: not before something ends or arrives. Every work begun ends by one call of `ended`.
pub(crate) trait Mechanism: Send {
    /// A job has reached the device.
    fn arrived(&mut self, _job: &mut Job) {}
    fn next(&mut self, queue: &mut VecDeque<Job>, now: Time, dice: &mut Random) -> Option<(Busy, Time)>;
    fn ended(&mut self, _work: &Busy) {}
}

impl Profile {
    pub(crate) fn mechanism(self, disk_bytes: u64) -> Box<dyn Mechanism> {
        match self {
            Profile::Instant => Box::new(InstantState),
            Profile::Flash(flash) => Box::new(flash::FlashState::new(flash)),
            Profile::Rotating(rotating) => Box::new(rotating::RotatingState::new(rotating, disk_bytes)),
        }
    }
}
