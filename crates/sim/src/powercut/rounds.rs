//! A round: somebody works on the device, in a process of its own, and says what was acknowledged; the power is cut; what is there
//! then is judged. Some rounds on one state are a life; a life is what a failure replays.
//!
//! Lives on a device that lies about flushes come last: a story that notices nothing there shows nothing.

use std::time::{Duration, Instant};

use baio_engine::sim::Random;

use super::bench::{self, Bench};
use super::place::Place;
use super::running::Running;
use super::stories::{self, PLAIN_LOST, Seen, Story};
use super::worker::Failure;
use crate::nbd::{Cut, Fault, Manner, What};

const DISK_BYTES: u64 = 24 << 20;
const ROUNDS_OF_A_LIFE: u64 = 8;
/// On a device that lies, a loss must be found within so many lives.
const LIVES_OF_LIES: u64 = 12;
/// In one round of so many a worker may still say what comes of a cut: who is killed at once cannot panic at it.
const ROUNDS_PER_LAST_WORD: u64 = 4;
/// For so long, unless it ends before.
const LAST_WORD: Duration = Duration::from_millis(50);

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The names of the stories; empty for all.
    pub stories: Vec<String>,
    /// Rounds of each.
    pub rounds: u64,
    /// From which all choices follow. What the threads of a worker do beside each other does not.
    pub seed: u64,
    /// Only this life.
    pub only: Option<u64>,
    /// The device lies about flushes: losses are found, or the story is worth nothing.
    pub lies: bool,
}

/// What came of one story.
#[derive(Debug, Default, serde::Serialize)]
pub struct Report {
    /// Its name.
    pub story: &'static str,
    /// Rounds that were run and judged.
    pub rounds: u64,
    /// Of them, those on a block device; the others are on a file.
    pub rounds_on_block_device: u64,
    /// There are block devices here.
    #[serde(skip)]
    pub has_block_device: bool,
    /// Requests of workers that failed because the device was told so.
    pub errors: u64,
    /// Writes that the device had acknowledged, and that a cut took, or parts of them.
    pub writes_lost: u64,
    /// Lines that were said.
    pub lines: u64,
    /// How much was looked at, by name; and what was acknowledged, not as durable, and is gone: with these counted as durable,
    /// losses are found.
    pub seen: Seen,
    /// Lives on a device that lies were run too.
    pub lies_tried: bool,
    /// The number of the life in which a loss was found on a device that lies.
    pub bites: Option<u64>,
    /// Promises that were broken, and how to see it again.
    pub broken: Vec<String>,
    /// In seconds.
    pub seconds: f64,
}

impl Report {
    /// Is a promise broken, or does it notice nothing?
    #[must_use]
    pub fn is_bad(&self) -> bool {
        !self.broken.is_empty() || (self.lies_tried && self.bites.is_none())
    }

    /// How much is gone that was acknowledged, and not as durable.
    #[must_use]
    pub fn plain_lost(&self) -> u64 {
        self.seen.get(PLAIN_LOST).copied().unwrap_or_default()
    }
}

/// Runs the plan, and tells of each story when it is over.
///
/// # Errors
/// It cannot run here; why.
pub fn run(plan: &Plan, mut tell: impl FnMut(&Report)) -> Result<(), String> {
    let mut bench = Bench::new(DISK_BYTES, plan.seed)?;
    let has_block_device = bench.has_block_device();
    for (name, make) in stories::ALL {
        if !plan.stories.is_empty() && !plan.stories.iter().any(|wanted| wanted == name) {
            continue;
        }
        let began = Instant::now();
        let lost_before = bench.disk.counts().lost;
        let mut report = Report {
            story: name,
            has_block_device,
            ..Report::default()
        };
        one_story(plan, &mut bench, make, &mut report);
        report.writes_lost = bench.disk.counts().lost - lost_before;
        report.seconds = began.elapsed().as_secs_f64();
        tell(&report);
    }
    bench::ends();
    Ok(())
}

