//! A disk in memory: the bytes that a reader sees, which of them are on the medium, the record of what was done, the faults, and the moment
//! of a power failure. Copies share their pages. So a copy, such as a crash state, costs only the pages that differ later.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::sim::cache::{Cache, Change, SECTOR};
use crate::backend::sim::faults::{FaultCounts, Faults, Injected, Plan};
use crate::backend::sim::log::Record;
use crate::backend::sim::pages::Pages;
use crate::backend::sim::profile::Profile;
use crate::backend::sim::random::Random;
use crate::device::{Device, DirectLimits, DurableBy};
use crate::error::Errno;
use crate::file::File;
use crate::policy::Caching;

/// A handle on one simulated disk; clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    id: u64,
    size: u64,
    /// What a reader sees.
    pages: Pages,
    /// What of that a power cut leaves; made when something is first written.
    cache: Option<Cache>,
    recording: Option<Recording>,
    plan: Option<Plan>,
    profile: Profile,
    power: Power,
    ignores_durability: bool,
    bytes_read: u64,
}

#[derive(Debug, Default)]
struct Recording {
    records: Vec<Record>,
    writes: u64,
}

#[derive(Debug)]
enum Power {
    On,
    /// Fails after so many steps more, and leaves what this seed says.
    Failing {
        steps: u64,
        seed: u64,
    },
    Off {
        left: Pages,
    },
}

/// Bytes of one record of a zeroed range.
const ZERO_CHUNK: u64 = 1 << 20;

impl Disk {
    /// A disk of `size` bytes, all zero.
    #[must_use]
    pub fn new(size: u64) -> Disk {
        Disk::of(size, Pages::default())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Whoever panics meanwhile is a test that is about to fail.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(size: u64, pages: Pages) -> Disk {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Disk(Arc::new(Mutex::new(Inner {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            size,
            pages,
            cache: None,
            recording: None,
            plan: None,
            profile: Profile::Instant,
            power: Power::On,
            ignores_durability: false,
            bytes_read: 0,
        })))
    }

    /// Another disk with the same bytes, all of them on the medium; instant, healthy, and without a record.
    #[must_use]
    pub fn copy(&self) -> Disk {
        let inner = self.inner();
        Disk::of(inner.size, inner.pages.clone())
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner().size
    }

    /// Gives it another size, as somebody outside may do to a file or a device that is in use. What lies behind a smaller
    /// size is gone, on the medium too, and reads as zero when it is made larger again.
    pub fn set_size(&self, size: u64) {
        let mut inner = self.inner();
        if size < inner.size {
            let gone = Change::Zero(size..inner.size);
            gone.apply(&mut inner.pages);
            if let Some(cache) = &mut inner.cache {
                cache.add(gone, true);
            }
        }
        inner.size = size;
    }

    /// Bytes that requests have read from it.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.inner().bytes_read
    }

    pub(crate) fn count_read(&self, bytes: u64) {
        self.inner().bytes_read += bytes;
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner().id
    }

    /// How long requests take from now on; what a machine has begun ends as it was to end.
    pub fn set_profile(&self, profile: Profile) {
        self.inner().profile = profile;
    }

    /// Writes that ask to be durable are from now on writes like any other, as on FUSE: only a flush makes them so. Files
    /// made of the disk from now on know it ([`File::durable_by`](crate::File::durable_by)).
    pub fn ignore_durability(&self) {
        self.inner().ignores_durability = true;
    }

    pub(crate) fn profile(&self) -> Profile {
        self.inner().profile
    }

    /// What goes wrong from now on; the counts of what went wrong stay.
    pub fn set_faults(&self, faults: Faults) {
        let mut inner = self.inner();
        match &mut inner.plan {
            Some(plan) => plan.replace(faults),
            None => inner.plan = Some(Plan::new(faults)),
        }
    }

    /// How often each fault was injected.
    #[must_use]
    pub fn faults_injected(&self) -> FaultCounts {
        let inner = self.inner();
        inner.plan.as_ref().map_or(FaultCounts::default(), Plan::counts)
    }

    /// What was injected since the last call, when the plan is [`Faults::listed`].
    #[must_use]
    pub fn take_injected(&self) -> Vec<Injected> {
        let mut inner = self.inner();
        inner.plan.as_mut().map_or(Vec::new(), Plan::take_injected)
    }

