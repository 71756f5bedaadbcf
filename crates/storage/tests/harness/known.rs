//! Segments of which every block is known, random requests on them whose outcomes are, and volumes to have them on: on the
//! simulated machine and in real files.

use std::path::PathBuf;

use baio_engine::sim::{Disk, Flash, Profile};
use baio_engine::{Choice, EngineOptions, Memory, Wait};
use baio_storage::{Core, FormatOptions, Handle, SegmentOp, SegmentRequest};

use crate::harness::{
    self, BLOCK, ME, Random, config, create, open_write, read, simulated_disk, start, sync_request, write,
};

pub(crate) const VOLUME: u64 = 16 << 20;
pub(crate) const BLOCKS: u64 = 512;

/// A volume somewhere, and how it is opened again.
pub(crate) enum World {
    Simulated(Disk),
    Real(PathBuf, Choice, #[allow(dead_code)] tempfile::TempDir),
}

impl World {
    pub(crate) fn simulated() -> World {
        let disk = simulated_disk(&FormatOptions::of_size(VOLUME));
        disk.set_profile(Profile::Flash(Flash::default()));
        World::Simulated(disk)
    }

    pub(crate) fn real(backend: Choice) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        harness::format(&path, VOLUME);
        World::Real(path, backend, dir)
    }

    pub(crate) fn open(&self) -> Core {
        match self {
            World::Simulated(disk) => harness::open_with_seed(disk, 5),
            World::Real(path, backend, _) => {
                let config = EngineOptions {
                    backend: *backend,
                    ..config()
                };
                Core::open(path, &config).unwrap()
            }
        }
    }
}

/// The same test on a simulated device and on real files.
pub(crate) fn everywhere(test: fn(&World)) {
    test(&World::simulated());
    for backend in [Choice::Sync, Choice::Threads, Choice::Auto] {
        test(&World::real(backend));
    }
}

/// A segment and what it must hold: one byte per block.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) handle: Handle,
    pub(crate) holds: Vec<u8>,
    pub(crate) busy: Vec<bool>,
}

impl Known {
    pub(crate) fn new(core: &mut Core, name: &'static str, blocks: u64) -> Known {
        create(core, name, blocks * BLOCK as u64);
        Known {
            name,
            handle: open_write(core, name),
            holds: vec![0; blocks as usize],
            busy: vec![false; blocks as usize],
        }
    }

    pub(crate) fn fill(&mut self, core: &mut Core, random: &mut Random) {
        for block in 0..self.holds.len() {
            self.holds[block] = random.below(256) as u8;
            write(core, self.handle, (block * BLOCK) as u64, &[self.holds[block]; BLOCK]).unwrap();
        }
    }

    pub(crate) fn assert_holds(&self, core: &mut Core) {
        for (block, expected) in self.holds.iter().enumerate() {
            let bytes = read(core, self.handle, (block * BLOCK) as u64, BLOCK).unwrap();
            assert!(
                bytes.len() == BLOCK && bytes.iter().all(|byte| byte == expected),
                "block {block} of {}: {} instead of {expected}",
                self.name,
                bytes[0]
            );
        }
    }
}

/// Segment, first block, blocks, and the byte written; none for a read.
pub(crate) type UnderWay = (usize, u64, u64, Option<u8>);

/// Random requests on some segments, of which the outcome of each is known: no two under way touch one block.
pub(crate) struct Load {
    pub(crate) random: Random,
    pub(crate) under_way: Vec<Option<UnderWay>>,
    pub(crate) ended: u64,
}

impl Load {
    pub(crate) fn new(seed: u64) -> Load {
        Load {
            random: Random(seed),
            under_way: Vec::new(),
            ended: 0,
        }
    }

