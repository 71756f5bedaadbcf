//! What the stories share: running the program, making volumes, making bytes.

#![allow(dead_code, reason = "no theme needs all of it")]

pub(crate) mod cgroup;
pub(crate) mod confined;
pub(crate) mod drop_ins;
pub(crate) mod gnu;
pub(crate) mod refusals;
pub(crate) mod server;
pub(crate) mod serving;
pub(crate) mod terminal;
#[path = "../../../../tests/test_name.rs"]
mod test_name;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) use test_name::TestName;

/// The program under test.
pub(crate) const BAIO: &str = env!("CARGO_BIN_EXE_baio");

/// Says that this test is skipped, by its name, unless it is run by root. `.ci/run` looks for these words, and runs it again
/// as root.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("needs root");
    }
    is_root
}

/// Says, by its name, that this test is skipped, or a part of it, and why: where the test's output capture does not reach.
pub(crate) fn skip(why: &str) {
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test");
    // In one piece: others write there too, and `.ci/run` reads the line.
    let line = format!("SKIPPED: {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Waits for what somebody else does.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends it one that is started.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A directory of its own for each test, gone with it.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script in this directory, which may mount (`BAIO` is the program's path): what it says. None, where nobody may, or it says `none`.
    pub(crate) fn with_mounts_of_its_own(&self, script: &str) -> Option<String> {
        let ended = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .env("BAIO", BAIO)
            .current_dir(self.path("."))
            .output();
        let told = String::from_utf8_lossy(&ended.ok()?.stdout).into_owned();
        (!told.starts_with("none") && !told.is_empty()).then_some(told)
    }

    /// Runs `baio` in this directory, with the words of `line` as arguments.
    pub(crate) fn baio(&self, line: &str) -> Done {
        self.run(BAIO, line, b"")
    }

    /// The same with something on standard input, through a pipe.
    pub(crate) fn baio_fed(&self, line: &str, input: &[u8]) -> Done {
        self.run(BAIO, line, input)
    }

    /// GNU dd, the oracle.
    pub(crate) fn gnu_dd(&self, line: &str, input: &[u8]) -> Done {
        self.run("dd", line, input)
    }

    /// A line of the shell, with nothing on its standard input.
    pub(crate) fn shell(&self, line: &str) -> Done {
        let mut child = self.spawn("sh", ["-c", line]);
        drop(child.stdin.take());
        Done(child.wait_with_output().unwrap())
    }

    /// Runs `baio` with words that may hold anything, and nothing on its standard input.
    pub(crate) fn words(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Done {
        let mut child = self.spawn(BAIO, words);
        drop(child.stdin.take());
        Done(child.wait_with_output().unwrap())
    }

    /// Runs `baio`, which is killed if it has not ended by itself in a minute.
    pub(crate) fn in_a_minute(&self, line: &str) -> Done {
        self.run("timeout", &format!("-s KILL 60 {BAIO} {line}"), b"")
    }

    /// Runs the program that the line begins with, and feeds it.
    pub(crate) fn fed(&self, line: &str, input: &[u8]) -> Done {
        let (program, words) = line.split_once(' ').unwrap_or((line, ""));
        self.run(program, words, input)
    }

    fn run(&self, program: &str, line: &str, input: &[u8]) -> Done {
        let mut child = self.spawn(program, line.split_whitespace());
        let mut pipe = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || {
            // A program that has read enough closes its end.
            let _ = pipe.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Done(output)
    }

    pub(crate) fn spawn(&self, program: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Child {
        Command::new(program)
            .args(words)
            .current_dir(self.0.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The object of a command that succeeds.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        self.baio(&format!("{line} --json")).succeeds().json()
    }

    /// The error object of one that fails with this status.
    #[track_caller]
    pub(crate) fn error(&self, line: &str, status: i32) -> Value {
        self.baio(&format!("{line} --json")).fails_with(status).error()
    }

    /// What one that succeeds tells people.
    #[track_caller]
    pub(crate) fn text(&self, line: &str) -> String {
        self.baio(line).succeeds().text()
    }

    /// A volume `vol` of `size` with the segment `a`.
    pub(crate) fn volume(&self, size: &str, segment: &str) {
        self.baio(&format!("format vol --size {size}")).succeeds();
        self.baio(&format!("create vol#a --size {segment}")).succeeds();
    }
}

/// A program that has ended.
pub(crate) struct Done(pub(crate) Output);

impl Done {
    pub(crate) fn status(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    pub(crate) fn out(&self) -> &[u8] {
        &self.0.stdout
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.out()).into_owned()
    }

    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Done {
        assert_eq!(self.status(), 0, "{}", self.errors());
        self
    }

    #[track_caller]
    pub(crate) fn fails_with(self, status: i32) -> Done {
        assert_eq!(self.status(), status, "{}", self.errors());
        self
    }

    /// The one object on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        assert_eq!(text.lines().count(), 1, "one object, not {text:?}; {}", self.errors());
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["schema_version"], 1);
        object
    }

    /// The error object, which names code, object, need and cure.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for key in ["code", "object", "need", "cure", "message"] {
            assert!(error[key].is_string(), "{key} is missing in {error}");
        }
        assert!(error.get("offset").is_some(), "{error}");
        error
    }

    /// The lines about records, also those that were cut short.
    pub(crate) fn records(&self) -> Vec<String> {
        let errors = self.errors();
        let lines = errors.lines().filter(|line| line.contains(" record"));
        lines.map(str::to_owned).collect()
    }
}

/// An object has these values under these keys.
#[track_caller]
pub(crate) fn has(object: &Value, expected: Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&object[key], value, "{key} in {object}");
    }
}

