//! The buffer pool in the model: pins and changes under LSNs by random steps, a log that goes on now and then.
//!
//! A change is a write that is done at once. Beside what holds for writes: no page goes to the device whose last LSN the log has
//! not reached, and what a power cut takes away of logged changes the log still has from the oldest recovery LSN on.

use std::collections::BTreeMap;
use std::ops::Range;

use baio_storage::cache::PagePin;

use super::*;

/// What a new page is filled with.
pub(super) const ZERO: u64 = 0;

const PINS_MAX: usize = 3;

#[derive(Debug)]
struct Logged {
    object: usize,
    cells: Range<usize>,
    number: u64,
    lsn: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    pins: Vec<(usize, u64, PagePin)>,
    /// Given out last.
    lsn: u64,
    pub(super) durable: u64,
    /// Last LSN of each page.
    last: BTreeMap<(usize, u64), u64>,
    logged: Vec<Logged>,
}

impl Pool {
    /// The write-ahead rule, at the moment when a write is asked of the device.
    pub(super) fn may_write(&self, object: usize, pages: Range<u64>) {
        for page in pages {
            let last = self.last.get(&(object, page)).copied().unwrap_or(0);
            assert!(
                last <= self.durable,
                "page {page} is written at {last}, and the log is at {}",
                self.durable
            );
        }
    }

    pub(super) fn changed(&mut self, object: usize, page: u64, lsn: u64) {
        let last = self.last.entry((object, page)).or_default();
        *last = lsn.max(*last);
    }

    pub(super) fn cut(&mut self) {
        self.pins.clear();
        self.last.clear();
        self.logged.clear();
    }

    fn next_lsn(&mut self, random: &mut Random) -> u64 {
        if random.one_in(5) {
            return 0;
        }
        self.lsn += 1;
        self.lsn
    }
}

impl World {
    pub(super) fn pool_step(&mut self) {
        let object = self.random.below(self.objects.len() as u64) as usize;
        let pages = (self.objects[object].cells.len() * CELL).div_ceil(PAGE) as u64;
        let space = if self.random.one_in(2) { pages } else { pages.min(6) };
        let page = self.random.below(space);
        match self.random.below(20) {
            0..4 => self.log_on(),
            4..8 if self.pool.pins.len() < PINS_MAX => self.pin(object, page),
            8 if self.pool.pins.len() < PINS_MAX => self.pin_new(object, page),
            9 => {
                self.cache
                    .prefetch(self.objects[object].id, &[page..page + 3, 0..1])
                    .unwrap();
            }
            10 => {
                self.cache.drop_pages(self.objects[object].id, page..page + 4).unwrap();
            }
            11 if !self.pool.pins.is_empty() => self.change_later(),
            12 => {
                let lsn = self.random.below(self.pool.lsn + 1);
                let id = self.objects[object].id;
                let changes = self.changes_up_to(object, lsn);
                self.ask(id, CacheOp::FlushTo { lsn }, Active::FlushTo { object, changes });
            }
            13 if self.random.one_in(2) => {
                // Refused if it is too much; then nothing changes.
                let _ = self.cache.keep(self.objects[object].id, page..page + 1);
            }
            13 => self.cache.keep_no_more(self.objects[object].id, 0..u64::MAX).unwrap(),
            14..17 => self.unpin(),
            _ => self.change(),
        }
    }

    fn ask(&mut self, object: ObjectId, op: CacheOp, active: Active) {
        let number = self.next;
        self.next += 1;
        let (memory, hint) = (Memory::None, Hint::Normal);
        let id = self.cache.start(
            number,
            CacheRequest {
                object,
                op,
                memory,
                hint,
            },
        );
        self.active.insert(number, (id, active));
    }

    fn log_on(&mut self) {
        self.pool.durable += self.random.below(self.pool.lsn - self.pool.durable + 1);
        self.cache.set_durable_lsn(self.pool.durable);
    }

    fn pin(&mut self, object: usize, page: u64) {
        let id = self.objects[object].id;
        match self.cache.pin_hit(id, page) {
            Some(pin) => self.pool.pins.push((object, page, pin)),
            None => self.ask(id, CacheOp::Pin { page }, Active::Pin { object, page }),
        }
    }

    fn page_cells(&self, object: usize, page: u64) -> Range<usize> {
        let start = page as usize * (PAGE / CELL);
        start..(start + PAGE / CELL).min(self.objects[object].cells.len())
    }

    fn pin_new(&mut self, object: usize, page: u64) {
        let cells = self.page_cells(object, page);
        // Zero is one of several states of a cell that look alike: it must be the only one that anybody knows of.
        let is_known = |cell: &Cell| cell.since_safe.contains(&ZERO) || cell.possible.contains(&ZERO);
        let mut snapshots = self.active.values();
        if self.objects[object].cells[cells.clone()].iter().any(is_known)
            || snapshots.any(|(_, active)| matches!(active, Active::Sync { .. } | Active::WriteOut { .. }))
        {
            return;
        }
        if self.lock(object, &cells, ZERO) {
            let lsn = self.pool.next_lsn(&mut self.random);
            let active = Active::PinNew {
                object,
                page,
                cells,
                lsn,
            };
            self.ask(self.objects[object].id, CacheOp::PinNew { page, lsn }, active);
        }
    }

