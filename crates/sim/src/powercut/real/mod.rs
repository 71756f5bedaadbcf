//! Real devices of the kernel: device-mapper, scsi_debug, null_blk, nbd, ublk. A worker uses one, in a process of its own. Meanwhile something
//! happens to the device, or the worker is killed. Then the device is made whole again, and everything that was acknowledged as durable must
//! be there. An error that the worker reports must be the device's error, and it must not hang.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use baio_engine::sim::Random;

use super::bench;
use super::place::Place;
use super::running::Running;
use super::stories::{self, Make, PLAIN_LOST, Seen, Story};
use super::worker::Failure;
use rigs::{Rig, Strike};

pub use rigs::Disks;

pub mod log_writes;
mod rigs;

const ROUNDS_OF_A_LIFE: u64 = 5;
const LINES_MAX: u64 = 300;
/// Within so many rounds a device that forgets loses a plain write, though each flush saves them all.
const BITES_WITHIN: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);
/// So long somebody works while some requests fail.
const AFTER: Duration = Duration::from_millis(1500);
/// Who works on a device that is gone ends within so long, or hangs.
const ENDS_SECONDS: u64 = 60;
/// Words that name a device's error, and those that blame the data.
const OF_THE_DEVICE: [&str; 7] = [
    "EIO",
    "ENOSPC",
    "ENXIO",
    "ENODEV",
    "ENOMEDIUM",
    "the device",
    "EREMOTEIO",
];
const OF_THE_DATA: [&str; 3] = ["corrupt", "checksum", "salvage"];

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Disks that may be written over.
    pub disks: Disks,
    /// The names of devices; empty for all.
    pub devices: Vec<String>,
    /// The names of stories.
    pub stories: Vec<String>,
    /// Rounds of each story on each device.
    pub rounds: u64,
    /// From which choices follow.
    pub seed: u64,
}

/// What came of one story on one device.
#[derive(Debug, Default)]
pub struct Report {
    /// The device.
    pub device: &'static str,
    /// The story.
    pub story: &'static str,
    /// Rounds that were judged.
    pub rounds: u64,
    /// Lines that were said.
    pub lines: u64,
    /// Errors that workers told.
    pub errors: u64,
    /// One of them.
    pub error: Option<String>,
    /// How much was looked at.
    pub seen: Seen,
    /// Why it cannot run here.
    pub skipped: Option<String>,
    /// A promise that was broken.
    pub broken: Option<String>,
    /// In seconds.
    pub seconds: f64,
}

/// The names of all devices.
pub fn names() -> impl Iterator<Item = &'static str> {
    rigs::ALL.iter().map(|(name, ..)| *name).chain([LOG_WRITES])
}

const LOG_WRITES: &str = "log-writes";

