//! What other programs may do to the file or device of a volume: cut it off or make it longer, while the volume is closed or
//! open; and copy it, page range after page range, while it is in use.
//!
//! | what | what must hold |
//! |---|---|
//! | cut off while closed | it does not open and nothing is written; lengthened again it holds all that lies before the cut |
//! | lengthened while closed or open | nothing changes |
//! | cut off while open | what is read is right or an error, never an early end |
//! | copied while in use | the copy opens or is refused; what it serves does not overlap, also after use; a repair makes it sound, and it stays so in use |

use baio_engine::sim::crash::{Crash, Replay};
use baio_engine::sim::{Disk, Random};

use crate::every_bit::{Ending, Reference, key};
use crate::observe::observe;
use crate::oracle::Expectation;
use crate::report::{self, Failure, Part, Report, no_panic};
use crate::violation::{Kind, Violation};
use crate::workload::{ByChance, Driver, Ids, Script, Session, State, Step, run_session};
use crate::world::{self, World};

/// What is counted beside the states.
const COUNTED: &[&str] = &["cut_closed", "cut_open", "lengthened", "copied", "copies_refused"];

const SEED: u64 = 31;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The closed volume is cut off and lengthened again.
    CutClosed,
    /// The file is longer than it need be.
    Lengthened,
    /// The open volume is cut off.
    CutOpen,
    /// It is copied while it is in use.
    Copied,
}

impl What {
    /// All of them.
    pub const ALL: [What; 4] = [What::CutClosed, What::Lengthened, What::CutOpen, What::Copied];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            What::CutClosed => "cut-closed",
            What::Lengthened => "lengthened",
            What::CutOpen => "cut-open",
            What::Copied => "copied",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<What> {
        What::ALL.into_iter().find(|what| what.name() == name)
    }
}

/// Runs so many trials of each, on so many threads.
#[must_use]
pub fn run(what: &[What], trials: u64, threads: usize) -> Report {
    report::of_all(COUNTED, threads, |number| {
        let of = *what.get((number / trials.max(1)) as usize)?;
        Some(run_trial(of, number % trials.max(1)))
    })
}

/// Runs one trial alone.
#[must_use]
pub fn run_only(what: What, trial: u64) -> Report {
    report::of_one(COUNTED, || run_trial(what, trial))
}

fn run_trial(what: What, number: u64) -> Part {
    let mut part = Part::default();
    let outcome = no_panic(|| match what {
        What::CutClosed => cut_closed(number, &mut part),
        What::Lengthened => lengthened(number, &mut part),
        What::CutOpen => cut_open(number, &mut part),
        What::Copied => copied(number, &mut part),
    });
    if let Err(violation) = outcome {
        part.failed(Failure {
            number,
            replay: format!("outside --what {} --only {number}", what.name()),
            violation: violation.after(format!("{what:?}, trial {number}")),
            rotten: false,
        });
    }
    part
}

fn reference(number: u64) -> Result<Reference, Violation> {
    Reference::make(match number % 2 {
        0 => Ending::Closed,
        _ => Ending::HalfDone,
    })
}

fn cut_closed(number: u64, part: &mut Part) -> Result<(), Violation> {
    let reference = reference(number)?;
    let (disk, layout) = (reference.disk.copy(), &reference.layout);
    let (whole, end) = (disk.size(), layout.end());
    let mut random = Random::from(&[SEED, number]);
    // Half of the cuts lie in the data; some at a byte that is no page's.
    let cut = match random.below(4) {
        0 => random.below(layout.data_at()),
        1 => random.below(end),
        _ => layout.data_at() + random.below((end - layout.data_at()) / 4096) * 4096,
    };
    disk.set_size(cut);
    part.add("cut_closed", 1);
    part.state(disk.fingerprint());
    let before = disk.fingerprint();
    let wrong = |story: String| {
        Err(Violation::new(
            Kind::Failed,
            format!("cut to {cut} of {end} bytes: {story}"),
        ))
    };
    if Driver::open_unchecked(disk.clone(), number).is_ok() {
        return wrong("it opens".into());
    }
    let _ = world::inspect(&disk, number);
    let _ = world::check(&disk, number, false);
    if disk.fingerprint() != before {
        return wrong("it was written".into());
    }
    disk.set_size(whole);
    if cut < layout.data_at() {
        // Metadata is gone: whatever can be saved, a repair and an opening come to an end.
        let _ = world::check(&disk, number, true);
        let _ = Driver::open_unchecked(disk, number);
        return Ok(());
    }
    let mut driver = Driver::open_unchecked(disk, number)?;
    driver.accept(&reference.expectation, 1, |seen| {
        seen.damaged(layout, std::slice::from_ref(&(cut..whole)));
    })
}

