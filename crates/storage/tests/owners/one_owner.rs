//! The promise: a volume has one owner. Whoever comes second is told at once who has it; a dead owner is in
//! nobody's way; a closed volume can be opened again at that very moment; those who only look do not disturb one another.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr};

use baio_storage::{Core, Error, Fault};
use rustix::fs::FlockOperation;

use crate::harness::{ME, TestName, child, config, create, format, open, role};
use crate::starting::Starting;

/// A process that opens and closes the volume as it is told.
struct Holder {
    process: Child,
    said: BufReader<ChildStderr>,
}

impl Holder {
    fn start(test: TestName, path: &Path) -> Holder {
        let mut process = child(test, path.to_str().unwrap()).spawn().unwrap();
        let said = BufReader::new(process.stderr.take().unwrap());
        Holder { process, said }
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), what);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child: does what each line says and repeats the line when it is done.
fn obey(path: &str) {
    let mut core = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.as_str() {
            "open" => core = Some(open(Path::new(path))),
            "close" => core.take().map(Core::close).unwrap().unwrap(),
            "drop" => drop(core.take()),
            _ => panic!("{line}"),
        }
        eprintln!("{line}");
    }
}

fn assert_busy<T>(result: Result<T, Error>, pid: u32) {
    let Err(error) = result else {
        panic!("two processes have the volume");
    };
    assert!(
        matches!(error.fault, Fault::Busy { holder: Some(holder) } if holder == pid),
        "{error}, not {pid}"
    );
    assert_eq!(error.code(), "EBUSY");
    assert!(error.to_string().contains(&format!("in use by process {pid}")));
    assert!(error.cure().unwrap().contains(&pid.to_string()));
}

#[test]
fn the_second_is_told_who_has_it_and_a_closed_volume_is_free_at_once() {
    if let Some(path) = role() {
        return obey(&path);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let mut holder = Holder::start(
        TestName::of(the_second_is_told_who_has_it_and_a_closed_volume_is_free_at_once),
        &path,
    );
    for round in 0..100 {
        holder.tell("open");
        assert_busy(Core::open(&path, &config()), holder.pid());
        assert_busy(Core::inspect(&path, ME), holder.pid());
        assert_busy(
            Core::format(&path, &baio_storage::FormatOptions::default()),
            holder.pid(),
        );
        // The holder closes, or forgets to, but lives on.
        holder.tell(if round % 4 == 0 { "drop" } else { "close" });
        let core = Core::open(&path, &config()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        core.close().unwrap();
    }
}

#[test]
fn a_killed_holder_is_not_waited_for_even_as_a_zombie() {
    if let Some(path) = role() {
        return obey(&path);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    for _ in 0..10 {
        let mut holder = Holder::start(TestName::of(a_killed_holder_is_not_waited_for_even_as_a_zombie), &path);
        holder.tell("open");
        assert_busy(Core::open(&path, &config()), holder.pid());
        // Killed, and nobody asks for its status: it stays in the process table.
        holder.process.kill().unwrap();
        let is_zombie = |pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.contains(") Z ")
        };
        while !is_zombie(holder.pid()) {
            std::thread::yield_now();
        }
        let core = open(&path);
        assert!(is_zombie(holder.pid()));
        core.close().unwrap();
    }
}

#[test]
fn the_same_process_is_told_its_own_pid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let core = open(&path);
    assert_busy(Core::open(&path, &config()), std::process::id());
    assert_busy(Core::inspect(&path, ME), std::process::id());
    core.close().unwrap();
    open(&path).close().unwrap();
}

#[test]
fn those_who_only_look_do_not_disturb_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let mut core = open(&path);
    create(&mut core, "a", 4096);
    core.close().unwrap();
    let looking: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    assert_eq!(Core::inspect(&path, ME).unwrap().1.len(), 1);
                }
            })
        })
        .collect();
    looking.into_iter().for_each(|thread| thread.join().unwrap());
    // Whoever looks keeps writers out while it looks, and is named.
    let reader = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&reader, FlockOperation::LockShared).unwrap();
    assert_eq!(Core::inspect(&path, ME).unwrap().1.len(), 1);
    assert_busy(Core::open(&path, &config()), std::process::id());
    rustix::fs::flock(&reader, FlockOperation::Unlock).unwrap();
    open(&path).close().unwrap();
}

/// A child that is being started has copies of all descriptors until it execs; they must not keep the volume.
#[test]
fn a_child_being_started_does_not_keep_a_closed_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    for closes in [true, false] {
        let core = open(&path);
        let child = Starting::new();
        if closes {
            core.close().unwrap();
        } else {
            drop(core);
        }
        open(&path).close().unwrap();
        child.let_go();
    }
}
