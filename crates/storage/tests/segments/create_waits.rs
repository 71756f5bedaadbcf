//! The promises: a lone durable create waits four times, and two of these are its zeroes and their flush; and a device that
//! acknowledges a record and loses it, or puts it elsewhere, is found out before the caller is told that the record is safe.

use std::sync::{Arc, Mutex};

use baio_engine::backend::{Backend, Done};
use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Errno, Error, File, Op, RequestId, Slots, Wait};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, CreateOptions, Fault, FormatOptions, Zeroing};

use crate::harness::bent::{self, Bend};
use crate::harness::{BLOCK, ME, config, create, open_simulated, open_write, read, simulated_disk, write};

/// A machine that answers only when all that was asked has ended: every turn is one wait.
struct Lockstep {
    outstanding: usize,
    /// How many requests ended in each wait.
    waits: Arc<Mutex<Vec<usize>>>,
    /// It cannot zero ranges.
    writes_only: bool,
}

impl Bend for Lockstep {
    fn start(&mut self, sim: &mut Sim, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let started = sim.start(slots, queue);
        self.outstanding += started;
        started
    }

    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        let before = done.raw.len();
        while done.raw.len() - before < self.outstanding {
            sim.turn(slots, Wait::one(), done)?;
        }
        if self.outstanding == 0 {
            return sim.turn(slots, wait, done);
        }
        self.waits.lock().unwrap().push(self.outstanding);
        self.outstanding = 0;
        Ok(())
    }

    fn refuses(&self, sim: &Sim, op: Op) -> Option<Error> {
        let refused = Error::Unsupported {
            operation: op.name(),
            backend: "lockstep",
        };
        match op {
            Op::Allocate { .. } if self.writes_only => Some(refused),
            op => sim.refuses(op),
        }
    }
}

fn small() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(16 << 20),
        ..FormatOptions::default()
    }
}

fn superblock(disk: &Disk) -> Superblock {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    Superblock::decode(&page, 0).unwrap()
}

fn open_lockstep(disk: &Disk, writes_only: bool) -> (Core, Arc<Mutex<Vec<usize>>>) {
    let waits = Arc::new(Mutex::new(Vec::new()));
    let lockstep = Lockstep {
        outstanding: 0,
        waits: Arc::clone(&waits),
        writes_only,
    };
    let engine = bent::engine(3, lockstep, &config());
    let core = Core::open_on(engine, &File::simulated(disk, "disk"), &config()).unwrap();
    (core, waits)
}

/// What the device cannot zero is written: the same bytes, and the same waits as if that had been asked for.
#[test]
fn lazy_zeroing_writes_where_the_device_cannot() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 3 << 20);
    let old = open_write(&mut core, "old");
    for at in 0..3 {
        write(&mut core, old, at << 20, &vec![7; 1 << 20]).unwrap();
    }
    core.delete(ME, ME.uid, "old").unwrap();
    core.close().unwrap();
    let (mut core, waits) = open_lockstep(&disk, true);
    let before = waits.lock().unwrap().len();
    let lazy = CreateOptions {
        zero: Zeroing::Lazy,
        ..CreateOptions::of_size(14 << 20)
    };
    core.create(ME, ME.uid, "new", &lazy).unwrap();
    // The refusals cost no wait.
    assert_eq!(
        waits.lock().unwrap()[before..].iter().sum::<usize>(),
        1 + 14 * 4 + 1 + 1 + 2
    );
    let new = open_write(&mut core, "new");
    for at in 0..14 {
        assert!(read(&mut core, new, at << 20, 1 << 20).unwrap() == vec![0; 1 << 20]);
    }
}

#[test]
fn a_lone_create_waits_twice_beside_zeroing_and_flush() {
    let disk = simulated_disk(&small());
    let (mut core, waits) = open_lockstep(&disk, false);
    for name in ["a", "b"] {
        waits.lock().unwrap().clear();
        core.create(ME, ME.uid, name, &CreateOptions::of_size(3 << 18)).unwrap();
        // Look-up beside three writes of zeroes; flush; table; mirror beside the read-back.
        assert_eq!(*waits.lock().unwrap(), [4, 1, 1, 2], "{name}");
    }
    // The device zeroes: one request instead of three.
    waits.lock().unwrap().clear();
    let lazy = CreateOptions {
        zero: Zeroing::Lazy,
        ..CreateOptions::of_size(3 << 18)
    };
    core.create(ME, ME.uid, "c", &lazy).unwrap();
    assert_eq!(*waits.lock().unwrap(), [2, 1, 1, 2]);
}

