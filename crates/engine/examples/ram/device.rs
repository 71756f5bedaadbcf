//! A device of one's own, bytes in memory, and the backend that serves it. What each method must do stands at [`Device`]
//! and [`Backend`]; `tests/contract.rs` runs this pair beside the engine's own backends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baio_engine::backend::Done;
use baio_engine::{Backend, Caching, Device, DirectLimits, Doorbell, DurableBy, Errno, Error, Explain};
use baio_engine::{File, Op, RequestId, Slots, Space, Wait, Work};

/// Tells this sort of device from all others.
const RAM: u64 = 0x7261_6d00;

/// A device; clones are the same one.
#[derive(Clone)]
pub(crate) struct Ram(Arc<Mutex<Vec<u8>>>);

#[rustfmt::skip]
impl Ram {
    pub(crate) fn of(bytes: Vec<u8>) -> Ram { Ram(Arc::new(Mutex::new(bytes))) }
    pub(crate) fn bytes(&self) -> MutexGuard<'_, Vec<u8>> { self.0.lock().unwrap_or_else(PoisonError::into_inner) }
}

#[rustfmt::skip]
impl Device for Ram {
    fn identity(&self) -> (u64, u64) { (RAM, Arc::as_ptr(&self.0).addr() as u64) }
    fn size(&self) -> Result<u64, Errno> { Ok(self.bytes().len() as u64) }
    fn direct_limits(&self) -> DirectLimits { DirectLimits { memory: 512, offset: 512 } }
    fn durable_by(&self) -> DurableBy { DurableBy::Flag }
    fn gives(&self, _: Caching) -> bool { true }
    fn try_lock(&self, _: bool) -> Result<(), Errno> { Ok(()) } // Nobody else can reach it.
    fn unlock(&self) {}
}

/// Ends each iteration in the moment in which it is started.
pub(crate) struct RamBackend {
    pub(crate) doorbell: Doorbell,
    pub(crate) ended: Vec<(RequestId, i32)>,
}

#[rustfmt::skip]
impl Backend for RamBackend {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            let work = slots.begin(id);
            let ram = slots.file(id).and_then(File::device::<Ram>).cloned();
            let done = ram.ok_or(Errno::EBADF).and_then(|ram| run(&ram, slots, id, work));
            self.ended.push((id, done.unwrap_or_else(|errno| -errno.raw())));
        }
        queue.len()
    }

    fn turn(&mut self, _: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.raw.append(&mut self.ended);
        done.rang = match wait {
            // Nothing ends by itself here: only the doorbell or the deadline is worth sleeping for.
            Wait::Until { deadline, .. } if done.raw.is_empty() => self.doorbell.sleep(deadline)?,
            _ => self.doorbell.silence(),
        };
        Ok(())
    }

    fn doorbell(&self) -> Doorbell { self.doorbell.clone() }
    fn explain(&self) -> Explain { Explain::named("ram") }
    fn serves(&self, file: &File) -> bool { file.device::<Ram>().is_some() }
    fn refuses(&self, op: Op) -> Option<Error> {
        let can = op.is_for_disks() && !matches!(op, Op::Timer { .. });
        (!can).then(|| op.unsupported_by("ram"))
    }
}

/// Does what there is to do, as far as the device goes. Returns how many bytes it moved.
fn run(ram: &Ram, slots: &mut Slots, id: RequestId, work: Work) -> Result<i32, Errno> {
    let bytes = &mut ram.bytes()[..];
    let size = bytes.len();
    let within = |offset: u64, len: u64| {
        let start = offset.min(size as u64) as usize;
        start..start + len.min((size - start) as u64) as usize
    };
    match work {
        Work::Read { offset, len, .. } => {
            let bytes = &bytes[within(offset, len as u64)];
            slots.copy_in(id, bytes);
            Ok(bytes.len() as i32)
        }
        Work::Write { offset, len, .. } => {
            let bytes = &mut bytes[within(offset, len as u64)];
            slots.copy_out(id, bytes);
            (!bytes.is_empty()).then_some(bytes.len() as i32).ok_or(Errno::ENOSPC)
        }
        Work::Allocate { offset, len, .. } if within(offset, len).len() as u64 != len => Err(Errno::ENOSPC),
        Work::Allocate { len: 0, .. } => Err(Errno::EINVAL),
        Work::Allocate { offset, len, space } if space != Space::Reserve => {
            bytes[within(offset, len)].fill(0);
            Ok(0)
        }
        Work::Allocate { .. } | Work::Sync { .. } | Work::SyncRange { .. } => Ok(0),
        Work::Truncate { .. } => Err(Errno::EINVAL),
        Work::Timer { .. } | Work::Other => Err(Errno::EOPNOTSUPP),
    }
}
