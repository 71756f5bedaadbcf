//! A workload: a session on a fresh volume, and the crashes of it that are tried.

use baio_engine::sim::crash::{Crash, cuts, states};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Flash, Profile, Random};

use super::Plan;
use crate::oracle::Expectation;
use crate::order;
use crate::trials::Trials;
use crate::violation::Violation;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::World;

/// Its operations.
const WORKLOAD_OPS: usize = 18;

/// A session on a fresh volume, and the crashes of it that are tried.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) plan: Plan,
    pub(super) world: World,
    pub(super) session: Session,
    pub(super) crashes: Vec<Crash>,
    pub(super) ids: Ids,
}

impl Workload {
    pub(super) fn run(plan: &Plan, number: u64, counts: &mut Counts) -> Result<Workload, Violation> {
        let mut random = Random::from(&[plan.seed, 1, number]);
        let world = match number % 4 {
            3 => World::crowded(random.bits())?,
            _ => World::new(random.bits())?,
        };
        let mut ids = Ids::default();
        let fresh = State::after_power_cut(world.disk.copy(), Expectation::default());
        maybe_reorder(plan, &fresh.disk, &mut random);
        let mut guide = ByChance::new(&mut random, &mut ids, WORKLOAD_OPS, true);
        guide.fill(&world.crowd);
        let mut session = run_session(fresh, &mut guide, counts)?;
        weaken_or_check(plan, &world, &mut session, false)?;
        let crashes = choose_crashes(&session, &mut random);
        Ok(Workload {
            plan: *plan,
            world,
            session,
            crashes,
            ids,
        })
    }
}

/// Half of the disks work on many requests at a time, and end them in any order. (The weakenings know writes by their order.)
pub(super) fn maybe_reorder(plan: &Plan, disk: &Disk, random: &mut Random) {
    if plan.weakening.is_none() && random.percent(50) {
        end_in_any_order(disk);
    }
}

/// From now on the disk works on many requests at a time, and ends them in any order.
pub(crate) fn end_in_any_order(disk: &Disk) {
    let flash = Flash {
        jitter_percent: 400,
        ..Flash::default()
    };
    disk.set_profile(Profile::Flash(flash));
}

/// Edits what a session added to its record; of an honest one the order of its writes is looked at.
pub(super) fn weaken_or_check(
    plan: &Plan,
    world: &World,
    session: &mut Session,
    rotten: bool,
) -> Result<(), Violation> {
    let Some(weakening) = plan.weakening else {
        return order::check(session, &world.layout, rotten);
    };
    let own = session.record.split_off(session.inherited);
    session.record.extend(weakening.apply(own, &session.ops, &world.layout));
    Ok(())
}

/// All crashes of a session's own records.
pub(crate) fn crashes_of(session: &Session) -> impl Iterator<Item = Crash> + '_ {
    let own = states(&session.record).skip_while(|crash| crash.prefix < session.inherited);
    own.filter(|crash| !is_just_before_a_mark(session, *crash))
}

/// Behind a mark are the same bytes, and more is promised.
fn is_just_before_a_mark(session: &Session, crash: Crash) -> bool {
    matches!(session.record.get(crash.prefix), Some(Record::Mark(_)))
}

/// A crash at any of the session's own records, each as likely as the others; then any of that one's.
pub(super) fn pick_crash(session: &Session, random: &mut Random) -> Crash {
    let own = (session.record.len() - session.inherited) as u64;
    let prefix = session.inherited + random.below(own + 1) as usize;
    random
        .pick(&cuts(&session.record, prefix))
        .copied()
        .unwrap_or(Crash::clean(prefix))
}

/// At most as many as have numbers, in the order of the record.
fn choose_crashes(session: &Session, random: &mut Random) -> Vec<Crash> {
    let mut chosen: Vec<Crash> = (0..Plan::PER_WORKLOAD).map(|_| pick_crash(session, random)).collect();
    chosen.retain(|crash| !is_just_before_a_mark(session, *crash));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
