//! The claim: the lint that keeps threads and descriptors to one way is denied by every crate that runs in somebody's process; and what is sent
//! to a socket never ends a process: SIGPIPE is for nobody.

use std::fs;
use std::path::{Path, PathBuf};

/// What is never shipped: its process is its own.
const EXCEPT: [&str; 1] = ["crates/sim"];

const ASKS: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]";

#[test]
fn every_crate_denies_what_goes_round_the_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = workspace.lines().find(|line| line.starts_with("members = ")).unwrap();
    let members: Vec<_> = members.split('"').filter(|part| part.starts_with("crates/")).collect();
    assert!(members.len() > 15, "{members:?}");
    for member in members.iter().filter(|member| !EXCEPT.contains(member)) {
        for first in ["src/lib.rs", "src/main.rs"] {
            if let Ok(text) = fs::read_to_string(root.join(member).join(first)) {
                assert!(text.contains(ASKS), "{member}/{first} lacks {ASKS}");
            }
        }
    }
}

/// What lies below a directory and is Rust.
fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
        }
    }
}

#[test]
fn whatever_is_sent_raises_no_signal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut all, mut sends) = (Vec::new(), 0);
    for member in fs::read_dir(root).unwrap() {
        let source = member.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut all);
        }
    }
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for (nth, line) in text.lines().enumerate() {
            // Flags are named in one line, also where they are put together before the call.
            if line.contains("SendFlags::") {
                sends += 1;
                let at = format!("{}:{}", path.display(), nth + 1);
                assert!(line.contains("SendFlags::NOSIGNAL"), "{at}: {line}");
            }
        }
    }
    assert!(sends >= 5, "only {sends} were found");
}
