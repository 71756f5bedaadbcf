//! The claim: the lint that keeps threads and descriptors to one way is denied by every crate that runs in somebody's process.

use std::fs;
use std::path::Path;

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