    pub(super) fn pinned(&mut self, object: usize, page: u64, pin: Option<PagePin>) {
        self.pool.pins.extend(pin.map(|pin| (object, page, pin)));
    }

    /// Reads a pinned page, and changes some of it if nobody else is at that.
    fn change(&mut self) {
        if self.pool.pins.is_empty() {
            return;
        }
        let at = self.random.below(self.pool.pins.len() as u64) as usize;
        let (object, page, pin) = self.pool.pins.swap_remove(at);
        let all = self.page_cells(object, page);
        let bytes = self.cache.page(&pin).unwrap();
        for (at, number) in all.clone().zip(cells_of(bytes)) {
            let cell = &self.objects[object].cells[at];
            let allowed = cell.possible.contains(&number) || cell.pending == Some(number);
            assert!(allowed, "page {page} cell {at}: {number}, not {cell:?}");
        }
        let start = all.start + self.random.below(all.len() as u64) as usize;
        let cells = start..(start + 1 + self.random.below(8) as usize).min(all.end);
        let number = self.next;
        self.next += 1;
        if self.lock(object, &cells, number) {
            let lsn = self.pool.next_lsn(&mut self.random);
            let changed = match self.cache.change(&pin, lsn) {
                Ok(bytes) => {
                    let first = (cells.start - all.start) * CELL;
                    stamp(&mut bytes[first..first + cells.len() * CELL], number);
                    true
                }
                Err(
                    CacheError::BeingWritten
                    | CacheError::NoRoom
                    | CacheError::LogFirst(_)
                    | CacheError::Stuck
                    | CacheError::Unwritable(_),
                ) => false,
                Err(error) => panic!("{error:?}"),
            };
            self.unlock(object, &cells, number, changed, false);
            if changed {
                *self.seen.done.entry("changed").or_default() += 1;
                self.logged(object, page, cells, number, lsn);
            }
        }
        self.pool.pins.push((object, page, pin));
    }

    fn change_later(&mut self) {
        let at = self.random.below(self.pool.pins.len() as u64) as usize;
        let (object, page, _) = self.pool.pins[at];
        let lsn = self.pool.next_lsn(&mut self.random);
        let active = Active::Change { object, page, lsn };
        self.ask(self.objects[object].id, CacheOp::Change { page, lsn }, active);
    }

    fn unpin(&mut self) {
        if !self.pool.pins.is_empty() {
            let at = self.random.below(self.pool.pins.len() as u64) as usize;
            let (_, _, pin) = self.pool.pins.swap_remove(at);
            self.cache.unpin(pin);
        }
    }

    pub(super) fn logged(&mut self, object: usize, page: u64, cells: Range<usize>, number: u64, lsn: u64) {
        self.pool.changed(object, page, lsn);
        // The number of a new page is not its own.
        if lsn > 0 && number != ZERO {
            self.pool.logged.push(Logged {
                object,
                cells,
                number,
                lsn,
            });
        }
        if self.pool.logged.len() > 500 {
            let objects = &self.objects;
            self.pool.logged.retain(|logged| {
                let mut cells = objects[logged.object].cells[logged.cells.clone()].iter();
                cells.any(|cell| cell.since_safe.contains(&logged.number))
            });
        }
    }

    fn changes_up_to(&self, object: usize, lsn: u64) -> Vec<(Range<usize>, u64)> {
        let logged = self.pool.logged.iter();
        logged
            .filter(|logged| logged.object == object && logged.lsn <= lsn)
            .map(|logged| (logged.cells.clone(), logged.number))
            .collect()
    }

    /// Those changes, or what came over them, are safe now.
    pub(super) fn flushed_to(&mut self, object: usize, changes: &[(Range<usize>, u64)]) {
        for (cells, number) in changes {
            for cell in &mut self.objects[object].cells[cells.clone()] {
                if let Some(first) = cell.since_safe.iter().position(|since| since == number) {
                    cell.since_safe.drain(..first);
                }
            }
        }
    }

    /// Whatever is missing of logged changes, the log has it from the oldest recovery LSN on.
    pub(super) fn judge_recovery(&self, object: usize, found: &[u8], recovery: Option<u64>) {
        let found: Vec<u64> = cells_of(found).collect();
        for logged in self.pool.logged.iter().filter(|logged| logged.object == object) {
            if recovery.is_some_and(|recovery| logged.lsn >= recovery) {
                continue;
            }
            for at in logged.cells.clone() {
                let since = &self.objects[object].cells[at].since_safe;
                if let Some(first) = since.iter().position(|number| *number == logged.number) {
                    let number = found[at];
                    assert!(
                        since[first..].contains(&number),
                        "cell {at}: {number} is older than {logged:?}, recovery from {recovery:?}"
                    );
                }
            }
        }
    }

    /// The log is written to its end, and nothing is pinned any more.
    pub(super) fn end_pool(&mut self) {
        self.pool.durable = self.pool.lsn;
        self.cache.set_durable_lsn(self.pool.durable);
        while !self.pool.pins.is_empty() {
            self.unpin();
        }
    }
}
