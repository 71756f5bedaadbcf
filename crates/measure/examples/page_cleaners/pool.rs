//! A buffer pool of the experiment's own: the page cache and an engine, driven by hand, over one file or device.
//!
//! The cache says what it wants of the device; whoever drives it decides who carries that out. So the cleaners of an
//! experiment can be threads that block, where the product has an engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baio_engine::{
    Caching, Descriptions, Doorbell, Durability, Engine, EngineOptions, Errno, File, Memory, Open, Policy, Request,
    Wait,
};
use baio_storage::cache::{Cache, CacheOptions, Io, IoId, IoKind, ObjectId};

/// How a pool is made.
pub(crate) struct Make<'a> {
    pub(crate) path: &'a Path,
    /// The bytes of the file that are used: from here on, so many.
    pub(crate) first: u64,
    pub(crate) len: u64,
    pub(crate) config: CacheOptions,
    /// Requests through the kernel's cache instead of past it.
    pub(crate) through_kernel: bool,
}

pub(crate) struct Pool {
    pub(crate) cache: Cache,
    pub(crate) object: ObjectId,
    engine: Engine,
    file: File,
    first: u64,
    policy: Policy,
    /// By the tag of the engine's request.
    under_way: Vec<Option<(IoId, IoKind)>>,
    free: Vec<usize>,
}

/// Requests of one pool in the engine at a time.
const SLOTS: u32 = 512;

/// An I/O that has ended.
pub(crate) struct Ended {
    pub(crate) id: IoId,
    pub(crate) kind: IoKind,
    pub(crate) result: Result<u32, Errno>,
    pub(crate) memory: Memory,
}

impl Pool {
    pub(crate) fn make(make: Make<'_>) -> Result<Pool, String> {
        let mut engine = Engine::new(&EngineOptions {
            slots: SLOTS,
            reserved_slots: 0,
            arena_bytes: make.config.bytes + (4 << 20),
            ..EngineOptions::default()
        })
        .map_err(|error| error.to_string())?;
        let (caching, policy) = if make.through_kernel {
            (Caching::Kernel, Policy::kernel())
        } else {
            (Caching::Direct, Policy::direct())
        };
        let open = Open {
            descriptions: Descriptions::Only(caching),
            ..Open::write()
        };
        let file = File::open(make.path, &open).map_err(|error| error.to_string())?;
        engine.attach(&file);
        let mut cache = Cache::new(engine.arena(), make.config).map_err(|error| error.to_string())?;
        let object = cache.add(make.len, 0);
        Ok(Pool {
            cache,
            object,
            engine,
            file,
            first: make.first,
            policy,
            under_way: (0..SLOTS).map(|_| None).collect(),
            free: (0..SLOTS as usize).rev().collect(),
        })
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.engine.doorbell()
    }

    /// Has the engine carry out an I/O.
    pub(crate) fn start(&mut self, io: Io) -> Result<(), String> {
        let tag = self.free.pop().ok_or("every slot is taken")?;
        let request = match io.kind {
            IoKind::Read { offset, .. } => Request::read(&self.file, self.first + offset, io.memory, self.policy),
            IoKind::Write { offset, durability, .. } => Request::write(
                &self.file,
                self.first + offset,
                io.memory,
                self.policy.durable(durability),
            ),
            IoKind::Sync { durability } => Request::sync(&self.file, durability),
        };
        self.under_way[tag] = Some((io.id, io.kind));
        let refused = self.engine.submit(request.tagged(tag as u64)).is_err();
        if refused {
            Err("every slot is taken".into())
        } else {
            Ok(())
        }
    }

    /// Submits, and sleeps until something has ended or the doorbell rings, a second at most.
    pub(crate) fn turn(&mut self) -> Result<(), String> {
        let wait = Wait::Until {
            count: 1,
            min_wait: Duration::ZERO,
            deadline: Some(self.engine.now().after(Duration::from_secs(1))),
        };
        self.engine.turn(wait).map_err(|error| error.to_string())?;
        self.cache.tick(self.engine.now());
        Ok(())
    }

    /// What the engine has ended, to be told to the cache.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        let completion = self.engine.next_completion()?;
        let tag = completion.tag as usize;
        let (id, kind) = self.under_way.get_mut(tag)?.take()?;
        self.free.push(tag);
        Some(Ended {
            id,
            kind,
            result: completion.result.map_err(|error| error.errno()),
            memory: completion.memory,
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == SLOTS as usize
    }
}

/// A file as a thread of the experiment has it, for I/Os that block.
#[derive(Clone)]
pub(crate) struct Blocking(Arc<std::fs::File>);

impl Blocking {
    pub(crate) fn open(path: &Path, through_kernel: bool) -> Result<Blocking, String> {
        use std::os::unix::fs::OpenOptionsExt;
        // Through the kernel's cache a write is on its device only when it is told to be: as database cleaners do.
        let flags = if through_kernel { libc::O_DSYNC } else { libc::O_DIRECT };
        let open = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(path);
        open.map(|file| Blocking(Arc::new(file)))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Carries out a write or a flush, and waits for it.
    pub(crate) fn carry_out(&self, io: Io, first: u64) -> Ended {
        let result = match io.kind {
            IoKind::Write { offset, .. } => self.write(&io.memory, first + offset),
            IoKind::Sync { durability } => match durability {
                Durability::Full => rustix::fs::fsync(&*self.0),
                Durability::None | Durability::Data => rustix::fs::fdatasync(&*self.0),
            }
            .map(|()| 0)
            .map_err(|errno| Errno::from_raw(errno.raw_os_error())),
            IoKind::Read { .. } => Err(Errno::EINVAL),
        };
        Ended {
            id: io.id,
            kind: io.kind,
            result,
            memory: io.memory,
        }
    }

    fn write(&self, memory: &Memory, offset: u64) -> Result<u32, Errno> {
        let mut slices = Vec::new();
        match memory {
            Memory::Shared(page) => slices.push(std::io::IoSlice::new(page)),
            Memory::Many(pages) => {
                for page in pages.parts() {
                    let Memory::Shared(page) = page else {
                        return Err(Errno::EINVAL);
                    };
                    slices.push(std::io::IoSlice::new(page));
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        let written = rustix::io::pwritev(&*self.0, &slices, offset);
        written
            .map(|bytes| bytes as u32)
            .map_err(|errno| Errno::from_raw(errno.raw_os_error()))
    }
}
