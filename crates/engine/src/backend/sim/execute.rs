//! What an iteration does to its disk: taken apart when it starts, carried out when it ends.

use std::sync::Arc;

use crate::backend::sim::cache::{Change, SECTOR};
use crate::backend::sim::disk::Disk;
use crate::backend::sim::faults::{Fault, Injected, Kind, Strike};
use crate::backend::sim::job::{Job, Owner};
use crate::backend::sim::trace::{Event, SimHandle};
use crate::device::{Device, DurableBy};
use crate::file::File;
use crate::policy::{Caching, Durability, Space, Time};
use crate::slot::{Slots, Work};

/// The work of an iteration, and the disk that it runs on. What no disk can do ends at once.
pub(crate) fn prepare(slots: &Slots, owner: Owner, work: Work, number: u64, now: Time) -> Result<(Disk, Job), i32> {
    let id = owner.id;
    let disk = slots.file(id).and_then(File::device::<Disk>).ok_or(-libc::EBADF)?;
    let mut job = Job {
        owner,
        number,
        kind: Kind::Other,
        offset: 0,
        len: 0,
        change: None,
        durable: false,
        direct: false,
        reserves: false,
        began: 0,
        covers: (0, 0),
        strike: None,
        arrived: now,
        mark: 0,
        cancelled: false,
    };
    match work {
        Work::Sync { .. } => job.kind = Kind::Flush,
        Work::Read { offset, len, caching } => {
            job.kind = Kind::Read;
            (job.offset, job.len) = (offset, len as u64);
            job.direct = caching == Caching::Direct;
        }
        Work::Write {
            offset,
            len,
            caching,
            durability,
        } => {
            job.kind = Kind::Write;
            (job.offset, job.len) = (offset, len as u64);
            job.direct = caching == Caching::Direct;
            job.durable = durability != Durability::None && disk.durable_by() == DurableBy::Flag;
            let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
            if let Some(bytes) = Arc::get_mut(&mut bytes) {
                slots.copy_out(id, bytes);
            }
            job.change = Some(Change::Bytes(job.offset, bytes));
        }
        // Write-back without a flush makes nothing durable.
        Work::SyncRange { .. } => {}
        Work::Allocate { len: 0, .. } => return Err(-libc::EINVAL),
        Work::Allocate { offset, len, space } => {
            let end = offset.checked_add(len).ok_or(-libc::EFBIG)?;
            if end > disk.size() {
                return Err(-libc::ENOSPC);
            }
            job.kind = Kind::Allocate;
            (job.offset, job.len) = (offset, len);
            match space {
                Space::Reserve => job.reserves = true,
                Space::Zero | Space::Discard => job.change = Some(Change::Zero(offset..end)),
            }
        }
        Work::Truncate { len } => {
            job.kind = Kind::Truncate;
            job.offset = len;
        }
        Work::Timer { .. } | Work::Other => return Err(-libc::EOPNOTSUPP),
    }
    Ok((disk.clone(), job))
}

/// It begins: from now on a power cut may find some of it.
pub(crate) fn begin(disk: &Disk, job: &mut Job) {
    match (&job.change, job.kind) {
        (Some(change), _) => job.began = disk.begin(job.number, change.clone()),
        (None, Kind::Flush) => job.covers = disk.begin_flush(),
        (None, _) => {}
    }
}

/// It is called back: nothing of it happens.
pub(crate) fn withdraw(disk: &Disk, job: &Job) {
    if job.change.is_some() {
        disk.end(job.number);
    }
}

/// It ends: moves the bytes, or does what its fault says. Returns the raw result, and what was read.
pub(crate) fn end(disk: &Disk, job: &Job, trace: &SimHandle) -> (i32, Vec<u8>) {
    if disk.is_off() {
        return (-libc::EIO, Vec::new());
    }
    if job.change.is_some() || job.kind == Kind::Flush {
        // The power may fail just before the end: then it was still under way.
        if let Err(raw) = disk.step() {
            return (raw, Vec::new());
        }
        disk.end(job.number);
    }
    let mut ending = Ending {
        disk,
        job,
        trace,
        bytes: Vec::new(),
    };
    let raw = match job.kind {
        Kind::Read => ending.read(),
        Kind::Write => ending.write(),
        Kind::Flush => ending.flush(),
        Kind::Allocate => ending.allocate(),
        Kind::Truncate => ending.truncate(),
        Kind::Other => 0,
    };
    (raw, ending.bytes)
}

struct Ending<'a> {
    disk: &'a Disk,
    job: &'a Job,
    trace: &'a SimHandle,
    /// What was read.
    bytes: Vec<u8>,
}

