//! The claim: the lint that keeps threads and descriptors to one way is denied by every crate that runs in somebody's process; and what is sent
//! to a socket never ends a process: SIGPIPE is for nobody. And nothing goes by a path through /proc, which a container may not have, where there is
//! another way. No story of a theme's tests is left out of its binary.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources;

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

/// Who looks there, and what for.
const THROUGH_PROC: &[(&str, &str)] = &[
    (
        "broker/src/host/sockets.rs",
        "the user that stands for those whom a user namespace does not know: by nothing else",
    ),
    (
        "cli/src/command/dd/plain.rs",
        "the same file opened for something else, by its descriptor; refused without",
    ),
    ("cli/src/command/doctor/modes.rs", "the same, of a file without a name"),
    (
        "cli/src/command/doctor/place.rs",
        "the same, of what may be named otherwise by now",
    ),
    (
        "cli/src/command/doctor/system.rs",
        "settings of the kernel; unknown without",
    ),
    (
        "cli/src/trial.rs",
        "whether a filter stands over this process; unknown without",
    ),
    (
        "console/src/mount.rs",
        "which mount a descriptor is on: statmount(2) came with Linux 6.8",
    ),
    (
        "engine/src/backend/aio/setup.rs",
        "a setting of the kernel, for a message",
    ),
    ("engine/src/backend/threads/pool_tests.rs", "a test"),
    (
        "engine/src/file/lock.rs",
        "who holds a lock, for a message: flock(2) does not say",
    ),
    (
        "engine/src/file/open.rs",
        "a second description of the same inode; by its path without",
    ),
    (
        "libaio/src/descriptor.rs",
        "which event fd this is, where the system calls that say it are refused; at most 64 duplicates without",
    ),
    ("measure/src/report/brokers.rs", "the threads of another process"),
    ("measure/src/report/machine.rs", "what the machine is"),
    ("measure/src/report/memory_cgroup.rs", "where the control groups are"),
    (
        "process/src/descriptor.rs",
        "the permissions of a socket that is held; by its path without",
    ),
    ("process/src/memory_limit.rs", "which control group this is, and where"),
    ("ring/src/bell.rs", "a test"),
    (
        "shim/src/counters.rs",
        "memory without a name, for others of the same user",
    ),
    (
        "storage/src/volume/lock.rs",
        "what is mounted, and who another process is, for a message",
    ),
    ("stress/src/costs.rs", "what the kernel counts of a process"),
];

#[test]
fn nothing_goes_through_proc_that_has_another_way() {
    let mut found: Vec<_> = sources::all()
        .into_iter()
        .filter(|(_, text)| {
            let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.any(|line| line.contains("\"/proc"))
        })
        .map(|(path, _)| path.to_str().unwrap().to_owned())
        .collect();
    found.sort();
    let listed: Vec<_> = THROUGH_PROC.iter().map(|(path, _)| *path).collect();
    assert_eq!(
        found, listed,
        "whoever looks there says in the list why by nothing else"
    );
}

#[test]
fn whatever_is_sent_raises_no_signal() {
    let mut sends = 0;
    for (path, text) in sources::all() {
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

/// A file that no `mod` names is compiled by nobody, and says nothing.
#[test]
fn every_story_is_part_of_its_theme() {
    let below = |path: PathBuf| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
    };
    let (mut stories, mut left_out) = (0, Vec::new());
    for theme in below(sources::crates()).flat_map(|member| below(member.join("tests"))) {
        let Ok(told) = fs::read_to_string(theme.join("main.rs")) else {
            continue;
        };
        for path in below(theme.clone()) {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_module = path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").is_file();
            if is_module && name != "main" {
                stories += 1;
                let named = format!("mod {name};");
                if !told.lines().any(|line| line.trim_start_matches("pub ") == named) {
                    left_out.push(path);
                }
            }
        }
    }
    assert!(stories > 100, "only {stories} were found");
    assert_eq!(left_out, Vec::<PathBuf>::new());
}
