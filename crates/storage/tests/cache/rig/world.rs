//! A driver of the cache over devices in memory, and the model that judges what it says.
//!
//! Bytes are written in cells of 64, each filled with the number of the write. The model keeps, per cell, what a read may give
//! (the last completed write; several after one that failed) and what a power cut may leave (everything since the last write that
//! is known to be safe). Two writes never overlap in a cell while both run, but in pages they do all the time.

mod judge;
mod lent;
mod pool;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use baio_engine::{Arena, Durability, Errno, Memory, Time, Vectored};
use baio_storage::cache::eviction::{Hint, Policy};
use baio_storage::cache::{
    Cache, CacheDone, CacheError, CacheOp, CacheOptions, CacheRequest, GateId, Io, IoId, IoKind, ObjectId, RequestId,
};

use self::lent::Lent;
use self::pool::Pool;
use super::device::{Device, Running};
use super::{PAGE, Random, buffer, bytes, fill};

pub(crate) const CELL: usize = 64;

/// One in how many I/Os goes wrong; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) read: u64,
    pub(crate) write: u64,
    pub(crate) flush: u64,
    /// Told as ended without its memory.
    pub(crate) given_up: u64,
    pub(crate) cancel: u64,
    pub(crate) cut: u64,
    /// No fault: one in how many steps is about the buffer pool.
    pub(crate) pool: u64,
}

#[derive(Clone, Debug)]
struct Cell {
    possible: Vec<u64>,
    since_safe: Vec<u64>,
    pending: Option<u64>,
}

struct Object {
    id: ObjectId,
    device: Device,
    cells: Vec<Cell>,
}

/// A request under way.
enum Active {
    Read {
        object: usize,
        cells: Range<usize>,
        allowed: Vec<Vec<u64>>,
    },
    Write {
        object: usize,
        cells: Range<usize>,
        number: u64,
        durable: bool,
    },
    Sync {
        object: usize,
        cells: Range<usize>,
        /// What each cell held when it started.
        snapshot: Vec<Vec<u64>>,
    },
    WriteOut {
        object: usize,
        cells: Range<usize>,
        snapshot: Vec<Vec<u64>>,
    },
    Reserve {
        object: usize,
        cells: Range<usize>,
        number: u64,
    },
    Pin {
        object: usize,
        page: u64,
    },
    PinNew {
        object: usize,
        page: u64,
        cells: Range<usize>,
        lsn: u64,
    },
    Change {
        object: usize,
        page: u64,
        lsn: u64,
    },
    FlushTo {
        object: usize,
        /// Cells and the numbers of the changes that it must make safe.
        changes: Vec<(Range<usize>, u64)>,
    },
}

/// Something the device is at.
enum Work {
    Io {
        object: usize,
        io: Io,
        write: Option<Running>,
        flush: u64,
    },
    /// A direct write of a reserved range.
    Direct {
        object: usize,
        request: RequestId,
        cells: Range<usize>,
        number: u64,
        write: Running,
    },
    /// Told as ended; the device still holds it.
    GivenUp {
        object: usize,
        id: IoId,
        memory: Memory,
        write: Option<Running>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) done: BTreeMap<&'static str, u64>,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) cuts: u64,
    pub(crate) ios: u64,
}

pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) seen: Seen,
    config: CacheOptions,
    arena: Arc<Arena>,
    memory: Arc<Arena>,
    objects: Vec<Object>,
    active: BTreeMap<u64, (RequestId, Active)>,
    work: Vec<Work>,
    pool: Pool,
    lent: Lent,
    random: Random,
    pub(crate) faults: Faults,
    next: u64,
    now: u64,
    pub(crate) spurious: u64,
}

fn number_of(cell: &[u8]) -> u64 {
    let number = u64::from_le_bytes(cell[..8].try_into().unwrap());
    assert!(cell.chunks(8).all(|chunk| chunk == &cell[..8]), "a torn cell: {cell:?}");
    number
}

fn cells_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(CELL).map(number_of)
}

fn stamp(to: &mut [u8], number: u64) {
    for chunk in to.chunks_mut(8) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
}

