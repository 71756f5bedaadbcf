//! A log that is driven by hand, on a device in memory that can end its I/Os in any order, lose them, tear them and let them rot.
#![allow(unreachable_pub, reason = "a test has no public")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use baio_engine::sim::Random;
use baio_engine::{Arena, Errno, Memory, Time};
use baio_storage::log::{
    Appender, Fired, LogAnswer, LogDone, LogError, LogIoId, LogIoKind, LogOptions, LogPart, LogRequest, Lsn,
    RecordReader, Recovered, Salt, WaitKey,
};

/// What a device tears apart: it writes so many bytes whole or not.
pub const SECTOR: usize = 512;
pub const UUID: [u8; 16] = *b"log of the tests";
pub const SALT: Salt = Salt(*b"salt of tests' l");

pub type Records = Vec<(u64, Vec<u8>)>;

/// Small batches, so that little is much.
pub fn small() -> LogOptions {
    LogOptions {
        block_bytes: 512,
        window: 3,
        batch_bytes_max: 2048,
        buffer_bytes: 64 << 10,
        recent_bytes: 8 << 10,
        ..LogOptions::default()
    }
}

/// The bytes of a device, and what is written to them now.
#[derive(Clone)]
pub struct Device {
    pub bytes: Vec<u8>,
    /// Reads of these bytes fail.
    pub unreadable: Vec<std::ops::Range<u64>>,
    /// So many of a hundred reads fail, whatever they read.
    pub failing_percent: u64,
    /// By which they are chosen.
    pub random: Random,
    /// Its file system sets no space aside; a write makes the file longer.
    pub sets_nothing_aside: bool,
    /// What it has itself, where the kernel's cache in front of it has something else: that is read.
    pub medium: Option<Vec<u8>>,
}

impl Device {
    pub fn new(size: u64) -> Device {
        // Nobody has said that it is empty.
        Device {
            bytes: vec![0xA5; size as usize],
            unreadable: Vec::new(),
            failing_percent: 0,
            random: Random(1),
            sets_nothing_aside: false,
            medium: None,
        }
    }

    fn put(&mut self, at: usize, sector: &[u8]) {
        for bytes in [Some(&mut self.bytes), self.medium.as_mut()].into_iter().flatten() {
            bytes[at..at + sector.len()].copy_from_slice(sector);
        }
    }

    /// What is there when the power comes back.
    pub fn without_cache(mut self) -> Device {
        if let Some(medium) = self.medium.take() {
            self.bytes = medium;
        }
        self
    }

    fn can_read(&mut self, bytes: &std::ops::Range<u64>) -> bool {
        let fails = self.random.percent(self.failing_percent);
        let is_bad = |bad: &std::ops::Range<u64>| bad.start < bytes.end && bytes.start < bad.end;
        !fails && !self.unreadable.iter().any(is_bad)
    }

    /// As fallocate(2) does it.
    fn lengthen(&mut self, to: u64) {
        let to = self.bytes.len().max(to as usize);
        self.bytes.resize(to, 0);
    }

    pub fn flip(&mut self, offset: u64) {
        self.bytes[offset as usize] ^= 0x10;
    }
}

pub struct Io {
    pub id: LogIoId,
    pub kind: LogIoKind,
    pub memory: Memory,
}

impl Io {
    pub fn is_batch(&self) -> bool {
        matches!(self.kind, LogIoKind::Write { offset, .. } if offset >= 8192)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.copy_out_at(0, &mut bytes);
        bytes
    }

    /// Lets the sectors land of which this says so.
    pub fn land(&self, device: &mut Device, mut lands: impl FnMut(usize) -> bool) {
        if let LogIoKind::Write { offset, .. } = self.kind {
            for (number, sector) in self.bytes().chunks(SECTOR).enumerate() {
                let at = offset as usize + number * SECTOR;
                if lands(number) {
                    device.put(at, sector);
                }
            }
        }
    }
}

/// A log and its device.
pub struct Rig {
    pub arena: Arc<Arena>,
    pub device: Device,
    pub part: LogPart,
    pub appender: Appender,
    /// I/Os at the device, in the order in which they were asked.
    pub ios: Vec<Io>,
    pub done: Vec<LogDone>,
    pub fired: Vec<Fired>,
    next_owner: u64,
    /// What was read last said what no writer of ours does.
    pub is_damaged: bool,
}

impl Rig {
    pub fn try_create(size: u64, options: &LogOptions) -> Result<Rig, LogError> {
        let arena = Arena::new(64 << 20).unwrap();
        let part = LogPart::create(&arena, size, UUID, SALT, options)?;
        Rig::of(arena, Device::new(size), part)
    }

    pub fn create(size: u64, options: &LogOptions) -> Rig {
        Rig::try_create(size, options).unwrap()
    }

    /// Opens what is on a device.
    pub fn try_open(device: Device, options: &LogOptions) -> Result<Rig, LogError> {
        let arena = Arena::new(64 << 20).unwrap();
        let part = LogPart::open(&arena, device.bytes.len() as u64, options)?;
        Rig::of(arena, device, part)
    }

