//! A program that was linked against libaio finds every symbol of it in ours, by the same version, and no other.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What `readelf` says that a library defines: functions and versions.
fn defined(library: &Path) -> BTreeSet<String> {
    let told = Command::new("readelf")
        .args(["--dyn-syms", "-W"])
        .arg(library)
        .output()
        .unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row.len() == 8 && row[6] != "UND" && row[0] != "Num:");
    ours.map(|row| format!("{} {}", row[3], row[7])).collect()
}

/// Of libaio 0.3.113.
const SYMBOLS: [&str; 16] = [
    "FUNC io_cancel@@LIBAIO_0.4",
    "FUNC io_cancel@LIBAIO_0.1",
    "FUNC io_destroy@@LIBAIO_0.4",
    "FUNC io_getevents@@LIBAIO_0.4",
    "FUNC io_getevents@LIBAIO_0.1",
    "FUNC io_pgetevents@@LIBAIO_0.5",
    "FUNC io_queue_init@@LIBAIO_0.1",
    "FUNC io_queue_release@@LIBAIO_0.1",
    "FUNC io_queue_run@@LIBAIO_0.1",
    "FUNC io_queue_wait@@LIBAIO_0.4",
    "FUNC io_queue_wait@LIBAIO_0.1",
    "FUNC io_setup@@LIBAIO_0.4",
    "FUNC io_submit@@LIBAIO_0.1",
    "OBJECT LIBAIO_0.1",
    "OBJECT LIBAIO_0.4",
    "OBJECT LIBAIO_0.5",
];

/// For programs that go on by syscall(2) where the library made the context.
const SYSCALL: &str = "FUNC syscall";

#[test]
fn both_names_have_the_symbols_of_libaio() {
    let own = cfg!(target_arch = "x86_64").then_some(SYSCALL);
    let expected: BTreeSet<String> = SYMBOLS.into_iter().chain(own).map(str::to_owned).collect();
    for name in ["libaio.so.1", "libaio.so.1t64"] {
        let library = common::ours().join(name);
        assert_eq!(defined(&library), expected, "{name}");
        let told = Command::new("readelf").arg("-d").arg(&library).output().unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        assert!(text.contains(&format!("Library soname: [{name}]")), "{text}");
    }
}

#[test]
fn they_are_those_of_the_distributions_libaio() {
    match common::original() {
        Some(original) => {
            let mut ours = defined(&common::ours().join("libaio.so.1"));
            ours.remove(SYSCALL);
            assert_eq!(defined(&original), ours);
        }
        None => common::skipped(
            "symbols::they_are_those_of_the_distributions_libaio",
            "libaio.so.1 (`apt install libaio1`)",
        ),
    }
}
