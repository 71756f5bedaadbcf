//! The main job: a volume in a file, a segment in it, bytes that come back after closing and opening again.

use std::path::Path;

use baio_engine::{Durability, EngineOptions};
use baio_storage::{Access, Core, CreateOptions, Fault, FormatOptions, Identity, SegmentOp, SegmentRequest};

const ME: Identity = Identity::new(1000, 1000);

fn small() -> EngineOptions {
    EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    }
}

fn format(path: &Path, size: u64) {
    let options = FormatOptions::of_size(size);
    Core::format(path, &options).unwrap();
}

#[test]
fn bytes_come_back_after_closing_and_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 16 << 20);

    let mut core = Core::open(&path, &small()).unwrap();
    let info = core.create(ME, 1000, "wal", &CreateOptions::of_size(1 << 20)).unwrap();
    assert_eq!((info.size_bytes, info.state), (1 << 20, "live"));
    let (handle, _) = core.open_segment(ME, 1000, "wal", Access::Write).unwrap();
    for block in 0..256_u64 {
        let mut buffer = core.buffer(4096).unwrap();
        buffer.fill(block as u8);
        let request = SegmentRequest::new(handle, SegmentOp::Write { offset: block * 4096 }, buffer);
        let mut request = Some(request);
        while let Err(back) = core.start(request.take().unwrap()) {
            core.turn(baio_engine::Wait::one()).unwrap();
            while core.next_outcome().is_some() {}
            request = Some(back);
        }
    }
    while core.in_flight() > 0 {
        core.turn(baio_engine::Wait::one()).unwrap();
    }
    while let Some(outcome) = core.next_outcome() {
        assert_eq!(outcome.result.unwrap(), 4096);
    }
    let sync = SegmentRequest {
        durability: Durability::Data,
        ..SegmentRequest::new(handle, SegmentOp::Sync, baio_engine::Memory::None)
    };
    let ticket = core.start(sync).unwrap();
    core.wait(ticket).unwrap().unwrap().result.unwrap();
    core.close().unwrap();

    let (volume, segments) = Core::inspect(&path, ME).unwrap();
    assert!(volume.clean);
    assert_eq!(segments.len(), 1);

    let mut core = Core::open(&path, &small()).unwrap();
    let (handle, _) = core.open_segment(ME, 1000, "wal", Access::Read).unwrap();
    let buffer = core.buffer(1 << 20).unwrap();
    let ticket = core
        .start(SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, buffer))
        .unwrap();
    let outcome = core.wait(ticket).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap(), 1 << 20);
    let bytes = outcome.memory.into_buffer().unwrap();
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == block as u8), "block {block}");
    }
    let free = core.volume_info().unwrap().free_bytes;
    core.delete(ME, 1000, "wal").unwrap();
    assert_eq!(core.volume_info().unwrap().free_bytes, free + (1 << 20));
    let gone = core.open_segment(ME, 1000, "wal", Access::Read).unwrap_err();
    assert!(matches!(gone.fault, Fault::NotFound), "{gone}");
    core.close().unwrap();
}