    /// Asks the plan, if there is one.
    pub(crate) fn with_plan<T>(&self, ask: impl FnOnce(&mut Plan) -> Option<T>) -> Option<T> {
        self.inner().plan.as_mut().and_then(ask)
    }

    /// Starts a new record.
    pub fn record(&self) {
        self.inner().recording = Some(Recording::default());
    }

    /// Ends the record and returns it.
    #[must_use]
    pub fn take_record(&self) -> Vec<Record> {
        let recording = self.inner().recording.take();
        recording.map_or(Vec::new(), |recording| recording.records)
    }

    /// Notes in the record that the workload's owner has just been told `what`.
    pub fn mark(&self, what: u64) {
        if let Some(recording) = &mut self.inner().recording {
            recording.records.push(Record::Mark(what));
        }
    }

    /// How many records there are so far.
    #[must_use]
    pub fn recorded(&self) -> usize {
        let inner = self.inner();
        inner.recording.as_ref().map_or(0, |recording| recording.records.len())
    }

    /// Fills `bytes` from `offset`; returns how many there were before the end of the disk.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let inner = self.inner();
        let len = clip(inner.size, offset, bytes.len() as u64) as usize;
        inner.pages.read(offset, &mut bytes[..len]);
        len
    }

    /// Changes bytes, on the medium too, without leaving a trace in the record: for building states and for damaging them.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut inner = self.inner();
        let len = clip(inner.size, offset, bytes.len() as u64) as usize;
        let bytes = &bytes[..len];
        inner.pages.write(offset, bytes);
        if let Some(cache) = &mut inner.cache {
            cache.add(Change::Bytes(offset, bytes.into()), true);
        }
    }

    /// The disk as it would be found if its power failed now: of the writes that nothing has made durable, and of those
    /// still under way, any may be there, absent, or there in part, as `seed` says. This disk goes on.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Disk {
        let inner = self.inner();
        Disk::of(inner.size, inner.after_power_cut(seed))
    }

    /// The power fails after so many steps: each start and each end of a write, an allocation or a flush is one. From then
    /// on every request ends as `EIO`, and [`Disk::surviving`] gives what is left.
    pub fn cut_power_after(&self, steps: u64, seed: u64) {
        self.inner().power = Power::Failing { steps, seed };
    }

    /// The disk that the power cut left, to be opened again; `None` while the power is on.
    #[must_use]
    pub fn surviving(&self) -> Option<Disk> {
        let inner = self.inner();
        match &inner.power {
            Power::Off { left } => Some(Disk::of(inner.size, left.clone())),
            Power::On | Power::Failing { .. } => None,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self.inner().power, Power::Off { .. })
    }

    /// A number that differs for disks with different bytes.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let inner = self.inner();
        let mut hash = 0_u64;
        for (number, page) in inner.pages.sorted() {
            if page.chunks_exact(32).any(|words| words != [0; 32]) {
                hash = hash.rotate_left(23) ^ page_digest(page).wrapping_mul(number.wrapping_mul(2) | 1);
                hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        hash
    }

    /// A write has begun: if the power fails before its end, some of it may be there. Returns how much was recorded before.
    pub(crate) fn begin(&self, token: u64, change: Change) -> usize {
        let mut inner = self.inner();
        inner.cache().begin(token, change);
        inner.step();
        inner.recording.as_ref().map_or(0, |recording| recording.records.len())
    }

    /// It has ended, or was called back; if anything is stored, that is told by `store`.
    pub(crate) fn end(&self, token: u64) {
        if let Some(cache) = &mut self.inner().cache {
            cache.end(token);
        }
    }

    /// A flush has begun: what it covers, and how many writes were recorded.
    pub(crate) fn begin_flush(&self) -> (u64, u64) {
        let mut inner = self.inner();
        inner.step();
        let covers = inner.cache().ended();
        (covers, inner.recording.as_ref().map_or(0, |r| r.writes))
    }

    /// A write ends, if the power is still on.
    pub(crate) fn step(&self) -> Result<(), i32> {
        self.inner().step();
        if self.is_off() { Err(-libc::EIO) } else { Ok(()) }
    }

    /// Bytes have reached the disk's cache, or with `durable` the medium; on their way since so many records.
    pub(crate) fn store(&self, change: &Change, durable: bool, began: usize) {
        let mut inner = self.inner();
        inner.cache().add(change.clone(), durable);
        change.apply(&mut inner.pages);
        if let Some(recording) = &mut inner.recording {
            recording.write(change, durable, began);
        }
    }

    /// A flush has ended well.
    pub(crate) fn flush(&self, covers: u64, writes: u64) {
        let mut inner = self.inner();
        inner.cache().flush(covers);
        if let Some(recording) = &mut inner.recording {
            let late = recording.writes.saturating_sub(writes);
            recording.records.push(match u32::try_from(late) {
                Ok(0) => Record::Sync,
                late => Record::LateSync {
                    late: late.unwrap_or(u32::MAX),
                },
            });
        }
    }

    /// A flush has failed: what it covered is not there any more. Returns what that was.
    pub(crate) fn fail_flush(&self, covers: u64) -> Vec<Range<u64>> {
        let mut inner = self.inner();
        let (dropped, seen) = inner.cache().drop_covered(covers);
        inner.pages = seen;
        let Inner { pages, recording, .. } = &mut *inner;
        for range in &dropped {
            // Whoever replays the record sees the old bytes come back.
            let Some(recording) = recording else { break };
            let mut at = range.start;
            while at < range.end {
                let mut bytes = vec![0; (range.end - at).min(ZERO_CHUNK) as usize];
                pages.read(at, &mut bytes);
                at += bytes.len() as u64;
                recording.push(at - bytes.len() as u64, bytes.into(), false, usize::MAX);
            }
        }
        dropped
    }

    /// How many of `len` bytes at `offset` the disk can store.
    pub(crate) fn room(&self, offset: u64, len: u64) -> u64 {
        let inner = self.inner();
        let len = clip(inner.size, offset, len);
        match inner.plan.as_ref().and_then(Plan::real_bytes) {
            Some(bytes) => inner.pages.room(offset, len, bytes),
            None => len,
        }
    }

    /// Sets space aside on a thin disk; on others there is nothing to do.
    pub(crate) fn reserve(&self, range: &Range<u64>) {
        let mut inner = self.inner();
        if inner.plan.as_ref().is_some_and(|plan| plan.real_bytes().is_some()) {
            inner.pages.reserve(range);
        }
    }

    /// Turns a bit over, for good.
    pub(crate) fn rot(&self, offset: u64, bit: u32) {
        let mut byte = [0];
        if self.read(offset, &mut byte) == 1 {
            self.poke(offset, &[byte[0] ^ 1 << (bit % 8)]);
        }
    }
}

