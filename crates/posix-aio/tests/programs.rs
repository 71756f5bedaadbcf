//! Programs in C (`programs.c`, `straits.c`), run on our library and on glibc's.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(program: &Path, story: &str, preload: Option<&Path>, file: &Path) -> Output {
    let mut command = Command::new(program);
    command
        .arg(story)
        .arg(file)
        .env("BAIO_EXPLAIN", "1")
        .env_remove("LD_PRELOAD");
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command.output().unwrap()
}

/// The stories of `straits.c`; all others are in `programs.c`.
const STRAITS: [&str; 14] = [
    "waiters", "led", "little", "seccomp", "closed", "streams", "nested", "jump", "remade", "lent", "blind", "begun",
    "unread", "init",
];

fn of(story: &str) -> PathBuf {
    common::program(if STRAITS.contains(&story) {
        "straits.c"
    } else {
        "programs.c"
    })
}

/// Runs a story on both; what ours said on standard error, and the file that ours has left.
fn story(name: &str) -> (String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let told = |library: Option<&Path>, file: &str| {
        let file = dir.path().join(file);
        let told = run(&of(name), name, library, &file);
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(
            told.status.success(),
            "{name} with {library:?}: {}\n{said}",
            told.status
        );
        (said, std::fs::read(file).unwrap())
    };
    let (said, theirs) = told(None, "theirs");
    assert!(!said.contains("baio"), "{said}");
    let (said, ours) = told(Some(common::ours()), "ours");
    assert!(said.contains("baio posix-aio: "), "{name}: {said}");
    assert!(theirs == ours || name == "exit", "{name}: the files differ");
    (said, ours)
}

macro_rules! stories {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            story($name);
        }
    )*};
}

stories! {
    a_signal_comes_with_its_value: "signal";
    a_signal_that_the_program_reads_reaches_no_thread_of_ours: "signalfd";
    a_thread_is_made_with_its_attributes: "thread";
    suspend_ends_by_time_signal_and_request: "suspend";
    cancel_gives_all_its_answers: "cancel";
    lists_are_waited_for_or_told_of: "list";
    a_sync_comes_after_the_writes_before_it: "sync";
    writes_that_append_keep_their_order: "append";
    streams_keep_their_order: "stream";
    a_child_makes_its_own_requests: "fork";
    exec_leaves_nothing_behind: "exec";
    a_descriptor_may_be_closed_in_flight: "close";
    a_thread_may_end_while_its_requests_are_in_flight: "ended";
    polling_the_status_alone_is_enough: "poll";
    a_thread_that_waits_may_be_cancelled: "cancelled";
    a_handler_may_ask_for_the_status: "handler";
    several_threads_wait_at_once: "waiters";
    who_waits_for_a_list_is_woken_by_the_helper: "led";
    more_requests_than_the_ring_holds: "many";
    a_long_read_holds_up_nobody: "long";
}

#[test]
fn exit_loses_no_write() {
    let (_, left) = story("exit");
    assert!(left.len() == 64 << 20 && left.iter().all(|&byte| byte == b'e'));
}

#[test]
fn exit_waits_for_no_write_that_nobody_reads() {
    story("unread");
}

#[test]
fn without_io_uring_glibc_does_it() {
    let (said, _) = story("seccomp");
    assert!(
        said.contains("baio posix-aio: glibc's own threads; start the uring backend"),
        "{said}"
    );
    assert!(said.contains("cure:"), "{said}");
}

#[test]
fn glibc_has_as_many_threads_as_the_program_asks_for() {
    story("init");
}

#[test]
fn without_statx_requests_find_their_files() {
    story("blind");
}

#[test]
fn few_descriptors_and_little_memory_do() {
    story("little");
}

#[test]
fn closing_what_it_has_not_opened_costs_a_program_what_is_in_flight_alone() {
    story_of_ours("closed");
}

#[test]
fn a_pipe_and_a_socket_take_all_of_each_write_in_order() {
    story("streams");
}

#[test]
fn a_handler_above_aio_suspend_may_wait_itself() {
    story("nested");
}

#[test]
fn a_handler_may_leave_aio_suspend_for_good() {
    story("jump");
}

/// A story that glibc's has no like of.
fn story_of_ours(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let told = run(&of(name), name, Some(common::ours()), &dir.path().join("file"));
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_request_that_outlives_its_thread_never_goes_into_another_file() {
    story_of_ours("remade");
}

#[test]
fn what_has_begun_outlives_its_descriptor() {
    story_of_ours("begun");
}

#[test]
fn what_the_kernel_still_reads_is_under_way_when_the_ring_is_gone() {
    story_of_ours("lent");
}

#[test]
fn a_long_read_outlives_its_descriptor() {
    story_of_ours("outlives");
}

#[test]
fn long_reads_outlive_their_thread_and_their_descriptor() {
    story_of_ours("leaves");
}

/// Programs that were linked when POSIX AIO was a library of its own.
#[test]
fn programs_of_older_and_newer_libraries_are_reached() {
    let dir = tempfile::tempdir().unwrap();
    for (name, more) in [
        ("libc", vec![]),
        ("librt", vec!["-DOLD", "-Wl,--no-as-needed", "-l:librt.so.1"]),
    ] {
        let program = dir.path().join(name);
        common::build("programs.c", &program, &more);
        let told = run(&program, "suspend", Some(common::ours()), &dir.path().join("file"));
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success() && said.contains("io_uring"), "{name}: {said}");
    }
}