fn lengthened(number: u64, part: &mut Part) -> Result<(), Violation> {
    let reference = reference(number)?;
    let disk = reference.disk.copy();
    let mut random = Random::from(&[SEED + 1, number]);
    if number.is_multiple_of(3) {
        disk.set_size(disk.size() + 1 + random.below(1 << 20));
    }
    part.add("lengthened", 1);
    part.state(disk.fingerprint());
    let driver = Driver::open(disk, &reference.expectation, number)?;
    driver.disk().set_size(driver.disk().size() + random.below(1 << 20));
    let model = driver.model().clone();
    let mut ids = reference.ids;
    let steps = [Step::Create(key(1, 4), 2), Step::Grow, Step::Reopen];
    let mut script = Script::new(&steps, &mut ids, SEED);
    let state = State::after_power_cut(driver.kill(), Expectation::exactly(model));
    run_session(state, &mut script, part.operations()).map(drop)
}

fn cut_open(number: u64, part: &mut Part) -> Result<(), Violation> {
    let reference = reference(number)?;
    let layout = &reference.layout;
    let mut driver = Driver::open(reference.disk.copy(), &reference.expectation, number)?;
    let mut random = Random::from(&[SEED + 2, number]);
    let cut = layout.data_at() + random.below((layout.end() - layout.data_at()) / 512) * 512;
    driver.disk().set_size(cut);
    part.add("cut_open", 1);
    let expectation = Expectation::exactly(driver.model().clone());
    driver.look_around(&expectation, |_| {})
}

fn copied(number: u64, part: &mut Part) -> Result<(), Violation> {
    let mut random = Random::from(&[SEED + 3, number]);
    let world = World::new(random.bits())?;
    let mut ids = Ids::default();
    let mut guide = ByChance::new(&mut random, &mut ids, 24, true);
    let state = State::after_power_cut(world.disk.copy(), Expectation::default());
    let session = run_session(state, &mut guide, part.operations())?;
    let copy = copy_while_in_use(&session, &mut random);
    part.add("copied", 1);
    part.state(copy.fingerprint());
    used_further(&copy.copy(), number, part)?;
    // A bucket whose mirror is newer than its table shows to none that opens: only a check reads every mirror.
    world::check(&copy, number, true)?;
    let repaired = world::check(&copy, number, false)?;
    if !repaired.problems.is_empty() {
        let story = format!("behind a repair a check finds {:?}", repaired.problems);
        return Err(Violation::new(Kind::Failed, story));
    }
    used_further(&copy, number, part)?;
    // What was made on the copy has taken nothing from anybody: nobody lost blocks to it.
    let report = world::check(&copy, number, false)?;
    match report.problems.first() {
        Some(problem) => Err(Violation::new(Kind::Overlap, format!("a check finds {problem:?}"))),
        None => Ok(()),
    }
}

/// A copy opens or is refused; what it serves does not overlap, also when more was made on it.
fn used_further(copy: &Disk, number: u64, part: &mut Part) -> Result<(), Violation> {
    let Ok(mut core) = world::open(copy, number) else {
        part.add("copies_refused", 1);
        return Ok(());
    };
    crate::observe::settle(&mut core)?;
    let options = baio_storage::CreateOptions::of_size(2 * 4096);
    for name in ["wal", "heap", "index", "undo", "temp"] {
        // There may be no room, or the name may be taken.
        let _ = core.create(world::ROOT, 1001, name, &options);
    }
    drop(core);
    let mut core = world::open(copy, number)?;
    let seen = observe(&mut core)?;
    let mut runs: Vec<(u64, u64)> = seen
        .segments
        .iter()
        .filter(|segment| segment.is_served())
        .map(|segment| (segment.start_block, segment.start_block + segment.reserve))
        .collect();
    runs.sort_unstable();
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        let story = format!("two segments that are served share blocks: {pair:?}");
        return Err(Violation::new(Kind::Overlap, story));
    }
    Ok(())
}

/// Page ranges from front to rear, each as it was somewhat later than the one before.
fn copy_while_in_use(session: &Session, random: &mut Random) -> Disk {
    let records = session.record.len() as u64;
    let size = session.base.size();
    let mut replay = Replay::new(&session.base, &session.record);
    let copy = Disk::new(size);
    let (mut at, mut time) = (0, random.below(records));
    while at < size {
        let end = size.min(at + (1 + random.below(32)) * 4096);
        let then = replay.disk(Crash::clean(time as usize));
        let mut bytes = vec![0; (end - at) as usize];
        then.read(at, &mut bytes);
        copy.poke(at, &bytes);
        at = end;
        time = records.min(time + random.below(6));
    }
    copy
}
