//! What the parent knows: what has been acknowledged, and what is in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use baio_engine::Wait;
use baio_storage::{Access, Core, SegmentInfo};

use super::block;
use crate::harness::{BLOCK, ME, read};

/// What is known of one segment.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    blocks: u64,
    /// What each block may hold: the last acknowledged write, or any begun after it. Absent: zeroes.
    stamps: BTreeMap<u64, BTreeSet<u64>>,
}

/// Begun, and not acknowledged.
#[derive(Clone, Debug)]
enum Doubt {
    Create(Known),
    Delete(u64),
    Resize(u64, u64),
    Rename(u64, String),
    Move,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    segment: u64,
    at: u64,
    blocks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// By the operation that made each: names come and go.
    segments: BTreeMap<u64, Known>,
    doubts: BTreeMap<u64, Doubt>,
    writes: BTreeMap<u64, Writing>,
    /// What was said of operations since the last check: what a failure is explained by.
    said: Vec<String>,
    /// How often each word was heard.
    pub(crate) heard: BTreeMap<String, u64>,
}

impl Model {
    pub(crate) fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> u64 {
            let word = words.get(at).unwrap_or_else(|| panic!("the child says: {line}"));
            word.parse().unwrap_or_else(|_| panic!("the child says: {line}"))
        };
        let mut counted = words[0].to_owned();
        match words[..] {
            ["opened"] => {}
            ["create", _, name, _, _] => {
                let new = Known {
                    name: name.to_owned(),
                    blocks: number(3),
                    stamps: BTreeMap::new(),
                };
                self.doubts.insert(number(1), Doubt::Create(new));
            }
            ["delete", _, name] => {
                let doomed = self.called(name);
                self.doubts.insert(number(1), Doubt::Delete(doomed));
            }
            ["resize", _, name, _] => {
                let resized = self.called(name);
                self.doubts.insert(number(1), Doubt::Resize(resized, number(3)));
            }
            ["rename", _, name, new] => {
                let renamed = self.called(name);
                self.doubts.insert(number(1), Doubt::Rename(renamed, new.to_owned()));
            }
            ["move", _, _] => _ = self.doubts.insert(number(1), Doubt::Move),
            ["done", _] => {
                let doubt = self.doubts.remove(&number(1)).unwrap();
                counted = self.settle(number(1), doubt).to_owned();
            }
            ["failed", _] => drop(self.doubts.remove(&number(1)).unwrap()),
            ["write", _, name, _, _] => {
                let writing = Writing {
                    segment: self.called(name),
                    at: number(3),
                    blocks: number(4),
                };
                self.writes.insert(number(1), writing);
                self.each_block(writing, |stamps| _ = stamps.insert(number(1)));
            }
            ["wrote", _] => {
                let writing = self.writes.remove(&number(1)).unwrap();
                self.each_block(writing, |stamps| *stamps = [number(1)].into());
            }
            ["refused", _] => {
                let writing = self.writes.remove(&number(1)).unwrap();
                self.each_block(writing, |stamps| _ = stamps.remove(&number(1)));
            }
            _ => panic!("the child says: {line}"),
        }
        *self.heard.entry(counted).or_default() += 1;
        if !["write", "wrote", "refused"].contains(&words[0]) {
            self.said.push(line.to_owned());
        }
    }

    fn called(&self, name: &str) -> u64 {
        let found = self.segments.iter().find(|(_, known)| known.name == name);
        *found.unwrap_or_else(|| panic!("no {name}")).0
    }

    fn each_block(&mut self, writing: Writing, change: impl Fn(&mut BTreeSet<u64>)) {
        let Some(known) = self.segments.get_mut(&writing.segment) else {
            return;
        };
        for at in writing.at..(writing.at + writing.blocks).min(known.blocks) {
            change(known.stamps.entry(at).or_insert_with(|| [0].into()));
        }
    }

    /// An operation has come about; the word for it.
    fn settle(&mut self, op: u64, doubt: Doubt) -> &'static str {
        match doubt {
            Doubt::Create(new) => {
                self.segments.insert(op, new);
                "created"
            }
            Doubt::Delete(doomed) => {
                self.segments.remove(&doomed);
                "deleted"
            }
            Doubt::Resize(resized, blocks) => {
                let known = self.segments.get_mut(&resized).unwrap();
                let grows = blocks > known.blocks;
                known.blocks = blocks;
                // What it may later grow into again reads zero.
                known.stamps.retain(|&at, _| at < blocks);
                if grows { "grown" } else { "shrunk" }
            }
            Doubt::Rename(renamed, new) => {
                self.segments.get_mut(&renamed).unwrap().name = new;
                "renamed"
            }
            Doubt::Move => "moved",
        }
    }

    /// Compares the volume with what is known, and learns what the doubtful operations came to.
    pub(crate) fn check(&mut self, core: &mut Core, round: &str) {
        let listed = core.list(ME).unwrap();
        let found: BTreeMap<String, u64> = listed
            .iter()
            .map(|info| (info.name.clone(), info.size_bytes / BLOCK as u64))
            .collect();
        assert_eq!(found.len(), listed.len(), "{round}: one name twice: {listed:?}");
        for (op, doubt) in std::mem::take(&mut self.doubts) {
            let came_about = match &doubt {
                Doubt::Create(new) => found.contains_key(&new.name),
                Doubt::Delete(doomed) => !found.contains_key(&self.segments[doomed].name),
                Doubt::Resize(resized, blocks) => found.get(&self.segments[resized].name) == Some(blocks),
                Doubt::Rename(_, new) => found.contains_key(new),
                Doubt::Move => true,
            };
            if came_about {
                self.settle(op, doubt);
            }
        }
        self.writes.clear();
        let known: BTreeMap<String, u64> = self
            .segments
            .values()
            .map(|known| (known.name.clone(), known.blocks))
            .collect();
        assert_eq!(
            found, known,
            "{round}: these are there, and these should be, after {:#?}",
            self.said
        );
        self.said.clear();
        // While what was half-moved goes on, and once more when all has arrived.
        let moving = listed.iter().any(|info| info.state == "moving");
        if moving {
            *self.heard.entry("half-moved".into()).or_default() += 1;
            self.check_bytes(core, round);
        }
        let listed = settled(core, round);
        check_space(core, &listed, round);
        self.check_bytes(core, round);
    }

    fn check_bytes(&mut self, core: &mut Core, round: &str) {
        for known in self.segments.values_mut() {
            known.check_bytes(core, round);
        }
    }
}

