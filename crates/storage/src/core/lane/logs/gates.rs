//! Logs and the pages of the cache: what is put under the gate of a log waits for that log, which says itself how far it is durable.

use super::LogId;
use crate::cache::GateId;
use crate::core::Core;
use crate::core::lane::Lane;
use crate::error::{Error, Fault, Result};
use crate::request::Handle;
use crate::slot_map::SlotKey;

/// A log's gate, and what it was told.
#[derive(Debug)]
pub(super) struct LogGate {
    id: GateId,
    durable: u64,
}

impl Core {
    /// Pages of this segment or file that are changed under an LSN wait for this log from now on, and for no other: they are written when
    /// the record with that LSN is durable, without anybody saying so. It is so for all handles on it, until another log takes it over.
    ///
    /// # Errors
    /// The log is closed; there is no cache; the handle is stale, or is of the log's own segment or file; it has changes under LSNs of
    /// another log that are not safe: sync it first.
    pub fn set_log(&mut self, handle: Handle, log: LogId) -> Result<()> {
        const WHAT: &str = "put under a log";
        let key = self.lane.log_key(log);
        let is_open = |key: &SlotKey| self.lane.logs.open.get(*key).is_some_and(|log| !log.is_closing);
        let Some(key) = key.filter(is_open) else {
            return Err(Error::new(WHAT, "a closed log", Fault::Stale));
        };
        if self.lane.objects.has_log(handle) {
            return Err(Error::new(WHAT, self.lane.name_of(handle), Fault::HasLog));
        }
        let gate = self.lane.gate_of(key)?;
        self.set_gate(handle, gate)
    }
}

impl Lane {
    /// The gate of a log, made for the first who is put under it.
    fn gate_of(&mut self, key: SlotKey) -> Result<GateId> {
        let gone = || Error::new("put under", "a closed log", Fault::Stale);
        let log = self.logs.open.get(key).ok_or_else(gone)?;
        if let Some(gate) = &log.gate {
            return Ok(gate.id);
        }
        let appender = log.part.appender();
        // Those of logs that were closed go when nothing is under them any more.
        let mut left = std::mem::take(&mut self.logs.gates_left);
        left.retain(|gate| self.remove_gate(*gate).is_err());
        self.logs.gates_left = left;
        let id = self.add_gate(u64::MAX)?;
        let next = appender.clone();
        self.drive_gate(id, move || next.end_lsn().0)?;
        let durable = appender.durable_lsn().0;
        self.log_durable(id, durable);
        if let Some(log) = self.logs.open.get_mut(key) {
            log.gate = Some(LogGate { id, durable });
        }
        Ok(id)
    }

    /// Pages hear how far their log has come.
    pub(super) fn tell_gate(&mut self, key: SlotKey) {
        let Some(log) = self.logs.open.get_mut(key) else { return };
        let Some(gate) = &mut log.gate else { return };
        let durable = log.part.appender().durable_lsn().0;
        let id = gate.id;
        if durable > std::mem::replace(&mut gate.durable, durable) {
            self.log_durable(id, durable);
        }
        let Some(log) = self.logs.open.get_mut(key).filter(|log| log.part.has_failed()) else {
            return;
        };
        let gate = log.gate.take();
        self.end_gate(gate);
    }

    /// The log will not go on: its pages that wait are never written.
    pub(super) fn end_gate(&mut self, gate: Option<LogGate>) {
        if let Some(gate) = gate {
            self.log_ended(gate.id);
            if self.remove_gate(gate.id).is_err() {
                self.logs.gates_left.push(gate.id);
            }
        }
    }
}
