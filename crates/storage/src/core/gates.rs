//! The write gates of a core's cache: whose log the pages of a file or segment wait for, and how they hear that it has gone on.
//!
//! | the log is | who says how far it is durable | who turns the core and only a log could help |
//! |---|---|---|
//! | the caller's own | the caller, by [`Core::set_durable_lsn_of`] | is told `LogFirst` |
//! | driven by the core ([`Core::drive_gate`]) | the core, by [`Core::log_durable`] | turns on, unless the log has no such record |
//!
//! The two count in different ways. A caller names the last LSN that is safe, itself included; a log of the core publishes the end of
//! what is: everything below it is safe.

use super::Core;
use super::drivers::Driver;
use super::lane::Lane;
use super::pool::no_cache;
use crate::cache::{CacheError, GateId};
use crate::error::{Error, Fault, Result};
use crate::request::{Handle, SegmentOp};

impl Core {
    /// A write gate for a log of its own: pages of what is put under it ([`Core::set_gate`]) wait for that log and for no other. The
    /// cleaner keeps the oldest change that is not safe within this distance, in LSNs, of the latest; `u64::MAX` for no such bound.
    ///
    /// ```
    /// use baio_engine::{EngineOptions, Open};
    /// use baio_storage::{Core, cache::CacheOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("baio-gate-{}", std::process::id()));
    /// # std::fs::write(&path, vec![0; 1 << 20])?;
    /// let mut core = Core::new(&EngineOptions::default())?;
    /// core.use_cache(&CacheOptions { bytes: 8 << 20, ..CacheOptions::default() })?;
    /// let orders = core.open_file(&path, &Open::write())?;
    /// let log = core.add_gate(u64::MAX)?;
    /// core.set_gate(orders, log)?;
    ///
    /// let pin = core.pin_now(orders, 7)?;
    /// core.change(&pin, 500)?[0] = 42;
    /// core.set_durable_lsn(1000)?; // That is another log.
    /// assert_eq!(core.oldest_recovery_lsn_of(log), Some(500));
    /// core.set_durable_lsn_of(log, 500)?;
    /// core.close()?;
    /// assert_eq!(std::fs::read(&path)?[7 * 4096], 42);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// There is no cache.
    pub fn add_gate(&mut self, log_distance_max: u64) -> Result<GateId> {
        self.lane.add_gate(log_distance_max)
    }

    /// Forgets a gate.
    ///
    /// # Errors
    /// There is no cache; `NoGate`; `Busy` while something is under it, or for the default gate.
    pub fn remove_gate(&mut self, gate: GateId) -> Result<()> {
        self.lane.remove_gate(gate)
    }

    /// Puts a file or segment under a gate, for all handles on it: the LSNs of its changes are those of that gate's log from now on.
    /// A file is under the default gate again after its last handle was closed and what was changed is safe; a segment stays until it
    /// is deleted.
    ///
    /// # Errors
    /// Nothing was changed. There is no cache, the handle is stale, or what it stands for cannot be cached; `NoGate`; `OtherGate` while
    /// it has changes under LSNs of its gate so far that are not safe: sync it first; `Busy` while a request is under way that has an LSN.
    pub fn set_gate(&mut self, handle: Handle, gate: GateId) -> Result<()> {
        let object = self.lane.pool_object(handle, SegmentOp::Read { offset: 0 })?;
        let cached = self.lane.cached.as_mut().ok_or_else(no_cache)?;
        let set = cached.cache.set_gate(object, gate);
        set.map_err(|error| Error::new("put under a write gate", self.lane.name_of(handle), Fault::Cache(error)))
    }

    /// [`Core::set_durable_lsn`] of this gate's log.
    ///
    /// # Errors
    /// There is no cache; `NoGate`.
    pub fn set_durable_lsn_of(&mut self, gate: GateId, lsn: u64) -> Result<()> {
        let cached = self.lane.cached.as_mut().ok_or_else(no_cache)?;
        let durable = cached.cache.durable_lsn(gate);
        if durable.ok_or_else(|| wrong("tell", CacheError::NoGate))? < lsn {
            cached.cache_mut().set_durable_lsn(gate, lsn);
            self.lane.take_done();
        }
        Ok(())
    }

    /// The log of this gate is driven by this core from now on: somebody calls [`Core::log_durable`] whenever it has gone on, and
    /// [`Core::log_ended`] when it will not any more. `next_lsn` says which LSN its next record will have. Who turns the core for a
    /// page ([`Core::pin_now`], [`Core::change_now`]) waits for this log, and is told `LogFirst` for an LSN that it has not given out.
    ///
    /// # Errors
    /// There is no cache; `NoGate`; `Busy` when it is driven by a log, or was: a log that is opened again counts on far behind what it
    /// has lost, and would let pages out that it knows nothing of. It gets a gate of its own.
    pub fn drive_gate(&mut self, gate: GateId, next_lsn: impl Fn() -> u64 + Send + 'static) -> Result<()> {
        self.lane.drive_gate(gate, next_lsn)
    }

