//! Where a log may be, and how it begins.

use std::collections::VecDeque;

use baio_engine::{Caching, Kind};

use super::{ENTRIES, LogQuestion, OpenLog};
use crate::core::lane::Lane;
use crate::crossing::ToTable;
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::log::{LogError, LogOptions, LogPart, LogRequest};
use crate::object::{ObjectState, Target};
use crate::request::Handle;
use crate::volume::lock::{Hold, lock};

impl Lane {
    /// May a log be there, as far as the lane knows? Then its options, with the block that the device asks for.
    pub(super) fn free_for_log(
        &mut self,
        what: &'static str,
        handle: Handle,
        options: &LogOptions,
    ) -> Result<LogOptions> {
        let options = self.log_place(what, handle, options)?;
        self.must_be_let_go(what, handle)?;
        Ok(options)
    }

    fn log_place(&self, what: &'static str, handle: Handle, options: &LogOptions) -> Result<LogOptions> {
        let object = self
            .objects
            .get(handle)
            .filter(|object| object.state == ObjectState::Open);
        let object = object.ok_or_else(|| Error::new(what, "a closed handle", Fault::Stale))?;
        let fail = |fault: Fault| Error::new(what, &object.name, fault);
        if object.access == Access::Read {
            return Err(fail(Fault::ReadOnly));
        }
        if self.objects.has_log(handle) {
            return Err(fail(Fault::HasLog));
        }
        let file = match &object.target {
            Target::Plain(file) => file,
            Target::Segment { .. } => &self.ground.as_ref().ok_or_else(|| fail(Fault::Stale))?.file,
        };
        // It may have been given since the file came in.
        file.must_not_append().map_err(|error| fail(error.into()))?;
        file.must_take_any_order().map_err(|error| fail(error.into()))?;
        let least = file.direct_limits().offset.max(512);
        let mut options = *options;
        if !matches!(object.target, Target::Plain(_)) || file.kind() != Kind::Regular {
            options.file_bytes = 0; // It has its size.
        }
        if options.block_bytes == 0 {
            options.block_bytes = least.next_power_of_two();
        }
        if options.window_short == 0 && file.flushes() == Some(true) {
            options.window_short = 1;
        }
        if options.block_bytes < least {
            let why = format!(
                "blocks of {} bytes, the device has sectors of {least}",
                options.block_bytes
            );
            return Err(fail(Fault::BadSize(why)));
        }
        Ok(options)
    }

    /// Begins a log; `part` makes it, told how many bytes it has there. In a segment it has a claim, and waits until the table has heard
    /// of that.
    pub(super) fn begin_to_open(
        &mut self,
        what: &'static str,
        by: Handle,
        options: &LogOptions,
        part: impl FnOnce(&Lane, u64) -> std::result::Result<LogPart, LogError>,
    ) -> Result<LogQuestion> {
        let Some(object) = self.objects.get(by) else {
            return Err(Error::new(what, "a closed handle", Fault::Stale));
        };
        let (name, access, target) = (object.name.clone(), object.access, object.target.clone());
        if let Target::Plain(file) = &target {
            // A volume has one owner, a file may have many: they would write over each other. What a killed one has under way lands
            // before the lock is free.
            lock(file, &name, Hold::Exclusive).map_err(|error| Error::new(what, &name, error.fault.clone()))?;
            self.engine.attach(file);
        }
        // Behind the lock: another process may have made a log there meanwhile, and a longer file. The cache would not know.
        let found = match &target {
            Target::Plain(file) => file.size().unwrap_or(0),
            Target::Segment { .. } => 0,
        };
        let part = self.size(by).and_then(|size_bytes| {
            let part = part(self, size_bytes.max(found));
            part.map_err(|error| Error::of_log(what, &name, error))
        });
        let mut part = part.inspect_err(|_| {
            if let Target::Plain(file) = &target {
                file.unlock();
            }
        })?;
        if matches!(&target, Target::Plain(file) if file.gives(Caching::Kernel)) {
            // By the kernel's page cache (`log_mode`).
            part.take_smaller_blocks();
        }
        let handle = self.objects.add(name, access, target);
        self.objects.set_log(handle, true);
        let entries = ENTRIES + options.window;
        self.logs.used += entries;
        if let Some(more) = self.logs.used.checked_sub(self.logs.kept).filter(|more| *more > 0) {
            self.requests.keep_entries(more);
            self.logs.kept = self.logs.used;
        }
        part.appender().set_bell(self.logs.doorbell.clone());
        self.logs.count += 1;
        let log = OpenLog {
            part,
            handle,
            by,
            delayed: VecDeque::new(),
            entries,
            is_closing: false,
            gate: None,
            opens_for: None,
        };
        let key = self.logs.open.insert(log);
        let question = self.note_question(key, what, false);
        if let Some(asked) = self.logs.asked.get_mut(question) {
            asked.opens = true;
        }
        match (self.objects.address(handle), self.logs.open.get_mut(key)) {
            (Some(at), Some(log)) => {
                log.opens_for = Some(question);
                self.to_table.push_back(ToTable::LogClaims { handle, at });
            }
            _ => self.start_log(key, question, LogRequest::Open),
        }
        Ok(LogQuestion(question))
    }

