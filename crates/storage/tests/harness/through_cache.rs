//! Short words for requests through the page cache and beside it.

use std::task::Poll;

use baio_engine::sim::{Disk, Flash, Profile};
use baio_engine::{Durability, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Error, FormatOptions, Handle, Mode, Outcome, SegmentOp, SegmentRequest, Ticket};

use crate::harness::{self, BLOCK, start};

pub(crate) const B: u64 = BLOCK as u64;

/// A cache of so many pages.
pub(crate) fn cache_of(pages: usize) -> CacheOptions {
    CacheOptions::of_size(pages * BLOCK)
}

/// A formatted disk of 8 MiB that takes its time.
pub(crate) fn slow_disk() -> Disk {
    let disk = harness::simulated_disk(&FormatOptions::of_size(8 << 20));
    disk.set_profile(Profile::Flash(Flash::default()));
    disk
}

/// Opens the volume with a cache.
pub(crate) fn open_cached(disk: &Disk, pages: usize) -> Core {
    let mut core = harness::open_simulated(disk);
    core.use_cache(&cache_of(pages)).unwrap();
    core
}

pub(crate) fn request(core: &Core, handle: Handle, op: SegmentOp, bytes: &[u8], mode: Mode) -> SegmentRequest {
    let mut buffer = core.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    SegmentRequest {
        mode,
        ..SegmentRequest::new(handle, op, buffer)
    }
}

/// Begins to write `bytes` at block `block`.
pub(crate) fn begin_write(core: &mut Core, handle: Handle, block: u64, bytes: &[u8], mode: Mode) -> Ticket {
    let asked = request(core, handle, SegmentOp::Write { offset: block * B }, bytes, mode);
    start(core, asked)
}

pub(crate) fn begin_durable(core: &mut Core, handle: Handle, block: u64, bytes: &[u8]) -> Ticket {
    let asked = SegmentRequest {
        durability: Durability::Data,
        ..request(
            core,
            handle,
            SegmentOp::Write { offset: block * B },
            bytes,
            Mode::Cached,
        )
    };
    start(core, asked)
}

pub(crate) fn begin_read(core: &mut Core, handle: Handle, block: u64, blocks: usize, mode: Mode) -> Ticket {
    let memory = vec![0xee; blocks * BLOCK];
    let asked = request(core, handle, SegmentOp::Read { offset: block * B }, &memory, mode);
    start(core, asked)
}

/// What has not ended after so many turns waits for ever.
pub(crate) fn end(core: &mut Core, ticket: Ticket) -> Outcome {
    for _ in 0..20_000 {
        if let Poll::Ready(outcome) = core.poll(ticket, None) {
            return outcome.expect("nobody else has taken it");
        }
        core.turn(Wait::one()).unwrap();
    }
    panic!("nobody wakes it");
}

/// The code of a request that must have failed.
pub(crate) fn code(core: &mut Core, ticket: Ticket) -> String {
    end(core, ticket).result.unwrap_err().code().to_owned()
}

pub(crate) fn put(core: &mut Core, handle: Handle, block: u64, bytes: &[u8], mode: Mode) {
    let ticket = begin_write(core, handle, block, bytes, mode);
    assert_eq!(end(core, ticket).result.unwrap() as usize, bytes.len());
}

pub(crate) fn got(outcome: Outcome) -> Vec<u8> {
    let len = outcome.result.unwrap() as usize;
    outcome.memory.into_buffer().unwrap()[..len].to_vec()
}

pub(crate) fn get(core: &mut Core, handle: Handle, block: u64, blocks: usize, mode: Mode) -> Vec<u8> {
    let ticket = begin_read(core, handle, block, blocks, mode);
    got(end(core, ticket))
}

pub(crate) fn sync(core: &mut Core, handle: Handle) -> Result<u32, Error> {
    let ticket = start(core, harness::sync_request(handle));
    end(core, ticket).result
}

/// Turns until nothing is under way.
pub(crate) fn quiet(core: &mut Core) {
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
}
