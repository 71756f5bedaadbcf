//! The promise: two tenants of one volume see nothing of each other. No byte that one has written is ever read by the other
//! (a new segment reads zero over its size, and over whatever it grows into), and no name is revealed: whatever a stranger asks about a name, the error is the
//! same whether it exists or not, each may use any name, and a list shows only one's own.
//!
//! Embedded, whoever may open the file can do anything; here the checks of the core are what is promised. How long an
//! answer takes is not.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Durability, Engine, File, Policy, Request};
use baio_storage::{Access, Core, CreateOptions, Error, FormatOptions, Identity, ResizeOptions};

use crate::harness::images;
use crate::harness::{
    self, BLOCK, ME, Random, STRANGER, TestName, child_at, config, create, open, read, role, run, simulated_disk,
    write_request,
};

const TENANTS: [Identity; 2] = [ME, STRANGER];
const NAMES: u64 = 4;
/// What was on the disk before any tenant.
const POISON: u8 = 0xa5;

/// A volume that can be opened again and again.
trait Place {
    fn open(&self) -> Core;
    /// Fills the data area, as if others had used it before.
    fn poison(&self, at: u64, bytes: &[u8]);
}

impl Place for Path {
    fn open(&self) -> Core {
        open(self)
    }

    fn poison(&self, at: u64, bytes: &[u8]) {
        let file = std::fs::File::options().write(true).open(self).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }
}

impl Place for Disk {
    fn open(&self) -> Core {
        harness::open_simulated(self)
    }

    fn poison(&self, at: u64, bytes: &[u8]) {
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
        let file = File::simulated(self, "disk");
        for (piece, bytes) in bytes.chunks(1 << 20).enumerate() {
            let mut buffer = engine.buffer(bytes.len()).unwrap();
            buffer.copy_from_slice(bytes);
            let policy = Policy {
                durability: Durability::Full,
                ..Policy::direct()
            };
            let request = Request::write(&file, at + ((piece as u64) << 20), buffer, policy);
            engine.run(request).result.unwrap();
        }
    }
}

fn poison(place: &(impl Place + ?Sized)) {
    let core = place.open();
    let info = core.volume_info().unwrap();
    core.close().unwrap();
    place.poison(info.data_at_bytes, &vec![POISON; info.size_bytes as usize]);
}

/// Two tenants at work on one volume.
struct Tenants {
    core: Core,
    random: Random,
    /// What each has, and whether its blocks were once another's: (uid, name).
    segments: BTreeMap<(u32, String), u64>,
    /// Who wrote into each block last.
    writers: BTreeMap<u64, u32>,
    /// Blocks given to one tenant that hold the other's bytes.
    inherited: u64,
    creates: u64,
    resizes: u64,
}

impl Tenants {
    fn new(core: Core) -> Tenants {
        Tenants {
            core,
            random: Random(7),
            segments: BTreeMap::new(),
            writers: BTreeMap::new(),
            inherited: 0,
            creates: 0,
            resizes: 0,
        }
    }

    /// One create, write, delete, create by tenants as chance has it.
    fn round(&mut self) {
        let (first, second) = (self.someone(), self.someone());
        let name = self.create(first);
        self.write_all(first, &name);
        self.look_at(first, second, &name);
        let name = match self.random.below(4) {
            0 => self.rename(first, name),
            1 => {
                // What it leaves behind, others get.
                let moved = self.core.move_segment(first, first.uid, &name, None);
                self.keep_writers(first, moved.map(drop));
                name
            }
            _ => name,
        };
        self.grow_and_shrink(first, &name);
        if self.random.below(8) != 0 {
            self.delete(first, &name);
        }
        let name = self.create(second);
        self.write_all(second, &name);
    }

    fn someone(&mut self) -> Identity {
        TENANTS[self.random.below(2) as usize]
    }

