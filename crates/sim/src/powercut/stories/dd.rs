//! `baio dd`, as it is typed: with `conv=fsync`, `oflag=dsync` and the like what it wrote is there when it has ended with 0; without, it
//! may be gone. To the device itself, or to segments of a volume.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baio::{CreateOptions, FormatOptions, Link, Remote};
use baio_engine::sim::Random;

use super::{PLAIN_LOST, Seen, Story, count};
use crate::powercut::place::Place;
use crate::powercut::registers::{Found, Registers};
use crate::powercut::worker::{Failure, Worker};
use crate::stamp::{self, Content, SECTOR};

const PLACES: u64 = 4;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;
const PLACE_BYTES: u64 = BLOCKS * BLOCK;
/// Ways to write, and whether they say that it is safe.
const WAYS: [(&[&str], bool); 8] = [
    (&["conv=notrunc,fsync"], true),
    (&["conv=notrunc,fdatasync"], true),
    (&["conv=notrunc", "oflag=dsync"], true),
    (&["conv=notrunc", "oflag=direct,dsync"], true),
    (&["conv=notrunc", "oflag=sync"], true),
    (&["conv=notrunc", "oflag=direct"], false),
    (&["conv=notrunc"], false),
    (&["conv=notrunc,sparse,fsync"], true),
];

/// The program, beside this one.
fn program() -> Result<PathBuf, Failure> {
    let baio = std::env::current_exe()?.with_file_name("baio");
    if !baio.exists() {
        let how = "`cargo build -p baio-cli` makes it, with `--release` where this is one";
        return Err(format!("{} is not there: {how}", baio.display()).into());
    }
    Ok(baio)
}

fn name(place: u64) -> String {
    format!("place{place}")
}

pub(super) fn work(worker: &Worker) -> Result<(), Failure> {
    let program = program()?;
    let mut random = worker.random(0);
    let in_segments = worker.task.beside.join("in-segments").exists();
    let source = worker.task.beside.join("source");
    loop {
        let place = random.below(PLACES);
        let (first, count) = (random.below(BLOCKS), 1 + random.below(16));
        let count = count.min(BLOCKS - first);
        let sectors = BLOCK / SECTOR as u64;
        let version = worker.writes(place, first * sectors, count * sectors);
        let mut bytes = vec![0; (count * BLOCK) as usize];
        stamp::fill(&mut bytes, place as u16, first * sectors, version as u32);
        std::fs::write(&source, &bytes)?;
        let (target, seek) = match in_segments {
            true => (format!("{}#{}", worker.device().display(), name(place)), first),
            false => (worker.device().display().to_string(), place * BLOCKS + first),
        };
        let (way, is_safe) = *random.pick(&WAYS).ok_or("no way")?;
        let ran = Command::new(&program)
            .args(["dd", "bs=4096", "status=none"])
            .args([
                format!("if={}", source.display()),
                format!("of={target}"),
                format!("seek={seek}"),
            ])
            .args(way)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).trim().replace('\n', " ").into());
        }
        worker.wrote(version, is_safe);
    }
}

#[derive(Debug, Default)]
pub(super) struct DdStory {
    registers: Registers,
    in_segments: bool,
}

impl DdStory {
    fn read(&self, device: &Path, place: u64) -> Result<Vec<u8>, Failure> {
        let target = match self.in_segments {
            true => format!("if={}#{}", device.display(), name(place)),
            false => format!("if={}", device.display()),
        };
        let skip = if self.in_segments { 0 } else { place * BLOCKS };
        let ran = Command::new(program()?)
            .args(["dd", "bs=4096", "status=none", &target])
            .args([format!("skip={skip}"), format!("count={BLOCKS}")])
            .stdin(Stdio::null())
            .output()?;
        match ran.status.success() && ran.stdout.len() as u64 == PLACE_BYTES {
            true => Ok(ran.stdout),
            false => Err(String::from_utf8_lossy(&ran.stderr).into()),
        }
    }
}

impl Story for DdStory {
    fn prepare(&mut self, place: &dyn Place, random: &mut Random) -> Result<(), Failure> {
        program()?;
        self.in_segments = random.percent(50);
        let mark = place.beside("in-segments");
        let _ = std::fs::remove_file(&mark);
        if !self.in_segments {
            return Ok(());
        }
        std::fs::write(mark, [])?;
        let format = FormatOptions {
            force: true,
            ..FormatOptions::default()
        };
        baio::format(place.device(), &format)?;
        let link = Remote::open(place.device())?;
        for place in 0..PLACES {
            link.create_segment(&name(place), &CreateOptions::of_size(PLACE_BYTES))
                .wait()?;
        }
        link.close()?;
        Ok(())
    }

    fn resume(&mut self, place: &dyn Place) {
        self.in_segments = place.beside("in-segments").exists();
    }

    fn first(&self) -> u64 {
        self.registers.last + 1
    }

    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        let known = self.registers.hear(line);
        known.ok_or_else(|| format!("a line that says nothing: {line}").into())
    }

    fn judge(&mut self, place: &mut dyn Place, _: &mut Random, seen: &mut Seen) -> Result<(), Failure> {
        let device = place.device();
        for place in 0..PLACES {
            let bytes = self.read(&device, place)?;
            count(seen, "sectors", (bytes.len() / SECTOR) as u64);
            for (position, sector) in (0..).zip(bytes.chunks(SECTOR)) {
                let content = stamp::read(sector);
                let may = self.registers.told(place, position);
                let wrong = || format!("{}: sector {position} holds {content:?}, not {may}", name(place));
                let version = match content {
                    Content::Zero => 0,
                    Content::Written {
                        instance,
                        position: at,
                        version,
                    } if u64::from(instance) == place && u64::from(at) == position => u64::from(version),
                    _ => return Err(wrong().into()),
                };
                match self.registers.judge(place, position, version) {
                    Found::Right => {}
                    Found::PlainLost => count(seen, PLAIN_LOST, 1),
                    Found::Wrong => return Err(wrong().into()),
                }
            }
        }
        self.registers.settle();
        Ok(())
    }
}
