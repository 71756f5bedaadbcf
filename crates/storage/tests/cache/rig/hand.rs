//! A cache whose I/Os are ended by hand.

use std::sync::Arc;
use std::time::Duration;

use super::{PAGE, ask, buffer, fill};
use baio_engine::{Arena, Durability, Errno, Memory};
use baio_storage::cache::eviction::Policy;
use baio_storage::cache::{
    Cache, CacheDone, CacheError, CacheOp, CacheOptions, Io, IoKind, ObjectId, PagePin, RequestId,
};

pub(crate) const P: u64 = PAGE as u64;

/// A cache of so many frames with one object of 1000 pages, and memory for requests.
pub(crate) struct Hand {
    pub(crate) cache: Cache,
    pub(crate) object: ObjectId,
    pub(crate) memory: Arc<Arena>,
}

pub(crate) fn config(frames: usize) -> CacheOptions {
    CacheOptions {
        bytes: frames * PAGE,
        eviction: Policy::Clock,
        dirty_percent_max: 50,
        write_bytes_max: 8 * PAGE,
        cleaner_depth: 2,
        age_max: Duration::from_secs(5),
        log_distance_max: u64::MAX,
    }
}

pub(crate) fn hand(frames: usize) -> Hand {
    let mut cache = Cache::new(&Arena::new(frames * PAGE).unwrap(), config(frames)).unwrap();
    let object = cache.add(1000 * P, 0);
    Hand {
        cache,
        object,
        memory: Arena::new(4 << 20).unwrap(),
    }
}

impl Hand {
    pub(crate) fn ask(&mut self, object: ObjectId, op: CacheOp, memory: Memory) -> RequestId {
        ask(&mut self.cache, object, op, memory)
    }

    pub(crate) fn read(&mut self, page: u64, pages: u64) -> RequestId {
        let memory = buffer(&self.memory, (pages * P) as usize).into();
        self.ask(self.object, CacheOp::Read { offset: page * P }, memory)
    }

    pub(crate) fn write_with(&mut self, offset: u64, len: usize, byte: u8, durability: Durability) -> RequestId {
        let mut buffer = buffer(&self.memory, len);
        buffer.fill(byte);
        self.ask(self.object, CacheOp::Write { offset, durability }, buffer.into())
    }

    pub(crate) fn write(&mut self, page: u64, byte: u8) -> RequestId {
        self.write_with(page * P, PAGE, byte, Durability::None)
    }

    pub(crate) fn durable(&mut self, page: u64, byte: u8) -> RequestId {
        self.write_with(page * P, PAGE, byte, Durability::Data)
    }

    pub(crate) fn sync(&mut self) -> RequestId {
        let (start, end, durability) = (0, u64::MAX, Durability::Data);
        self.ask(self.object, CacheOp::Sync { start, end, durability }, Memory::None)
    }

    pub(crate) fn reserve(&mut self, page: u64, pages: u64) -> RequestId {
        let (start, end) = (page * P, (page + pages) * P);
        self.ask(self.object, CacheOp::Reserve { start, end }, Memory::None)
    }

    pub(crate) fn io(&mut self) -> Io {
        self.cache.next_io().expect("an I/O")
    }

    pub(crate) fn quiet(&mut self) {
        assert!(self.cache.next_io().is_none(), "no I/O is wanted");
        assert!(self.cache.next_done().is_none(), "nothing has ended");
    }

    /// Ends an I/O well; a read gives pages filled with this byte.
    pub(crate) fn end(&mut self, mut io: Io, byte: u8) {
        let len = io.memory.len();
        if let IoKind::Read { .. } = io.kind {
            fill(&mut io.memory, &vec![byte; len]);
        }
        self.cache.io_ended(io.id, Ok(len as u32), io.memory);
    }

    /// All of them, and those that come of it.
    pub(crate) fn end_all(&mut self, byte: u8) {
        while let Some(io) = self.cache.next_io() {
            self.end(io, byte);
        }
    }

    pub(crate) fn fail(&mut self, io: Io) {
        self.cache.io_ended(io.id, Err(Errno::EIO), io.memory);
    }

    pub(crate) fn done(&mut self, id: RequestId) -> CacheDone {
        let done = self.cache.next_done().expect("an end");
        assert_eq!(done.id, id);
        done
    }

    pub(crate) fn good(&mut self, id: RequestId) -> CacheDone {
        let done = self.done(id);
        assert!(done.result.is_ok(), "{done:?}");
        done
    }

    pub(crate) fn told(&mut self, id: RequestId) {
        assert_eq!(self.done(id).result, Err(CacheError::System(Errno::EIO)));
    }

    /// Brings in pages, each with this byte.
    pub(crate) fn cached(&mut self, page: u64, pages: u64, byte: u8) {
        let read = self.read(page, pages);
        self.end_all(byte);
        self.good(read);
    }

    pub(crate) fn pool(&mut self, op: CacheOp) -> RequestId {
        self.ask(self.object, op, Memory::None)
    }

    /// Pins a page that is there.
    pub(crate) fn hit(&mut self, page: u64) -> PagePin {
        self.cache.pin_hit(self.object, page).expect("a hit")
    }

    pub(crate) fn change(&mut self, pin: &PagePin, lsn: u64, byte: u8) {
        self.cache.change(pin, lsn).unwrap().fill(byte);
    }

    /// Brings a page in, changes it under an LSN and gives it free.
    pub(crate) fn logged(&mut self, page: u64, lsn: u64, byte: u8) {
        self.cached(page, 1, 0);
        let pin = self.hit(page);
        self.change(&pin, lsn, byte);
        self.cache.unpin(pin);
    }

    pub(crate) fn is_cached(&mut self, page: u64) -> bool {
        let read = self.read(page, 1);
        let done = self.cache.next_done().is_some();
        if !done {
            self.cache.cancel(read);
            self.cache.next_done();
            self.end_all(0);
        }
        done
    }
}

pub(crate) fn read_at(io: &Io) -> (u64, u64) {
    match io.kind {
        IoKind::Read { offset, len } => (offset / P, u64::from(len) / P),
        other => panic!("{other:?} is no read"),
    }
}

pub(crate) fn write_at(io: &Io) -> (u64, u64, bool) {
    match io.kind {
        IoKind::Write {
            offset,
            len,
            durability,
        } => (offset / P, u64::from(len) / P, durability != Durability::None),
        other => panic!("{other:?} is no write"),
    }
}

pub(crate) fn is_sync(io: &Io) -> bool {
    matches!(io.kind, IoKind::Sync { .. })
}
