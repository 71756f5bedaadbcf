//! Segments of a volume, worked on by several threads: made, written, synced, resized, moved, renamed and deleted. What was
//! acknowledged is there: each segment under one of its names, with one of its sizes; each durable write; zeros where nothing was
//! written. Three mixes of it are stories: `volume`, `cache` (through the page cache) and `moves` (grown beyond their neighbours,
//! packed, and written meanwhile).
//!
//! A segment is called `THREAD.INSTANCE.NAME`: the instance stays when it is renamed, and every sector of it says which it is.
//!
//! | line | besides those of [`Registers`] |
//! |---|---|
//! | `create I NAME BLOCKS`, `delete I`, `rename I NAME`, `resize I BLOCKS` | it begins |
//! | `done I`, `not I` | it has ended, or was refused: no room |

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use baio::{
    Access, CreateOptions, Durability, Fault, FormatOptions, Link, LinkOptions, Mode, Remote, ResizeOptions, Segment,
};
use baio_engine::sim::Random;

use super::{PLAIN_LOST, Seen, Story, count};
use crate::powercut::place::Place;
use crate::powercut::registers::{Found, Registers};
use crate::powercut::worker::{self, Failure, Worker};
use crate::stamp::{self, Content, SECTOR};

const BLOCK: u64 = 4096;
const SECTORS_OF_A_BLOCK: u64 = BLOCK / SECTOR as u64;
const CACHE_BYTES: usize = 2 << 20;

/// What is done how often, in percent; the rest are writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    mode: Mode,
    threads: u64,
    segments: usize,
    blocks_max: u64,
    create: u64,
    delete: u64,
    rename: u64,
    resize: u64,
    defrag: u64,
    sync: u64,
    /// Others write to a segment while it is moved.
    beside: bool,
    /// Some write to the same pages at once, to sectors of their own.
    lanes: u64,
}

pub(super) const VOLUME: Mix = Mix {
    mode: Mode::Direct,
    threads: 3,
    segments: 4,
    blocks_max: 48,
    create: 12,
    delete: 8,
    rename: 8,
    resize: 8,
    defrag: 0,
    sync: 8,
    beside: false,
    lanes: 1,
};

pub(super) const CACHE: Mix = Mix {
    mode: Mode::Cached,
    create: 3,
    delete: 2,
    rename: 1,
    resize: 3,
    sync: 12,
    blocks_max: 128,
    lanes: 3,
    ..VOLUME
};

pub(super) const MOVES: Mix = Mix {
    threads: 2,
    segments: 3,
    blocks_max: 512,
    create: 10,
    delete: 3,
    rename: 2,
    resize: 25,
    defrag: 8,
    sync: 6,
    beside: true,
    ..VOLUME
};

fn options(mix: &Mix, random: &mut Random) -> LinkOptions {
    let options = worker::options(random);
    match mix.mode {
        Mode::Cached => options.with_cache(CACHE_BYTES),
        _ => options,
    }
}

// Who works.

/// A segment of this thread.
struct Own {
    segment: Segment<Remote>,
    name: String,
    instance: u64,
    blocks: u64,
}

struct Hand<'a> {
    worker: &'a Worker,
    mix: &'a Mix,
    link: Remote,
    thread: u64,
    random: Random,
    own: Vec<Own>,
}

pub(super) fn work(worker: &Worker, mix: &Mix) -> Result<(), Failure> {
    let link = Remote::open_with(worker.device(), &options(mix, &mut worker.random(99)))?;
    let hand = |thread| Hand {
        worker,
        mix,
        link: link.clone(),
        thread,
        random: worker.random(thread),
        own: Vec::new(),
    };
    worker.in_threads(mix.threads, |thread| hand(thread).work())
}