impl Device for Disk {
    fn identity(&self) -> (u64, u64) {
        (0, self.id())
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(Disk::size(self))
    }

    fn direct_limits(&self) -> DirectLimits {
        let sector = SECTOR as u32;
        DirectLimits {
            memory: sector,
            offset: sector,
        }
    }

    fn durable_by(&self) -> DurableBy {
        if self.inner().ignores_durability {
            DurableBy::Sync
        } else {
            DurableBy::Flag
        }
    }

    fn gives(&self, _: Caching) -> bool {
        true
    }

    /// Nobody else can have it open.
    fn try_lock(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn unlock(&self) {}
}

impl File {
    /// A file on a simulated disk, for an engine on the simulated backend.
    #[must_use]
    pub fn simulated(disk: &Disk, name: &str) -> File {
        File::on(disk.clone(), name)
    }
}

impl Inner {
    fn cache(&mut self) -> &mut Cache {
        let pages = &self.pages;
        self.cache.get_or_insert_with(|| Cache::over(pages.clone()))
    }

    fn after_power_cut(&self, seed: u64) -> Pages {
        match &self.cache {
            Some(cache) => cache.after_power_cut(&mut Random(seed)),
            None => self.pages.clone(),
        }
    }

    fn step(&mut self) {
        match &mut self.power {
            Power::On | Power::Off { .. } => {}
            Power::Failing { steps: 0, seed } => {
                let seed = *seed;
                let left = self.after_power_cut(seed);
                self.power = Power::Off { left };
            }
            Power::Failing { steps, .. } => *steps -= 1,
        }
    }
}

impl Recording {
    fn write(&mut self, change: &Change, durable: bool, began: usize) {
        match change {
            Change::Bytes(offset, bytes) => self.push(*offset, Arc::clone(bytes), durable, began),
            Change::Zero(range) => {
                let zeroes: Arc<[u8]> = vec![0; ZERO_CHUNK.min(range.end - range.start) as usize].into();
                let mut at = range.start;
                while at < range.end {
                    let len = (range.end - at).min(ZERO_CHUNK) as usize;
                    let bytes = if len == zeroes.len() {
                        Arc::clone(&zeroes)
                    } else {
                        zeroes[..len].into()
                    };
                    self.push(at, bytes, durable, began);
                    at += len as u64;
                }
            }
        }
    }

