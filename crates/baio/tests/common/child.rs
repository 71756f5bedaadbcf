//! A child that tells lines of numbers on stderr until it is killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

#[path = "../../../../tests/test_name.rs"]
mod test_name;

pub(crate) use test_name::TestName;

const ROLE: &str = "BAIO_TEST_CHILD";

/// What this process was given to work on, if it is the child.
pub(crate) fn given() -> Option<PathBuf> {
    std::env::var_os(ROLE).map(PathBuf::from)
}

/// Runs `test` of this binary as a child that is given `path`, and kills it so long after its first line: what it told.
pub(crate) fn told_until_killed<const N: usize>(test: TestName, path: &Path, after: Duration) -> Vec<[u64; N]> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test.0, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let (begun, has_begun) = channel();
    let listener = std::thread::spawn(move || {
        let mut told = Vec::new();
        for line in BufReader::new(stderr).lines() {
            let line = line.unwrap();
            let words: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
            let words = words.ok().and_then(|words| words.try_into().ok());
            told.push(words.unwrap_or_else(|| panic!("the child says {line:?}")));
            let _ = begun.send(());
        }
        told
    });
    has_begun.recv_timeout(Duration::from_secs(20)).unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}