impl Hand<'_> {
    fn work(mut self) -> Result<(), Failure> {
        for info in self.link.list().wait()? {
            let (thread, instance) = parts(&info.name)?;
            if thread == self.thread {
                self.own.push(Own {
                    segment: self.link.open_segment(&info.name, Access::Write).wait()?,
                    blocks: info.size_bytes / BLOCK,
                    name: info.name,
                    instance,
                });
            }
        }
        loop {
            let mut left = self.random.below(100);
            let mut is = |percent: u64| {
                let is = left < percent;
                left = if is { u64::MAX } else { left - percent };
                is
            };
            let mix = self.mix;
            if is(mix.create) || self.own.is_empty() {
                self.create()?;
            } else if is(mix.delete) {
                self.delete()?;
            } else if is(mix.rename) {
                self.rename()?;
            } else if is(mix.resize) {
                self.resize()?;
            } else if is(mix.defrag) {
                self.defrag()?;
            } else {
                let at = self.random.below(self.own.len() as u64) as usize;
                let syncs = is(mix.sync);
                let (own, random) = (&self.own[at], &mut self.random);
                match syncs {
                    true => sync(self.worker, mix, own, random)?,
                    false if mix.lanes > 1 && random.percent(30) => side_by_side(self.worker, mix, own, random)?,
                    false => write(self.worker, mix, own, own.blocks, random)?,
                }
            }
        }
    }

    fn name(&mut self, instance: u64) -> String {
        format!("{}.{instance}.{}", self.thread, self.random.below(1000))
    }

    fn create(&mut self) -> Result<(), Failure> {
        if self.own.len() >= self.mix.segments {
            return Ok(());
        }
        let instance = self.worker.number();
        let (name, blocks) = (self.name(instance), 1 + self.random.below(self.mix.blocks_max));
        self.worker.say(&format!("create {instance} {name} {blocks}"));
        let made = self
            .link
            .create_segment(&name, &CreateOptions::of_size(blocks * BLOCK))
            .wait();
        if self.is_done(instance, made)? {
            self.own.push(Own {
                segment: self.link.open_segment(&name, Access::Write).wait()?,
                name,
                instance,
                blocks,
            });
        }
        Ok(())
    }

    fn delete(&mut self) -> Result<(), Failure> {
        let at = self.random.below(self.own.len() as u64) as usize;
        let own = self.own.swap_remove(at);
        self.worker.say(&format!("delete {}", own.instance));
        self.link.delete_segment(&own.name).wait()?;
        self.worker.say(&format!("done {}", own.instance));
        Ok(())
    }

    fn rename(&mut self) -> Result<(), Failure> {
        let at = self.random.below(self.own.len() as u64) as usize;
        let instance = self.own[at].instance;
        let name = self.name(instance);
        if name == self.own[at].name {
            return Ok(());
        }
        self.worker.say(&format!("rename {instance} {name}"));
        self.link.rename_segment(&self.own[at].name, &name).wait()?;
        self.worker.say(&format!("done {instance}"));
        self.own[at].name = name;
        Ok(())
    }

    fn resize(&mut self) -> Result<(), Failure> {
        let at = self.random.below(self.own.len() as u64) as usize;
        let (instance, name, old) = (self.own[at].instance, self.own[at].name.clone(), self.own[at].blocks);
        let new = 1 + self.random.below(self.mix.blocks_max);
        self.worker.say(&format!("resize {instance} {new}"));
        let resize = || {
            self.link
                .resize_segment(&name, &ResizeOptions::to_size(new * BLOCK))
                .wait()
        };
        let resized = self.beside(at, old.min(new), resize)?;
        if self.is_done(instance, resized)? {
            self.own[at].blocks = new;
        }
        Ok(())
    }

    fn defrag(&mut self) -> Result<(), Failure> {
        let at = self.random.below(self.own.len() as u64) as usize;
        let blocks = self.own[at].blocks;
        self.beside(at, blocks, || self.link.defrag().wait())??;
        Ok(())
    }

    /// Runs this, and writes to the first blocks of a segment meanwhile.
    fn beside<T: Send>(&self, at: usize, blocks: u64, run: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        if !self.mix.beside {
            return Ok(run());
        }
        let mut random = self.random.clone();
        let (own, worker, mix) = (&self.own[at], self.worker, self.mix);
        thread::scope(|scope| {
            let running = scope.spawn(run);
            while !running.is_finished() {
                write(worker, mix, own, blocks, &mut random)?;
            }
            running.join().map_err(|_| "a panic".into())
        })
    }

    /// A refusal for want of room in the volume is an answer. One for want of room below it is the device's error.
    fn is_done<T>(&self, instance: u64, told: baio::Result<T>) -> Result<bool, Failure> {
        match told {
            Ok(_) => self.worker.say(&format!("done {instance}")),
            Err(error) if matches!(error.fault, Fault::NoSpace { .. } | Fault::TableFull { .. }) => {
                self.worker.say(&format!("not {instance}"));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

fn sync(worker: &Worker, mix: &Mix, own: &Own, random: &mut Random) -> Result<(), Failure> {
    let number = worker.number();
    worker.say(&format!("S {} {number}", own.instance));
    let request = match random.percent(70) {
        true => own.segment.sync(Durability::Data),
        false => own.segment.fence(Durability::Full),
    };
    request.mode(mix.mode).wait()?;
    worker.say(&format!("s {number}"));
    Ok(())
}

/// Writes somewhere below so many blocks: durably or not.
fn write(worker: &Worker, mix: &Mix, own: &Own, blocks: u64, random: &mut Random) -> Result<(), Failure> {
    let unit = if mix.mode == Mode::Cached {
        1
    } else {
        SECTORS_OF_A_BLOCK
    };
    let first = random.below(blocks * SECTORS_OF_A_BLOCK / unit) * unit;
    let longest = (blocks * SECTORS_OF_A_BLOCK - first).min(8 * SECTORS_OF_A_BLOCK);
    let count = (1 + random.below(longest / unit)) * unit;
    write_sectors(worker, mix, own, first, count, random)
}

/// Several threads write to the same few pages, each to sectors of its own, durably or not, and sync: what is safe of a page for one
/// is not for the other.
fn side_by_side(worker: &Worker, mix: &Mix, own: &Own, random: &mut Random) -> Result<(), Failure> {
    let first = random.below(own.blocks) * SECTORS_OF_A_BLOCK;
    let seed = random.bits();
    let lane = |lane: u64| {
        let mut random = Random::from(&[seed, lane]);
        for _ in 0..6 {
            let sector = first + lane + mix.lanes * random.below(SECTORS_OF_A_BLOCK / mix.lanes);
            write_sectors(worker, mix, own, sector, 1, &mut random)?;
            if random.percent(20) {
                sync(worker, mix, own, &mut random)?;
            }
        }
        Ok(())
    };
    worker.in_threads(mix.lanes, lane)
}

fn write_sectors(
    worker: &Worker,
    mix: &Mix,
    own: &Own,
    first: u64,
    count: u64,
    random: &mut Random,
) -> Result<(), Failure> {
    let mut buffer = own.segment.buffer(count as usize * SECTOR)?;
    let durability = match random.below(10) {
        0..3 => Durability::Data,
        3 => Durability::Full,
        _ => Durability::None,
    };
    let version = worker.writes(own.instance, first, count);
    stamp::fill(&mut buffer, own.instance as u16, first, version as u32);
    let write = own.segment.write_at(first * SECTOR as u64, buffer);
    write.mode(mix.mode).durable(durability).wait()?;
    worker.wrote(version, durability != Durability::None);
    Ok(())
}

/// Whose it is, and which.
fn parts(name: &str) -> Result<(u64, u64), Failure> {
    let mut parts = name.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(thread)), Some(Ok(instance))) => Ok((thread, instance)),
        _ => Err(format!("a segment `{name}` that nobody made").into()),
    }
}

