//! The child: several operations and many requests under way at once, until somebody kills it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use baio_engine::{Choice, Durability, EngineOptions, Wait};
use baio_storage::{Access, Core, CreateOptions, Fault, Handle, OperationId, ResizeOptions, SegmentOp, SegmentRequest};

use super::block;
use crate::harness::{BLOCK, ME, Random, config, write_request};

const NAMES: u64 = 10;
const OPERATIONS: usize = 3;
const WRITES: usize = 16;

pub(crate) fn config_of(backend: Choice) -> EngineOptions {
    EngineOptions { backend, ..config() }
}

pub(crate) fn say(line: &str) {
    // One write each: less than PIPE_BUF bytes arrive whole or not at all.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Opens the volume, and sits there: for kills in the midst of recovery.
pub(crate) fn open_only(path: &Path, backend: Choice) {
    let _core = Core::open(path, &config_of(backend)).unwrap();
    say("opened");
    loop {
        std::thread::park();
    }
}

/// Opens the volume and works without end.
pub(crate) fn work(path: &Path, backend: Choice, seed: u64) {
    let mut core = Core::open(path, &config_of(backend)).unwrap();
    let mut segments = BTreeMap::new();
    for info in core.list(ME).unwrap() {
        let blocks = info.size_bytes / BLOCK as u64;
        let handle = core.open_segment(ME, ME.uid, &info.name, Access::Write).unwrap().0;
        segments.insert(info.name, Segment::new(handle, blocks));
    }
    say("opened");
    let mut worker = Worker {
        core,
        random: Random(seed),
        next: seed << 32,
        segments,
        operations: Vec::new(),
        writes: BTreeMap::new(),
    };
    loop {
        worker.begin_some();
        worker.core.turn(Wait::one()).unwrap();
        // Outcomes first: an operation ends after the requests that it waited for.
        worker.hear_outcomes();
        worker.hear_answers();
    }
}

struct Segment {
    handle: Handle,
    blocks: u64,
    /// Blocks with a write under way: a second one at the same time would end in an order of its own.
    busy: BTreeSet<u64>,
}

impl Segment {
    fn new(handle: Handle, blocks: u64) -> Segment {
        Segment {
            handle,
            blocks,
            busy: BTreeSet::new(),
        }
    }
}

enum Task {
    Create { name: String, blocks: u64 },
    Delete { name: String },
    Resize { name: String, blocks: u64 },
    Rename { name: String, new: String },
    Move { name: String },
}

impl Task {
    fn touches(&self, other: &str) -> bool {
        match self {
            Task::Create { name, .. } | Task::Delete { name } | Task::Resize { name, .. } | Task::Move { name } => {
                name == other
            }
            Task::Rename { name, new } => name == other || new == other,
        }
    }
}

struct Writing {
    handle: Handle,
    at: u64,
    blocks: u64,
}

struct Worker {
    core: Core,
    random: Random,
    /// Names operations, writes and what they write.
    next: u64,
    segments: BTreeMap<String, Segment>,
    operations: Vec<(u64, OperationId, Task)>,
    writes: BTreeMap<u64, Writing>,
}

impl Worker {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn begin_some(&mut self) {
        while self.operations.len() < OPERATIONS && self.random.below(3) != 0 {
            let name = format!("s{}", self.random.below(NAMES));
            if self.operations.iter().any(|(.., task)| task.touches(&name)) {
                continue;
            }
            self.begin_operation(name);
        }
        let names: Vec<String> = self.segments.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        while self.writes.len() < WRITES && self.random.below(8) != 0 {
            let name = &names[self.random.below(names.len() as u64) as usize];
            self.begin_write(name);
        }
        if self.random.below(8) == 0 {
            let name = &names[self.random.below(names.len() as u64) as usize];
            let request = SegmentRequest {
                durability: Durability::Data,
                ..SegmentRequest::new(self.segments[name].handle, SegmentOp::Sync, baio_engine::Memory::None)
            };
            let _ = self.core.start(request); // No room: then not.
        }
    }

    fn begin_operation(&mut self, name: String) {
        let op = self.number();
        if !self.segments.contains_key(&name) {
            let blocks = self.some_blocks();
            let reserve = blocks + [0, 0, 8, 100][self.random.below(4) as usize];
            say(&format!("create {op} {name} {blocks} {reserve}"));
            let options = CreateOptions {
                reserve_bytes: reserve * BLOCK as u64,
                ..CreateOptions::of_size(blocks * BLOCK as u64)
            };
            let id = self.core.begin_create(ME, ME.uid, &name, &options).unwrap();
            self.operations.push((op, id, Task::Create { name, blocks }));
            return;
        }
        match self.random.below(8) {
            0..2 => {
                say(&format!("delete {op} {name}"));
                let id = self.core.begin_delete(ME, ME.uid, &name).unwrap();
                self.operations.push((op, id, Task::Delete { name }));
            }
            2..4 => self.begin_resize(op, name),
            4..6 => {
                say(&format!("move {op} {name}"));
                let id = self.core.begin_move(ME, ME.uid, &name, None).unwrap();
                self.operations.push((op, id, Task::Move { name }));
            }
            _ => self.begin_rename(op, name),
        }
    }

    fn begin_resize(&mut self, op: u64, name: String) {
        let blocks = match self.random.below(3) {
            0 => self.some_blocks(),
            1 => self.segments[&name].blocks + 1 + self.random.below(40),
            _ => 1 + self.random.below(self.segments[&name].blocks),
        };
        say(&format!("resize {op} {name} {blocks}"));
        let spare = [None, Some(0), Some(16)][self.random.below(3) as usize];
        let options = ResizeOptions {
            reserve_bytes: spare.map(|spare| (blocks + spare) * BLOCK as u64),
            ..ResizeOptions::to_size(blocks * BLOCK as u64)
        };
        let id = self.core.begin_resize(ME, ME.uid, &name, &options).unwrap();
        self.operations.push((op, id, Task::Resize { name, blocks }));
    }

    fn begin_rename(&mut self, op: u64, name: String) {
        let new = format!("s{}", self.random.below(NAMES));
        let taken = self.segments.contains_key(&new) || self.operations.iter().any(|(.., task)| task.touches(&new));
        if taken {
            return;
        }
        say(&format!("rename {op} {name} {new}"));
        let id = self.core.begin_rename(ME, ME.uid, &name, &new).unwrap();
        self.operations.push((op, id, Task::Rename { name, new }));
    }

    fn some_blocks(&mut self) -> u64 {
        // More than a move copies at a time.
        if self.random.below(5) == 0 {
            600
        } else {
            1 + self.random.below(24)
        }
    }

    fn begin_write(&mut self, name: &str) {
        let number = self.number();
        let segment = self.segments.get_mut(name).unwrap();
        let at = self.random.below(segment.blocks);
        let blocks = (1 + self.random.below(4)).min(segment.blocks - at);
        if segment.busy.range(at..at + blocks).next().is_some() {
            return;
        }
        let durability = [Durability::None, Durability::None, Durability::Data, Durability::Full];
        let durability = durability[self.random.below(4) as usize];
        let request = SegmentRequest {
            durability,
            tag: number,
            ..write_request(
                &self.core,
                segment.handle,
                at * BLOCK as u64,
                &block(number).repeat(blocks as usize),
            )
        };
        say(&format!("write {number} {name} {at} {blocks}"));
        if self.core.start(request).is_err() {
            say(&format!("refused {number}"));
            return;
        }
        segment.busy.extend(at..at + blocks);
        let handle = segment.handle;
        self.writes.insert(number, Writing { handle, at, blocks });
    }

    fn hear_outcomes(&mut self) {
        while let Some(outcome) = self.core.next_outcome() {
            // A sync has no number. What may refuse one is the end of its segment.
            let Some(writing) = self.writes.remove(&outcome.tag) else {
                if let Err(error) = outcome.result {
                    assert!(matches!(error.fault, Fault::Stale), "{error}");
                }
                continue;
            };
            let handle = writing.handle;
            if let Some(segment) = self.segments.values_mut().find(|segment| segment.handle == handle) {
                segment
                    .busy
                    .retain(|at| !(writing.at..writing.at + writing.blocks).contains(at));
            }
            match outcome.result {
                Ok(bytes) => {
                    assert_eq!(u64::from(bytes), writing.blocks * BLOCK as u64);
                    say(&format!("wrote {}", outcome.tag));
                }
                Err(error) => {
                    let gone = matches!(error.fault, Fault::Stale | Fault::Beyond { .. });
                    assert!(gone, "{error}");
                    say(&format!("refused {}", outcome.tag));
                }
            }
        }
    }

    fn hear_answers(&mut self) {
        let mut ended = Vec::new();
        let core = &mut self.core;
        self.operations.retain_mut(|(op, id, task)| match core.take_answer(id) {
            None => true,
            Some(answer) => {
                let task = std::mem::replace(task, Task::Delete { name: String::new() });
                ended.push((*op, answer, task));
                false
            }
        });
        for (op, answer, task) in ended {
            match answer {
                Ok(_) => {
                    say(&format!("done {op}"));
                    self.ended(task);
                }
                Err(error) => {
                    assert!(matches!(error.fault, Fault::NoSpace { .. }), "{error}");
                    say(&format!("failed {op}"));
                }
            }
        }
    }

    fn ended(&mut self, task: Task) {
        match task {
            Task::Create { name, blocks } => {
                let handle = self.core.open_segment(ME, ME.uid, &name, Access::Write).unwrap().0;
                self.segments.insert(name, Segment::new(handle, blocks));
            }
            Task::Delete { name } => {
                let segment = self.segments.remove(&name).unwrap();
                self.core.close_handle(segment.handle);
            }
            Task::Resize { name, blocks } => self.segments.get_mut(&name).unwrap().blocks = blocks,
            Task::Rename { name, new } => {
                // Its handle stays valid.
                let segment = self.segments.remove(&name).unwrap();
                self.segments.insert(new, segment);
            }
            Task::Move { .. } => {}
        }
    }
}
