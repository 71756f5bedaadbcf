//! The promise: while the last page of a file is being written, the file may grow, and what is behind that page's old end reads as zeros and
//! as what was written there: copied, lent and pinned.

use std::path::{Path, PathBuf};
use std::task::Poll;

use baio_engine::{Choice, Durability, EngineOptions, Memory, Open, Vectored, Wait};
use baio_storage::cache::Borrower;
use baio_storage::{Core, Handle, Mode, SegmentOp, SegmentRequest, Ticket};

use crate::harness::through_cache::{self, begin_durable, begin_read, begin_write, cache_of, end};
use crate::harness::{self, run, start};

fn empty_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, []).unwrap();
    (dir, path)
}

fn open_cached(path: &Path, backend: Choice, pages: usize) -> (Core, Handle) {
    let config = EngineOptions {
        backend,
        ..harness::config()
    };
    let mut core = Core::new(&config).unwrap();
    core.use_cache(&cache_of(pages)).unwrap();
    let handle = core.open_file(path, &Open::write()).unwrap();
    (core, handle)
}

fn sync(core: &mut Core, handle: Handle) -> u32 {
    let request = SegmentRequest {
        mode: Mode::Cached,
        durability: Durability::Full,
        ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
    };
    run(core, request).result.unwrap()
}

/// A page of 100 bytes is on its way to the file, and a write of the second page is begun: the tickets of both.
fn begin_to_grow(core: &mut Core, handle: Handle) -> (Ticket, Ticket) {
    let durable = begin_durable(core, handle, 0, &[7; 100]);
    core.turn(Wait::No).unwrap();
    (durable, begin_write(core, handle, 1, &[9; 4096], Mode::Cached))
}

/// What a reader sees who asks for both pages then.
fn read_beside_write_back(read: fn(&mut Core, Handle) -> Ticket) {
    let (_dir, path) = empty_file();
    let (mut core, handle) = open_cached(&path, Choice::Threads, 64);
    let (durable, write) = begin_to_grow(&mut core, handle);
    let read = read(&mut core, handle);
    let got = end(&mut core, read);
    assert_eq!(end(&mut core, write).result.unwrap(), 4096);
    assert_eq!(end(&mut core, durable).result.unwrap(), 100);
    assert_eq!(got.result.unwrap(), 8192);
    let got: Vec<u8> = match got.memory {
        Memory::Many(mut both) => both
            .drain()
            .flat_map(|part| part.into_buffer().unwrap().to_vec())
            .collect(),
        memory => memory.into_buffer().unwrap().to_vec(),
    };
    assert_eq!(got, [&[7; 100][..], &[0; 3996], &[9; 4096]].concat());
}

#[test]
fn a_read_beside_the_write_back_sees_zeros_and_what_was_written() {
    read_beside_write_back(|core, handle| begin_read(core, handle, 0, 2, Mode::Cached));
}

#[test]
fn a_read_into_a_list_sees_the_same() {
    read_beside_write_back(|core, handle| {
        let mut both = Vectored::with_capacity(2);
        both.push(core.buffer(4096).unwrap().into()).unwrap();
        both.push(core.buffer(4096).unwrap().into()).unwrap();
        let request = SegmentRequest {
            mode: Mode::Cached,
            ..SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, Memory::Many(both))
        };
        start(core, request)
    });
}

#[test]
fn a_page_that_was_pinned_and_lent_meanwhile_is_whole_and_is_changed_again() {
    let (_dir, path) = empty_file();
    let (mut core, handle) = open_cached(&path, Choice::Threads, 64);
    let (durable, _) = begin_to_grow(&mut core, handle);
    let pin = core.pin_now(handle, 0).unwrap();
    core.unpin(pin);
    let borrower = Borrower::new(1 << 20);
    let lent = core.lend(&borrower, handle, 0..2);
    if let Some(lent) = &lent {
        let lens: Vec<usize> = lent.pages().map(<[u8]>::len).collect();
        assert_eq!(lens, [4096, 4096]);
    }
    assert_eq!(end(&mut core, durable).result.unwrap(), 100);
    drop(lent);
    through_cache::put(&mut core, handle, 0, &[8; 4096], Mode::Cached);
    sync(&mut core, handle);
    let disk = std::fs::read(&path).unwrap();
    assert!(disk.len() == 8192 && disk[..4096] == [8; 4096] && disk[4096..] == [9; 4096]);
}

/// A write under way: where, and what.
struct Flying {
    ticket: Ticket,
    from: usize,
    bytes: Vec<u8>,
}