// Who judges.

/// A segment, as it must be, or may be if what was begun is done.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    name: String,
    blocks: u64,
}

#[derive(Debug)]
pub(super) struct SegmentsStory {
    mix: Mix,
    registers: Registers,
    /// What each is, and what it may be instead; `None` is gone, or not there yet.
    known: BTreeMap<u64, (Option<Known>, Option<Option<Known>>)>,
    last: u64,
}

impl SegmentsStory {
    pub(super) fn new(mix: Mix) -> SegmentsStory {
        SegmentsStory {
            mix,
            registers: Registers::default(),
            known: BTreeMap::new(),
            last: 0,
        }
    }

    /// An operation begins: the segment may be this from now on.
    fn begins(&mut self, instance: u64, change: impl FnOnce(Option<Known>) -> Option<Known>) {
        let known = self.known.entry(instance).or_default();
        known.1 = Some(change(known.0.clone()));
        self.last = self.last.max(instance);
    }

    fn ended(&mut self, instance: u64, is_done: bool) {
        let known = self.known.entry(instance).or_default();
        if let Some(new) = known.1.take().filter(|_| is_done) {
            let blocks = |known: &Option<Known>| known.as_ref().map_or(0, |known| known.blocks * SECTORS_OF_A_BLOCK);
            let (old_blocks, new_blocks) = (blocks(&known.0), blocks(&new));
            known.0 = new;
            // What was cut off never shows again.
            if new_blocks < old_blocks {
                self.registers.forget(instance, new_blocks..u64::MAX);
            }
        }
    }

