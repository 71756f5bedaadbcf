//! Several operations of several owners at a time: the table's token serialises their records, and nothing else of them.

use baio_engine::Wait;
use baio_storage::{Answer, Core, Error, Fault, OperationId, SegmentInfo};

use super::driver::{Driver, ROOT, answer_to, closed, create_options, resize_options, states_a_fact, who};
use crate::model::{Key, Op};
use crate::observe::failed;
use crate::violation::Violation;

impl Driver {
    /// Begins several operations, each some turns behind the one before, and waits for all. Returns those that happened.
    pub(super) fn together(&mut self, ops: Vec<Op>, abandoned: bool, seed: u64) -> Result<Op, Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        let mut under_way = Vec::with_capacity(ops.len());
        for (nth, op) in ops.into_iter().enumerate() {
            let id = begin(core, &op).map_err(|error| failed("begin one of several", &error))?;
            under_way.push((op, id));
            for _ in 0..(seed >> (8 * nth)) % 5 {
                core.turn(Wait::No).map_err(|error| failed("turn", &error))?;
            }
        }
        let mut done = Vec::with_capacity(under_way.len());
        if abandoned {
            while core.in_flight() > 0 {
                core.turn(Wait::one()).map_err(|error| failed("turn", &error))?;
            }
            let infos = core.list(ROOT).map_err(|error| failed("list", &error))?;
            for (mut op, _) in under_way {
                if has_happened(core, &infos, &mut op)? {
                    done.push(op);
                }
            }
            return Ok(Op::Together { ops: done, abandoned });
        }
        for (mut op, id) in under_way {
            match answer_to(core, &id)? {
                Ok(answer) => {
                    tell_place(&mut op, &answer);
                    done.push(op);
                }
                // Half of it has happened, and then the segment was deleted.
                Err(error) if matches!(error.fault, Fault::MoveStopped { .. }) => done.push(op),
                // A move was stopped for the sake of a delete.
                Err(error) if matches!(error.fault, Fault::Moving) => {}
                // Whether it is true depends on which of them came first.
                Err(error) if states_a_fact(&error) => {}
                Err(error) => return Err(failed("one of several", &error)),
            }
        }
        Ok(Op::Together { ops: done, abandoned })
    }
}

/// Begins an operation that changes the table.
fn begin(core: &mut Core, op: &Op) -> Result<OperationId, Error> {
    match op {
        Op::Create {
            key,
            blocks,
            reserve,
            lazily,
            ..
        } => core.begin_create(
            who(*key),
            key.uid,
            key.name(),
            &create_options(*blocks, *reserve, *lazily),
        ),
        Op::Resize {
            key, blocks, reserve, ..
        } => core.begin_resize(who(*key), key.uid, key.name(), &resize_options(*blocks, *reserve)),
        Op::Rename { from, to } => core.begin_rename(who(*from), from.uid, from.name(), to.name()),
        Op::Delete { key } => core.begin_delete(who(*key), key.uid, key.name()),
        Op::Quota { uid, limits } => core.begin_set_quota(ROOT, *uid, *limits),
        _ => {
            let fault = Fault::BadSize("no such operation is begun beside others".into());
            Err(Error::new("begin", "an operation of a workload", fault))
        }
    }
}

fn tell_place(op: &mut Op, answer: &Answer) {
    if let (Op::Create { start_block, .. } | Op::Resize { start_block, .. }, Answer::Segment { info }) = (op, answer) {
        *start_block = Some(info.start_block);
    }
}

/// Looks what became of an operation that nobody asked about.
fn has_happened(core: &Core, infos: &[SegmentInfo], op: &mut Op) -> Result<bool, Violation> {
    let of = |key: &Key| {
        infos
            .iter()
            .find(|info| info.owner_uid == key.uid && info.name == key.name())
    };
    Ok(match op {
        Op::Create { key, start_block, .. } => {
            *start_block = of(key).map(|info| info.start_block);
            start_block.is_some()
        }
        Op::Delete { key } => of(key).is_none(),
        Op::Rename { from, to } => of(from).is_none() && of(to).is_some(),
        Op::Quota { uid, limits } => {
            let account = core.quota(ROOT, *uid).map_err(|error| failed("quota", &error))?;
            account.limits == *limits
        }
        _ => false,
    })
}
