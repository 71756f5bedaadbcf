//! The promise: what was acknowledged holds, however the process ends (DESIGN §5, "one owner" and "states").
//!
//! A child creates, deletes, writes and syncs without end and says on a pipe what it is about to do and what has returned.
//! The parent kills it at some moment and opens the volume at once. Every acknowledged create and delete must hold, every
//! completed write must be there (the machine did not lose power), bytes of one segment must never show in another, no
//! block may be lost, and no stale lock may stand in the way. 200 rounds on one volume, so that recovery meets its own work.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use baio_storage::{Access, Core, Fault};
use harness::{BLOCK, ME, Random, child, config, format, read, role, sync, write};

const TEST: &str = "acknowledged_work_survives_sigkill";
const ROUNDS: u64 = 200;
const NAMES: u64 = 8;

fn say(line: &str) {
    // One write each: less than PIPE_BUF bytes arrive whole or not at all.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Every word of the block says which write it comes from.
fn block(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK / 8)
}

fn work(path: &Path, seed: u64) {
    let mut core = Core::open(path, &config()).unwrap();
    let mut random = Random(seed);
    let mut stamp = seed << 32;
    say("opened");
    loop {
        let name = format!("s{}", random.below(NAMES));
        match core.open_segment(ME, ME.uid, &name, Access::Write) {
            Err(error) if matches!(error.fault, Fault::NotFound) => {
                let blocks = if random.below(8) == 0 {
                    600
                } else {
                    1 + random.below(12)
                };
                say(&format!("creating {name} {blocks}"));
                harness::create(&mut core, &name, blocks * BLOCK as u64);
                say(&format!("created {name}"));
            }
            Err(error) => panic!("{error}"),
            Ok((handle, _)) if random.below(4) == 0 => {
                say(&format!("deleting {name}"));
                core.delete(ME, ME.uid, &name).unwrap();
                say(&format!("deleted {name}"));
                core.close_handle(handle);
            }
            Ok((handle, info)) => {
                for _ in 0..random.below(6) {
                    let at = random.below(info.size_bytes / BLOCK as u64);
                    stamp += 1;
                    say(&format!("writing {name} {at} {stamp}"));
                    write(&mut core, handle, at * BLOCK as u64, &block(stamp)).unwrap();
                    say(&format!("wrote {name} {at} {stamp}"));
                }
                sync(&mut core, handle).unwrap();
                core.close_handle(handle);
            }
        }
    }
}

/// What the parent knows of one segment.
#[derive(Clone, Debug, Default)]
struct Known {
    blocks: u64,
    /// What each block may hold: the last acknowledged write, or any begun after it. Absent: zeroes.
    stamps: BTreeMap<u64, BTreeSet<u64>>,
}

#[derive(Debug, Default)]
struct Model {
    segments: BTreeMap<String, Known>,
    /// Begun, not acknowledged: a create that would make this, or the delete of what stands in `segments`.
    doubt: Option<(String, Option<Known>)>,
}

impl Model {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[..] {
            ["opened"] => {}
            ["creating", name, _] => {
                let new = Known {
                    blocks: number(2),
                    ..Known::default()
                };
                self.doubt = Some((name.to_owned(), Some(new)));
            }
            ["deleting", name] => self.doubt = Some((name.to_owned(), None)),
            ["created", _] => {
                let (name, new) = self.doubt.take().unwrap();
                self.segments.insert(name, new.unwrap());
            }
            ["deleted", name] => {
                self.doubt = None;
                self.segments.remove(name);
            }
            ["writing", name, _, _] => {
                let known = self.segments.get_mut(name).unwrap();
                known
                    .stamps
                    .entry(number(2))
                    .or_insert_with(|| [0].into())
                    .insert(number(3));
            }
            ["wrote", name, _, _] => {
                let known = self.segments.get_mut(name).unwrap();
                known.stamps.insert(number(2), [number(3)].into());
            }
            _ => panic!("the child says: {line}"),
        }
    }

    /// Compares the volume with what is known, and learns what the doubtful operation came to.
    fn check(&mut self, core: &mut Core, round: u64) {
        let found: BTreeMap<String, u64> = core
            .list(ME)
            .unwrap()
            .into_iter()
            .map(|info| (info.name, info.size_bytes / BLOCK as u64))
            .collect();
        if let Some((name, new)) = self.doubt.take() {
            match (new, found.contains_key(&name)) {
                (Some(new), true) => drop(self.segments.insert(name, new)),
                (None, false) => drop(self.segments.remove(&name)),
                _ => {}
            }
        }
        let known: BTreeMap<String, u64> = self.segments.iter().map(|(name, k)| (name.clone(), k.blocks)).collect();
        assert_eq!(found, known, "round {round}");
        let info = core.volume_info().unwrap();
        let used: u64 = found.values().sum::<u64>() * BLOCK as u64;
        assert_eq!(
            info.free_bytes + used,
            info.size_bytes,
            "round {round}: blocks were lost"
        );
        for (name, known) in &mut self.segments {
            let (handle, _) = core.open_segment(ME, ME.uid, name, Access::Read).unwrap();
            let bytes = read(core, handle, 0, known.blocks as usize * BLOCK).unwrap();
            for (at, found) in bytes.chunks(BLOCK).enumerate() {
                let stamp = u64::from_le_bytes(found[..8].try_into().unwrap());
                assert!(found == block(stamp), "round {round}: block {at} of {name} is torn");
                let allowed = known.stamps.entry(at as u64).or_insert_with(|| [0].into());
                assert!(
                    allowed.contains(&stamp),
                    "round {round}: block {at} of {name} holds {stamp:#x}, not one of {allowed:x?}"
                );
                *allowed = [stamp].into();
            }
            core.close_handle(handle);
        }
    }
}

/// Runs a child until it is killed; returns what it said.
fn kill_one(path: &Path, seed: u64, random: &mut Random) -> Vec<String> {
    let role = format!("{seed} {}", path.display());
    let mut child = child(TEST, &role).stdin(Stdio::null()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let (opened, is_open) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        let mut said = Vec::new();
        let mut line = String::new();
        let mut reader = BufReader::new(stderr);
        while reader.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            said.push(line.trim_end().to_owned());
            let _ = opened.send(());
            line.clear();
        }
        said
    });
    // One round in eight is killed at any moment of its opening, the others in the midst of work.
    if random.below(8) != 0 {
        let _ = is_open.recv();
        std::thread::sleep(Duration::from_micros(random.below(25_000)));
    } else {
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}

#[test]
fn acknowledged_work_survives_sigkill() {
    if let Some(role) = role() {
        let (seed, path) = role.split_once(' ').unwrap();
        work(Path::new(path), seed.parse().unwrap());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 16 << 20);
    let mut model = Model::default();
    let mut random = Random(2026);
    let (mut heard, mut longest) = (0, Duration::ZERO);
    for round in 1..=ROUNDS {
        let said = kill_one(&path, round, &mut random);
        heard += said.len();
        for line in &said {
            model.hear(line);
        }
        let began = Instant::now();
        let mut core = Core::open(&path, &config()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        longest = longest.max(began.elapsed());
        model.check(&mut core, round);
        if random.below(2) == 0 {
            core.close().unwrap();
        }
    }
    assert!(
        heard as u64 > ROUNDS * 4,
        "the children did next to nothing: {heard} lines"
    );
    println!("{ROUNDS} kills, {heard} lines heard, longest open {longest:?}");
}