    fn look(&mut self, link: &Remote, counts: &mut Seen) -> Result<(), Failure> {
        let there = link.list().wait()?;
        let mut seen = BTreeMap::new();
        for info in there {
            let (_, instance) = parts(&info.name)?;
            count(counts, "moves_under_way", u64::from(info.state == "moving"));
            let found = Known {
                blocks: info.size_bytes / BLOCK,
                name: info.name,
            };
            let (is, may) = self.known.get(&instance).cloned().unwrap_or_default();
            if Some(&found) != is.as_ref() && Some(Some(&found)) != may.as_ref().map(Option::as_ref) {
                return Err(format!("{found:?} is there, where {is:?} was acknowledged and {may:?} was begun").into());
            }
            if seen.insert(instance, found).is_some() {
                return Err(format!("instance {instance} is there twice").into());
            }
        }
        for (instance, (is, may)) in &self.known {
            if !seen.contains_key(instance) && is.is_some() && *may != Some(None) {
                return Err(format!("{is:?} is gone; begun was {may:?}").into());
            }
        }
        for (instance, found) in &seen {
            let lost = self.compare(link, *instance, found)?;
            count(counts, PLAIN_LOST, lost);
            count(counts, "segments", 1);
            count(counts, "sectors", found.blocks * SECTORS_OF_A_BLOCK);
        }
        self.known = seen
            .into_iter()
            .map(|(instance, found)| (instance, (Some(found), None)))
            .collect();
        self.registers.settle();
        Ok(())
    }

    fn compare(&mut self, link: &Remote, instance: u64, found: &Known) -> Result<u64, Failure> {
        let bytes = (found.blocks * BLOCK) as usize;
        let segment = link.open_segment(&found.name, Access::Read).wait()?;
        let read = segment.read_exact_at(0, segment.buffer(bytes)?).wait()?;
        let mut lost = 0;
        for (position, sector) in (0..).zip(read.buffer.chunks(SECTOR)) {
            let version = match stamp::read(sector) {
                Content::Zero => Some(0),
                Content::Written {
                    instance: of,
                    position: at,
                    version,
                } if of == instance as u16 && u64::from(at) == position & 0x3ff => Some(u64::from(version)),
                _ => None,
            };
            let told = || self.registers.told(instance, position);
            let wrong = || {
                format!(
                    "{}: sector {position} holds {:?}, not {}",
                    found.name,
                    stamp::read(sector),
                    told()
                )
            };
            let version = version.ok_or_else(wrong)?;
            let wrong = wrong();
            match self.registers.judge(instance, position, version) {
                Found::Right => {}
                Found::PlainLost => lost += 1,
                Found::Wrong => return Err(wrong.into()),
            }
        }
        // What a resize that was under way has cut off.
        self.registers
            .forget(instance, found.blocks * SECTORS_OF_A_BLOCK..u64::MAX);
        Ok(lost)
    }
}

fn format(path: &Path) -> Result<(), Failure> {
    let format = FormatOptions {
        force: true,
        ..FormatOptions::default()
    };
    baio::format(path, &format)?;
    Ok(())
}

impl Story for SegmentsStory {
    fn prepare(&mut self, place: &dyn Place, _: &mut Random) -> Result<(), Failure> {
        format(&place.device())
    }

    fn first(&self) -> u64 {
        self.last.max(self.registers.last) + 1
    }

    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        if self.registers.hear(line).is_some() {
            return Ok(());
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["create", instance, name, blocks] => {
                let new = Known {
                    name: (*name).to_owned(),
                    blocks: blocks.parse()?,
                };
                self.begins(instance.parse()?, |_| Some(new));
            }
            ["delete", instance] => self.begins(instance.parse()?, |_| None),
            ["rename", instance, name] => self.begins(instance.parse()?, |known| {
                known.map(|known| Known {
                    name: (*name).to_owned(),
                    ..known
                })
            }),
            ["resize", instance, blocks] => {
                let blocks = blocks.parse()?;
                self.begins(instance.parse()?, |known| known.map(|known| Known { blocks, ..known }));
            }
            ["done", instance] => self.ended(instance.parse()?, true),
            ["not", instance] => self.ended(instance.parse()?, false),
            _ => return Err(format!("a line that says nothing: {line}").into()),
        }
        Ok(())
    }

    fn judge(&mut self, place: &mut dyn Place, random: &mut Random, seen: &mut Seen) -> Result<(), Failure> {
        let link = Remote::open_with(place.device(), &options(&self.mix, random))?;
        self.look(&link, seen)?;
        // Every second time the next worker finds a volume that nobody closed.
        if random.percent(50) {
            link.close()?;
        } else {
            place.lose_power();
            drop(link);
            place.restart()?;
        }
        Ok(())
    }
}