impl Flying {
    fn covers(&self, at: usize) -> bool {
        (self.from..self.from + self.bytes.len()).contains(&at)
    }

    fn meets(&self, from: usize, len: usize) -> bool {
        from < self.from + self.bytes.len() && self.from < from + len
    }

    /// It has ended: so is the file now.
    fn lands_in(&self, model: &mut Vec<u8>) {
        let end = self.from + self.bytes.len();
        model.resize(model.len().max(end), 0);
        model[self.from..end].copy_from_slice(&self.bytes);
    }
}

fn land_all(core: &mut Core, flying: &mut Vec<Flying>, model: &mut Vec<u8>) {
    while let Some(write) = flying.pop() {
        end(core, write.ticket).result.unwrap();
        write.lands_in(model);
    }
}

/// A way for a write, where it begins, and how long it is.
fn somewhere(random: &mut harness::Random) -> (Mode, usize, usize) {
    let from = random.below(150_000) as usize;
    let mode = [Mode::Cached, Mode::Cached, Mode::Kernel, Mode::Direct][random.below(4) as usize];
    match mode {
        Mode::Direct => (mode, from / 4096 * 4096, 4096 * (1 + random.below(3) as usize)),
        _ => (mode, from, 1 + random.below(20_000) as usize),
    }
}

/// Writes that end anywhere and are apart, in flight together; truncates between; reads of what nobody writes.
#[test]
fn writes_truncates_and_reads_agree_with_a_model() {
    for seed in 0..60_u64 {
        let (_dir, path) = empty_file();
        let backend = [Choice::Threads, Choice::Auto][seed as usize % 2];
        let (mut core, handle) = open_cached(&path, backend, 24);
        let mut random = harness::Random(seed + 1);
        let mut model: Vec<u8> = Vec::new();
        let mut flying: Vec<Flying> = Vec::new();
        for step in 0..400 {
            flying.retain(|write| {
                let Poll::Ready(outcome) = core.poll(write.ticket, None) else {
                    return true;
                };
                assert_eq!(outcome.unwrap().result.unwrap() as usize, write.bytes.len());
                write.lands_in(&mut model);
                false
            });
            match random.below(10) {
                0..=4 if flying.len() < 6 => {
                    let (mode, from, len) = somewhere(&mut random);
                    if flying.iter().any(|write| write.meets(from, len)) {
                        continue;
                    }
                    let bytes: Vec<u8> = (0..len).map(|at| ((step * 31 + at / 7) as u8) | 1).collect();
                    let request =
                        through_cache::request(&core, handle, SegmentOp::Write { offset: from as u64 }, &bytes, mode);
                    let durability = [Durability::None, Durability::Data][random.below(2) as usize];
                    let ticket = start(&mut core, SegmentRequest { durability, ..request });
                    flying.push(Flying { ticket, from, bytes });
                }
                5 | 6 if !model.is_empty() => {
                    let from = random.below(model.len() as u64) as usize;
                    let len = (1 + random.below(30_000) as usize).min(model.len() - from);
                    let mode = [Mode::Cached, Mode::Kernel][random.below(2) as usize];
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
                    let is_flying = |place: &usize| flying.iter().any(|write| write.covers(*place));
                    let mut known = (from..from + len).filter(|place| !is_flying(place));
                    let wrong = known.find(|place| got[place - from] != model[*place]);
                    assert!(
                        wrong.is_none(),
                        "seed {seed} step {step} {mode:?}: byte {wrong:?} of {}",
                        model.len()
                    );
                }
                7 if flying.is_empty() || random.below(4) == 0 => {
                    land_all(&mut core, &mut flying, &mut model);
                    let len = random.below(180_000);
                    let mode = [Mode::Cached, Mode::Direct][random.below(2) as usize];
                    let cut = through_cache::request(&core, handle, SegmentOp::Truncate { len }, &[], mode);
                    run(&mut core, cut).result.unwrap();
                    model.resize(len as usize, 0);
                }
                8 => {
                    sync(&mut core, handle);
                }
                _ => {
                    core.turn(Wait::No).unwrap();
                }
            }
        }
        land_all(&mut core, &mut flying, &mut model);
        assert_eq!(core.size(handle).unwrap(), model.len() as u64);
        core.close().unwrap();
        let disk = std::fs::read(&path).unwrap();
        let differs = disk.iter().zip(&model).position(|(a, b)| a != b);
        assert!(disk == model, "seed {seed}: {} {} {differs:?}", disk.len(), model.len());
    }
}