fn one_story(plan: &Plan, bench: &mut Bench, make: stories::Make, report: &mut Report) {
    if !plan.lies {
        let (mut number, mut left) = (plan.only.unwrap_or(0), plan.rounds);
        while left > 0 {
            let rounds = ROUNDS_OF_A_LIFE.min(left);
            if let Err(End::Bench(broken) | End::Promise(broken)) =
                life(plan, bench, &mut *make(), number, rounds, report)
            {
                report.broken.push(broken);
            }
            left = if plan.only.is_some() { 0 } else { left - rounds };
            number += 1;
        }
    }
    if plan.only.is_some() && !plan.lies {
        return; // It is of one life only, which was honest.
    }
    report.lies_tried = true;
    let lives = plan.only.map_or(0..LIVES_OF_LIES, |only| only..only + 1);
    for number in lives {
        let mut liar = Report {
            story: report.story,
            has_block_device: report.has_block_device,
            ..Report::default()
        };
        let plan = Plan {
            lies: true,
            ..plan.clone()
        };
        match life(&plan, bench, &mut *make(), number, ROUNDS_OF_A_LIFE, &mut liar) {
            Ok(()) => {}
            Err(end) => return end.of_a_liar(number, report),
        }
    }
}

/// Why a life has ended early.
#[derive(Debug)]
enum End {
    /// Nothing was judged: the device or a worker is not what a life needs, or a worker has panicked, which no device may bring about.
    Bench(String),
    /// Something that was acknowledged is not there.
    Promise(String),
}

impl End {
    /// What it says where the device has lied: that a loss is found is what was wanted; a bench that breaks finds nothing.
    fn of_a_liar(self, life: u64, report: &mut Report) {
        match self {
            End::Promise(_) => report.bites = Some(life),
            End::Bench(broken) => report.broken.push(broken),
        }
    }

    /// The same, with more said.
    fn map(self, tell: impl FnOnce(String) -> String) -> End {
        match self {
            End::Bench(why) => End::Bench(tell(why)),
            End::Promise(why) => End::Promise(tell(why)),
        }
    }
}

fn of_the_bench(error: impl Into<Failure>) -> End {
    End::Bench(error.into().to_string())
}

fn of_a_promise(error: impl Into<Failure>) -> End {
    End::Promise(error.into().to_string())
}

/// The command that shows a life again.
fn replay(plan: &Plan, story: &str, number: u64) -> String {
    let lies = if plan.lies { " --lies" } else { "" };
    format!(
        "cargo run --release -p baio-sim -- powercut --story {story} --seed {} --only {number}{lies}",
        plan.seed
    )
}

fn life(
    plan: &Plan,
    bench: &mut Bench,
    story: &mut dyn Story,
    number: u64,
    rounds: u64,
    report: &mut Report,
) -> Result<(), End> {
    let replay = replay(plan, report.story, number);
    let mut random = Random::from(&[plan.seed, number, u64::from(plan.lies), hash(report.story)]);
    let name = report.story;
    let tell = |what: &str, error: String| format!("{name}: {what}: {error}\nreplay: {replay}");
    bench::begins(&replay);
    let over_loop = random.percent(40);
    bench.as_block_device = over_loop && report.has_block_device;
    bench.disk.lie(false);
    bench
        .restart()
        .map_err(|error| End::Bench(tell("it cannot be mounted", error)))?;
    bench.disk.blank();
    story
        .prepare(bench, &mut random)
        .map_err(|error| End::Bench(tell("nothing fails, and it cannot be made", error.to_string())))?;
    bench.disk.lie(plan.lies);
    for round in 0..rounds {
        bench::begins(&replay);
        let hears_out = round % ROUNDS_PER_LAST_WORD == ROUNDS_PER_LAST_WORD - 1;
        one_round(bench, story, &mut random, report, hears_out)
            .map_err(|end| end.map(|why| tell(&format!("round {round}"), why)))?;
        report.rounds += 1;
        report.rounds_on_block_device += u64::from(bench.as_block_device);
    }
    Ok(())
}