/// Bytes that repeat nowhere, the same for each seed.
pub(crate) fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Compares long byte strings without printing them.
#[track_caller]
pub(crate) fn assert_same(one: &[u8], two: &[u8], what: &str) {
    assert_eq!(one.len(), two.len(), "{what}: the lengths differ");
    let differs = one.iter().zip(two).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: the first byte that differs");
}

/// A process that holds the segment `a` of `vol` open: a copy whose input does not end.
pub(crate) struct Holder {
    child: Child,
}

impl Holder {
    pub(crate) fn start(place: &Place) -> Holder {
        let mut child = place.spawn(BAIO, ["dd", "of=vol#a", "bs=4K", "status=none"]);
        // More than a pipe holds: when this is taken, the volume is open and being written.
        let pipe = child.stdin.as_mut().unwrap();
        pipe.write_all(&vec![0x5a; 256 << 10]).unwrap();
        Holder { child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut would, from its point of view.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its input, and waits for its end.
    pub(crate) fn finish(mut self) -> i32 {
        drop(self.child.stdin.take());
        let mut errors = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut errors).unwrap();
        }
        assert_eq!(errors, "");
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

/// Does a file still hold the same bytes, with the same time of change?
pub(crate) struct Unchanged {
    path: PathBuf,
    bytes: Vec<u8>,
    modified: std::time::SystemTime,
}

impl Unchanged {
    pub(crate) fn watch(path: &Path) -> Unchanged {
        Unchanged {
            path: path.to_owned(),
            bytes: fs::read(path).unwrap(),
            modified: fs::metadata(path).unwrap().modified().unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, after: &str) {
        assert_same(&self.bytes, &fs::read(&self.path).unwrap(), after);
        let modified = fs::metadata(&self.path).unwrap().modified().unwrap();
        assert_eq!(modified, self.modified, "{after}: the time of change");
    }
}

/// A loop device over a file, gone with it.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// `None`, and says so, where none can be made.
    pub(crate) fn over(file: &Path) -> Option<Loop> {
        let made = Loop::make(file);
        if made.is_none() {
            skip("no loop device can be made here (it takes losetup)");
        }
        made
    }

    fn make(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let node = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        (made.status.success() && node.starts_with("/dev/loop")).then(|| Loop(node.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A device of device-mapper over the loop device of a file, gone with it.
pub(crate) struct Mapped {
    name: String,
    _below: Loop,
}

impl Mapped {
    /// In the table `LOOP` stands for the loop device. `None`, and says so, where none can be made.
    pub(crate) fn over(file: &Path, table: &str) -> Option<Mapped> {
        let below = Loop::over(file)?;
        let name = format!("baio-{}", below.0.file_name()?.to_string_lossy());
        let table = table.replace("LOOP", &below.0.to_string_lossy());
        if Mapped::make(&name, &table).is_none() {
            skip("no such device can be made here (it takes dmsetup, and a kernel with device-mapper)");
            return None;
        }
        Some(Mapped { name, _below: below })
    }

    fn make(name: &str, table: &str) -> Option<()> {
        let mut child = Command::new("dmsetup")
            .args(["create", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that does not begin has closed its end.
            let _ = pipe.write_all(table.as_bytes());
        }
        child.wait().ok()?.success().then_some(())
    }

    pub(crate) fn path(&self) -> String {
        format!("/dev/mapper/{}", self.name)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = Command::new("dmsetup").args(["remove", "--retry", &self.name]).status();
    }
}
