//! Programs in C (`programs.c`), linked against libaio as any program is, run on our library and on the distribution's.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Programs, built once: their directory is kept as long as the tests run.
fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for name in ["programs", "straits", "over", "own"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
            let told = Command::new("cc")
                .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
                .arg(dir.path().join(name))
                .arg(source.with_extension("c"))
                .arg(common::ours().join("libaio.so.1"))
                .output()
                .unwrap();
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        }
        dir
    });
    dir.path().join(name)
}

/// Ours as it chooses, and from the start on a ring.
const CHOOSES: &str = "";
const RING: &str = "uring";

fn run(program_of: &str, story: &str, library: &Path, carrier: &str, file: &Path) -> Output {
    Command::new(program(program_of))
        .arg(story)
        .arg(file)
        .env("LD_LIBRARY_PATH", library)
        .env("BAIO_LIBAIO", carrier)
        .env("BAIO_EXPLAIN", "1")
        .output()
        .unwrap()
}

/// Runs a story on the original and on ours, both ways; what ours said on standard error on the ring, and the file that it has left.
fn story(name: &str) -> (String, Vec<u8>) {
    story_of("programs", name)
}

fn story_of(program_of: &str, name: &str) -> (String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let told = |library: &Path, carrier: &str, file: &str| {
        let file = dir.path().join(file);
        let told = run(program_of, name, library, carrier, &file);
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(
            told.status.success(),
            "{name} with {library:?} {carrier}: {}\n{said}",
            told.status
        );
        (said, std::fs::read(file).unwrap())
    };
    let (_, chosen) = told(common::ours(), CHOOSES, "chosen");
    let (said, ours) = told(common::ours(), RING, "ours");
    assert!(chosen == ours, "{name}: the files differ");
    match common::original() {
        Some(original) => {
            let (_, left) = told(original.parent().unwrap(), CHOOSES, "theirs");
            assert!(left == ours, "{name}: the files differ");
        }
        None => common::skipped(&format!("programs::{name}: the comparison"), "libaio.so.1"),
    }
    (said, ours)
}

#[test]
fn a_child_has_no_contexts_and_makes_its_own() {
    story("fork");
}

#[test]
fn exit_loses_nothing_that_was_submitted() {
    let (_, left) = story("exit");
    assert!(left.len() == 64 << 20 && left.iter().all(|&byte| byte == b'e'));
}

#[test]
fn exec_leaves_nothing_behind() {
    story("exec");
}

#[test]
fn a_descriptor_may_be_closed_in_flight() {
    let (_, left) = story("close");
    assert!(left.iter().all(|&byte| byte == b'c'));
}

#[test]
fn closing_what_it_has_not_opened_costs_a_program_nothing() {
    story("closed");
}

#[test]
fn few_descriptors_and_little_memory_do() {
    let (said, _) = story("little");
    assert!(
        said.contains("io_uring\n") || said.contains("the kernel's own"),
        "{said}"
    );
}

#[test]
fn without_io_uring_the_kernels_own_calls_do_it() {
    let (said, _) = story("seccomp");
    assert!(
        said.contains("a context for 8 requests: the kernel's own io_* calls; start the uring backend"),
        "{said}"
    );
    assert!(said.contains("cure:"), "{said}");
}

#[test]
fn signals_end_a_wait_as_the_mask_says() {
    story("signals");
}

#[test]
fn a_signal_that_the_program_reads_reaches_no_thread_of_ours() {
    story("signalfd");
}

#[test]
fn an_outside_loop_takes_events_without_a_call() {
    story("loop");
}

#[test]
fn a_thread_that_waits_may_be_cancelled() {
    story("cancel");
}

#[test]
fn a_program_may_go_on_by_system_calls() {
    story("calls");
}

#[test]
fn a_context_that_two_threads_destroy_goes_once() {
    story("twice");
}

#[test]
fn a_pipe_takes_all_of_each_write_in_order() {
    story_of("straits", "pipe");
}

#[test]
fn a_socket_takes_all_of_each_write_in_order() {
    story_of("straits", "socket");
}

