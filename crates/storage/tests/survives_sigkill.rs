//! The promise: what was acknowledged holds, however the process ends.
//!
//! A child creates, deletes, resizes, renames, moves, writes and syncs without end, many things at a time, and says on a
//! pipe what it is about to do and what has returned. The parent kills it at some moment, some rounds also a second one in the midst of recovery, and
//! opens the volume at once. Every acknowledged operation must hold, every one in doubt have happened wholly or not at all;
//! every completed write must be there (the machine did not lose power), bytes of one segment must never show in another,
//! no block may be lost, `check` must find no damage, and no stale lock may stand in the way. A reader that shares no code with the
//! library lists the same, and finds nothing but what a kill leaves. All rounds on one volume, so that recovery meets its own
//! work, and each with another backend.
//!
//! `BAIO_KILLS=N` chooses how many rounds, of each kind.

mod harness;
mod sigkill;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use baio_engine::{Choice, Engine};
use baio_storage::{CheckReport, Core, FormatOptions, Identity, Repair};
use harness::loop_device::Loop;
use harness::{Random, TestName, child, format, role};
use sigkill::child::{config_of, open_only, work};
use sigkill::model::Model;

const ROUNDS: u64 = 60;
const BYTES: u64 = 16 << 20;

/// What a child is to do.
#[derive(Clone, Copy)]
struct Role<'a> {
    works: bool,
    backend: Choice,
    seed: u64,
    path: &'a Path,
}

impl Role<'_> {
    fn words(&self) -> String {
        let what = if self.works { "work" } else { "open" };
        format!("{what} {} {} {}", self.backend.name(), self.seed, self.path.display())
    }
}

/// Does what a child is told; not in the parent.
fn is_child() -> bool {
    let Some(role) = role() else { return false };
    let words: Vec<&str> = role.splitn(4, ' ').collect();
    let [what, backend, seed, path] = words[..] else {
        panic!("{role}")
    };
    let backend = *Choice::ALL.iter().find(|choice| choice.name() == backend).unwrap();
    match what {
        "work" => work(Path::new(path), backend, seed.parse().unwrap()),
        _ => open_only(Path::new(path), backend),
    }
    true
}

