//! An operation that never begins.
#![deny(warnings)]

use baio::{CreateOptions, Link, Local};

fn program(link: &Local) {
    link.create_segment("one", &CreateOptions::of_size(1 << 20));
}

fn main() {
    let _ = program;
}
