//! The claim: the lint that keeps threads and descriptors to one way is denied by every crate that runs in somebody's process; and what is sent
//! to a socket never ends a process: SIGPIPE is for nobody. And nothing goes by a path through /proc, which a container may not have, where there is
//! another way. No story of a theme's tests is left out of its binary.

use std::fs;
use std::path::{Component, Path, PathBuf};

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
    let (stories, left_out) = left_out(&sources::with_tests());
    assert!(stories > 300, "only {stories} were found");
    assert_eq!(left_out, Vec::<PathBuf>::new());
}

#[test]
fn a_story_that_is_left_out_is_found_however_deep_it_lies() {
    let told = |dropped: &str| {
        let main = "mod one;\n#[cfg(unix)]\npub(crate) mod two;\n";
        let files = [
            ("a/tests/theme/main.rs", main.replace(dropped, "")),
            ("a/tests/theme/one.rs", String::new()),
            ("a/tests/theme/two/mod.rs", "mod deep;\n".replace(dropped, "")),
            ("a/tests/theme/two/deep.rs", "mod deeper;\n".replace(dropped, "")),
            ("a/tests/theme/two/deep/deeper.rs", String::new()),
            ("a/tests/helpers/mod.rs", String::new()),
            (
                "a/tests/helpers/child.rs",
                "#[path = \"../theme/one.rs\"]\nmod one;".into(),
            ),
            (
                "a/tests/uses.rs",
                "#[path = \"helpers/child.rs\"]\nmod child;".replace(dropped, ""),
            ),
        ];
        left_out(&files.map(|(path, text)| (PathBuf::from(path), text))).1
    };
    assert_eq!(told("mod nothing;"), Vec::<PathBuf>::new());
    assert_eq!(told("pub(crate) mod two;"), [Path::new("a/tests/theme/two/mod.rs")]);
    assert_eq!(told("mod deep;"), [Path::new("a/tests/theme/two/deep.rs")]);
    assert_eq!(told("mod deeper;"), [Path::new("a/tests/theme/two/deep/deeper.rs")]);
    let by_path = "#[path = \"helpers/child.rs\"]";
    assert_eq!(told(by_path), [Path::new("a/tests/helpers/child.rs")]);
}

#[test]
fn a_condition_that_never_holds_is_seen_wherever_it_stands() {
    let story = "a/tests/theme/one.rs";
    let told = |main: &str, one: &str| {
        let files = [("a/tests/theme/main.rs", main), (story, one)];
        left_out(&files.map(|(path, text)| (PathBuf::from(path), text.to_owned()))).1
    };
    for main in [
        "#[path = \"one.rs\"]\n#[rustfmt::skip]\nmod one;",
        "#[cfg(any())]\nmod two;\nmod one;",
    ] {
        assert_eq!(told(main, ""), Vec::<PathBuf>::new(), "{main}");
    }
    for main in [
        "#[cfg(any())]\nmod one;",
        "#[cfg(false)]\n#[rustfmt::skip]\n// A remark.\nmod one;",
        "#[cfg(any())]\n#[path = \"one.rs\"]\nmod one;",
        "#[path = \"one.rs\"]\n#[cfg(any())]\nmod one;",
        "#![cfg(any())]\nmod one;",
    ] {
        assert_eq!(told(main, ""), [Path::new(story)], "{main}");
    }
    assert_eq!(told("mod one;", "#![cfg(any())]"), [Path::new(story)]);
}

/// How many modules lie below the tests' directories; and those that neither the file of their directory names nor a path elsewhere.
fn left_out(files: &[(PathBuf, String)]) -> (usize, Vec<PathBuf>) {
    let text_of = |path: PathBuf| files.iter().find(|(other, _)| *other == path).map(|(_, text)| text);
    let by_path: Vec<PathBuf> = files.iter().flat_map(|(path, text)| paths_in(path, text)).collect();
    let (mut modules, mut left_out) = (0, Vec::new());
    for (path, text) in files {
        let Some((directory, name)) = module_of(path) else {
            continue;
        };
        let places = ["main.rs", "mod.rs"].map(|index| directory.join(index));
        let index: Vec<&String> = places
            .into_iter()
            .chain([directory.with_extension("rs")])
            .filter_map(text_of)
            .collect();
        if index.is_empty() {
            continue;
        }
        modules += 1;
        let is_named = index.iter().any(|text| names(text, &name)) || by_path.contains(path);
        if !is_named || is_off(text) {
            left_out.push(path.clone());
        }
    }
    (modules, left_out)
}

/// The directory that a module of a test belongs to, and its name. None of what is a binary of its own.
fn module_of(path: &Path) -> Option<(PathBuf, String)> {
    let stands_for = match path.file_name()?.to_str()? {
        "main.rs" => return None,
        "mod.rs" => path.parent()?.to_owned(),
        _ => path.with_extension(""),
    };
    let name = stands_for.file_name()?.to_str()?.to_owned();
    let directory = stands_for.parent()?.to_owned();
    let is_below_tests = directory.components().nth(1)?.as_os_str() == "tests" && directory.components().count() > 2;
    is_below_tests.then_some((directory, name))
}

/// What never holds: nobody compiles what stands below it.
const NEVER: [&str; 2] = ["#[cfg(any())]", "#[cfg(false)]"];

/// Whether nobody compiles a file, whoever names it.
fn is_off(text: &str) -> bool {
    let never = ["#![cfg(any())]", "#![cfg(false)]"];
    text.lines().any(|line| never.contains(&line.trim()))
}

/// The modules that a text has, and under no condition that never holds: of each its name, and its path where it has one.
fn modules_in(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut modules = Vec::new();
    if is_off(text) {
        return modules;
    }
    let (mut is_never, mut by_path) = (false, None);
    for line in text.lines() {
        let trimmed = line.trim();
        is_never |= NEVER.contains(&trimmed);
        let path = trimmed.strip_prefix("#[path = \"");
        by_path = path.and_then(|rest| rest.strip_suffix("\"]")).or(by_path);
        // Between a condition and what it is of stand other attributes, and remarks.
        if trimmed.is_empty() || trimmed.starts_with("#[") || trimmed.starts_with("//") {
            continue;
        }
        let visible = ["pub ", "pub(crate) ", "pub(super) "];
        let rest = visible.iter().find_map(|word| line.strip_prefix(word)).unwrap_or(line);
        let name = rest.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if !is_never && (name.is_some() || by_path.is_some()) {
            modules.push((name.unwrap_or_default(), by_path));
        }
        (is_never, by_path) = (false, None);
    }
    modules
}

/// Whether a text has this module.
fn names(text: &str, name: &str) -> bool {
    modules_in(text).iter().any(|(module, _)| *module == name)
}

/// The files that a file names by their paths.
fn paths_in(path: &Path, text: &str) -> Vec<PathBuf> {
    let named = modules_in(text).into_iter().filter_map(|(_, by_path)| by_path);
    named
        .map(|named| {
            let mut whole = PathBuf::new();
            for part in path.with_file_name(named).components() {
                match part {
                    Component::ParentDir => {
                        whole.pop();
                    }
                    part => whole.push(part),
                }
            }
            whole
        })
        .collect()
}
