//! The promise: while the last page of a file is being written, the file may grow, and what is behind that page's old end reads as zeros and
//! as what was written there: copied, lent and pinned.

#![allow(clippy::needless_range_loop, reason = "two buffers are compared byte by byte")]

mod harness;
#[path = "harness/through_cache.rs"]
mod through_cache;

use baio_engine::{Durability, Memory, Open};
use baio_storage::{Core, Handle, Mode, SegmentOp, SegmentRequest};
use harness::{run, start};
use through_cache::{cache_of, end};

fn op(core: &mut Core, handle: Handle, op: SegmentOp, bytes: &[u8], mode: Mode) -> Result<u32, String> {
    let request = through_cache::request(core, handle, op, bytes, mode);
    let ticket = start(core, request);
    end(core, ticket).result.map_err(|e| e.to_string())
}

fn sync(core: &mut Core, handle: Handle) -> Result<u32, String> {
    let request = SegmentRequest {
        mode: Mode::Cached,
        durability: Durability::Full,
        ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
    };
    run(core, request).result.map_err(|e| e.to_string())
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn grown_beside_write_back(list: bool) {
    let (_d, path) = file(&[]);
    let config = baio_engine::Config {
        backend: baio_engine::Choice::Threads,
        ..harness::config()
    };
    let mut core = Core::new(&config).unwrap();
    core.use_cache(&cache_of(64)).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let mut bytes = vec![7; 4096];
    bytes.truncate(100);
    let request = through_cache::request(&core, handle, SegmentOp::Write { offset: 0 }, &bytes, Mode::Cached);
    let durable = start(
        &mut core,
        SegmentRequest {
            durability: Durability::Data,
            ..request
        },
    );
    core.turn(baio_engine::Wait::No).unwrap();
    // The 100 bytes are on their way. The file grows in its second page.
    let request = through_cache::request(
        &core,
        handle,
        SegmentOp::Write { offset: 4096 },
        &[9; 4096],
        Mode::Cached,
    );
    let write = start(&mut core, request);
    let mut request = through_cache::request(
        &core,
        handle,
        SegmentOp::Read { offset: 0 },
        &[0xee; 8192],
        Mode::Cached,
    );
    if list {
        let (one, two) = (core.buffer(4096).unwrap(), core.buffer(4096).unwrap());
        let mut both = baio_engine::Vectored::with_capacity(2);
        both.push(one.into()).ok();
        both.push(two.into()).ok();
        request.memory = Memory::Many(both);
    }
    let read = start(&mut core, request);
    let got = end(&mut core, read);
    println!("durable still under way: {}", core.in_flight() > 0);
    println!("write {:?}", end(&mut core, write).result);
    println!("durable {:?}", end(&mut core, durable).result);
    println!("read {:?}", got.result);
    let got: Vec<u8> = match got.memory {
        Memory::Many(mut both) => both
            .drain()
            .flat_map(|part| part.into_buffer().unwrap().to_vec())
            .collect(),
        memory => memory.into_buffer().unwrap().to_vec(),
    };
    let mut model = vec![7_u8; 100];
    model.resize(4096, 0);
    model.extend([9; 4096]);
    let runs: Vec<(usize, u8)> = (0..got.len())
        .filter(|&at| at == 0 || got[at] != got[at - 1])
        .map(|at| (at, got[at]))
        .collect();
    println!("got (offset, byte): {runs:x?}");
    assert!(got == model);
}

#[test]
fn grown_beside_write_back_hit() {
    grown_beside_write_back(false);
}

#[test]
fn grown_beside_write_back_list() {
    grown_beside_write_back(true);
}

/// The same seen by a borrower and by a pin.
#[test]
fn grown_beside_write_back_lent_and_pinned() {
    let (_d, path) = file(&[]);
    let config = baio_engine::Config {
        backend: baio_engine::Choice::Threads,
        ..harness::config()
    };
    let mut core = Core::new(&config).unwrap();
    core.use_cache(&cache_of(64)).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let request = through_cache::request(&core, handle, SegmentOp::Write { offset: 0 }, &[7; 100], Mode::Cached);
    let durable = start(
        &mut core,
        SegmentRequest {
            durability: Durability::Data,
            ..request
        },
    );
    core.turn(baio_engine::Wait::No).unwrap();
    let request = through_cache::request(
        &core,
        handle,
        SegmentOp::Write { offset: 4096 },
        &[9; 4096],
        Mode::Cached,
    );
    start(&mut core, request);
    let pin = core.pin_now(handle, 0).unwrap();
    println!("pinned page has {} bytes", core.page(&pin).unwrap().len());
    core.unpin(pin);
    let borrower = baio_storage::cache::Borrower::new(1 << 20);
    let lent = core.lend(&borrower, handle, 0..2);
    let lens: Option<Vec<usize>> = lent.as_ref().map(|lent| lent.pages().map(<[u8]>::len).collect());
    println!("lent {lens:?}");
    println!("durable {:?}", end(&mut core, durable).result);
    drop(lent);
    // The page is changed again.
    println!(
        "{:?}",
        op(
            &mut core,
            handle,
            SegmentOp::Write { offset: 0 },
            &[8; 4096],
            Mode::Cached
        )
    );
    println!("{:?}", sync(&mut core, handle));
    let disk = std::fs::read(&path).unwrap();
    assert!(disk.len() == 8192 && disk[..4096] == [8; 4096] && disk[4096..] == [9; 4096]);
    assert!(lens.is_none_or(|lens| lens == [4096, 4096]));
}

/// Writes that end anywhere and are apart, in flight together; truncates between; reads of what nobody writes.
#[test]
fn fuzz() {
    use std::task::Poll;
    for seed in 0..60_u64 {
        let (_d, path) = file(&[]);
        let config = baio_engine::Config {
            backend: [baio_engine::Choice::Threads, baio_engine::Choice::Auto][seed as usize % 2],
            ..harness::config()
        };
        let mut core = Core::new(&config).unwrap();
        core.use_cache(&cache_of(24)).unwrap();
        let handle = core.open_file(&path, &Open::write()).unwrap();
        let mut random = harness::Random(seed + 1);
        let mut model: Vec<u8> = Vec::new();
        let mut flying: Vec<(baio_storage::Ticket, usize, Vec<u8>)> = Vec::new();
        for step in 0..400 {
            // Ends.
            let mut at = 0;
            while at < flying.len() {
                if let Poll::Ready(outcome) = core.poll(flying[at].0, None) {
                    let (_, from, bytes) = flying.swap_remove(at);
                    assert_eq!(outcome.unwrap().result.unwrap() as usize, bytes.len());
                    if model.len() < from + bytes.len() {
                        model.resize(from + bytes.len(), 0);
                    }
                    model[from..from + bytes.len()].copy_from_slice(&bytes);
                } else {
                    at += 1;
                }
            }
            match random.below(10) {
                0..=4 if flying.len() < 6 => {
                    let from = random.below(150_000) as usize;
                    let mode = [Mode::Cached, Mode::Cached, Mode::Kernel, Mode::Direct][random.below(4) as usize];
                    let (from, len) = match mode {
                        Mode::Direct => (from / 4096 * 4096, 4096 * (1 + random.below(3) as usize)),
                        _ => (from, 1 + random.below(20_000) as usize),
                    };
                    if flying
                        .iter()
                        .any(|(_, at, bytes)| from < at + bytes.len() && *at < from + len)
                    {
                        continue;
                    }
                    let bytes: Vec<u8> = (0..len).map(|at| ((step * 31 + at / 7) as u8) | 1).collect();
                    let request =
                        through_cache::request(&core, handle, SegmentOp::Write { offset: from as u64 }, &bytes, mode);
                    let durability = [Durability::None, Durability::Data][random.below(2) as usize];
                    let ticket = start(&mut core, SegmentRequest { durability, ..request });
                    flying.push((ticket, from, bytes));
                }
                5 | 6 if !model.is_empty() => {
                    let from = random.below(model.len() as u64) as usize;
                    let len = (1 + random.below(30_000) as usize).min(model.len() - from);
                    let mode = [Mode::Cached, Mode::Kernel][random.below(2) as usize];
                    let before = model.clone();
                    let request = through_cache::request(
                        &core,
                        handle,
                        SegmentOp::Read { offset: from as u64 },
                        &vec![0xee; len],
                        mode,
                    );
                    let ticket = start(&mut core, request);
                    let got = through_cache::got(end(&mut core, ticket));
                    assert_eq!(got.len(), len, "seed {seed} step {step} {mode:?}");
                    for at in 0..len {
                        let place = from + at;
                        if flying
                            .iter()
                            .any(|(_, start, bytes)| (*start..start + bytes.len()).contains(&place))
                        {
                            continue;
                        }
                        assert!(
                            got[at] == before[place],
                            "seed {seed} step {step} {mode:?}: byte {place} of {}: {:#x} for {:#x}",
                            before.len(),
                            got[at],
                            before[place]
                        );
                    }
                }
                7 if flying.is_empty() || random.below(4) == 0 => {
                    while let Some((ticket, from, bytes)) = flying.pop() {
                        end(&mut core, ticket).result.unwrap();
                        if model.len() < from + bytes.len() {
                            model.resize(from + bytes.len(), 0);
                        }
                        model[from..from + bytes.len()].copy_from_slice(&bytes);
                    }
                    let len = random.below(180_000);
                    op(
                        &mut core,
                        handle,
                        SegmentOp::Truncate { len },
                        &[],
                        [Mode::Cached, Mode::Direct][random.below(2) as usize],
                    )
                    .unwrap();
                    model.resize(len as usize, 0);
                }
                8 => {
                    let _ = sync(&mut core, handle);
                }
                _ => {
                    core.turn(baio_engine::Wait::No).unwrap();
                }
            }
        }
        while let Some((ticket, from, bytes)) = flying.pop() {
            end(&mut core, ticket).result.unwrap();
            if model.len() < from + bytes.len() {
                model.resize(from + bytes.len(), 0);
            }
            model[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(core.size(handle).unwrap(), model.len() as u64);
        core.close().unwrap();
        let disk = std::fs::read(&path).unwrap();
        assert!(
            disk == model,
            "seed {seed}: {} {} {:?}",
            disk.len(),
            model.len(),
            disk.iter().zip(&model).position(|(a, b)| a != b)
        );
    }
}
