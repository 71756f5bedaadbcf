//! C programs that hold the interface to its word. Each is a claim of its own; its head says which.

mod common;

use common::holds;

#[test]
fn misuse_is_an_error_with_a_text() {
    holds("tests/misuse.c");
}

#[test]
fn a_descriptor_tells_of_outcomes_in_a_poll_loop() {
    holds("tests/events.c");
}

#[test]
fn an_epoll_loop_goes_on_beside_a_read_that_waits() {
    holds("tests/epoll.c");
}

#[test]
fn two_threads_share_a_service() {
    holds("tests/threads.c");
}

#[test]
fn threads_that_take_outcomes_at_once_lose_none() {
    holds("tests/sharing.c");
}

#[test]
fn a_forked_child_and_a_cancelled_thread_do_no_harm() {
    holds("tests/process.c");
}

#[test]
fn a_link_of_the_main_thread_is_gone_at_exit() {
    holds("tests/at_exit.c");
}

#[test]
fn a_log_keeps_what_was_said_to_be_durable() {
    holds("tests/log.c");
}

#[test]
fn pages_of_the_cache_are_held_changed_and_lent() {
    holds("tests/pins.c");
}

#[test]
fn a_deadline_wakes_a_poll_loop() {
    holds("tests/deadlines.c");
}