    /// Makes a segment and reads all of it before anything was written.
    fn create(&mut self, who: Identity) -> String {
        let name = format!("s{}", self.random.below(NAMES));
        if self.segments.contains_key(&(who.uid, name.clone())) {
            self.delete(who, &name);
        }
        let blocks = 1 + self.random.below(24);
        let options = CreateOptions {
            reserve_bytes: (blocks + self.random.below(8)) * BLOCK as u64,
            ..CreateOptions::of_size(blocks * BLOCK as u64)
        };
        let info = self.core.create(who, who.uid, &name, &options).unwrap();
        self.creates += 1;
        self.inherited += self.foreign(who, info.start_block..info.start_block + blocks);
        self.segments.insert((who.uid, name.clone()), blocks);
        self.assert_zero(who, &name, 0..blocks);
        name
    }

    fn assert_zero(&mut self, who: Identity, name: &str, blocks: std::ops::Range<u64>) {
        let (handle, _) = self.core.open_segment(who, who.uid, name, Access::Read).unwrap();
        let len = (blocks.end - blocks.start) as usize * BLOCK;
        let bytes = read(&mut self.core, handle, blocks.start * BLOCK as u64, len).unwrap();
        assert_eq!(bytes.len(), len);
        if let Some(at) = bytes.iter().position(|&byte| byte != 0) {
            panic!(
                "uid {} reads a byte {:#x} that it never wrote, at {at} of {blocks:?} of {name}",
                who.uid, bytes[at]
            );
        }
        self.core.close_handle(handle);
    }

    /// Up, down and up again: what it grows into reads zero, be it new, its own reserve, or what it once had.
    fn grow_and_shrink(&mut self, who: Identity, name: &str) {
        for _ in 0..self.random.below(4) {
            let before = self.segments[&(who.uid, name.to_owned())];
            let blocks = 1 + self.random.below(2 * before);
            let spare = [None, Some(0), Some(4)][self.random.below(3) as usize];
            let options = ResizeOptions {
                reserve_bytes: spare.map(|spare| (blocks + spare) * BLOCK as u64),
                ..ResizeOptions::to_size(blocks * BLOCK as u64)
            };
            let info = match self.core.resize(who, who.uid, name, &options) {
                Ok(info) => info,
                Err(error) => {
                    assert_eq!(error.code(), "ENOSPC", "{error}");
                    continue;
                }
            };
            self.segments.insert((who.uid, name.to_owned()), blocks);
            if blocks > before {
                self.resizes += 1;
                let held = info.start_block + before..info.start_block + blocks;
                self.inherited += self.foreign(who, held);
                self.assert_zero(who, name, before..blocks);
                self.write_all(who, name);
            }
        }
    }

    fn rename(&mut self, who: Identity, name: String) -> String {
        let new = format!("s{}", self.random.below(NAMES));
        if self.segments.contains_key(&(who.uid, new.clone())) {
            return name;
        }
        self.core.rename(who, who.uid, &name, &new).unwrap();
        let blocks = self.segments.remove(&(who.uid, name)).unwrap();
        self.segments.insert((who.uid, new.clone()), blocks);
        new
    }

    /// A move may find no room; what it has copied stays where it was, too.
    fn keep_writers(&mut self, who: Identity, moved: Result<(), Error>) {
        if let Err(error) = moved {
            assert_eq!(error.code(), "ENOSPC", "{error}");
        }
        for info in self.core.list(who).unwrap() {
            for block in 0..info.size_bytes / BLOCK as u64 {
                self.writers.insert(info.start_block + block, who.uid);
            }
        }
    }

    /// How many of these blocks the other wrote last.
    fn foreign(&self, who: Identity, blocks: std::ops::Range<u64>) -> u64 {
        let other = |block: &u64| self.writers.get(block).is_some_and(|&uid| uid != who.uid);
        blocks.filter(other).count() as u64
    }

    /// Fills the segment with bytes that name its owner; none of them is zero.
    fn write_all(&mut self, who: Identity, name: &str) {
        let (handle, info) = self.core.open_segment(who, who.uid, name, Access::Write).unwrap();
        let mark = (who.uid % 255 + 1) as u8;
        let request = write_request(&self.core, handle, 0, &vec![mark; info.size_bytes as usize]);
        run(&mut self.core, request).result.unwrap();
        for block in 0..info.size_bytes / BLOCK as u64 {
            self.writers.insert(info.start_block + block, who.uid);
        }
        self.core.close_handle(handle);
    }