impl World {
    pub(crate) fn new(seed: u64, frames: usize, sizes: &[usize], faults: Faults) -> World {
        let mut random = Random(seed);
        let config = CacheOptions {
            bytes: frames * PAGE,
            eviction: if random.one_in(2) {
                Policy::Clock
            } else {
                Policy::S3Fifo
            },
            dirty_percent_max: [1, 25, 50, 90][random.below(4) as usize],
            write_bytes_max: [1, 3, 8, 64][random.below(4) as usize] * PAGE,
            cleaner_depth: 1 + random.below(4) as u32,
            age_max: Duration::from_nanos(50),
            log_distance_max: [u64::MAX, 8, 100][random.below(3) as usize],
        };
        let arena = Arena::new(frames.next_multiple_of(64) * PAGE).unwrap();
        let memory = Arena::new(16 << 20).unwrap();
        let mut cache = Cache::new(&arena, config).unwrap();
        let pool = Pool::new(&mut cache, &mut random);
        let objects: Vec<Object> = sizes
            .iter()
            .enumerate()
            .map(|(nth, &size)| Object {
                // Of nobody, of one owner each, or the first of nobody.
                id: match seed % 3 {
                    1 => cache.add_of(nth as u32, size as u64, 16 * PAGE),
                    2 if nth > 0 => cache.add_of(7, size as u64, 16 * PAGE),
                    _ => cache.add(size as u64, 16 * PAGE),
                },
                device: Device::new(vec![0; size]),
                cells: vec![
                    Cell {
                        possible: vec![0],
                        since_safe: vec![0],
                        pending: None
                    };
                    size / CELL
                ],
            })
            .collect();
        let mut world = World {
            cache,
            seen: Seen::default(),
            config,
            arena,
            memory,
            objects,
            active: BTreeMap::new(),
            work: Vec::new(),
            pool,
            lent: Lent::default(),
            random,
            faults,
            next: 1,
            now: 0,
            spurious: 0,
        };
        world.put_under_gates();
        world
    }

    /// Some operation or other.
    pub(crate) fn step(&mut self, active_max: usize) {
        self.now += 1;
        let faults = self.faults;
        if self.random.one_in(faults.cut) {
            return self.cut();
        }
        if self.random.one_in(faults.cancel) {
            self.cancel();
        }
        if self.random.one_in(3) {
            self.cache.go_on();
        }
        if self.random.one_in(20) {
            self.cache.tick(Time(self.now));
        }
        if self.random.one_in(12) {
            self.lend_step();
        }
        if self.random.one_in(faults.pool) {
            self.pool_step();
        } else if self.active.len() < active_max && self.random.below(10) < 5 {
            self.begin();
        } else {
            self.end_one();
        }
        self.drain();
    }

    fn cells(&mut self, object: usize, pages_max: u64) -> Range<usize> {
        let total = self.objects[object].cells.len() as u64;
        // Half of the requests go to a few pages, so that they meet.
        let space = if self.random.one_in(2) {
            total.min(6 * 64)
        } else {
            total
        };
        let start = self.random.below(space);
        let (start, len) = match self.random.below(3) {
            0 => (start, 1 + self.random.below(64 * pages_max)),
            1 => (start / 64 * 64, 64),
            _ => (start / 64 * 64, 64 * (1 + self.random.below(pages_max))),
        };
        start as usize..(start + len).min(total) as usize
    }

    fn memory(&mut self, len: usize, number: u64) -> Memory {
        let make = |len: usize| {
            let mut buffer = buffer(&self.memory, len);
            stamp(&mut buffer, number);
            buffer
        };
        if len > CELL && self.random.one_in(3) {
            let first = CELL * (1 + self.random.below((len / CELL) as u64 - 1) as usize);
            let mut list = Vectored::with_capacity(2);
            list.push(make(first).into()).unwrap();
            list.push(make(len - first).into()).unwrap();
            return Memory::Many(list);
        }
        let buffer = make(len);
        if number > 0 && self.random.one_in(4) {
            return buffer.freeze().into();
        }
        buffer.into()
    }

    /// A sync, or that what is changed is written out.
    fn pass(&mut self, object: usize) -> (CacheOp, Memory, Active) {
        let all = self.objects[object].cells.len();
        let (cells, end) = if self.random.one_in(2) {
            (0..all, u64::MAX)
        } else {
            let cells = self.cells(object, 12);
            let end = (cells.end * CELL) as u64;
            (cells, end)
        };
        let start = (cells.start * CELL) as u64;
        let snapshot = self.objects[object].cells[cells.clone()]
            .iter()
            .map(|cell| cell.possible.clone())
            .collect();
        if self.random.one_in(4) {
            (
                CacheOp::WriteOut { start, end },
                Memory::None,
                Active::WriteOut {
                    object,
                    cells,
                    snapshot,
                },
            )
        } else {
            let durability = Durability::Data;
            let active = Active::Sync {
                object,
                cells,
                snapshot,
            };
            (CacheOp::Sync { start, end, durability }, Memory::None, active)
        }
    }