impl Ending<'_> {
    fn read(&mut self) -> i32 {
        let len = match self.common_fault() {
            Some(raw) => return raw,
            None => self.wanted(Fault::ShortRead, self.room()),
        };
        if let Some(strike) = self.struck_by(Fault::Rot) {
            if len > 0 {
                let at = self.job.offset + strike.detail % len;
                let bit = strike.detail >> 61;
                self.disk.rot(at, bit as u32);
                self.tell(Fault::Rot, at, bit);
            }
        }
        self.bytes = vec![0; len as usize];
        self.disk.read(self.job.offset, &mut self.bytes);
        self.disk.count_read(len);
        len as i32
    }

    fn write(&mut self) -> i32 {
        if let Some(raw) = self.common_fault() {
            return raw;
        }
        let job = self.job;
        let Some(Change::Bytes(offset, bytes)) = &job.change else {
            return -libc::EINVAL;
        };
        let room = self.room();
        if room == 0 {
            // A block device does not grow, and a thin one is full (block/fops.c, blkdev_write_iter).
            return -libc::ENOSPC;
        }
        if let Some(strike) = self.struck_by(Fault::TornWrite) {
            let sectors = room.div_ceil(SECTOR as u64);
            // Perhaps none of it, perhaps all: the status may be what got lost.
            let stored = (strike.detail % (sectors + 1) * SECTOR as u64).min(room);
            if stored > 0 {
                self.store(*offset, bytes, stored as usize);
            }
            self.tell(Fault::TornWrite, *offset, stored);
            return -libc::EIO;
        }
        let len = self.wanted(Fault::ShortWrite, room);
        if self.struck_by(Fault::LostWrite).is_some() {
            self.tell(Fault::LostWrite, *offset, 0);
            return len as i32;
        }
        if let Some(strike) = self.struck_by(Fault::Misdirected) {
            let places = (self.disk.size() - len) / SECTOR as u64 + 1;
            let elsewhere = strike.detail % places * SECTOR as u64;
            self.store(elsewhere, bytes, len as usize);
            self.tell(Fault::Misdirected, *offset, elsewhere);
            return len as i32;
        }
        self.store(*offset, bytes, len as usize);
        len as i32
    }

    fn flush(&mut self) -> i32 {
        if let Some(raw) = self.common_fault() {
            return raw;
        }
        let (covers, writes) = self.job.covers;
        if self.struck_by(Fault::FailedFlush).is_some() {
            self.count(Fault::FailedFlush);
            for range in self.disk.fail_flush(covers) {
                self.note(Fault::FailedFlush, range.start, range.end - range.start, 0);
            }
            return -libc::EIO;
        }
        self.disk.flush(covers, writes);
        self.trace.note(Event::Flush, [covers, 0, 0, 0]);
        0
    }

    fn allocate(&mut self) -> i32 {
        if let Some(raw) = self.common_fault() {
            return raw;
        }
        let job = self.job;
        if job.reserves {
            if self.room() < job.len {
                return -libc::ENOSPC;
            }
            self.disk.reserve(&job.range());
            return 0;
        }
        if let Some(change) = &job.change {
            self.disk.store(change, false, job.began);
            self.trace.note(Event::Store, [job.offset, job.len, 0, 0]);
        }
        0
    }

    /// A new size is on the medium at once.
    fn truncate(&mut self) -> i32 {
        if let Some(raw) = self.common_fault() {
            return raw;
        }
        self.disk.set_size(self.job.offset);
        self.trace.note(Event::Store, [self.job.offset, 0, 1, 0]);
        0
    }

    fn room(&self) -> u64 {
        let size = self.disk.size();
        match self.job.kind {
            Kind::Read => size.saturating_sub(self.job.offset).min(self.job.len),
            _ => self.disk.room(self.job.offset, self.job.len),
        }
    }

    fn store(&self, offset: u64, bytes: &Arc<[u8]>, len: usize) {
        let bytes: Arc<[u8]> = if len == bytes.len() {
            Arc::clone(bytes)
        } else {
            bytes[..len].into()
        };
        self.trace
            .note(Event::Store, [offset, len as u64, u64::from(self.job.durable), 0]);
        self.trace.note_bytes(&bytes);
        self.disk
            .store(&Change::Bytes(offset, bytes), self.job.durable, self.job.began);
    }

    /// Faults that end an iteration before it does anything.
    fn common_fault(&mut self) -> Option<i32> {
        let Strike { fault, .. } = self.job.strike?;
        let raw = match fault {
            Fault::Interrupted => -libc::EINTR,
            Fault::TryAgain => -libc::EAGAIN,
            Fault::ReadError | Fault::WriteError => -libc::EIO,
            Fault::NoSpace => -libc::ENOSPC,
            Fault::ShortRead
            | Fault::ShortWrite
            | Fault::Delay
            | Fault::LostWrite
            | Fault::TornWrite
            | Fault::Misdirected
            | Fault::Rot
            | Fault::FailedFlush => return None,
        };
        self.tell(fault, self.job.offset, 0);
        Some(raw)
    }

    fn struck_by(&self, fault: Fault) -> Option<Strike> {
        self.job.strike.filter(|strike| strike.fault == fault)
    }

    /// All that there is room for, or with a short transfer less: sectors of a direct one, else any number of bytes, and at
    /// least one, as the kernel has it.
    fn wanted(&mut self, short: Fault, room: u64) -> u64 {
        let Some(strike) = self.struck_by(short) else {
            return room;
        };
        let unit = if self.job.direct { SECTOR as u64 } else { 1 };
        let units = room.div_ceil(unit);
        if units < 2 {
            return room;
        }
        let len = (1 + strike.detail % (units - 1)) * unit;
        self.tell(short, self.job.offset, len);
        len
    }

    fn tell(&self, fault: Fault, offset: u64, what: u64) {
        self.count(fault);
        self.note(fault, offset, self.job.len, what);
    }

    fn count(&self, fault: Fault) {
        self.disk.with_plan(|plan| {
            plan.count(fault);
            None::<()>
        });
        self.trace
            .note(Event::Fault, [fault as u64, self.job.offset, self.job.len, 0]);
    }

    fn note(&self, fault: Fault, offset: u64, len: u64, what: u64) {
        let at = self.trace.now();
        self.disk.with_plan(|plan| {
            plan.note(Injected {
                fault,
                at,
                offset,
                len,
                what,
            });
            None::<()>
        });
    }
}
