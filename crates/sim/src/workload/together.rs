//! Several operations of several owners at a time: the table's token serialises their records, and nothing else of them.

use baio_engine::Wait;
use baio_storage::{Answer, Core, Error, Fault, OperationId, SegmentInfo};

use super::driver::{Driver, ROOT, answer_to, closed, create_options, resize_options, states_a_fact, who};
use crate::model::{Key, Model, Op};
use crate::observe::failed;
use crate::violation::{Kind, Violation};

impl Driver {
    /// Begins several operations, each some turns behind the one before, and waits for all. Returns those that happened.
    pub(super) fn together(&mut self, ops: Vec<Op>, abandoned: bool, seed: u64) -> Result<Op, Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        let all = ops.clone();
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
                } else if matches!(op, Op::Delete { .. } | Op::Quota { .. }) {
                    let story = format!("{op:?} was abandoned and never done, and nothing could refuse it");
                    return Err(Violation::new(Kind::Lost, story));
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
                Err(error) if may_be_so(&self.model, &all, &op, &error.fault) => {}
                Err(error) if states_a_fact(&error) => {
                    let story = format!("{op:?} of {all:?} is answered what is not so: {error}");
                    return Err(Violation::new(Kind::Lost, story));
                }
                Err(error) => return Err(failed("one of several", &error)),
            }
        }
        Ok(Op::Together { ops: done, abandoned })
    }
}

/// May this be the answer to one of several, whichever of them came first? The guide gives a name to one of them only, or to a resize
/// and a delete: so no other changes whether it is there.
fn may_be_so(model: &Model, all: &[Op], op: &Op, fault: &Fault) -> bool {
    match (fault, op) {
        (Fault::Exists, Op::Rename { to, .. }) => model.segments.contains_key(to),
        (Fault::NotFound, Op::Resize { key, .. }) => all.contains(&Op::Delete { key: *key }),
        // What the others hold meanwhile, or have just given back, only the volume knows; but not whether there is a limit.
        (Fault::NoSpace { .. }, Op::Create { .. } | Op::Resize { .. }) => true,
        (Fault::OverQuota { uid, .. }, Op::Create { key, .. } | Op::Resize { key, .. }) => {
            let limits = |op: &Op| matches!(op, Op::Quota { uid: of, limits } if of == uid && !limits.is_none());
            *uid == key.uid && (model.limits.contains_key(uid) || all.iter().any(limits))
        }
        _ => false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UIDS;
    use baio_storage::Limits;

    const fn key(name: usize) -> Key {
        Key { uid: UIDS[0], name }
    }

    fn create(name: usize) -> Op {
        Op::Create {
            key: key(name),
            instance: 1,
            blocks: 1,
            reserve: 1,
            lazily: false,
            start_block: None,
        }
    }

    fn resize(name: usize) -> Op {
        Op::Resize {
            key: key(name),
            blocks: 2,
            reserve: None,
            start_block: None,
        }
    }

    fn rename(from: usize, to: usize) -> Op {
        Op::Rename {
            from: key(from),
            to: key(to),
        }
    }

    #[test]
    fn a_name_is_taken_only_where_it_is() {
        let mut model = Model::default();
        model.acknowledge(&create(0));
        model.acknowledge(&create(1));
        assert!(may_be_so(&model, &[], &rename(0, 1), &Fault::Exists));
        assert!(!may_be_so(&model, &[], &rename(0, 2), &Fault::Exists));
        assert!(!may_be_so(&model, &[], &create(2), &Fault::Exists));
    }

    #[test]
    fn a_segment_is_gone_only_where_one_of_them_deletes_it() {
        let model = Model::default();
        let delete = Op::Delete { key: key(0) };
        let all = [resize(0), delete.clone(), resize(1)];
        assert!(may_be_so(&model, &all, &resize(0), &Fault::NotFound));
        assert!(!may_be_so(&model, &all, &resize(1), &Fault::NotFound));
        assert!(!may_be_so(&model, &all, &delete, &Fault::NotFound));
    }

    #[test]
    fn an_owner_is_over_a_quota_only_where_it_has_one() {
        let [owner, other] = UIDS;
        let over = |uid| Fault::OverQuota {
            uid,
            what: "segments",
            asked: 1,
            used: 0,
            limit: 0,
        };
        let quota = |uid, segments| Op::Quota {
            uid,
            limits: Limits { blocks: None, segments },
        };
        let mut model = Model::default();
        assert!(!may_be_so(&model, &[], &create(0), &over(owner)));
        assert!(!may_be_so(&model, &[quota(owner, None)], &create(0), &over(owner)));
        assert!(may_be_so(&model, &[quota(owner, Some(0))], &create(0), &over(owner)));
        model.acknowledge(&quota(other, Some(0)));
        assert!(!may_be_so(&model, &[], &create(0), &over(owner)));
        assert!(!may_be_so(&model, &[], &create(0), &over(other)), "it is not charged");
        model.acknowledge(&quota(owner, Some(0)));
        assert!(may_be_so(&model, &[], &create(0), &over(owner)));
        assert!(may_be_so(&model, &[], &resize(0), &over(owner)));
    }
}