    fn begin(&mut self) {
        let object = self.random.below(self.objects.len() as u64) as usize;
        let kind = self.random.below(100);
        let number = self.next;
        self.next += 1;
        let bytes = |cells: &Range<usize>| ((cells.start * CELL) as u64, (cells.end * CELL) as u64);
        let hint = if self.random.one_in(8) {
            Hint::Once
        } else {
            Hint::Normal
        };
        let (op, memory, active) = if kind < 40 {
            let mut cells = self.cells(object, 12);
            if self.random.one_in(3) {
                // A reader in order.
                let at = (number as usize * 640) % self.objects[object].cells.len();
                cells = at..(at + 640).min(self.objects[object].cells.len());
            }
            let (offset, end) = bytes(&cells);
            let memory = self.memory((end - offset) as usize, 0);
            let allowed = self.allowed(object, &cells);
            (
                CacheOp::Read { offset },
                memory,
                Active::Read { object, cells, allowed },
            )
        } else if kind < 90 {
            let mut cells = self.cells(object, if kind < 70 { 3 } else { 12 });
            if kind.is_multiple_of(10) {
                // Whole pages, and several: a durable one may go to the device as it is.
                let first = cells.start / 64 * 64;
                cells = first..(first + 64 * (4 + cells.len() / 64)).min(self.objects[object].cells.len());
            }
            if !self.lock(object, &cells, number) {
                return;
            }
            let durable = kind.is_multiple_of(5);
            let durability = match durable {
                true if self.random.one_in(3) => Durability::Full,
                true => Durability::Data,
                false => Durability::None,
            };
            let (offset, end) = bytes(&cells);
            let memory = self.memory((end - offset) as usize, number);
            let active = Active::Write {
                object,
                cells,
                number,
                durable,
            };
            (CacheOp::Write { offset, durability }, memory, active)
        } else if kind < 95 {
            self.pass(object)
        } else {
            let cells = self.cells(object, 4);
            let cells = cells.start / 64 * 64..cells.end.next_multiple_of(64).min(self.objects[object].cells.len());
            if !self.lock(object, &cells, number) {
                return;
            }
            let (start, end) = bytes(&cells);
            (
                CacheOp::Reserve { start, end },
                Memory::None,
                Active::Reserve { object, cells, number },
            )
        };
        // It may end in `start`; its end is looked at later.
        let id = self.cache.start(
            number,
            CacheRequest {
                object: self.objects[object].id,
                op,
                memory,
                hint,
            },
        );
        self.active.insert(number, (id, active));
    }

    /// Takes what the cache wants and has ended.
    pub(crate) fn drain(&mut self) {
        loop {
            while let Some(io) = self.cache.next_io() {
                self.take_io(io);
            }
            let Some(done) = self.cache.next_done() else {
                break;
            };
            self.judge(done);
        }
        let stats = self.cache.stats();
        self.spurious = stats.spurious_wakeups;
        let known = stats.frames_free
            + stats.frames_clean
            + stats.frames_filling
            + stats.frames_dirty
            + stats.frames_failed
            + stats.frames_gated
            + stats.frames_write_back
            + stats.frames_unflushed
            + stats.frames_lost;
        assert!(known <= stats.frames, "{stats:?}");
    }