    fn delete(&mut self, who: Identity, name: &str) {
        self.core.delete(who, who.uid, name).unwrap();
        self.segments.remove(&(who.uid, name.to_owned()));
    }

    /// What each may see, and what is refused to the one who does not own a segment.
    fn look_at(&mut self, owner: Identity, other: Identity, name: &str) {
        let listed: BTreeSet<(u32, String)> = self
            .core
            .list(other)
            .unwrap()
            .into_iter()
            .map(|info| (info.owner_uid, info.name))
            .collect();
        let own = self.segments.keys().filter(|(uid, _)| *uid == other.uid);
        assert_eq!(listed, own.cloned().collect());
        if other != owner {
            let error = self
                .core
                .open_segment(other, owner.uid, name, Access::Read)
                .map(drop)
                .unwrap_err();
            assert_eq!(error.code(), "EACCES", "{error}");
        }
    }
}

fn rounds(place: &(impl Place + ?Sized), rounds: u64) {
    poison(place);
    let mut tenants = Tenants::new(place.open());
    for round in 1..=rounds {
        tenants.round();
        if round % 250 == 0 {
            // Closed, or lost: what is free is then known from the inodes alone.
            let Tenants { core, .. } = tenants;
            if round % 500 == 0 {
                core.close().unwrap();
            } else {
                drop(core);
            }
            tenants = Tenants {
                core: place.open(),
                ..tenants
            };
        }
    }
    println!(
        "{rounds} rounds, {} creates, {} times grown, {} blocks came to one tenant with the other's bytes in them",
        tenants.creates, tenants.resizes, tenants.inherited
    );
    assert!(tenants.inherited > rounds, "blocks hardly ever changed hands");
}

#[test]
fn no_foreign_byte_is_read_in_ten_thousand_rounds() {
    let disk = simulated_disk(&FormatOptions::of_size(4 << 20));
    rounds(&disk, 10_000);
}

#[test]
fn no_foreign_byte_is_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 4 << 20);
    rounds(path.as_path(), 500);
}

/// All that an error tells, with the name taken out of it.
fn told(error: &Error, name: &str) -> Vec<String> {
    let texts = [
        error.code().to_owned(),
        format!("{:?}", error.errno()),
        format!("{:?}", error.offset),
        error.object.clone(),
        error.need().unwrap_or_default(),
        error.cure().unwrap_or_default(),
        error.to_string(),
    ];
    texts.into_iter().map(|text| text.replace(name, "NAME")).collect()
}