    /// The log that drives this gate has made safe everything below this LSN. Costs a comparison when that is no news. Nothing for a
    /// gate that no log drives (any more).
    pub fn log_durable(&mut self, gate: GateId, end: u64) {
        self.lane.log_durable(gate, end);
    }

    /// The log of this gate was closed, or has failed: the pages that still wait for it are never written. Who waits for them is told
    /// `LogFirst`, and so is who asks later that they be made safe. What was durable is to be told before.
    pub fn log_ended(&mut self, gate: GateId) {
        self.lane.log_ended(gate);
    }

    /// [`Core::oldest_recovery_lsn`] of this gate's log: what it has before may be truncated.
    #[must_use]
    pub fn oldest_recovery_lsn_of(&self, gate: GateId) -> Option<u64> {
        self.lane.cached.as_ref()?.cache.oldest_recovery_lsn(gate)
    }

    /// [`Core::lsn_wanted`] of this gate's log.
    #[must_use]
    pub fn lsn_wanted_of(&self, gate: GateId) -> Option<u64> {
        self.lane.cached.as_ref()?.cache.lsn_wanted(gate)
    }

    /// The same when nothing but logs can help: the log should be made durable up to there at once, itself included.
    #[must_use]
    pub fn lsn_awaited_of(&self, gate: GateId) -> Option<u64> {
        self.lane.cached.as_ref()?.cache.lsn_awaited(gate)
    }
}

impl Lane {
    pub(in crate::core) fn add_gate(&mut self, log_distance_max: u64) -> Result<GateId> {
        let cached = self.cached.as_mut().ok_or_else(no_cache)?;
        Ok(cached.cache.add_gate(log_distance_max))
    }

    pub(in crate::core) fn remove_gate(&mut self, gate: GateId) -> Result<()> {
        let cached = self.cached.as_mut().ok_or_else(no_cache)?;
        cached.cache.remove_gate(gate).map_err(|error| wrong("remove", error))?;
        cached.drivers.remove(gate);
        Ok(())
    }

    pub(in crate::core) fn drive_gate(
        &mut self,
        gate: GateId,
        next_lsn: impl Fn() -> u64 + Send + 'static,
    ) -> Result<()> {
        let cached = self.cached.as_mut().ok_or_else(no_cache)?;
        let is_shut = cached.cache.is_gate_shut(gate);
        if is_shut.ok_or_else(|| wrong("drive", CacheError::NoGate))? || cached.drivers.get(gate).is_some() {
            return Err(wrong("drive", CacheError::Busy));
        }
        let next_lsn = Box::new(next_lsn);
        cached.drivers.0.push(Driver { gate, next_lsn });
        Ok(())
    }

    pub(in crate::core) fn log_durable(&mut self, gate: GateId, end: u64) {
        let Some(cached) = &mut self.cached else { return };
        let is_driven = cached.drivers.get(gate).is_some();
        let lsn = end.checked_sub(1).filter(|_| is_driven);
        if let Some(lsn) = lsn.filter(|lsn| cached.cache.durable_lsn(gate) < Some(*lsn)) {
            cached.cache_mut().set_durable_lsn(gate, lsn);
            self.take_done();
        }
    }

    pub(in crate::core) fn log_ended(&mut self, gate: GateId) {
        if let Some(cached) = &mut self.cached {
            cached.drivers.remove(gate);
            cached.cache_mut().shut_gate(gate);
            self.take_done();
        }
    }

    /// Does the core drive the log of this gate, and has that given out this LSN?
    pub(super) fn log_comes_to(&self, gate: GateId, lsn: u64) -> bool {
        let driver = self.cached.as_ref().and_then(|cached| cached.drivers.get(gate));
        driver.is_some_and(|driver| lsn < (driver.next_lsn)())
    }

    /// The core is about to be closed: nobody will say any more that a log of the caller's has gone on.
    pub(super) fn shut_gates(&mut self) {
        if let Some(cached) = &mut self.cached {
            let drivers = std::mem::take(&mut cached.drivers);
            cached.cache_mut().shut_gates(|gate| drivers.get(gate).is_none());
            cached.drivers = drivers;
            self.take_done();
        }
    }
}

fn wrong(operation: &'static str, error: CacheError) -> Error {
    Error::new(operation, "a write gate", Fault::Cache(error))
}
