//! What the model knows, and how it judges: at the end of each request, and at a power cut.

use std::ops::Range;

use super::*;

impl World {
    /// What a read of these cells may give, as of now.
    pub(super) fn allowed(&self, object: usize, cells: &Range<usize>) -> Vec<Vec<u64>> {
        let cells = &self.objects[object].cells[cells.clone()];
        cells
            .iter()
            .map(|cell| cell.possible.iter().copied().chain(cell.pending).collect())
            .collect()
    }

    /// Marks the cells as being written, unless another write is at one of them.
    pub(super) fn lock(&mut self, object: usize, cells: &Range<usize>, number: u64) -> bool {
        let locked = &mut self.objects[object].cells[cells.clone()];
        if locked.iter().any(|cell| cell.pending.is_some()) {
            return false;
        }
        for cell in locked {
            cell.pending = Some(number);
            cell.since_safe.push(number);
        }
        for (_, active) in self.active.values_mut() {
            if let Active::Read {
                object: of,
                cells: read,
                allowed,
            } = active
                && *of == object
            {
                for at in read.start.max(cells.start)..read.end.min(cells.end) {
                    allowed[at - read.start].push(number);
                }
            }
        }
        true
    }

    pub(super) fn unlock(&mut self, object: usize, cells: &Range<usize>, number: u64, good: bool, safe: bool) {
        for cell in &mut self.objects[object].cells[cells.clone()] {
            assert_eq!(cell.pending.take(), Some(number));
            if good {
                cell.possible = vec![number];
            } else {
                cell.possible.push(number);
            }
            if good && safe {
                cell.since_safe = vec![number];
            }
        }
    }

    pub(super) fn judge(&mut self, done: CacheDone) {
        let (id, active) = self.active.remove(&done.owner).expect("one end per request");
        assert_eq!(id, done.id);
        self.excuse(&done);
        let name = match active {
            Active::Read { object, cells, allowed } => {
                self.bound(&done, &cells, 1);
                if done.result.is_ok() {
                    self.read_well(&done, object, cells, &allowed);
                }
                "read"
            }
            Active::Write {
                object,
                cells,
                number,
                durable,
            } => {
                self.unlock(object, &cells, number, done.result.is_ok(), durable);
                self.bound_write(&done, &cells, durable)
            }
            Active::Sync {
                object,
                cells,
                snapshot,
            } => {
                if done.result.is_ok() {
                    self.synced(object, cells, &snapshot);
                }
                "sync"
            }
            Active::WriteOut {
                object,
                cells,
                snapshot,
            } => {
                if done.result.is_ok() {
                    self.read_at_device(object, cells, &snapshot);
                }
                "write out"
            }
            Active::Reserve { object, cells, number } => {
                self.reserved(&done, object, cells, number);
                "reserve"
            }
            Active::Pin { object, page } => {
                self.pinned(object, page, done.pin);
                "pin"
            }
            Active::PinNew {
                object,
                page,
                cells,
                lsn,
            } => {
                self.unlock(object, &cells, pool::ZERO, done.result.is_ok(), false);
                if done.result.is_ok() {
                    self.logged(object, page, cells, pool::ZERO, lsn);
                }
                self.pinned(object, page, done.pin);
                "pin new"
            }
            Active::Change { object, page, lsn } => {
                if done.result.is_ok() {
                    self.pool.changed(object, page, lsn);
                }
                "change"
            }
            Active::FlushTo { object, changes } => {
                if done.result.is_ok() {
                    self.flushed_to(object, &changes);
                }
                "flush to"
            }
        };
        *self.seen.done.entry(name).or_default() += 1;
    }

    /// An end without success has a reason.
    fn excuse(&mut self, done: &CacheDone) {
        match done.result {
            Err(CacheError::Cancelled) => self.seen.cancelled += 1,
            Err(error) => {
                self.seen.failed += 1;
                let f = self.faults;
                let by_pins =
                    f.pool > 0 && matches!(error, CacheError::Pinned | CacheError::NoFrame | CacheError::StalePin);
                let may = f.read + f.write + f.flush + f.given_up > 0 || by_pins;
                assert!(may, "{error:?} without a fault");
            }
            Ok(_) => {}
        }
    }

    fn read_well(&self, done: &CacheDone, object: usize, cells: Range<usize>, allowed: &[Vec<u64>]) {
        assert_eq!(done.result, Ok((cells.len() * CELL) as u32));
        let bytes = bytes(&done.memory);
        for ((at, number), allowed) in cells.zip(cells_of(&bytes)).zip(allowed) {
            assert!(
                allowed.contains(&number),
                "object {object} cell {at}: read {number}, not {allowed:?}"
            );
        }
    }