type Attempt = (&'static str, fn(&mut Core, Identity, &str) -> Result<(), Error>);

/// What a stranger may try with a name of ours.
const ATTEMPTS: &[Attempt] = &[
    ("open to read", |core, who, name| {
        core.open_segment(who, ME.uid, name, Access::Read).map(drop)
    }),
    ("open to write", |core, who, name| {
        core.open_segment(who, ME.uid, name, Access::Write).map(drop)
    }),
    ("create", |core, who, name| {
        core.create(who, ME.uid, name, &CreateOptions::of_size(4096)).map(drop)
    }),
    ("create too large", |core, who, name| {
        core.create(who, ME.uid, name, &CreateOptions::of_size(1 << 50))
            .map(drop)
    }),
    ("delete", |core, who, name| core.delete(who, ME.uid, name).map(drop)),
    ("resize", |core, who, name| {
        core.resize(who, ME.uid, name, &ResizeOptions::to_size(1 << 20))
            .map(drop)
    }),
    ("resize too large", |core, who, name| {
        core.resize(who, ME.uid, name, &ResizeOptions::to_size(1 << 50))
            .map(drop)
    }),
    ("move", |core, who, name| {
        core.move_segment(who, ME.uid, name, None).map(drop)
    }),
    ("rename", |core, who, name| {
        core.rename(who, ME.uid, name, "other").map(drop)
    }),
    // To a name that is taken, as far as he can know.
    ("rename into", |core, who, name| {
        core.rename(who, ME.uid, "nothing", name).map(drop)
    }),
    ("rename one of ours into", |core, who, name| {
        core.rename(who, ME.uid, "subject", name).map(drop)
    }),
];

#[test]
fn no_name_is_revealed_by_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 4 << 20);
    let mut core = open(&path);
    // Of each kind of mode that does not let a stranger in, and as long as the missing one.
    let there = ["private", "grouped", "nomodes"];
    for (name, mode) in there.iter().zip([0o600, 0o660, 0]) {
        let options = CreateOptions {
            mode,
            ..CreateOptions::of_size(4096)
        };
        core.create(ME, ME.uid, name, &options).unwrap();
    }
    create(&mut core, "subject", 4096);
    let same_group_as_nobody = Identity::new(1002, 7);
    for who in [STRANGER, same_group_as_nobody] {
        for (what, attempt) in ATTEMPTS {
            let missing = attempt(&mut core, who, "missing").unwrap_err();
            assert_eq!(missing.code(), "EACCES", "{what}: {missing}");
            for name in there {
                let error = attempt(&mut core, who, name).unwrap_err();
                assert_eq!(told(&error, name), told(&missing, "missing"), "{what} {name}");
            }
        }
        assert!(core.list(who).unwrap().is_empty());
        // Anybody's name is free for everybody else.
        for name in there {
            core.create(who, who.uid, name, &CreateOptions::of_size(4096)).unwrap();
            core.delete(who, who.uid, name).unwrap();
        }
    }
    assert_eq!(core.quota(STRANGER, ME.uid).unwrap_err().code(), "EACCES");
    assert_eq!(core.list(ME).unwrap().len(), 4, "nothing came about");
    core.close().unwrap();
    let missing = Core::inspect_segment(&path, STRANGER, ME.uid, "missing").unwrap_err();
    assert_eq!(missing.code(), "EACCES", "{missing}");
    for name in there {
        let error = Core::inspect_segment(&path, STRANGER, ME.uid, name).unwrap_err();
        assert_eq!(told(&error, name), told(&missing, "missing"), "stat {name}");
    }
    assert!(Core::inspect(&path, STRANGER).unwrap().1.is_empty());
}

/// A process of one tenant: looks for anything of the other, leaves something behind.
fn be_tenant(path: &Path, seed: u64) {
    let who = Identity::effective();
    let other = if who.uid == ME.uid { STRANGER } else { ME };
    let mut core = open(path);
    for info in core.list(who).unwrap() {
        assert_eq!(info.owner_uid, who.uid, "{info:?}");
        core.delete(who, who.uid, &info.name).unwrap();
    }
    let refused = |result: Result<(), Error>| assert_eq!(result.unwrap_err().code(), "EACCES");
    refused(core.open_segment(who, other.uid, "s0", Access::Read).map(drop));
    refused(core.open_segment(who, other.uid, "none", Access::Read).map(drop));
    refused(core.delete(who, other.uid, "s0").map(drop));
    let mut tenants = Tenants::new(core);
    tenants.random = Random(seed);
    for _ in 0..10 {
        let name = tenants.create(who);
        tenants.write_all(who, &name);
    }
    // Some end well and some do not.
    if seed.is_multiple_of(2) {
        tenants.core.close().unwrap();
    }
}

#[test]
fn processes_of_two_users_see_nothing_of_each_other() {
    if let Some(role) = role() {
        let (seed, path) = role.split_once(' ').unwrap();
        return be_tenant(Path::new(path), seed.parse().unwrap());
    }
    if !harness::is_root() {
        return; // Only root can start processes of other users.
    }
    let dir = tempfile::tempdir().unwrap();
    let open_to_all = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open_to_all(dir.path(), 0o755);
    // This program may lie where others cannot reach it.
    let program = dir.path().join("tenant");
    // By another process: what a test beside this one forks meanwhile would have the copy open for writing (ETXTBSY).
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let path = dir.path().join("volume.img");
    harness::format(&path, 2 << 20);
    open_to_all(&path, 0o666);
    poison(path.as_path());
    for seed in 0..20 {
        let who = TENANTS[seed % 2];
        let output = child_at(
            &program,
            TestName::of(processes_of_two_users_see_nothing_of_each_other),
            &format!("{} {}", seed / 2, path.display()),
        )
        .uid(who.uid)
        .gid(who.gid)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "uid {}, seed {seed}: {said}", who.uid);
    }
}

