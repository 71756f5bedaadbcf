//! Several write gates in one cache, one for each log: which gate an object is under.
//!
//! ```text
//!   object of database A --+
//!   object of database A --+--> gate of log A: durable LSN, gated pages, recovery LSNs, how long its log may be
//!   object of database B -----> gate of log B
//!   all others ---------------> the default gate, which is always there
//! ```
//!
//! LSNs of different logs have nothing to do with each other: no two of them are ever compared. So an object changes its gate only
//! while no page of it has a change under an LSN that is not safe, and no request that would make one is under way. A gate is
//! removed when no object is under it: then no page waits for its log, and none can be written that should have.

use std::collections::BTreeSet;

use super::Cache;
use super::gate::{Gate, GateId};
use super::object::ObjectId;
use super::request::{CacheError, CacheOp};

/// All gates, and what they have in common.
#[derive(Debug)]
pub(super) struct Gates {
    /// By the number that objects have of theirs; 0 is the default.
    pub(super) all: Vec<Gate>,
    free: Vec<u32>,
    /// Those whose log is too long, or that have pages which are due; and some that had.
    pub(super) long: Vec<u32>,
    /// Frames of pages whose changes wait, and some whose did; each once.
    pub(super) held_up: Vec<u32>,
    /// Somebody who waited for pages does so no more.
    pub(super) eased: bool,
    /// Objects and frames of which a write is not covered and not the last.
    pub(super) written: BTreeSet<(u32, u32)>,
}

impl Gates {
    /// The default gate alone.
    pub(super) fn new(log_distance_max: u64) -> Gates {
        Gates {
            all: vec![Gate::new(log_distance_max)],
            free: Vec::new(),
            long: Vec::new(),
            held_up: Vec::new(),
            eased: false,
            written: BTreeSet::new(),
        }
    }

    /// Are there changes that wait?
    pub(super) fn holds_up(&self) -> bool {
        !self.held_up.is_empty()
    }

    pub(super) fn get(&self, gate: u32) -> &Gate {
        &self.all[gate as usize]
    }

    pub(super) fn get_mut(&mut self, gate: u32) -> &mut Gate {
        &mut self.all[gate as usize]
    }

    pub(super) fn find(&self, id: GateId) -> Option<u32> {
        let gate = self.all.get(id.slot as usize)?;
        (gate.generation == id.generation && !gate.is_gone).then_some(id.slot)
    }

    pub(super) fn id(&self, gate: u32) -> GateId {
        GateId {
            slot: gate,
            generation: self.get(gate).generation,
        }
    }
}

impl Cache {
    /// A gate for a log of its own, which is durable up to LSN 0. The cleaner keeps its oldest change that is not safe within this
    /// distance, in LSNs, of the latest, as [`log_distance_max`](super::CacheOptions::log_distance_max) does for the default gate.
    pub fn add_gate(&mut self, log_distance_max: u64) -> GateId {
        let slot = self.gates.free.pop().unwrap_or_else(|| {
            self.gates.all.push(Gate::default());
            self.gates.all.len() as u32 - 1
        });
        let gate = self.gates.get_mut(slot);
        let generation = gate.generation;
        *gate = Gate::new(log_distance_max);
        gate.generation = generation;
        self.gates.id(slot)
    }

    /// Forgets a gate. Its id is stale from then on.
    ///
    /// # Errors
    /// `NoGate`; `Busy` while an object is under it, or for the default gate.
    pub fn remove_gate(&mut self, id: GateId) -> Result<(), CacheError> {
        let slot = self.gates.find(id).ok_or(CacheError::NoGate)?;
        let gate = self.gates.get_mut(slot);
        if slot == 0 || gate.objects > 0 {
            return Err(CacheError::Busy);
        }
        gate.generation = gate.generation.wrapping_add(1);
        gate.is_gone = true;
        self.gates.long.retain(|&long| long != slot);
        self.gates.free.push(slot);
        Ok(())
    }

    /// Puts an object under a gate: the LSNs of its changes are those of that gate's log from now on. It stays there until the
    /// object is forgotten.
    ///
    /// # Errors
    /// Nothing was changed. `NoObject`, `NoGate`; `OtherGate` while it has a page with a change under an LSN of its gate so far that
    /// is not safe; `Busy` while a request is under way that has an LSN.
    pub fn set_gate(&mut self, object: ObjectId, gate: GateId) -> Result<(), CacheError> {
        let slot = self.object(object).ok_or(CacheError::NoObject)?;
        let to = self.gates.find(gate).ok_or(CacheError::NoGate)?;
        let from = self.objects[slot as usize].gate;
        if from == to {
            return Ok(());
        }
        if self.objects[slot as usize].logged > 0 {
            return Err(CacheError::OtherGate);
        }
        let has_lsn = |at: &u32| self.requests.get(*at).is_some_and(|request| has_lsn(request.op));
        if self.requests.on(slot).iter().any(has_lsn) {
            return Err(CacheError::Busy);
        }
        self.leave_gate(slot);
        self.objects[slot as usize].gate = to;
        self.gates.get_mut(to).objects += u32::from(to > 0);
        Ok(())
    }

    /// The gate that an object is under; `None` if there is no such object.
    #[must_use]
    pub fn gate(&self, object: ObjectId) -> Option<GateId> {
        let slot = self.object(object)?;
        Some(self.gates.id(self.gate_of(slot)))
    }

    /// Does a pin of the pool hold a page of it, or will one?
    #[must_use]
    pub fn is_pinned(&self, object: ObjectId) -> bool {
        let Some(slot) = self.object(object) else { return false };
        let of_pool = |op| {
            matches!(
                op,
                CacheOp::Pin { .. } | CacheOp::PinNew { .. } | CacheOp::Change { .. }
            )
        };
        let will_be = |at: &u32| self.requests.get(*at).is_some_and(|request| of_pool(request.op));
        self.objects[slot as usize].lent > 0 || self.requests.on(slot).iter().any(will_be)
    }

    /// This object is no longer under its gate: it goes under another, or has gone with all its pages.
    pub(super) fn leave_gate(&mut self, object: u32) {
        let gate = std::mem::take(&mut self.objects[object as usize].gate);
        debug_assert_eq!(self.objects[object as usize].logged, 0, "it owes something to its log");
        if gate > 0 {
            self.gates.get_mut(gate).objects -= 1;
        }
    }
}

/// Does it name an LSN of its object's log?
fn has_lsn(op: CacheOp) -> bool {
    match op {
        CacheOp::PinNew { lsn, .. } | CacheOp::Change { lsn, .. } => lsn > 0,
        CacheOp::FlushTo { .. } => true,
        _ => false,
    }
}