/// Runs a child until it is killed; returns what it said.
fn kill_one(test: TestName, role: Role<'_>, random: &mut Random) -> Vec<String> {
    let mut child = child(test, &role.words()).stdin(Stdio::null()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let (opened, is_open) = channel();
    let listener = std::thread::spawn(move || {
        let mut said = Vec::new();
        let mut line = String::new();
        let mut reader = BufReader::new(stderr);
        while reader.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            if !is_about_a_write(&line) {
                let _ = opened.send(());
            }
            said.push(line.trim_end().to_owned());
            line.clear();
        }
        said
    });
    if role.works {
        // By what it has said, not by time: a busy machine kills in the midst of work, too.
        for _ in 0..1 + random.below(30) {
            let _ = is_open.recv_timeout(Duration::from_secs(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
    } else {
        // At any moment of its start and its recovery.
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}

fn is_about_a_write(line: &str) -> bool {
    ["write ", "wrote ", "refused "]
        .iter()
        .any(|word| line.starts_with(word))
}

/// What a reader in another language sees of the volume: the same segments, and nothing wrong that a kill does not leave. (The
/// format is its only common ground with the library: `crates/sim/reader/reader.py`.)
fn read_by_another(path: &Path, round: &str) {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/reader/reader.py");
    let output = match Command::new("python3").arg(&reader).arg(path).output() {
        Ok(output) => output,
        Err(error) => return println!("SKIPPED: another reader: python3 cannot be run: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{round}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains(r#""verdict": "volume""#),
        "{round}: another reader says {said}"
    );
    assert!(
        !said.contains(r#""crash": false"#),
        "{round}: another reader says {said}"
    );
    let (_, segments) = Core::inspect(path, Identity::new(0, 0)).unwrap();
    let rows: Vec<String> = segments
        .iter()
        .map(|s| {
            format!(
                r#"{{"uid": {}, "name": "{}", "state": "{}", "start_block": {}, "size_bytes": {}, "reserve_bytes": {}}}"#,
                s.owner_uid, s.name, s.state, s.start_block, s.size_bytes, s.reserve_bytes
            )
        })
        .collect();
    let ours = format!(r#""segments": [{}]"#, rows.join(", "));
    assert!(
        said.contains(&ours),
        "{round}: the library says {ours}, another reader {said}"
    );
}

/// A crash is no damage: a check finds nothing but what the crash cut in half, and repairs that as well as an open does.
fn check_after_kill(path: &Path, round: &str, random: &mut Random) {
    for problem in check(path, false).problems {
        let is_half = matches!(problem.kind, "image" | "superblock" | "rename");
        assert!(
            is_half && problem.repair == Repair::Repairable,
            "{round}, killed: {problem:?}"
        );
    }
    if random.below(3) == 0 {
        check(path, true);
        let report = check(path, false);
        assert!(report.problems.is_empty(), "{round}, repaired: {:?}", report.problems);
    }
}

fn check(path: &Path, repair: bool) -> CheckReport {
    baio_storage::check(path, repair, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// The backends that work here.
fn backends() -> Vec<Choice> {
    [Choice::Uring, Choice::Threads, Choice::Aio]
        .into_iter()
        .filter(|&backend| Engine::new(&config_of(backend)).is_ok())
        .collect()
}

fn kill_many(test: TestName, path: &Path) {
    let rounds = std::env::var("BAIO_KILLS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let backends = backends();
    let mut model = Model::default();
    let mut random = Random(2026);
    let (mut longest, mut reopened) = (Duration::ZERO, 0);
    for round in 1..=rounds {
        let backend = backends[(round % backends.len() as u64) as usize];
        let role = Role {
            works: true,
            backend,
            seed: round,
            path,
        };
        for line in kill_one(test, role, &mut random) {
            model.hear(&line);
        }
        while random.below(4) == 0 {
            kill_one(test, Role { works: false, ..role }, &mut random);
            reopened += 1;
        }
        read_by_another(path, &format!("round {round}, killed"));
        check_after_kill(path, &format!("round {round}"), &mut random);
        let other = backends[(round / backends.len() as u64 % backends.len() as u64) as usize];
        let round = format!("round {round}, {} after {}", other.name(), backend.name());
        let began = Instant::now();
        let mut core = Core::open(path, &config_of(other)).unwrap_or_else(|error| panic!("{round}: {error}"));
        longest = longest.max(began.elapsed());
        model.check(&mut core, &round);
        if random.below(2) == 0 {
            core.close().unwrap();
            let report = check(path, false);
            assert!(report.problems.is_empty(), "{round}, closed: {:?}", report.problems);
        }
    }
    println!(
        "{rounds} kills, and {reopened} more in recovery; longest open {longest:?}; {:?}",
        model.heard
    );
    for word in ["created", "deleted", "grown", "shrunk", "renamed", "moved", "wrote"] {
        let heard = model.heard.get(word).copied().unwrap_or_default();
        // How much a child gets done before it is killed is the machine's affair.
        assert!(heard > 0, "{word}: nothing in {rounds} rounds");
    }
}

#[test]
fn acknowledged_work_in_a_file_survives_sigkill() {
    if is_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, BYTES);
    kill_many(TestName::of(acknowledged_work_in_a_file_survives_sigkill), &path);
}

#[test]
fn acknowledged_work_on_a_block_device_survives_sigkill() {
    if is_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Direct, or the kernel's cache over the file would end every write at once.
    let Some(device) = Loop::new(dir.path(), BYTES, &["--direct-io=on"]) else {
        return;
    };
    Core::format(&device.0, &FormatOptions::default()).unwrap();
    kill_many(
        TestName::of(acknowledged_work_on_a_block_device_survives_sigkill),
        &device.0,
    );
}
