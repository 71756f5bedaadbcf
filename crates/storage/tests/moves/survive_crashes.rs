//! The promise: the power may fail at any moment of a move, of a grow that moves, and of going on with either after an open;
//! what was acknowledged as durable is there in every state that the device can be in then, no block leaks, and the move
//! goes on to its end.
//!
//! The device records what reaches it; every crash of the record is replayed, opened and looked at.

use baio_engine::sim::crash::{self, Replay};
use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Config, Durability, Engine, File, Wait};
use baio_storage::{Access, Core, Format, Handle, OperationId, ResizeOptions, SegmentInfo};

use crate::harness::{self, BLOCK, ME, Random, create, open_write, read, run, simulated_disk, start, write_request};

const BLOCKS: u64 = 40;
const SECTOR: usize = 512;

/// So small an arena that a chunk is 16 blocks.
fn config() -> Config {
    Config {
        arena_bytes: 1 << 20,
        ..harness::config()
    }
}

fn open(disk: &Disk) -> Core {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_simulated(engine, &File::simulated(disk, "disk"), &config()).unwrap()
}

/// A durable write of one block, between two moments of the record.
struct Wrote {
    block: u64,
    byte: u8,
    begun: usize,
    acknowledged: usize,
}

/// What a block may hold after a crash.
struct Story {
    before: Vec<u8>,
    writes: Vec<Wrote>,
}

impl Story {
    /// The bytes that any sector of a block may be filled with, if the power fails when so much is recorded.
    fn allowed(&self, block: u64, prefix: usize) -> Vec<u8> {
        let mut allowed = vec![self.before.get(block as usize).copied().unwrap_or(0)];
        for write in self.writes.iter().filter(|write| write.block == block) {
            if write.acknowledged <= prefix {
                allowed.clear();
            }
            // The one behind the prefix may be under way.
            if write.begun <= prefix + 1 {
                allowed.push(write.byte);
            }
        }
        allowed
    }

    fn assert_told(&self, core: &mut Core, handle: Handle, prefix: usize) -> Vec<u8> {
        let blocks = core.size(handle).unwrap() / BLOCK as u64;
        let mut all = Vec::new();
        for block in 0..blocks {
            let bytes = read(core, handle, block * BLOCK as u64, BLOCK).unwrap();
            let allowed = self.allowed(block, prefix);
            for sector in bytes.chunks(SECTOR) {
                let whole = sector.iter().all(|byte| *byte == sector[0]);
                assert!(
                    whole && allowed.contains(&sector[0]),
                    "block {block}: {} instead of {allowed:?}",
                    sector[0]
                );
            }
            all.extend(bytes);
        }
        all
    }
}

fn info(core: &mut Core) -> SegmentInfo {
    let segments = core.list(ME).unwrap();
    segments.into_iter().find(|one| one.name == "data").unwrap()
}

fn assert_nothing_leaked(core: &mut Core) {
    let used: u64 = core.list(ME).unwrap().iter().map(|one| one.reserve_bytes).sum();
    let info = core.volume_info().unwrap();
    assert_eq!(info.free_bytes + used, info.size_bytes);
    assert_eq!(core.quota(ME, ME.uid).unwrap().used.blocks * BLOCK as u64, used);
}

/// A volume with a full segment, a neighbour behind it, and dirt wherever it may go.
fn prepared() -> (Disk, Vec<u8>) {
    let disk = simulated_disk(&Format {
        size_bytes: Some(4 << 20),
        ..Format::default()
    });
    let mut core = open(&disk);
    create(&mut core, "data", BLOCKS * BLOCK as u64);
    create(&mut core, "wall", BLOCK as u64);
    let rest = core.volume_info().unwrap().free_bytes;
    create(&mut core, "dirt", rest);
    let dirt = open_write(&mut core, "dirt");
    for at in (0..rest).step_by(BLOCK) {
        let request = write_request(&core, dirt, at, &[0xdd; BLOCK]);
        run(&mut core, request).result.unwrap();
    }
    core.delete(ME, ME.uid, "dirt").unwrap();
    let handle = open_write(&mut core, "data");
    let mut before = Vec::new();
    for block in 0..BLOCKS {
        before.push(1 + block as u8);
        let request = write_request(&core, handle, block * BLOCK as u64, &[1 + block as u8; BLOCK]);
        run(&mut core, request).result.unwrap();
    }
    core.close().unwrap();
    (disk, before)
}

/// Runs an operation, with durable writes all the while; returns when it was acknowledged.
fn record(
    disk: &Disk,
    story: &mut Story,
    begin: impl FnOnce(&mut Core) -> Option<OperationId>,
) -> (Vec<Record>, usize) {
    disk.record();
    let mut core = open(disk);
    let handle = open_write(&mut core, "data");
    let id = begin(&mut core);
    let mut random = Random(story.writes.len() as u64);
    let mut under_way: Option<(baio_storage::Ticket, Wrote)> = None;
    loop {
        if under_way.is_none() {
            let wrote = Wrote {
                block: random.below(BLOCKS),
                byte: 100 + random.below(100) as u8,
                begun: disk.recorded(),
                acknowledged: usize::MAX,
            };
            let mut request = write_request(&core, handle, wrote.block * BLOCK as u64, &[wrote.byte; BLOCK]);
            request.durability = Durability::Data;
            under_way = Some((start(&mut core, request), wrote));
        }
        core.turn(Wait::one()).unwrap();
        if let Some((ticket, mut wrote)) = under_way.take() {
            match core.poll(ticket, None) {
                std::task::Poll::Ready(outcome) => {
                    outcome.unwrap().result.unwrap();
                    wrote.acknowledged = disk.recorded();
                    story.writes.push(wrote);
                }
                std::task::Poll::Pending => under_way = Some((ticket, wrote)),
            }
        }
        let ended = match &id {
            Some(id) => core.take_answer(id).map(|answer| drop(answer.unwrap())).is_some(),
            None => info(&mut core).state == "live",
        };
        if ended {
            break;
        }
    }
    let acknowledged = disk.recorded();
    if let Some((ticket, mut wrote)) = under_way {
        core.wait(ticket).unwrap().unwrap().result.unwrap();
        wrote.acknowledged = disk.recorded();
        story.writes.push(wrote);
    }
    let record = disk.take_record();
    drop(core);
    (record, acknowledged)
}

