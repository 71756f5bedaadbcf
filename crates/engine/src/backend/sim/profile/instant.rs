//! No time at all: for tests of what is done, not of when.

use std::collections::VecDeque;

use crate::backend::sim::job::Job;
use crate::backend::sim::profile::{Busy, Mechanism};
use crate::backend::sim::random::Random;
use crate::policy::Time;

pub(crate) struct InstantState;

impl Mechanism for InstantState {
    fn next(&mut self, queue: &mut VecDeque<Job>, now: Time, _: &mut Random) -> Option<(Busy, Time)> {
        queue.pop_front().map(|job| (Busy::Job(job), now))
    }
}
