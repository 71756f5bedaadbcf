//! Flash: a latency by kind of request with some jitter, a rate per channel, and many channels.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::sim::faults::Kind;
use crate::backend::sim::job::Job;
use crate::backend::sim::profile::{Busy, Mechanism};
use crate::backend::sim::random::Random;
use crate::policy::Time;

/// A flash disk. A write ends in its cache; one that must be durable takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// A read of no bytes.
    pub read: Duration,
    /// A write of no bytes into the cache.
    pub write: Duration,
    /// A durable write of no bytes.
    pub write_durable: Duration,
    /// A flush.
    pub flush: Duration,
    /// Bytes per second of one channel.
    pub bytes_per_second: u64,
    /// Requests served at a time.
    pub channels: u32,
    /// Each request takes up to so many per cent longer.
    pub jitter_percent: u32,
}

impl Default for Flash {
    /// About a consumer's NVMe disk.
    fn default() -> Flash {
        Flash {
            read: Duration::from_micros(60),
            write: Duration::from_micros(15),
            write_durable: Duration::from_micros(90),
            flush: Duration::from_micros(400),
            bytes_per_second: 1 << 30,
            channels: 32,
            jitter_percent: 20,
        }
    }
}

pub(crate) struct FlashState {
    flash: Flash,
    busy: u32,
}

impl FlashState {
    pub(crate) fn new(flash: Flash) -> FlashState {
        FlashState { flash, busy: 0 }
    }

    fn service(&self, job: &Job, dice: &mut Random) -> u64 {
        let flash = &self.flash;
        let latency = match job.kind {
            Kind::Read => flash.read,
            Kind::Write | Kind::Allocate if job.durable => flash.write_durable,
            Kind::Write | Kind::Allocate | Kind::Truncate => flash.write,
            Kind::Flush => flash.flush,
            Kind::Other => Duration::ZERO,
        };
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let jitter = latency / 100 * u64::from(flash.jitter_percent);
        latency
            .saturating_add(dice.below(jitter))
            .saturating_add(transfer_ns(job.moved(), flash.bytes_per_second))
    }
}

impl Mechanism for FlashState {
    fn next(&mut self, queue: &mut VecDeque<Job>, now: Time, dice: &mut Random) -> Option<(Busy, Time)> {
        if self.busy >= self.flash.channels.max(1) {
            return None;
        }
        let job = queue.pop_front()?;
        self.busy += 1;
        let end = Time(now.0.saturating_add(self.service(&job, dice)));
        Some((Busy::Job(job), end))
    }

    fn ended(&mut self, _: &Busy) {
        self.busy -= 1;
    }
}

/// How long so many bytes take at a rate.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