/// Both ways of zeroing show nothing of what was in the blocks before.
#[test]
fn a_new_segment_reads_as_zero_however_it_was_zeroed() {
    for zero in [Zeroing::Written, Zeroing::Lazy] {
        let disk = simulated_disk(&small());
        let mut core = open_simulated(&disk);
        create(&mut core, "old", 12 << 20);
        let old = open_write(&mut core, "old");
        for at in 0..12 {
            write(&mut core, old, at << 20, &vec![7; 1 << 20]).unwrap();
        }
        core.delete(ME, ME.uid, "old").unwrap();
        let options = CreateOptions {
            zero,
            ..CreateOptions::of_size(12 << 20)
        };
        core.create(ME, ME.uid, "new", &options).unwrap();
        let new = open_write(&mut core, "new");
        for at in 0..12 {
            assert!(
                read(&mut core, new, at << 20, 1 << 20).unwrap() == vec![0; 1 << 20],
                "{zero:?}"
            );
        }
    }
}

#[test]
fn a_record_that_the_device_lost_is_noticed_and_named() {
    for sick in [Sick::LostWrite, Sick::Misdirected] {
        let disk = simulated_disk(&small());
        let superblock = superblock(&disk);
        let layout = superblock.layout();
        let key = Key::segment(ME.uid, SegmentName::new("torn").unwrap());
        let bucket = key.hash(&superblock.hash_seed) % layout.buckets();
        let at = layout.image_at(bucket, Parity::Odd, Place::Table).unwrap();
        let mut core = open_simulated(&disk);
        disk.set_faults(Faults::none().when(Trigger::nth(sick, 1).within(at..at + BLOCK as u64)));
        let lost = core
            .create(ME, ME.uid, "torn", &CreateOptions::of_size(BLOCK as u64))
            .unwrap_err();
        assert_eq!(disk.faults_injected().of(sick), 1);
        assert!(
            matches!(&lost.fault, Fault::LostWrite { at: named, .. } if *named == at),
            "{sick:?}: {lost}"
        );
        let page = format!("the odd image of bucket {bucket} in the inode table, at byte {at}");
        assert!(lost.to_string().contains(&page), "{lost}");
        assert_eq!(lost.code(), "EIO");
        let next = core.create(ME, ME.uid, "next", &CreateOptions::of_size(BLOCK as u64));
        assert!(matches!(next.unwrap_err().fault, Fault::Latched), "{sick:?}");
        core.close().unwrap();
        if sick == Sick::LostWrite {
            // Whatever holds, it is used further.
            let mut core = open_simulated(&disk);
            create(&mut core, "next", BLOCK as u64);
        }
    }
}

/// Two creates find the same free slot while both zero; the second to record must not overwrite the first.
#[test]
fn a_kept_slot_is_given_up_when_the_table_has_changed() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    // More names than buckets: some share one.
    let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
    assert!(superblock(&disk).layout().buckets() < 12);
    let begun: Vec<_> = names
        .iter()
        .map(|name| {
            core.begin_create(ME, ME.uid, name, &CreateOptions::of_size(3 * BLOCK as u64))
                .unwrap()
        })
        .collect();
    for id in &begun {
        loop {
            if let Some(answer) = core.take_answer(id) {
                answer.unwrap();
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
    }
    let mut listed: Vec<String> = core.list(ME).unwrap().into_iter().map(|info| info.name).collect();
    let mut expected = names.clone();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    // The same name twice: one of them is made.
    let twice: Vec<_> = (0..2)
        .map(|_| {
            core.begin_create(ME, ME.uid, "n0-twice", &CreateOptions::of_size(BLOCK as u64))
                .unwrap()
        })
        .collect();
    let mut made = Vec::new();
    for id in &twice {
        while made.len() < 2 {
            if let Some(answer) = core.take_answer(id) {
                made.push(answer.map_or_else(|error| error.code(), |_| "made"));
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
    }
    made.sort_unstable();
    assert_eq!(made, ["EEXIST", "made"]);
}