/// The list when no move is under way any more.
fn settled(core: &mut Core, round: &str) -> Vec<SegmentInfo> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let listed = core.list(ME).unwrap();
        if listed.iter().all(|info| info.state == "live") {
            return listed;
        }
        assert!(Instant::now() < deadline, "{round}: a move does not end: {listed:?}");
        if core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
    }
}

/// Every block is free or has one owner.
fn check_space(core: &Core, listed: &[SegmentInfo], round: &str) {
    let info = core.volume_info().unwrap();
    let held: u64 = listed.iter().map(|info| info.reserve_bytes).sum();
    assert_eq!(
        info.free_bytes + held,
        info.size_bytes,
        "{round}: blocks were lost, or promised twice"
    );
    let mut runs: Vec<(u64, u64)> = listed
        .iter()
        .map(|info| (info.start_block, info.start_block + info.reserve_bytes / BLOCK as u64))
        .collect();
    runs.sort_unstable();
    assert!(
        runs.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "{round}: segments overlap: {listed:?}"
    );
}

impl Known {
    fn check_bytes(&mut self, core: &mut Core, round: &str) {
        const PIECE: u64 = 256;
        let name = &self.name;
        let (handle, _) = core.open_segment(ME, ME.uid, name, Access::Read).unwrap();
        for first in (0..self.blocks).step_by(PIECE as usize) {
            let count = PIECE.min(self.blocks - first) as usize;
            let bytes = read(core, handle, first * BLOCK as u64, count * BLOCK).unwrap();
            assert_eq!(bytes.len(), count * BLOCK, "{round}: {name} at {first}");
            for (at, found) in (first..).zip(bytes.chunks(BLOCK)) {
                let stamp = u64::from_le_bytes(found[..8].try_into().unwrap());
                assert!(found == block(stamp), "{round}: block {at} of {name} is torn");
                let allowed = self.stamps.entry(at).or_insert_with(|| [0].into());
                assert!(
                    allowed.contains(&stamp),
                    "{round}: block {at} of {name} holds {stamp:#x}, not one of {allowed:x?}"
                );
                *allowed = [stamp].into();
            }
        }
        core.close_handle(handle);
    }
}
