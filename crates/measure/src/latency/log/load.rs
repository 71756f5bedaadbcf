//! How appends come: a closed loop keeps so many records waiting, from one thread or from a thread each; an open loop brings them at random
//! moments, whatever the log does, and counts each latency from the moment at which the record should have come.
//!
//! A tenth of the time goes by before anything is counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use baio_console::interrupt;
use baio_stress::costs::{Costs, own_costs};
use baio_stress::{Random, Recorder};

use super::appender::Appender;
use super::args::LogArgs;
use super::stream::Batches;

/// What is asked for, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) kind: Kind,
    pub(super) runtime: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One thread keeps so many waiting.
    Waiting(u32),
    /// So many threads, one each.
    Threads(u32),
    /// So many a second, from one thread.
    Rate(u32),
}

/// Waiting records unless something is said.
const WAITING_DEFAULT: u32 = 8;

/// What one round gave.
pub(super) struct Loaded {
    pub(super) tally: Tally,
    pub(super) seconds: f64,
    /// Of this process, loader and writer.
    pub(super) costs: Costs,
    /// Of the whole round.
    pub(super) batches: Batches,
}

/// What is counted while a round runs.
pub(super) struct Tally {
    /// To the moment at which whoever appended knew that the record is durable.
    pub(super) latency: Recorder,
    /// Time in the call that appends.
    pub(super) call: Recorder,
    /// Of the oldest record of those that were known durable together.
    pub(super) first: Recorder,
    /// How often there was no room.
    pub(super) refused: u64,
}

/// When a round begins to count, and ends.
#[derive(Clone, Copy)]
struct Times {
    from: Instant,
    until: Instant,
}

impl Load {
    pub(super) fn of(args: &LogArgs) -> Load {
        let kind = match (args.threads, args.rate) {
            (Some(count), _) => Kind::Threads(count),
            (None, Some(per_second)) => Kind::Rate(per_second),
            (None, None) => Kind::Waiting(args.waiting.unwrap_or(WAITING_DEFAULT)),
        };
        let runtime = args.runtime;
        Load { kind, runtime }
    }

    fn times(self) -> Times {
        let from = Instant::now() + self.runtime / 10;
        Times {
            from,
            until: from + self.runtime,
        }
    }

    /// Appends from this thread.
    pub(super) fn by_one(self, side: &impl Appender, record: usize) -> Result<Loaded, String> {
        let record = payload(record);
        let (count, rate) = match self.kind {
            Kind::Waiting(count) => (count as usize, None),
            Kind::Rate(per_second) => (usize::MAX, Some(f64::from(per_second))),
            Kind::Threads(_) => return Err("one thread is not many".to_owned()),
        };
        let mut round = Round::new(self.times());
        let mut random = Random::new(u64::from(std::process::id()));
        // An exponential gap between one record and the next; a closed loop has none.
        let mut gap = |per_second: f64| {
            let even = ((random.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            Duration::from_secs_f64(-even.ln() / per_second)
        };
        let mut next = rate.map(|rate| Instant::now() + gap(rate));
        while let Some(mut now) = round.go_on() {
            let mut is_full = false;
            while round.waiting.len() < count && next.is_none_or(|next| next <= now) {
                let Some(end) = side.append(&record)? else {
                    round.tally.refused += 1;
                    is_full = true;
                    break;
                };
                let after = Instant::now();
                round.tally.call.record(after - now);
                // An open loop counts from the moment at which it should have come.
                round.waiting.push_back((end, next.unwrap_or(now)));
                next = next.zip(rate).map(|(next, rate)| next + gap(rate));
                now = after;
            }
            let until = next.map(|next| next.min(round.times.until));
            match until {
                _ if round.waiting.is_empty() && is_full => side.room(record.len())?,
                Some(until) if round.waiting.is_empty() => {
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                }
                _ => round.learn(side, until)?,
            }
        }
        // Those that were due while it was held up come too. A side that never keeps up has as long again, and no longer.
        let patience = Instant::now() + self.runtime;
        while let Some((due, rate)) = next.zip(rate).filter(|(due, _)| *due <= round.times.until) {
            let now = Instant::now();
            if now > patience || interrupt::came().is_some() {
                break;
            }
            if let Some(end) = side.append(&record)? {
                round.tally.call.record(now.elapsed());
                round.waiting.push_back((end, due));
                next = Some(due + gap(rate));
                continue;
            }
            round.tally.refused += 1;
            match round.waiting.is_empty() {
                true => side.room(record.len())?,
                false => round.learn(side, None)?,
            }
        }
        // Of those that come whatever the log does the slowest must not be left out.
        while rate.is_some() && !round.waiting.is_empty() {
            round.learn(side, None)?;
        }
        Ok(round.end())
    }

    /// Appends from many threads.
    pub(super) fn by_many<A: Appender + Sync>(self, side: &A, record: usize) -> Result<Loaded, String> {
        let Kind::Threads(count) = self.kind else {
            return self.by_one(side, record);
        };
        let times = self.times();
        let record = payload(record);
        std::thread::scope(|scope| {
            let one = || each(side, &record, times);
            let threads = crate::program::started(scope, (0..count).map(|_| one))?;
            interrupt::pause(times.from.saturating_duration_since(Instant::now()));
            let (before, from) = (own_costs(), Instant::now());
            interrupt::pause(times.until.saturating_duration_since(from));
            let (costs, seconds) = (own_costs() - before, from.elapsed().as_secs_f64());
            let mut tally = Tally::new();
            for thread in threads {
                tally.merge(&crate::program::joined(thread.join())?);
            }
            Ok(tally.told(costs, seconds))
        })
    }
}

/// Records that no device can leave out.
fn payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(1).fill(&mut bytes);
    bytes
}

/// One of many threads: a record, and until it is durable nothing else.
fn each(side: &impl Appender, record: &[u8], times: Times) -> Result<Tally, String> {
    let mut tally = Tally::new();
    let mut now = Instant::now();
    while now < times.until && interrupt::came().is_none() {
        let Some(end) = side.append(record)? else {
            tally.refused += 1;
            std::thread::yield_now();
            now = Instant::now();
            continue;
        };
        let called = Instant::now();
        side.wait(end, None)?;
        let after = Instant::now();
        // By when it began: the longest waits are those that end behind the end.
        if now >= times.from {
            tally.call.record(called - now);
            tally.latency.record(after - now);
        }
        now = after;
    }
    Ok(tally)
}

/// A loop of one thread.
struct Round {
    times: Times,
    tally: Tally,
    /// Where each record ends, and since when it counts.
    waiting: VecDeque<(u64, Instant)>,
    /// What the process had cost when counting began, and when that was.
    before: Option<(Costs, Instant)>,
}

impl Round {
    fn new(times: Times) -> Round {
        Round {
            times,
            tally: Tally::new(),
            waiting: VecDeque::new(),
            before: None,
        }
    }

