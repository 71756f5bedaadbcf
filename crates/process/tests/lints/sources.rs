//! The source of the workspace's crates.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the crates are.
pub(crate) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What lies below a directory and is Rust.
fn below(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => below(&path, found),
            false => found.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
        }
    }
}

/// All that runs in somebody's process, by its path below the crates.
pub(crate) fn all() -> Vec<(PathBuf, String)> {
    within(&["src"])
}

/// The same, and the tests beside it.
pub(crate) fn with_tests() -> Vec<(PathBuf, String)> {
    within(&["src", "tests"])
}

fn within(directories: &[&str]) -> Vec<(PathBuf, String)> {
    let crates = crates();
    let mut found = Vec::new();
    for member in fs::read_dir(&crates).unwrap() {
        let member = member.unwrap().path();
        for at in directories.iter().map(|directory| member.join(directory)) {
            if at.is_dir() {
                below(&at, &mut found);
            }
        }
    }
    found.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(&crates).unwrap().to_owned(), text)
    };
    found.into_iter().map(read).collect()
}