    fn take_io(&mut self, io: Io) {
        self.seen.ios += 1;
        let object = self.objects.iter().position(|object| object.id == io.object).unwrap();
        let device = &self.objects[object].device;
        let (mut write, mut flush) = (None, 0);
        match io.kind {
            IoKind::Read { len, .. } => assert_eq!(io.memory.len(), len as usize),
            IoKind::Write {
                offset,
                len,
                durability,
            } => {
                let bytes = bytes(&io.memory);
                assert_eq!(bytes.len(), len as usize);
                self.pool.may_write(
                    object,
                    offset / PAGE as u64..(offset + u64::from(len)).div_ceil(PAGE as u64),
                );
                let end = offset + u64::from(len);
                for work in &self.work {
                    let (of, other) = match work {
                        Work::Io { object, write, .. } | Work::GivenUp { object, write, .. } => {
                            (object, write.as_ref())
                        }
                        Work::Direct { object, write, .. } => (object, Some(write)),
                    };
                    if let Some(other) = other.filter(|_| *of == object) {
                        let start = (other.first * PAGE) as u64;
                        let other_end = start + other.bytes.len() as u64;
                        assert!(end <= start || other_end <= offset, "two writes of one page at once");
                    }
                }
                write = Some(device.begin_write(offset, bytes, durability != Durability::None));
            }
            IoKind::Sync { .. } => flush = device.begin_flush(),
        }
        self.work.push(Work::Io {
            object,
            io,
            write,
            flush,
        });
    }

    /// The device ends something, well or not.
    pub(crate) fn end_one(&mut self) {
        if self.work.is_empty() {
            return;
        }
        let at = self.random.below(self.work.len() as u64) as usize;
        match self.work.swap_remove(at) {
            Work::Io {
                object,
                io,
                write,
                flush,
            } => self.end_io(object, io, write, flush),
            Work::Direct {
                object,
                request,
                cells,
                number,
                write,
            } => {
                let durable = write.durable;
                self.objects[object].device.end_write(write);
                self.unlock(object, &cells, number, true, durable);
                self.cache.release(self.objects[object].id, request);
            }
            Work::GivenUp {
                object,
                id,
                memory,
                write,
            } => {
                if let Some(write) = write {
                    self.objects[object].device.fail_write(write, &mut self.random);
                }
                self.cache.io_released(id, memory);
            }
        }
    }

    fn end_io(&mut self, object: usize, mut io: Io, write: Option<Running>, flush: u64) {
        let (faults, random) = (self.faults, &mut self.random);
        let device = &mut self.objects[object].device;
        if !io.memory.is_empty() && random.one_in(faults.given_up) {
            self.work.push(Work::GivenUp {
                object,
                id: io.id,
                memory: io.memory,
                write,
            });
            return self.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
        }
        let result = match io.kind {
            IoKind::Read { offset, len } => {
                let (offset, len) = (offset as usize, len as usize);
                let good = !random.one_in(faults.read);
                let got = if good { len } else { random.below(len as u64) as usize };
                fill(&mut io.memory, &device.current[offset..offset + got]);
                if good || random.one_in(2) {
                    Ok(got as u32)
                } else {
                    Err(Errno::EIO)
                }
            }
            IoKind::Write { len, .. } => {
                let write = write.unwrap();
                if random.one_in(faults.write) {
                    device.fail_write(write, random);
                    if random.one_in(2) { Ok(len - 1) } else { Err(Errno::EIO) }
                } else {
                    device.end_write(write);
                    Ok(len)
                }
            }
            IoKind::Sync { .. } => {
                if random.one_in(faults.flush) {
                    let running = self.work.iter_mut().filter_map(|work| match work {
                        Work::Io { object: of, write, .. } if *of == object => write.as_mut(),
                        _ => None,
                    });
                    device.fail_flush(running, random);
                    Err(Errno::EIO)
                } else {
                    device.end_flush(flush);
                    Ok(0)
                }
            }
        };
        self.cache.io_ended(io.id, result, io.memory);
    }

    fn cancel(&mut self) {
        let at = self.random.below(self.active.len() as u64) as usize;
        if let Some((id, _)) = self.active.values().nth(at) {
            self.cache.cancel(*id);
        }
    }

    /// Ends everything without a fault; nothing may be left over.
    pub(crate) fn finish(&mut self) {
        self.faults = Faults::default();
        let faults = std::mem::replace(
            &mut self.faults,
            Faults {
                read: 1 << 60,
                ..Faults::default()
            },
        );
        self.end_pool();
        self.end_loans();
        self.drain();
        while !self.work.is_empty() {
            self.end_one();
            self.drain();
        }
        let left: Vec<u64> = self.active.keys().copied().collect();
        assert!(left.is_empty(), "never ended: {left:?} {:?}", self.cache.stats());
        assert_eq!(self.cache.requests_under_way(), 0);
        assert_eq!(self.cache.stats().frames_lost, 0);
        self.faults = faults;
    }
}