fn hash(name: &str) -> u64 {
    name.bytes().fold(0, |sum, byte| sum * 31 + u64::from(byte))
}

fn one_round(
    bench: &mut Bench,
    story: &mut dyn Story,
    random: &mut Random,
    report: &mut Report,
    hears_out: bool,
) -> Result<(), End> {
    let (cut, fault) = (cut(random), failing(random));
    let patience = Duration::from_millis(30 + random.below(400));
    let failed_before = bench.disk.counts().failed;
    bench.disk.cut_at(Some(cut));
    fault.into_iter().for_each(|fault| bench.disk.fail(fault));
    let mut running = Running::start(bench, report.story, random.bits(), story.first()).map_err(of_the_bench)?;
    let was_cut = bench.disk.wait_for_cut(patience);
    let ended_before = match was_cut {
        true => None,
        false => running.ended().map_err(of_the_bench)?,
    };
    let errors = bench.disk.counts().failed - failed_before;
    bench.disk.cut(cut.manner);
    if hears_out {
        running.wait_for_lines(usize::MAX, LAST_WORD);
    }
    // It may have ended by itself, when the power was gone.
    let lines = running.kill().map_err(of_the_bench)?;
    if let Some(status) = ended_before.filter(|_| errors == 0) {
        let last = lines.last().map_or("", String::as_str);
        return Err(End::Promise(format!(
            "nothing failed, and the worker ended ({status}): {last}"
        )));
    }
    bench.restart().map_err(of_the_bench)?;
    report.lines += lines.len() as u64;
    report.errors += errors;
    // Without power, or after an error, it says what went wrong, and that is no matter.
    for line in lines.iter().filter(|line| !line.starts_with('!')) {
        story.hear(line).map_err(of_a_promise)?;
    }
    story.judge(bench, random, &mut report.seen).map_err(of_a_promise)
}

/// Some cuts fall into the opening, some into the work, and some come at a moment, between two writes.
fn cut(random: &mut Random) -> Cut {
    let manner = match random.below(10) {
        0..2 => Manner::Whole,
        2..5 => Manner::Some,
        5..9 => Manner::Torn,
        _ => Manner::Nothing,
    };
    let after_writes = match random.below(10) {
        0..3 => random.below(30),
        3..8 => random.below(500),
        _ => u64::MAX,
    };
    Cut { after_writes, manner }
}

/// In one round of five requests fail before the cut: now and then, or from a moment on. What is acknowledged all the same must be there.
fn failing(random: &mut Random) -> Option<Fault> {
    if !random.percent(20) {
        return None;
    }
    let what = match random.below(10) {
        0..5 => What::Write,
        5..8 => What::Flush,
        _ => What::Read,
    };
    Some(Fault {
        chance_ppm: *random.pick(&[5_000, 50_000, 1_000_000]).unwrap_or(&50_000),
        after: random.below(150),
        times: *random.pick(&[1, 3, u64::MAX]).unwrap_or(&1),
        ..Fault::all(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_bench_is_no_liar_found_out() {
        let mut report = Report {
            lies_tried: true,
            ..Report::default()
        };
        assert!(report.is_bad(), "nothing was noticed");
        End::Bench("it cannot be mounted".into()).of_a_liar(3, &mut report);
        assert_eq!((report.bites, report.broken.len()), (None, 1));
        let mut report = Report {
            lies_tried: true,
            ..Report::default()
        };
        End::Promise("a record is gone".into()).of_a_liar(3, &mut report);
        assert_eq!((report.bites, report.is_bad()), (Some(3), false));
    }

    #[test]
    fn a_single_honest_life_says_nothing_of_liars() {
        assert!(!Report::default().is_bad());
    }
}
