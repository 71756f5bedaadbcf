//! Where a log may be, and how it begins.

use std::collections::VecDeque;

use baio_engine::{Caching, Kind};

use super::{ENTRIES, LogQuestion, OpenLog};
use crate::core::lane::Lane;
use crate::error::{Error, Fault, Result};
use crate::identity::Access;
use crate::log::{LogError, LogOptions, LogPart, LogRequest};
use crate::object::{ObjectState, Target};
use crate::request::Handle;
use crate::volume::lock::{Hold, lock};

impl Lane {
    /// May a log be there? Then its options, with the block that the device asks for. Is the volume to be changed at all?
    pub(super) fn log_place(
        &self,
        what: &'static str,
        handle: Handle,
        options: &LogOptions,
        may_change: std::result::Result<(), Fault>,
    ) -> Result<LogOptions> {
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
            Target::Segment { .. } => {
                may_change.map_err(fail)?;
                let ground = self.ground.as_ref();
                &ground.ok_or_else(|| fail(Fault::Stale))?.file
            }
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

    /// Begins a log; `part` makes it, told how many bytes it has there.
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
        // Behind the lock: another process may have made a log there meanwhile, and a longer file.
        let part = self.size(by).and_then(|size_bytes| {
            let part = part(self, size_bytes);
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
        };
        let key = self.logs.open.insert(log);
        let question = self.ask_log(key, what, LogRequest::Open, false);
        if let Some(asked) = self.logs.asked.get_mut(question.0) {
            asked.opens = true;
        }
        Ok(question)
    }
}