/// Opens every crash of a record, looks, lets what was unfinished end, and looks again.
fn explore(
    base: &Disk,
    record: &[Record],
    story: &Story,
    check: &mut dyn FnMut(&mut Core, crash::Crash, &SegmentInfo),
) -> usize {
    let mut states = 0;
    let mut replay = Replay::new(base, record);
    for crash in crash::states(record) {
        states += 1;
        let disk = replay.disk(crash);
        let mut core = open(&disk);
        let (handle, _) = core.open_segment(ME, ME.uid, "data", Access::Write).unwrap();
        let first = story.assert_told(&mut core, handle, crash.prefix);
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        let again = story.assert_told(&mut core, handle, crash.prefix);
        assert!(first == again, "{crash:?}: what was served changed");
        let info = info(&mut core);
        assert_eq!(info.state, "live", "{crash:?}");
        assert_nothing_leaked(&mut core);
        check(&mut core, crash, &info);
    }
    states
}

#[test]
fn a_move_survives_a_crash_at_every_record() {
    let (disk, before) = prepared();
    let base = disk.copy();
    let mut story = Story {
        before,
        writes: Vec::new(),
    };
    let begin = |core: &mut Core| Some(core.begin_move(ME, ME.uid, "data", Some(500)).unwrap());
    let (record, acknowledged) = record(&disk, &mut story, begin);
    assert!(story.writes.len() >= 5, "writes go on meanwhile");
    let mut ends = std::collections::BTreeSet::new();
    let states = explore(&base, &record, &story, &mut |_, crash, info| {
        ends.insert(info.start_block);
        if crash.prefix >= acknowledged {
            assert_eq!(info.start_block, 500, "{crash:?}: an acknowledged move");
        }
    });
    assert_eq!(
        ends.into_iter().collect::<Vec<_>>(),
        [0, 500],
        "before its first record, and behind"
    );
    assert!(states > 80, "{states}");
}

/// Crashes of the going on, from a few places at which the move was cut off before.
#[test]
fn going_on_with_a_move_survives_a_crash_as_well() {
    let (disk, before) = prepared();
    let base = disk.copy();
    let mut story = Story {
        before,
        writes: Vec::new(),
    };
    let begin = |core: &mut Core| Some(core.begin_move(ME, ME.uid, "data", Some(500)).unwrap());
    let (first, _) = record(&disk, &mut story, begin);
    let mut replay = Replay::new(&base, &first);
    let mut explored = 0;
    for prefix in (0..first.len()).step_by(5) {
        let disk = replay.disk(crash::Crash::clean(prefix));
        if info(&mut open(&disk.copy())).state != "moving" {
            continue;
        }
        let mut core = open(&disk.copy());
        let handle = open_write(&mut core, "data");
        let all = story.assert_told(&mut core, handle, prefix);
        drop(core);
        explored += 1;
        let base = disk.copy();
        let mut story = Story {
            before: all.chunks(BLOCK).map(|block| block[0]).collect(),
            writes: Vec::new(),
        };
        let (second, _) = record(&disk, &mut story, |_| None);
        explore(&base, &second, &story, &mut |_, crash, info| {
            assert_eq!(info.start_block, 500, "{crash:?}");
        });
    }
    assert!(explored >= 3, "{explored}");
}

/// A grow that moves: before it is acknowledged the size is the old or the new one; what is new reads as zero.
#[test]
fn a_grow_that_moves_survives_a_crash_at_every_record() {
    let (disk, before) = prepared();
    let base = disk.copy();
    let mut story = Story {
        before,
        writes: Vec::new(),
    };
    let options = ResizeOptions {
        reserve_bytes: Some(70 * BLOCK as u64),
        ..ResizeOptions::to_size(60 * BLOCK as u64)
    };
    let begin = |core: &mut Core| Some(core.begin_resize(ME, ME.uid, "data", &options).unwrap());
    let (record, acknowledged) = record(&disk, &mut story, begin);
    let mut sizes = std::collections::BTreeSet::new();
    explore(&base, &record, &story, &mut |core, crash, info| {
        let size = info.size_bytes / BLOCK as u64;
        sizes.insert(size);
        if crash.prefix >= acknowledged {
            assert_eq!(size, 60, "{crash:?}: an acknowledged size");
        }
        // Grown again, whatever it has been, nothing of what others left shows.
        core.resize(ME, ME.uid, "data", &options).unwrap();
        let handle = open_write(core, "data");
        story.assert_told(core, handle, crash.prefix);
        assert_nothing_leaked(core);
    });
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [BLOCKS, 60]);
}
