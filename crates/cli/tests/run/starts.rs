//! Promise: `baio run` starts an unmodified program on the drop-in libraries, is as the program would have been, and says what it did.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::drop_ins::libraries;
use crate::support::{Done, Place};

/// Reads its file eight times and writes it once, by libaio, and ends with status 3.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
struct iocb { void *data; unsigned key, flags; unsigned short opcode, priority; unsigned fd;
              void *bytes; unsigned long long count; long long offset; unsigned long long reserved; unsigned flags2, resfd; };
struct event { void *data, *object; long long result, result2; };
int io_setup(int, void **); int io_submit(void *, long, struct iocb **);
int io_getevents(void *, long, long, struct event *, void *); int io_destroy(void *);
int main(int count, char **words) {
    char bytes[9][512]; struct iocb some[9] = {{0}}, *list[9]; struct event events[9]; void *context = 0;
    int fd = open(words[1], O_RDWR);
    if (count != 2 || fd < 0 || io_setup(9, &context) != 0) return 1;
    for (int at = 0; at < 9; at++) {
        some[at].opcode = at == 8; some[at].fd = fd; some[at].bytes = bytes[at]; some[at].count = 512;
        some[at].offset = at * 512; list[at] = &some[at];
    }
    if (io_submit(context, 9, list) != 9 || io_getevents(context, 9, 9, events, 0) != 9) return 1;
    for (int at = 0; at < 9; at++) if (events[at].result != 512) return 1;
    return io_destroy(context) == 0 ? 3 : 1;
}
"#;

fn program(place: &Place) -> PathBuf {
    place.write("program.c", PROGRAM.as_bytes());
    place.write("file", &[7; 8192]);
    let path = place.path("program");
    let library = format!("{}/libaio.so.1", libraries());
    let told = Command::new("cc")
        .arg("-o")
        .args([&path, &place.path("program.c"), &PathBuf::from(library)])
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    path
}

fn ends(done: Done, status: i32) -> Done {
    assert_eq!(done.status(), status, "{}", done.errors());
    done
}

#[test]
fn a_program_is_run_and_counted() {
    let place = Place::new();
    program(&place);
    let line = format!(
        "run --libaio --libraries {} --counts counts -- ./program file",
        libraries()
    );
    ends(place.baio(&line), 3);
    let counts: Value = serde_json::from_slice(&std::fs::read(place.path("counts")).unwrap()).unwrap();
    let libaio = &counts["libaio"];
    assert_eq!(libaio["processes"], 1);
    let contexts = libaio["on_io_uring"].as_u64().unwrap() + libaio["without_io_uring"].as_u64().unwrap();
    assert_eq!(contexts, 1);
    assert_eq!(libaio["operations"]["read"]["requests"], 8);
    assert_eq!(libaio["operations"]["write"]["requests"], 1);
    assert_eq!(libaio["operations"]["write"]["failed"], 0);
    assert!(libaio["operations"]["read"]["latency_ns"]["max"].as_u64().unwrap() > 0);
    assert!(counts.get("posix_aio").is_none());
}

#[test]
fn the_table_is_on_standard_error() {
    let place = Place::new();
    program(&place);
    let line = format!("run --libaio --libraries {} -- ./program file", libraries());
    let told = ends(place.baio(&line), 3);
    assert_eq!(told.out(), b"");
    assert!(
        told.errors().contains("libaio: processes that have loaded it: 1;"),
        "{}",
        told.errors()
    );
}

#[test]
fn what_loads_nothing_is_told() {
    let place = Place::new();
    let line = format!("run --libaio --libraries {} -- sh -c true", libraries());
    let told = ends(place.baio(&line), 0);
    assert!(told.errors().contains("no process has loaded it"), "{}", told.errors());
}

/// As after `cargo install`, when the library has been copied to cargo's own directory; and the error says where it looked.
#[test]
fn an_installed_library_is_found() {
    let place = Place::new();
    program(&place);
    let baio = env!("CARGO_BIN_EXE_baio");
    std::fs::create_dir_all(place.path("bin")).unwrap();
    // By another process: a child that another test forks meanwhile would inherit what we write it by, and Linux runs no program that is open for writing.
    let copied = Command::new("cp")
        .args([PathBuf::from(baio), place.path("bin/baio")])
        .status();
    assert!(copied.unwrap().success());
    let line = "CARGO_HOME=$PWD/cargo BAIO_LIBRARIES= bin/baio run --libaio -- ./program file";
    let missing = ends(place.shell(line), 1);
    for looked in ["cargo/lib/baio", "bin/../lib/baio", "/usr/lib/baio"] {
        assert!(missing.errors().contains(looked), "{}", missing.errors());
    }
    std::fs::create_dir_all(place.path("cargo/lib/baio")).unwrap();
    let library = PathBuf::from(libraries()).join("libaio.so.1");
    std::fs::copy(library, place.path("cargo/lib/baio/libaio.so.1")).unwrap();
    ends(place.shell(line), 3);
}

/// The program has not begun when something is missing.
#[test]
fn nothing_runs_without_the_library() {
    let place = Place::new();
    ends(place.baio("run --libaio --libraries . -- touch begun"), 1);
    let line = format!(
        "run --libaio --libraries {} --counts no/where -- touch begun",
        libraries()
    );
    ends(place.baio(&line), 1);
    ends(place.baio("run --json -- touch begun"), 2);
    // What a run that does not come about would have written over stays.
    place.write("counts", b"of yesterday");
    let line = format!(
        "run --libaio --libraries . --libraries {} --counts counts -- ./none",
        libraries()
    );
    ends(place.baio(&line), 127);
    assert_eq!(place.read("counts"), b"of yesterday");
    assert!(!place.path("begun").exists());
}

#[test]
fn counts_replace_no_volume_and_leave_no_empty_file() {
    let place = Place::new();
    place.volume("4M", "1M");
    let before = place.read("vol");
    let run = |counts: &str, program: &str| {
        let libraries = libraries();
        place.baio(&format!(
            "run --libaio --libraries {libraries} --counts {counts} -- {program}"
        ))
    };
    let told = ends(run("vol", "touch begun"), 1);
    assert!(told.errors().contains("holds a baio volume"), "{}", told.errors());
    assert!(!told.errors().contains("--force"), "there is none: {}", told.errors());
    assert!(place.read("vol") == before && !place.path("begun").exists());
    ends(run(".", "touch begun"), 1);
    // There is nothing to count.
    ends(run("new", "./none"), 127);
    assert!(!place.path("new").exists());
    // A pipe has nothing to lose.
    let told = ends(run("/dev/stdout", "true"), 0);
    assert!(told.text().contains("\"schema_version\":1"), "{}", told.text());
    ends(run("/dev/null", "true"), 0);
}

#[test]
fn a_program_that_is_not_there_or_is_killed_ends_as_in_a_shell() {
    let place = Place::new();
    let run = |rest: &str| place.baio(&format!("run --libaio --libraries {} -- {rest}", libraries()));
    ends(run("./none"), 127);
    place.write("text", b"text");
    ends(run("./text"), 126);
    place.write("dies", b"kill -9 $$");
    ends(run("sh dies"), 137);
}
