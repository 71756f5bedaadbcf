//! C programs that hold the interface to its word. Each is a claim of its own; its head says which.

mod common;

use common::holds;

#[test]
fn misuse_is_an_error_with_a_text() {
    holds("tests/misuse.c");
}