#[test]
fn a_sync_outlasts_its_descriptor() {
    story_of("straits", "synced");
}

#[test]
fn an_event_fd_is_signalled_while_somebody_waits_for_more() {
    story_of("straits", "gathering");
}

#[test]
fn a_bad_descriptor_is_told_at_once_while_somebody_waits() {
    story_of("straits", "bad");
}

#[test]
fn what_was_done_in_the_call_is_there_when_nobody_waits() {
    story_of("straits", "soon");
}

#[test]
fn a_read_that_finds_nothing_and_may_not_wait_ends() {
    story_of("straits", "nothing");
}

#[test]
fn addresses_that_are_not_there_are_told() {
    story_of("straits", "addresses");
}

#[test]
fn a_filter_that_forbids_the_library_to_ask_costs_a_program_nothing() {
    story_of("straits", "forbidden");
}

#[test]
fn a_file_that_is_closed_after_its_sync_is_locked_no_longer() {
    story_of("straits", "released");
}

#[test]
fn a_full_event_fd_holds_up_nobody() {
    story_of("straits", "brimful");
}

#[test]
fn a_request_whose_event_is_there_is_the_programs() {
    story_of("straits", "ended");
}

/// The file has what each library said.
#[test]
fn flags_limits_and_addresses_are_answered_alike() {
    story_of("straits", "answers");
}

#[test]
fn a_live_ring_may_be_moved() {
    let library = common::original().unwrap_or_else(|| common::ours().join("libaio.so.1"));
    let dir = tempfile::tempdir().unwrap();
    for library in [library.parent().unwrap(), common::ours()] {
        let told = run("straits", "moved", library, CHOOSES, &dir.path().join("file"));
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }
}

#[test]
fn a_request_whose_event_fd_has_no_duplicate_is_refused_for_now() {
    let dir = tempfile::tempdir().unwrap();
    let told = run("straits", "scarce", common::ours(), RING, &dir.path().join("file"));
    let said = String::from_utf8_lossy(&told.stderr);
    if !said.contains("its reads wait: io_uring") {
        common::skipped("programs::a_request_whose_event_fd_has_no_duplicate", "io_uring");
        return;
    }
    assert!(told.status.success(), "{said}");
}

#[test]
fn a_daemons_standard_streams_are_its_own() {
    story_of("straits", "daemon");
}

/// A story in which a context goes over where reads can be tried; whether it did.
fn goes_over(name: &str) -> bool {
    story_of("over", name);
    let dir = tempfile::tempdir().unwrap();
    let told = run("over", name, common::ours(), CHOOSES, &dir.path().join("file"));
    let said = String::from_utf8_lossy(&told.stderr);
    let can = said.contains("its reads wait: io_uring");
    if !can {
        common::skipped(
            &format!("programs::{name}: going over"),
            "a file system whose reads can be tried (RWF_NOWAIT), io_uring",
        );
    }
    can
}

#[test]
fn a_context_goes_over_under_threads_that_wait() {
    goes_over("over");
}

#[test]
fn a_context_goes_over_at_a_poll() {
    goes_over("poll");
}

#[test]
fn a_context_goes_over_when_the_first_thread_has_ended() {
    let went = goes_over("headless");
    // Where any does.
    assert!(went || !goes_over("over"));
}

/// Writes through the cache, reads of what is there, syncs and direct I/O: one at a time and many.
#[test]
fn what_the_kernel_does_well_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let told = run("over", "well", common::ours(), CHOOSES, &dir.path().join("file"));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{said}");
    assert!(!said.contains("its reads wait: io_uring"), "{said}");
}

/// Somebody may be about to take it without a call, and would take it twice.
#[test]
fn a_context_stays_while_an_event_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let told = run("over", "left", common::ours(), CHOOSES, &dir.path().join("file"));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{said}");
    assert!(!said.contains("its reads wait: io_uring"), "{said}");
}

#[test]
fn a_function_of_the_programs_own_is_not_called_from_inside() {
    let dir = tempfile::tempdir().unwrap();
    let told = run("own", "", common::ours(), CHOOSES, &dir.path().join("file"));
    assert!(told.status.success(), "{told:?}");
}