    /// The table has heard of the claim of a log, by this handle of its own: the log begins, or goes.
    pub(in crate::core) fn log_may(&mut self, handle: Handle, may: std::result::Result<(), Fault>) {
        let log = self.logs.open.values_mut().find(|log| log.handle == handle);
        match (log.and_then(|log| log.opens_for.take()), may) {
            (Some(question), Ok(())) => {
                if let Some(key) = self.logs.asked.get(question).map(|asked| asked.log) {
                    self.start_log(key, question, LogRequest::Open);
                }
            }
            (Some(question), Err(fault)) => {
                let what = self.logs.asked.get(question).map_or("open", |asked| asked.what);
                let error = Error::new(what, self.name_of(handle), fault);
                self.log_answered(question, Err(error));
            }
            // A caller's own.
            (None, Ok(())) => {}
            (None, Err(fault)) => {
                self.logs.refused = Some(fault);
                self.close_handle(handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use baio_engine::sim::{Disk, Sim};
    use baio_engine::{Engine, EngineOptions, File};

    use super::*;
    use crate::core::Core;
    use crate::crossing::LaneDoor;
    use crate::identity::Identity;
    use crate::log::{LogStart, Salt};
    use crate::operation::claims::Claim;
    use crate::operation::create::CreateOptions;
    use crate::volume::format::{FormatOptions, format_on};

    const ME: Identity = Identity::new(7, 7);

    fn core() -> Core {
        let options = EngineOptions {
            slots: 64,
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        };
        let disk = File::simulated(&Disk::new(32 << 20), "disk");
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &options).unwrap();
        format_on(&mut engine, &disk, &FormatOptions::default()).unwrap();
        let mut core = Core::open_on(engine, &disk, &options).unwrap();
        core.create(ME, ME.uid, "log", &CreateOptions::of_size(8 << 20))
            .unwrap();
        core
    }

    /// The table hears of it later, as with a thread between: what was claimed there meanwhile comes first.
    #[test]
    fn a_log_claims_its_segment_before_it_asks_and_touches_nothing_before_it_may() {
        for refused in [false, true] {
            let mut core = core();
            let (handle, _) = core.open_segment(ME, ME.uid, "log", Access::Write).unwrap();
            let at = core.lane.objects.address(handle).unwrap();
            let options = core
                .lane
                .free_for_log("create", handle, &LogOptions::default())
                .unwrap();
            let make = |lane: &Lane, bytes| {
                let names = ([1; 16], Salt([2; 16]));
                LogPart::begin_as(lane.engine.arena(), LogStart::Create, bytes, names, &options)
            };
            let question = core.lane.begin_to_open("create", handle, &options, make).unwrap();
            assert!(core.lane.has_log(at), "whoever wants the segment shorter sees it");
            core.lane.turn_logs();
            assert_eq!(core.lane.engine.queued(), 0);
            if refused {
                core.table.claims.claim(at, 99, Claim::Shorter);
            }
            core.pass_on();
            let answer = core.wait_log(&question);
            assert_eq!(
                answer.as_ref().is_err_and(|error| error.code() == "EBUSY"),
                refused,
                "{answer:?}"
            );
            assert_eq!((core.lane.has_log(at), answer.is_ok()), (!refused, !refused));
        }
    }
}
