//! The log against a list: any order of appends, groups, ends of I/Os, failures, truncations, growths, closes, and power cuts at any
//! moment, with what is at the device landed by sectors as chance has it.
//!
//! A failure prints its seed; `BAIO_LOG_SEED=n cargo test -p baio-storage --test log model::` runs that one again, and
//! `BAIO_LOG_SEEDS=n` runs so many instead of a few hundred.

use std::time::Duration;

use baio_engine::Errno;
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogRequest, Lsn};

use crate::harness::Random;
use crate::rig::{self, Rig, SECTOR};

/// Choices among few.
struct Chance(Random);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    lsn: u64,
    bytes: Vec<u8>,
    is_last: bool,
}

struct World {
    chance: Chance,
    options: LogOptions,
    rig: Option<Rig>,
    /// Records from the head on, acknowledged or not.
    known: Vec<Known>,
    /// The highest LSN that was ever given.
    given: u64,
    number: u64,
    /// The lowest head that a crash may leave, and the highest.
    head: u64,
    wanted: u64,
    has_failed: bool,
    ms: u64,
    size_max: u64,
    crashes: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = Chance(Random(seed));
        let block = [512, 4096][chance.below(2)];
        let batch = block * (2 + chance.below(8) as u32);
        let window = 1 + chance.below(4) as u32;
        let options = LogOptions {
            block_bytes: block,
            window,
            window_short: chance.below(4) as u32,
            gather: Duration::from_millis(chance.below(2) as u64 * 3),
            buffer_bytes: (16 * block as usize) << chance.below(6),
            batch_bytes_max: batch,
            recent_bytes: 1024 << chance.below(6),
            file_bytes: 0,
            salvage: false,
        };
        let least = 8192 + u64::from(4 * window * batch);
        let size = least + (chance.below(32) as u64) * 512;
        let rig = Rig::create(size, &options);
        let head = rig.part.usage().head.0;
        World {
            chance,
            options,
            rig: Some(rig),
            known: Vec::new(),
            given: 0,
            number: 0,
            head,
            wanted: head,
            has_failed: false,
            ms: 0,
            size_max: size * 6,
            crashes: 0,
        }
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("it is there")
    }

    fn append(&mut self) {
        let count = if self.chance.one_in(4) {
            1 + self.chance.below(6)
        } else {
            1
        };
        let batch = self.options.batch_bytes_max as usize;
        let mut group = Vec::new();
        for _ in 0..count {
            let len = match self.chance.below(6) {
                0 => 0,
                1 => self.chance.below(16),
                2..=3 => self.chance.below(300),
                4 => self.chance.below(batch),
                _ => self.chance.below(batch * 3),
            };
            self.number += 1;
            group.push(rig::record(self.number, len));
        }
        let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
        let end = self.rig().appender.end_lsn().0;
        match self.rig().appender.append_all(&slices) {
            Ok(last) => {
                assert!(!self.has_failed);
                assert!(
                    last.0 > self.given && last.0 % 8 == 0,
                    "{last}: {} was given",
                    self.given
                );
                self.given = last.0;
                // The LSNs of the others are known when they are read.
                for (index, bytes) in group.into_iter().enumerate() {
                    let is_last = index + 1 == count;
                    let lsn = if is_last { last.0 } else { 0 };
                    assert!(!is_last || lsn >= end);
                    self.known.push(Known { lsn, bytes, is_last });
                }
            }
            Err(LogError::WouldBlock | LogError::Full) => {
                assert!(!self.has_failed);
                if self.chance.one_in(2) {
                    self.truncate();
                }
            }
            Err(LogError::TooLong { .. }) => {}
            Err(LogError::Failed { .. }) => assert!(self.has_failed),
            Err(error) => panic!("{error}"),
        }
    }

    fn truncate(&mut self) {
        let durable = self.rig().appender.durable_lsn().0;
        let to = match self.chance.below(4) {
            0 => u64::MAX,
            1 => durable,
            _ if self.known.is_empty() => 0,
            _ => {
                let index = self.chance.below(self.known.len());
                self.known[index].lsn + self.chance.below(2) as u64 * 8
            }
        };
        self.wanted = self.wanted.max(to);
        self.rig().start(LogRequest::Truncate { to: Lsn(to) });
    }

    fn end_some(&mut self) {
        self.rig().pump();
        let count = self.rig().ios.len();
        if count == 0 {
            return;
        }
        let index = self.chance.below(count);
        if self.chance.one_in(300) && !matches!(self.rig().ios[index].kind, LogIoKind::Read { .. } | LogIoKind::Sync) {
            let mut lands = Chance(Random(self.chance.0.bits()));
            self.rig().fail(index, Errno::EIO, |_| lands.one_in(2));
            self.has_failed = true;
        } else {
            self.rig().end(index);
        }
        self.take_heads();
    }

    fn take_heads(&mut self) {
        let head = self.rig().part.usage().head.0;
        assert!(head >= self.head && head <= self.wanted.max(self.head));
        assert!(head <= self.rig().appender.durable_lsn().0);
        self.head = head;
    }

    fn grow(&mut self) {
        let size = self.rig().device.bytes.len() as u64;
        let more = size + (self.chance.below(64) as u64) * 512;
        if more <= self.size_max {
            self.rig().device.bytes.resize(more as usize, 0x5A);
            self.rig().start(LogRequest::Grow { size_bytes: more });
        }
    }

    /// Everything is done; what is read is what was appended.
    fn settle(&mut self) {
        self.ms += 10;
        let ms = self.ms;
        self.rig().tick(ms);
        self.rig().run();
        self.ms += 10;
        let ms = self.ms;
        self.rig().tick(ms);
        self.rig().run();
        self.take_heads();
        if !self.has_failed {
            let durable = self.rig().appender.durable_lsn().0;
            assert!(self.given < durable);
            let found = self.rig().read();
            self.compare(&found, true);
        }
    }

    /// What was read is a beginning of what is known, from the head on, in whole groups.
    fn compare(&mut self, found: &[(u64, Vec<u8>)], is_all: bool) {
        let head = self.head;
        // Groups below the head are gone; their last LSNs are known.
        let mut gone = 0;
        for (index, known) in self.known.iter().enumerate() {
            if known.is_last && known.lsn < head {
                gone = index + 1;
            }
        }
        self.known.drain(..gone);
        assert!(
            found.len() <= self.known.len(),
            "{} of {}",
            found.len(),
            self.known.len()
        );
        for ((lsn, bytes), known) in found.iter().zip(&mut self.known) {
            assert!(*bytes == known.bytes, "at LSN {lsn}");
            assert!(known.lsn == 0 || known.lsn == *lsn, "{lsn}");
            known.lsn = *lsn;
        }
        assert!(
            found.is_empty() || self.known[found.len() - 1].is_last,
            "the last group is not whole"
        );
        assert!(
            !is_all || found.len() == self.known.len(),
            "{} of {}",
            found.len(),
            self.known.len()
        );
        assert!(found.first().is_none_or(|(lsn, _)| *lsn >= head));
    }

    fn crash(&mut self) {
        self.crashes += 1;
        let mut rig = self.rig.take().expect("it is there");
        rig.pump();
        let durable = rig.appender.durable_lsn().0;
        let (mode, mut lands) = (self.chance.below(4), Chance(Random(self.chance.0.bits())));
        let ios: Vec<bool> = rig.ios.iter().map(|_| lands.one_in(2)).collect();
        let device = rig.crash(|io, sector| match mode {
            0 => false,
            1 => ios[io],
            2 => lands.one_in(2),
            _ => ios[io] || (sector * SECTOR) % 1024 == 0,
        });
        let mut rig = Rig::try_open(device, &self.options).unwrap_or_else(|error| panic!("{error}"));
        let head = rig.part.usage().head.0;
        assert!(
            head >= self.head && head <= self.wanted,
            "{} {head} {}",
            self.head,
            self.wanted
        );
        self.head = head;
        let recovered = rig.recovered();
        assert!(
            recovered.next.0 > self.given || recovered.was_clean,
            "{recovered:?} {}",
            self.given
        );
        let found = rig.read();
        self.rig = Some(rig);
        self.compare(&found, false);
        let lost = self.known.split_off(found.len());
        for known in lost.iter().filter(|known| known.is_last) {
            assert!(known.lsn >= durable, "{} was acknowledged: {durable}", known.lsn);
        }
        self.has_failed = false;
        self.wanted = self.head;
    }

    fn close(&mut self) {
        let closed = self.rig().ask(LogRequest::Close);
        self.take_heads();
        if closed.is_ok() {
            let durable = self.rig().appender.durable_lsn().0;
            assert!(self.given < durable);
            assert!(matches!(
                self.rig().ask(LogRequest::Truncate { to: Lsn(0) }),
                Err(LogError::Closed)
            ));
        } else {
            assert!(self.has_failed, "{closed:?}");
        }
        let was_well = closed.is_ok();
        self.crash();
        let recovered = self.rig().recovered();
        assert_eq!(recovered.was_clean, was_well);
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..=34 => self.append(),
            35..=79 => self.end_some(),
            80..=82 => self.truncate(),
            83 => {
                self.ms += self.chance.below(200) as u64;
                let ms = self.ms;
                self.rig().tick(ms);
            }
            84 => self.grow(),
            85..=86 => self.crash(),
            87 => self.close(),
            88 => self.settle(),
            89 => {
                let from = self.rig().part.usage().head;
                self.rig().start(LogRequest::Read { from });
            }
            _ => self.rig().pump(),
        }
    }
}

#[test]
fn the_log_is_the_list() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("BAIO_LOG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAIO_LOG_SEEDS").unwrap_or(300),
    };
    let mut crashes = 0;
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        world.settle();
        world.crash();
        world.settle();
        crashes += world.crashes;
        let ended = world.rig().ask(LogRequest::NoteWatermark);
        assert!(matches!(ended, Ok(LogAnswer::Done)));
    }
    println!("{crashes} crashes");
}