    pub fn open(device: Device, options: &LogOptions) -> Rig {
        Rig::try_open(device, options).unwrap()
    }

    /// Looks at what is on a device.
    pub fn try_look(device: Device, options: &LogOptions) -> Result<Rig, LogError> {
        let arena = Arena::new(64 << 20).unwrap();
        let part = LogPart::look(&arena, device.bytes.len() as u64, options)?;
        Rig::of(arena, device, part)
    }

    pub fn of(arena: Arc<Arena>, device: Device, part: LogPart) -> Result<Rig, LogError> {
        let mut rig = Rig::of_unopened(arena, device, part);
        rig.ask(LogRequest::Open)?;
        Ok(rig)
    }

    /// Nothing is asked yet.
    pub fn of_unopened(arena: Arc<Arena>, device: Device, part: LogPart) -> Rig {
        let appender = part.appender();
        Rig {
            arena,
            device,
            part,
            appender,
            ios: Vec::new(),
            done: Vec::new(),
            fired: Vec::new(),
            next_owner: 0,
            is_damaged: false,
        }
    }

    pub fn recovered(&mut self) -> Recovered {
        match self.ask(LogRequest::Open) {
            Ok(LogAnswer::Opened(recovered)) => recovered,
            other => panic!("{other:?}"),
        }
    }

    /// Takes what the log wants done now.
    pub fn pump(&mut self) {
        while let Some((id, kind, memory)) = self.part.next_io() {
            let expected = match kind {
                LogIoKind::Read { offset, len } | LogIoKind::Write { offset, len } => {
                    assert!(offset % 512 == 0 && len % 512 == 0 && len > 0, "{kind:?}");
                    // A read may go beyond the end, by less than a block.
                    let more = if matches!(kind, LogIoKind::Read { .. }) { 511 } else { 0 };
                    let ends = offset + u64::from(len) <= self.device.bytes.len() as u64 + more;
                    assert!(ends || self.device.sets_nothing_aside, "{kind:?}");
                    len
                }
                LogIoKind::Sync | LogIoKind::Allocate { .. } => 0,
            };
            assert_eq!(memory.len(), expected as usize, "{kind:?}");
            self.ios.push(Io { id, kind, memory });
        }
    }

    fn carry_out(&mut self, mut io: Io) -> (LogIoId, Result<u32, Errno>, Memory) {
        let result = match io.kind {
            LogIoKind::Sync => Ok(0),
            LogIoKind::Allocate { .. } if self.device.sets_nothing_aside => Err(Errno::EOPNOTSUPP),
            LogIoKind::Allocate { to } => {
                self.device.lengthen(to);
                Ok(0)
            }
            LogIoKind::Write { offset, len } => {
                self.device.lengthen(offset + u64::from(len));
                io.land(&mut self.device, |_| true);
                Ok(len)
            }
            LogIoKind::Read { offset, len } => {
                let end = (offset + u64::from(len)).min(self.device.bytes.len() as u64);
                if !self.device.can_read(&(offset..end)) {
                    Err(Errno::EIO)
                } else {
                    let bytes = &self.device.bytes[offset as usize..end as usize];
                    io.memory.copy_in_at(0, bytes);
                    Ok(bytes.len() as u32)
                }
            }
        };
        (io.id, result, io.memory)
    }

    fn told(&mut self, id: LogIoId, result: Result<u32, Errno>, memory: Memory) {
        self.part.io_ended(id, result, memory);
        self.collect();
    }

    pub fn collect(&mut self) {
        while let Some(done) = self.part.next_done() {
            self.done.push(done);
        }
        self.part.take_fired(&mut self.fired);
        for fired in std::mem::take(&mut self.fired) {
            fired.fire();
        }
    }

    /// Ends the I/O with this number, well.
    pub fn end(&mut self, index: usize) {
        let io = self.ios.remove(index);
        let (id, result, memory) = self.carry_out(io);
        self.told(id, result, memory);
    }

    /// Ends it with an error; `lands` says which of its sectors are there all the same.
    pub fn fail(&mut self, index: usize, errno: Errno, lands: impl FnMut(usize) -> bool) {
        let io = self.ios.remove(index);
        io.land(&mut self.device, lands);
        self.told(io.id, Err(errno), io.memory);
    }

    /// Ends it with an error that only the write-back of the kernel's cache has met: what is read is there, and the device never had it.
    pub fn write_back_fails(&mut self, index: usize) {
        let io = self.ios.remove(index);
        let medium = self.device.medium.take().unwrap_or_else(|| self.device.bytes.clone());
        io.land(&mut self.device, |_| true);
        self.device.medium = Some(medium);
        self.told(io.id, Err(Errno::EIO), io.memory);
    }

    /// Ends it with an error, and its memory is lost: whoever carried it out is gone.
    pub fn lose(&mut self, index: usize, errno: Errno) {
        let io = self.ios.remove(index);
        self.told(io.id, Err(errno), Memory::None);
    }

    /// Does what there is to do, to the end.
    pub fn run(&mut self) {
        loop {
            self.pump();
            self.collect();
            if self.ios.is_empty() {
                return;
            }
            self.end(0);
        }
    }