    /// A durable write makes no more writes than windows, waits and what divides it account for. Gives what it counts as.
    fn bound_write(&self, done: &CacheDone, cells: &Range<usize>, durable: bool) -> &'static str {
        self.bound(done, cells, if durable { 3 } else { 1 });
        if !durable {
            return "write";
        }
        let pages = (cells.end * CELL).div_ceil(PAGE) - cells.start * CELL / PAGE;
        let window = (self.config.bytes / PAGE / 4).clamp(1, 256);
        // A page in the middle that waits for the log divides a write, and one that failed beside others is written again.
        let divides = self.faults.pool > 0 || self.faults.write > 0;
        let divided = if divides { pages } else { 0 };
        let bound = pages.div_ceil(window) + done.parked as usize + divided;
        assert!(
            done.writes as usize <= bound,
            "{done:?}: {pages} pages, window {window}"
        );
        "durable write"
    }

    /// One of what it held then, or something later, is safe now.
    fn synced(&mut self, object: usize, cells: Range<usize>, snapshot: &[Vec<u64>]) {
        for (cell, snapshot) in self.objects[object].cells[cells].iter_mut().zip(snapshot) {
            let first = cell.since_safe.iter().position(|number| snapshot.contains(number));
            if let Some(first) = first {
                cell.since_safe.drain(..first);
            }
        }
    }

    /// A direct read at this moment.
    fn read_at_device(&self, object: usize, cells: Range<usize>, snapshot: &[Vec<u64>]) {
        let device = &self.objects[object].device.current;
        let read = &device[cells.start * CELL..cells.end * CELL];
        for ((at, number), snapshot) in cells.zip(cells_of(read)).zip(snapshot) {
            let cell = &self.objects[object].cells[at];
            let first = cell.since_safe.iter().position(|number| snapshot.contains(number));
            let allowed = &cell.since_safe[first.unwrap_or(0)..];
            assert!(
                allowed.contains(&number),
                "cell {at}: a direct read gives {number}, not {allowed:?}"
            );
        }
    }

    /// A direct write begins where the cache has made way for it.
    fn reserved(&mut self, done: &CacheDone, object: usize, cells: Range<usize>, number: u64) {
        if done.result.is_err() {
            // Nothing was written.
            for cell in &mut self.objects[object].cells[cells] {
                cell.pending = None;
            }
            return;
        }
        let mut bytes = vec![0; cells.len() * CELL];
        stamp(&mut bytes, number);
        // What a failed flush takes of a direct write is between its caller and the device.
        let durable = self.faults.flush > 0;
        let offset = (cells.start * CELL) as u64;
        let write = self.objects[object].device.begin_write(offset, bytes, durable);
        self.work.push(Work::Direct {
            object,
            request: done.id,
            cells,
            number,
            write,
        });
    }

    fn bound(&self, done: &CacheDone, cells: &Range<usize>, factor: usize) {
        let pages = (cells.end * CELL).div_ceil(PAGE) - cells.start * CELL / PAGE;
        let bound = factor * pages + factor + 2 * done.parked as usize;
        assert!(done.iterations as usize <= bound, "{done:?} for {pages} pages");
    }

    /// Power goes: what the devices are left with must hold what was promised, and a new cache goes on from there.
    pub(crate) fn cut(&mut self) {
        self.seen.cuts += 1;
        self.drain();
        let recovery = self.recovery();
        for at in 0..self.objects.len() {
            let running = self.work.iter().filter_map(|work| match work {
                Work::Io { object, write, .. } | Work::GivenUp { object, write, .. } if *object == at => write.as_ref(),
                Work::Direct { object, write, .. } if *object == at => Some(write),
                _ => None,
            });
            let found = self.objects[at].device.cut(running, &mut self.random);
            self.judge_recovery(at, &found, &recovery);
            for (nth, (number, cell)) in cells_of(&found).zip(&mut self.objects[at].cells).enumerate() {
                assert!(
                    cell.since_safe.contains(&number),
                    "object {at} cell {nth}: {number} after the cut, not {:?}",
                    cell.since_safe
                );
                *cell = Cell {
                    possible: vec![number],
                    since_safe: vec![number],
                    pending: None,
                };
            }
            self.objects[at].device = Device::new(found);
        }
        self.work.clear();
        self.active.clear();
        self.pool.cut();
        self.end_loans();
        // The frames of the old cache go back to the arena before the new one takes them.
        let spare = Cache::new(
            &Arena::new(1).unwrap(),
            CacheOptions {
                bytes: 4 * PAGE,
                ..self.config
            },
        )
        .unwrap();
        drop(std::mem::replace(&mut self.cache, spare));
        self.cache = Cache::new(&self.arena, self.config).unwrap();
        for object in &mut self.objects {
            object.id = self.cache.add(object.device.current.len() as u64, 16 * PAGE);
        }
        self.make_gates();
        self.put_under_gates();
    }
}