    pub(crate) fn start_some(&mut self, core: &mut Core, segments: &mut [Known]) {
        while self.under_way.iter().flatten().count() < 12 {
            let which = self.random.below(segments.len() as u64) as usize;
            let known = &mut segments[which];
            if self.random.below(20) == 0 {
                let mut request = sync_request(known.handle);
                request.tag = u64::MAX;
                start(core, request);
            }
            let most = if self.random.below(8) == 0 { 96 } else { 6 };
            let len = 1 + self.random.below(most);
            let first = self.random.below(known.holds.len() as u64 - len);
            let range = first as usize..(first + len) as usize;
            if known.busy[range.clone()].contains(&true) {
                continue;
            }
            known.busy[range].fill(true);
            let offset = first * BLOCK as u64;
            let mut byte = (self.random.below(2) == 0).then(|| self.random.bits() as u8);
            let bytes = len * BLOCK as u64;
            let op = match byte {
                Some(drawn) if drawn < 64 => {
                    byte = Some(0);
                    match drawn < 32 {
                        true => SegmentOp::Discard { offset, len: bytes },
                        false => SegmentOp::Zero { offset, len: bytes },
                    }
                }
                Some(_) => SegmentOp::Write { offset },
                None => SegmentOp::Read { offset },
            };
            let memory = match op.names_its_range() {
                true => Memory::None,
                false => {
                    let mut buffer = core.buffer(bytes as usize).unwrap();
                    buffer.fill(byte.unwrap_or(0));
                    Memory::Own(buffer)
                }
            };
            let place = self.under_way.iter().position(Option::is_none);
            let place = place.unwrap_or_else(|| {
                self.under_way.push(None);
                self.under_way.len() - 1
            });
            self.under_way[place] = Some((which, first, len, byte));
            let request = SegmentRequest {
                tag: place as u64,
                ..SegmentRequest::new(known.handle, op, memory)
            };
            start(core, request);
        }
    }

    pub(crate) fn collect(&mut self, core: &mut Core, segments: &mut [Known]) {
        while let Some(outcome) = core.next_outcome() {
            let got = outcome.result.unwrap();
            if outcome.tag == u64::MAX {
                continue;
            }
            let (which, first, len, byte) = self.under_way[outcome.tag as usize].take().unwrap();
            let known = &mut segments[which];
            let buffer = outcome.memory.into_buffer();
            let moved = buffer.as_ref().map_or(0, |buffer| buffer.len());
            assert_eq!(got as usize, moved);
            assert!(moved == (len * BLOCK as u64) as usize || byte == Some(0));
            for index in 0..len {
                let block = (first + index) as usize;
                known.busy[block] = false;
                match byte {
                    Some(byte) => known.holds[block] = byte,
                    None => {
                        let bytes = &buffer.as_ref().unwrap()[index as usize * BLOCK..][..BLOCK];
                        let expected = known.holds[block];
                        assert!(
                            bytes.iter().all(|byte| *byte == expected),
                            "block {block} of {}: read {} instead of {expected}",
                            known.name,
                            bytes[0]
                        );
                    }
                }
            }
            self.ended += 1;
        }
    }

    pub(crate) fn turn(&mut self, core: &mut Core, segments: &mut [Known]) {
        self.start_some(core, segments);
        core.turn(Wait::one()).unwrap();
        self.collect(core, segments);
    }

    pub(crate) fn end(&mut self, core: &mut Core, segments: &mut [Known]) {
        while self.under_way.iter().any(Option::is_some) {
            core.turn(Wait::one()).unwrap();
            self.collect(core, segments);
        }
    }
}

pub(crate) fn start_block(core: &mut Core, name: &str) -> (u64, &'static str) {
    let segments = core.list(ME).unwrap();
    let info = segments.iter().find(|info| info.name == name).unwrap();
    (info.start_block, info.state)
}

/// Free blocks and the segments' reserves are the whole volume.
pub(crate) fn assert_nothing_leaked(core: &mut Core) {
    let segments = core.list(ME).unwrap();
    let info = core.volume_info().unwrap();
    let used: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
    assert_eq!(info.free_bytes + used, info.size_bytes, "{segments:?}");
    let account = segments.iter().map(|segment| segment.reserve_bytes).sum::<u64>();
    assert_eq!(used, account);
}