    pub fn start(&mut self, request: LogRequest) -> u64 {
        self.next_owner += 1;
        self.part.start(self.next_owner, request);
        self.next_owner
    }

    pub fn take_done(&mut self, owner: u64) -> Option<Result<LogAnswer, LogError>> {
        self.collect();
        let index = self.done.iter().position(|done| done.owner == owner)?;
        Some(self.done.remove(index).result)
    }

    /// Asks, and does what it takes.
    pub fn ask(&mut self, request: LogRequest) -> Result<LogAnswer, LogError> {
        let owner = self.start(request);
        self.run();
        self.take_done(owner).expect("it has ended")
    }

    pub fn append(&mut self, record: &[u8]) -> u64 {
        self.appender.append(record).unwrap().0
    }

    /// Appends, and lets it be a batch of its own at the device.
    pub fn batch(&mut self, record: &[u8]) -> u64 {
        let lsn = self.append(record);
        self.pump();
        lsn
    }

    /// Appends, and makes it durable.
    pub fn write(&mut self, record: &[u8]) -> u64 {
        let lsn = self.append(record);
        self.run();
        assert!(self.is_durable(lsn), "{:?}", self.poll(lsn));
        lsn
    }

    pub fn is_durable(&self, lsn: u64) -> bool {
        lsn < self.appender.durable_lsn().0
    }

    pub fn poll(&self, lsn: u64) -> Poll<Result<(), LogError>> {
        let mut key = WaitKey::default();
        self.appender.poll_durable(Lsn(lsn), &mut key, Waker::noop())
    }

    pub fn truncate(&mut self, to: u64) -> u64 {
        match self.ask(LogRequest::Truncate { to: Lsn(to) }) {
            Ok(LogAnswer::Head(head)) => head.0,
            other => panic!("{other:?}"),
        }
    }

    pub fn tick(&mut self, ms: u64) {
        self.part.tick(Time(ms * 1_000_000));
    }

    /// The power goes: what is at the device lands as is said, by I/O and sector. What is left.
    pub fn crash(mut self, mut lands: impl FnMut(usize, usize) -> bool) -> Device {
        for (number, io) in self.ios.iter().enumerate() {
            io.land(&mut self.device, |sector| lands(number, sector));
        }
        self.device
    }

    /// All records from an LSN on, read as a caller does.
    pub fn try_read(&mut self, from: u64) -> Result<Records, LogError> {
        let mut reader = RecordReader::new(Lsn(from));
        let mut records = Vec::new();
        loop {
            let from = reader.next_batch();
            match self.ask(LogRequest::Read { from })? {
                LogAnswer::Batches(Some(batches)) => {
                    if batches.ranges().is_empty() {
                        break;
                    }
                    reader.push(&batches);
                    while let Some(record) = reader.next_record() {
                        records.push((record.lsn.0, record.bytes.to_vec()));
                    }
                    assert!(reader.next_batch() > from, "it goes on");
                }
                LogAnswer::Batches(None) => break,
                other => panic!("{other:?}"),
            }
        }
        self.is_damaged = reader.is_damaged();
        Ok(records)
    }

    /// All records.
    pub fn read(&mut self) -> Records {
        let head = self.part.usage().head;
        let records = self.try_read(head.0).unwrap();
        assert!(!self.is_damaged);
        records
    }

    pub fn payloads(&mut self) -> Vec<Vec<u8>> {
        self.read().into_iter().map(|(_, bytes)| bytes).collect()
    }
}

/// Bytes that say whose they are.
pub fn record(number: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (number as usize * 31 + at * 7 + at / 256) as u8)
        .collect()
}

/// A log that has taken so many records, and gave up its ten oldest whenever there were more than twenty: what it holds.
pub fn gone_round(size: u64, records: u64) -> (Rig, Records) {
    let mut rig = Rig::create(size, &small());
    let mut kept = Vec::new();
    for number in 0..records {
        let bytes = record(number, 1500);
        kept.push((rig.write(&bytes), bytes));
        if kept.len() > 20 {
            let head = kept[10].0;
            assert_eq!(rig.truncate(head), head);
            kept.drain(..10);
        }
    }
    (rig, kept)
}

/// Counts its wake-ups.
#[derive(Default)]
pub struct Woken(pub AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Rig {
    /// How many records a reader gets without anything more being written: reads end, writes stay at the device.
    pub fn payloads_at_hand(&mut self) -> usize {
        let mut reader = RecordReader::new(self.part.usage().head);
        let mut records = 0;
        loop {
            let owner = self.start(LogRequest::Read {
                from: reader.next_batch(),
            });
            let answer = loop {
                self.pump();
                if let Some(answer) = self.take_done(owner) {
                    break answer.unwrap();
                }
                let read = self.ios.iter().position(|io| matches!(io.kind, LogIoKind::Read { .. }));
                self.end(read.expect("it is under way"));
            };
            let LogAnswer::Batches(Some(batches)) = answer else {
                return records;
            };
            reader.push(&batches);
            while reader.next_record().is_some() {
                records += 1;
            }
        }
    }
}