#[test]
fn nobody_gives_a_segment_to_a_group_that_he_is_not_in() {
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = harness::open_simulated(&disk);
    let me = TENANTS[0];
    let of_group = |group| CreateOptions {
        group,
        mode: 0o660,
        ..CreateOptions::of_size(1)
    };
    let refused = core.create(me, me.uid, "a", &of_group(Some(0))).unwrap_err();
    assert_eq!(refused.code(), "EACCES", "{refused}");
    assert!(core.list(harness::ROOT).unwrap().is_empty());
    core.create(me, me.uid, "a", &of_group(Some(me.gid))).unwrap();
    core.create(harness::ROOT, me.uid, "b", &of_group(Some(7))).unwrap();
}

/// What the opening found wrong is told to whoever asks, and not whose segment it is about.
#[test]
fn warnings_name_nobodys_segment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = harness::open_simulated(&disk);
    create(&mut core, "secret", 8 * BLOCK as u64);
    create(&mut core, "rival", BLOCK as u64);
    core.close().unwrap();
    let (_, secret) = images::find(&disk, "secret");
    images::tamper(&disk, "rival", |rival| rival.start_block = secret.start_block + 3);
    images::forget_clean_close(&disk);
    let mut bytes = vec![0; 2 << 20];
    disk.read(0, &mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    let (info, listed) = Core::inspect(&path, STRANGER).unwrap();
    assert!(listed.is_empty());
    assert_eq!(info.warnings.len(), 1);
    let told = info.warnings[0].as_str();
    assert!(
        !told.contains("secret") && !told.contains("rival") && !told.contains("1000"),
        "{told}"
    );
}

/// A tenant that makes a large segment keeps nobody from looking: a list waits for records, not for zeroes.
#[test]
fn a_list_does_not_wait_for_the_zeroes_of_others() {
    let disk = harness::simulated_disk(&FormatOptions::of_size(64 << 20));
    let mut core = harness::open_simulated(&disk);
    harness::create(&mut core, "mine", 4096);
    let large = CreateOptions::of_size(48 << 20);
    let id = core.begin_create(STRANGER, STRANGER.uid, "large", &large).unwrap();
    assert_eq!(core.list(ME).unwrap().len(), 1);
    assert!(core.take_answer(&id).is_none(), "the list has waited for all of it");
    assert_eq!(core.list(STRANGER).unwrap().len(), 0);
    while core.take_answer(&id).is_none() {
        core.turn(baio_engine::Wait::one()).unwrap();
    }
    assert_eq!(core.list(STRANGER).unwrap().len(), 1);
}

/// What root makes for a user is not root's group's.
#[test]
fn a_segment_made_for_another_has_no_group_of_the_makers() {
    let disk = harness::simulated_disk(&FormatOptions::of_size(2 << 20));
    let mut core = harness::open_simulated(&disk);
    let options = CreateOptions {
        mode: 0o660,
        ..CreateOptions::of_size(4096)
    };
    core.create(harness::ROOT, ME.uid, "a", &options).unwrap();
    let of_roots_group = Identity::new(1002, 0);
    assert!(core.open_segment(of_roots_group, ME.uid, "a", Access::Read).is_err());
    core.open_segment(ME, ME.uid, "a", Access::Write).unwrap();
    let named = CreateOptions {
        group: Some(55),
        ..options
    };
    core.create(harness::ROOT, ME.uid, "b", &named).unwrap();
    let member = Identity::new(1002, 7).with_groups(&[55]);
    core.open_segment(member, ME.uid, "b", Access::Write).unwrap();
}