    fn push(&mut self, offset: u64, bytes: Arc<[u8]>, durable: bool, began: usize) {
        self.writes += 1;
        let under_way = self.records.len().saturating_sub(began);
        self.records.push(Record::Write {
            offset,
            bytes,
            durable,
            under_way: u32::try_from(under_way).unwrap_or(u32::MAX),
        });
    }
}

/// Four lanes beside each other: a crash explorer takes the fingerprint of every state.
fn page_digest(page: &[u8]) -> u64 {
    let mut lanes = [1_u64, 3, 5, 7];
    for words in page.chunks_exact(32) {
        for (lane, bytes) in lanes.iter_mut().zip(words.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            *lane = (*lane ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *lane ^= *lane >> 32;
        }
    }
    lanes.iter().fold(0, |hash: u64, lane| {
        (hash.rotate_left(17) ^ lane).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    })
}

fn clip(size: u64, offset: u64, len: u64) -> u64 {
    size.saturating_sub(offset).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_follow_its_original() {
        let disk = Disk::new(1 << 20);
        disk.poke(4000, b"hello, simulated world");
        let copy = disk.copy();
        disk.poke(4000, b"HELLO");
        let mut seen = [0; 5];
        copy.read(4000, &mut seen);
        assert_eq!(&seen, b"hello");
        assert_ne!(disk.fingerprint(), copy.fingerprint());
        disk.poke(4000, b"hello");
        assert_eq!(disk.fingerprint(), copy.fingerprint());
    }

    #[test]
    fn nothing_is_read_or_written_past_the_end() {
        let disk = Disk::new(8192);
        let mut bytes = [7; 100];
        assert_eq!(disk.read(8190, &mut bytes), 2);
        assert_eq!(disk.read(u64::MAX, &mut bytes), 0);
        assert_eq!(disk.room(8190, 3), 2);
        assert_eq!(disk.room(8192, 3), 0);
    }

    #[test]
    fn what_is_cut_off_is_gone() {
        let disk = Disk::new(8192);
        disk.poke(0, &[1; 8192]);
        disk.set_size(5000);
        let mut bytes = [7; 8192];
        assert_eq!(disk.read(0, &mut bytes), 5000);
        disk.set_size(8192);
        assert_eq!(disk.read(0, &mut bytes), 8192);
        assert_eq!((bytes[4999], bytes[5000], bytes[8191]), (1, 0, 0));
        assert_eq!(disk.power_cut(1).fingerprint(), disk.fingerprint());
    }

    #[test]
    fn a_thin_disk_has_room_for_what_it_has() {
        let disk = Disk::new(1 << 20);
        disk.set_faults(Faults::none().real_bytes(8192));
        disk.poke(4096, &[1; 100]);
        assert_eq!(disk.room(0, 4096), 4096);
        assert_eq!(disk.room(4000, 10_000), 4096 + 96, "its own page, and one new one");
        disk.store(&Change::Zero(0..8192), false, 0);
        assert_eq!(disk.room(4000, 10_000), 4096 + 96);
        assert_eq!(disk.room(65536, 10_000), 8192, "what was discarded comes back");
    }

    #[test]
    fn a_huge_range_is_zeroed_at_once() {
        let disk = Disk::new(8 << 40);
        disk.store(&Change::Bytes(1 << 40, vec![1; 10_000].into()), false, 0);
        disk.store(&Change::Zero(100..8 << 40), false, 0);
        assert_eq!(disk.fingerprint(), Disk::new(8 << 40).fingerprint());
        assert_eq!(disk.power_cut(1).size(), 8 << 40);
    }
}
