//! Devices that one kernel leaves behind, and another opens: logs, volumes and what is built on them, after an orderly end and after
//! a kill. Whoever opens one finds all that was acknowledged, works on it, is killed, and finds all of it again.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baio::{File, Link, LogOptions, Remote};
use baio_engine::sim::Random;

use super::bench;
use super::place::{Folder, Place};
use super::running::Running;
use super::stories::{self, Make, Seen, Story};
use super::worker::Failure;

const DEVICE_BYTES: u64 = 24 << 20;
const LINES: usize = 300;
const PATIENCE: Duration = Duration::from_secs(20);
/// By story; of the log there is one in a file and one in a segment.
const KINDS: [(&str, Option<bool>); 6] = [
    ("log", Some(false)),
    ("log", Some(true)),
    ("volume", None),
    ("cache", None),
    ("kv", None),
    ("btree", None),
];
const SAID: &str = "said";
const IN_SEGMENT: &str = "in-segment";

fn make_of(story: &str) -> Result<Make, Failure> {
    let found = stories::ALL.into_iter().find(|(name, _)| *name == story);
    let (_, make) = found.ok_or_else(|| format!("there is no story `{story}`"))?;
    Ok(make)
}

/// A folder below the temporary one, which goes when it is dropped.
struct Bench(Folder);

impl Bench {
    fn new() -> Result<Bench, Failure> {
        let dir = std::env::temp_dir().join(format!("baio-kept-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir)?;
        Ok(Bench(Folder(dir)))
    }

    fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            copy_without_zeros(&path, &to.join(path.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }
}

/// A device is mostly zeros. Between a guest and its host `fs::copy` asks for 4 KiB at a time on some kernels, and writes them all.
fn copy_without_zeros(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (fs::File::open(from)?, fs::File::create(to)?);
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let read = from.read_at(&mut block, at)?;
        if read == 0 {
            return to.set_len(at);
        }
        if block[..read].iter().any(|&byte| byte != 0) {
            to.write_all_at(&block[..read], at)?;
        }
        at += read as u64;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.0);
    }
}

/// Makes one of each kind in `to`, which is made; calls `tell` with the name of each.
///
/// # Errors
/// One cannot be made, or is not what it should be.
pub fn make(to: &Path, seed: u64, mut tell: impl FnMut(&str)) -> Result<(), Failure> {
    for (story, in_segment) in KINDS {
        for is_closed in [true, false] {
            let ending = if is_closed { "closed" } else { "killed" };
            let kind = match in_segment {
                Some(true) => "-in-segment",
                Some(false) => "-in-file",
                None => "",
            };
            let name = format!("{story}{kind}-{ending}");
            bench::begins(&format!("baio-sim kept make --seed {seed} DIR"));
            one(to, seed, &name, story, in_segment, is_closed).map_err(|error| format!("{name}: {error}"))?;
            tell(&name);
        }
    }
    bench::ends();
    Ok(())
}

fn one(
    to: &Path,
    seed: u64,
    name: &str,
    story_name: &str,
    in_segment: Option<bool>,
    is_closed: bool,
) -> Result<(), Failure> {
    let mut bench = Bench::new()?;
    let place = &mut bench.0;
    let mut story = make_of(story_name)?();
    let mut random = Random::from(&[seed, u64::from(is_closed)]);
    loop {
        fs::File::create(place.device())?.set_len(DEVICE_BYTES)?;
        story.prepare(place, &mut random)?;
        if in_segment.is_none_or(|wanted| place.beside(IN_SEGMENT).exists() == wanted) {
            break;
        }
    }
    let lines = work(place, story_name, &mut *story, &mut random)?;
    if is_closed {
        story.judge(place, &mut random, &mut Seen::new())?;
        close(place, story_name)?;
    }
    fs::write(place.beside(SAID), lines.join("\n"))?;
    let to = to.join(name);
    fs::create_dir_all(&to)?;
    Bench::copy(&place.0, &to)
}

/// Somebody works, and is killed.
fn work(place: &Folder, name: &str, story: &mut dyn Story, random: &mut Random) -> Result<Vec<String>, Failure> {
    let mut running = Running::start(place, name, random.bits(), story.first())?;
    running.wait_for_lines(LINES, PATIENCE);
    let ended = running.ended()?;
    let lines = running.kill()?;
    if let Some(status) = ended {
        let last = lines.last().map_or("", String::as_str);
        return Err(format!("nothing failed, and the worker ended ({status}): {last}").into());
    }
    lines.iter().try_for_each(|line| story.hear(line))?;
    Ok(lines)
}

/// Opens it, and closes it as its owner does.
fn close(place: &Folder, story: &str) -> Result<(), Failure> {
    if story != "log" || place.beside(IN_SEGMENT).exists() {
        return Ok(Remote::open(place.device())?.close()?);
    }
    let link = Remote::new()?;
    let file = File::options().write().open(&link, place.device()).wait()?;
    let log = file.open_log(&LogOptions::default()).wait()?;
    log.close().wait()?;
    drop(log);
    Ok(link.close()?)
}

/// Opens each that lies in `from`, on a copy; calls `tell` with the name of each and what was seen.
///
/// # Errors
/// Something that was acknowledged is not there.
pub fn open(from: &Path, mut tell: impl FnMut(&str, &Seen)) -> Result<(), Failure> {
    let entries = fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
    let mut dirs: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    dirs.sort();
    if dirs.is_empty() {
        return Err(format!("there is nothing in {}", from.display()).into());
    }
    for dir in dirs {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bench::begins(&format!("baio-sim kept open {}", from.display()));
        let seen = look(&dir, &name).map_err(|error| format!("{}: {error}", dir.display()))?;
        tell(&name, &seen);
    }
    bench::ends();
    Ok(())
}

fn look(dir: &Path, name: &str) -> Result<Seen, Failure> {
    let mut bench = Bench::new()?;
    let place = &mut bench.0;
    Bench::copy(dir, &place.0)?;
    let story_name = name.split('-').next().unwrap_or_default();
    let mut story = make_of(story_name)?();
    story.resume(place);
    for line in fs::read_to_string(place.beside(SAID))?.lines() {
        story.hear(line)?;
    }
    let mut random = Random::from(&[0x006b_6570]);
    let mut seen = Seen::new();
    story.judge(place, &mut random, &mut seen)?;
    work(place, story_name, &mut *story, &mut random)?;
    story.judge(place, &mut random, &mut Seen::new())?;
    Ok(seen)
}