pub(super) fn name_of(name: &str) -> u64 {
    name.bytes()
        .fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// A folder that goes when it is dropped.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Result<Scratch, Failure> {
        let dir = std::env::temp_dir().join(format!("baio-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A device, and a folder elsewhere.
pub(super) struct At {
    pub(super) device: PathBuf,
    pub(super) folder: PathBuf,
}

impl Place for At {
    fn device(&self) -> PathBuf {
        self.device.clone()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs the plan; tells of each story on each device. Says whether all promises were kept.
pub fn run(plan: &Plan, mut tell: impl FnMut(&Report)) -> bool {
    let mut is_good = true;
    for device in names().filter(|name| plan.devices.is_empty() || plan.devices.iter().any(|wanted| wanted == name)) {
        for story in stories::ALL {
            if !plan.stories.iter().any(|wanted| wanted == story.0) {
                continue;
            }
            let mut report = Report {
                device,
                story: story.0,
                ..Report::default()
            };
            let began = Instant::now();
            lives(plan, story, &mut report);
            report.seconds = began.elapsed().as_secs_f64();
            is_good &= report.broken.is_none();
            tell(&report);
        }
    }
    bench::ends();
    is_good
}

fn lives(plan: &Plan, story: (&'static str, Make), report: &mut Report) {
    let mut seed = plan.seed;
    while report.rounds < plan.rounds && report.broken.is_none() {
        let replay = format!(
            "baio-sim devices --on {} --story {} --seed {seed}",
            report.device, story.0
        );
        bench::begins(&replay);
        let done = match rigs::ALL.iter().find(|(name, ..)| *name == report.device) {
            Some((_, make, _)) => one_life(plan, *make, story, seed, report),
            None => log_writes::life(&plan.disks, story, seed, report),
        };
        if let Err(error) = done {
            report.broken = Some(format!("{error}\nreplay: {replay} --rounds 1"));
        }
        if report.skipped.is_some() {
            return;
        }
        seed += 1;
    }
    let forgets = rigs::FORGETFUL.contains(&report.device) && report.rounds >= BITES_WITHIN;
    if (forgets || report.device == LOG_WRITES) && report.broken.is_none() && !bites(report) {
        report.broken = Some("no plain write was lost: these power cuts show nothing".into());
    }
}

/// Nothing acknowledged was lost; but what was only acknowledged as written was: with that counted as durable, losses are found.
fn bites(report: &Report) -> bool {
    report.seen.get(PLAIN_LOST).is_some_and(|lost| *lost > 0)
}

fn one_life(
    plan: &Plan,
    make: fn(&Disks) -> Result<Box<dyn Rig>, Failure>,
    (name, story): (&'static str, Make),
    seed: u64,
    report: &mut Report,
) -> Result<(), Failure> {
    plan.disks.blank()?;
    let mut random = Random::from(&[seed, name_of(report.device), name_of(name)]);
    let folder = Scratch::new("devices")?;
    let mut rig = match make(&plan.disks) {
        Ok(rig) => rig,
        // What could be made once can be made again.
        Err(why) if report.rounds == 0 => {
            report.skipped = Some(why.to_string());
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let mut place = At {
        device: rig.path(),
        folder: folder.0.clone(),
    };
    let mut story = story();
    story.prepare(&place, &mut random)?;
    for _ in 0..ROUNDS_OF_A_LIFE.min(plan.rounds - report.rounds) {
        bench::begins(&format!(
            "baio-sim devices --on {} --story {name} --seed {seed}",
            report.device
        ));
        round(&mut *rig, &mut place, &mut *story, &mut random, report)?;
        report.rounds += 1;
    }
    Ok(())
}

fn round(
    rig: &mut dyn Rig,
    place: &mut At,
    story: &mut dyn Story,
    random: &mut Random,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut running = Running::start(place, report.story, random.bits(), story.first())?;
    running.wait_for_lines(1 + random.below(LINES_MAX) as usize, PATIENCE);
    let strike = match running.ended()? {
        Some(_) if rig.fails_by_itself() => Strike::Fails,
        Some(_) => Strike::None,
        None => rig.strike(random)?,
    };
    if strike == Strike::Fails {
        // Who works meets it, or does not need what is not there.
        running.wait_for_lines(usize::MAX, AFTER);
    }
    let deadline = Instant::now() + Duration::from_secs(ENDS_SECONDS);
    while strike == Strike::Ends && running.ended()?.is_none() {
        if Instant::now() > deadline {
            return Err(format!("the device is gone, and the worker has not ended after {ENDS_SECONDS} s").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let ended = running.ended()?;
    let lines = running.kill()?;
    report.lines += lines.len() as u64;
    let errors: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("! ")).collect();
    let tells = |words: &[&str]| {
        let mut errors = errors.iter();
        errors.find(|error| words.iter().any(|word| error.contains(word)))
    };
    match (tells(&OF_THE_DEVICE), ended) {
        _ if tells(&OF_THE_DATA).is_some() => return Err(format!("the worker says: {}", errors.join("; ")).into()),
        (Some(error), _) if strike != Strike::None => {
            report.errors += 1;
            report.error.get_or_insert_with(|| (*error).to_owned());
        }
        // What one thread's error has left for the others is told beside that one.
        _ if !errors.is_empty() => return Err(format!("the worker says: {}", errors.join("; ")).into()),
        (_, Some(status)) => return Err(format!("the worker ended without a word ({status})").into()),
        _ => {}
    }
    rig.mend()?;
    place.device = rig.path();
    for line in lines.iter().filter(|line| !line.starts_with('!')) {
        story.hear(line)?;
    }
    story.judge(place, random, &mut report.seen)
}
