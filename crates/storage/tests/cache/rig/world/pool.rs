//! The buffer pool in the model: pins and changes under LSNs by random steps, a log that goes on now and then.
//!
//! A change is a write that is done at once. Beside what holds for writes: no page goes to the device whose last LSN its log has
//! not reached, and what a power cut takes away of logged changes the log still has from the oldest recovery LSN on.
//!
//! There are up to three logs, each with a gate and LSNs of its own, far from the others'. Objects go from one to another when they
//! may: what they owed to the one before is safe then.

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
    /// How often the object had been put under another gate.
    moved: u64,
}

/// A log and its gate; the first is the default gate's.
#[derive(Debug)]
struct Log {
    gate: GateId,
    /// Given out last.
    lsn: u64,
    durable: u64,
    distance: u64,
}

#[derive(Debug)]
pub(super) struct Pool {
    pins: Vec<(usize, u64, PagePin)>,
    logs: Vec<Log>,
    /// Which of them each object has, and how often it was put under another gate; the first, where it is not said.
    under: BTreeMap<usize, (usize, u64)>,
    /// Last LSN of each page.
    last: BTreeMap<(usize, u64), u64>,
    logged: Vec<Logged>,
}

impl Pool {
    pub(super) fn new(cache: &mut Cache, random: &mut Random) -> Pool {
        let mut logs = Vec::new();
        for nth in 0..1 + random.below(3) {
            let distance = [u64::MAX, 8, 100][random.below(3) as usize];
            let gate = if nth == 0 {
                GateId::default()
            } else {
                cache.add_gate(distance)
            };
            // The numbers of one say nothing about those of another.
            let lsn = [0, 5000, 1 << 40][nth as usize];
            let durable = lsn;
            logs.push(Log {
                gate,
                lsn,
                durable,
                distance,
            });
        }
        Pool {
            pins: Vec::new(),
            logs,
            under: BTreeMap::new(),
            last: BTreeMap::new(),
            logged: Vec::new(),
        }
    }

    fn under(&self, object: usize) -> (usize, u64) {
        self.under.get(&object).copied().unwrap_or_default()
    }

    fn log_of(&self, object: usize) -> &Log {
        &self.logs[self.under(object).0]
    }

    /// The write-ahead rule, at the moment when a write is asked of the device.
    pub(super) fn may_write(&self, object: usize, pages: Range<u64>) {
        let log = self.log_of(object);
        for page in pages {
            let last = self.last.get(&(object, page)).copied().unwrap_or(0);
            assert!(
                last <= log.durable,
                "page {page} of object {object} is written at {last}, before its log: {log:?}"
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

    fn next_lsn(&mut self, object: usize, random: &mut Random) -> u64 {
        if random.one_in(5) {
            return 0;
        }
        let log = self.under(object).0;
        self.logs[log].lsn += 1;
        self.logs[log].lsn
    }
}

impl World {
    pub(super) fn pool_step(&mut self) {
        let object = self.random.below(self.objects.len() as u64) as usize;
        let pages = (self.objects[object].cells.len() * CELL).div_ceil(PAGE) as u64;
        let space = if self.random.one_in(2) { pages } else { pages.min(6) };
        let page = self.random.below(space);
        match self.random.below(21) {
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
                let back = self.random.below(30);
                let lsn = self.pool.log_of(object).lsn.saturating_sub(back);
                let id = self.objects[object].id;
                let changes = self.changes_up_to(object, lsn);
                self.ask(id, CacheOp::FlushTo { lsn }, Active::FlushTo { object, changes });
            }
            13 if self.random.one_in(2) => {
                // Refused if it is too much; then nothing changes.
                let _ = self.cache.keep(
                    self.objects[object].id,
                    baio_storage::cache::Keeper::default(),
                    page..page + 1,
                );
            }
            13 => self
                .cache
                .keep_no_more(
                    self.objects[object].id,
                    baio_storage::cache::Keeper::default(),
                    0..u64::MAX,
                )
                .unwrap(),
            14..17 => self.unpin(),
            20 => self.move_to_another_gate(object),
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
        let nth = self.random.below(self.pool.logs.len() as u64) as usize;
        let log = &mut self.pool.logs[nth];
        log.durable += self.random.below(log.lsn - log.durable + 1);
        self.cache.set_durable_lsn(log.gate, log.durable);
    }

    /// A new cache gets the gates that the last one had.
    pub(super) fn make_gates(&mut self) {
        for (nth, log) in self.pool.logs.iter_mut().enumerate() {
            if nth > 0 {
                log.gate = self.cache.add_gate(log.distance);
            }
            self.cache.set_durable_lsn(log.gate, log.durable);
        }
    }

    /// Each object has a log of its own, as far as there are so many.
    pub(super) fn put_under_gates(&mut self) {
        self.pool.under.clear();
        for (at, object) in self.objects.iter().enumerate() {
            let log = at % self.pool.logs.len();
            self.cache.set_gate(object.id, self.pool.logs[log].gate).unwrap();
            self.pool.under.insert(at, (log, 0));
        }
    }

    fn move_to_another_gate(&mut self, object: usize) {
        let (from, moved) = self.pool.under(object);
        let to = self.random.below(self.pool.logs.len() as u64) as usize;
        let gate = self.pool.logs[to].gate;
        match self.cache.set_gate(self.objects[object].id, gate) {
            Ok(()) if from != to => {
                *self.seen.done.entry("gate").or_default() += 1;
                self.pool.under.insert(object, (to, moved + 1));
                self.pool.last.retain(|(of, _), _| *of != object);
            }
            Ok(()) | Err(CacheError::OtherGate | CacheError::Busy) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// The oldest recovery LSN of each log.
    pub(super) fn recovery(&self) -> Vec<Option<u64>> {
        let logs = self.pool.logs.iter();
        logs.map(|log| self.cache.oldest_recovery_lsn(log.gate)).collect()
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
            let lsn = self.pool.next_lsn(object, &mut self.random);
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
            let lsn = self.pool.next_lsn(object, &mut self.random);
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
        let lsn = self.pool.next_lsn(object, &mut self.random);
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
            let (_, moved) = self.pool.under(object);
            self.pool.logged.push(Logged {
                object,
                cells,
                number,
                lsn,
                moved,
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
        let (_, moved) = self.pool.under(object);
        let logged = self.pool.logged.iter();
        logged
            .filter(|logged| logged.object == object && (logged.moved < moved || logged.lsn <= lsn))
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

    /// Whatever is missing of logged changes, their log has it from the oldest recovery LSN on. What was changed under another gate
    /// than the object's last one is missing nowhere.
    pub(super) fn judge_recovery(&self, object: usize, found: &[u8], recovery: &[Option<u64>]) {
        let (log, moved) = self.pool.under(object);
        let recovery = recovery[log];
        let found: Vec<u64> = cells_of(found).collect();
        for logged in self.pool.logged.iter().filter(|logged| logged.object == object) {
            if logged.moved == moved && recovery.is_some_and(|recovery| logged.lsn >= recovery) {
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

    /// The logs are written to their ends, and nothing is pinned any more.
    pub(super) fn end_pool(&mut self) {
        for log in &mut self.pool.logs {
            log.durable = log.lsn;
            self.cache.set_durable_lsn(log.gate, log.durable);
        }
        while !self.pool.pins.is_empty() {
            self.unpin();
        }
    }
}