    /// What time it is, unless the round is over, or a signal ends it.
    fn go_on(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.before.is_none() && now >= self.times.from {
            self.tally = Tally::new();
            self.before = Some((own_costs(), now));
        }
        (now < self.times.until && interrupt::came().is_none()).then_some(now)
    }

    /// Waits for the oldest record, and takes all that are durable by then.
    fn learn(&mut self, side: &impl Appender, until: Option<Instant>) -> Result<(), String> {
        let Some(&(oldest, _)) = self.waiting.front() else {
            return Ok(());
        };
        let durable = side.wait(oldest, until)?;
        let now = Instant::now();
        let mut is_first = true;
        while let Some(&(end, since)) = self.waiting.front() {
            if end > durable {
                break;
            }
            self.waiting.pop_front();
            let latency = now.saturating_duration_since(since);
            self.tally.latency.record(latency);
            if std::mem::take(&mut is_first) {
                self.tally.first.record(latency);
            }
        }
        Ok(())
    }

    fn end(self) -> Loaded {
        let Some((before, from)) = self.before else {
            return Tally::new().told(Costs::default(), 0.0);
        };
        self.tally.told(own_costs() - before, from.elapsed().as_secs_f64())
    }
}

impl Tally {
    fn new() -> Tally {
        Tally {
            latency: Recorder::new(),
            call: Recorder::new(),
            first: Recorder::new(),
            refused: 0,
        }
    }

    fn merge(&mut self, other: &Tally) {
        self.latency.merge(&other.latency);
        self.call.merge(&other.call);
        self.first.merge(&other.first);
        self.refused += other.refused;
    }

    fn told(self, costs: Costs, seconds: f64) -> Loaded {
        Loaded {
            tally: self,
            seconds,
            costs,
            batches: Batches::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Durable at once, but for one wait, which takes so long.
    struct Stalls {
        begun: Instant,
        appended: Cell<u64>,
        after: Duration,
        stall: Cell<Option<Duration>>,
    }

    impl Stalls {
        fn new(after_ms: u64, stall_ms: u64) -> Stalls {
            Stalls {
                begun: Instant::now(),
                appended: Cell::new(0),
                after: Duration::from_millis(after_ms),
                stall: Cell::new(Some(Duration::from_millis(stall_ms))),
            }
        }
    }

    impl Appender for Stalls {
        fn append(&self, _: &[u8]) -> Result<Option<u64>, String> {
            self.appended.set(self.appended.get() + 1);
            Ok(Some(self.appended.get()))
        }

        fn wait(&self, _: u64, _: Option<Instant>) -> Result<u64, String> {
            if self.begun.elapsed() >= self.after
                && let Some(stall) = self.stall.take()
            {
                std::thread::sleep(stall);
            }
            Ok(self.appended.get())
        }
    }

    #[test]
    fn what_was_due_while_the_side_was_held_up_is_counted() {
        let load = Load {
            kind: Kind::Rate(2000),
            runtime: Duration::from_millis(100),
        };
        // From the middle of the round to long behind its end: of some 200 records more than half are late.
        let loaded = load.by_one(&Stalls::new(50, 300), 16).unwrap();
        let latency = &loaded.tally.latency;
        assert!(latency.count() >= 140, "{} records", latency.count());
        let p50 = latency.latency().p50;
        assert!(p50.is_some_and(|us| us >= 50_000.0), "{p50:?}");
    }

    #[test]
    fn a_wait_that_ends_behind_the_end_counts() {
        let from = Instant::now();
        let until = from + Duration::from_millis(20);
        let tally = each(&Stalls::new(0, 40), b"record", Times { from, until }).unwrap();
        assert_eq!(tally.latency.count(), 1);
        assert!(tally.latency.latency().max.is_some_and(|us| us >= 39_000.0));
    }
}
