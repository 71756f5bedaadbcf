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

/// Crashes in which nothing is torn are one in sixteen where four writes are in doubt, and only they can become a kill. So many more are
/// taken, of the honest runs.
const UNTORN_PERCENT: u64 = 5;

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
        let crashes = choose_crashes(plan, &session, &mut random);
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
pub(super) fn pick_crash(plan: &Plan, session: &Session, random: &mut Random) -> Crash {
    let own = (session.record.len() - session.inherited) as u64;
    let prefix = session.inherited + random.below(own + 1) as usize;
    let all = cuts(&session.record, prefix);
    let picked = match plan.weakening {
        None => pick_of(&all, random),
        Some(_) => random.pick(&all),
    };
    picked.copied().unwrap_or(Crash::clean(prefix))
}

/// Any of one prefix, and those in which nothing is torn more often, where several writes are in doubt.
fn pick_of<'a>(all: &'a [Crash], random: &mut Random) -> Option<&'a Crash> {
    // They stand first.
    let untorn = all.partition_point(|crash| crash.torn.is_none());
    let is_untorn = untorn > 2 && random.percent(UNTORN_PERCENT);
    random.pick(if is_untorn { &all[..untorn] } else { all })
}

/// At most as many as have numbers, in the order of the record.
fn choose_crashes(plan: &Plan, session: &Session, random: &mut Random) -> Vec<Crash> {
    let mut chosen: Vec<Crash> = (0..Plan::PER_WORKLOAD)
        .map(|_| pick_crash(plan, session, random))
        .collect();
    chosen.retain(|crash| !is_just_before_a_mark(session, *crash));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_writes_under_way_it_is_not_always_one_that_is_torn() {
        let write = |nth: u32| Record::Write {
            offset: u64::from(nth) * 4096,
            bytes: vec![1; 4096].into(),
            durable: false,
            under_way: nth.min(2),
        };
        // Two have ended, and no flush covers them; two are under way.
        let record: Vec<Record> = (0..4).map(write).collect();
        let all = cuts(&record, 2);
        let is_untorn = |crash: &&Crash| crash.torn.is_none();
        assert_eq!(all.iter().filter(is_untorn).count(), 16);
        let mut random = Random::from(&[1]);
        let picked = (0..4_000).filter_map(|_| pick_of(&all, &mut random));
        let untorn = picked.filter(is_untorn).count();
        assert!((340..600).contains(&untorn), "{untorn} of 4000");
    }
}
