//! A local link stays in its thread.
#![deny(warnings)]

use baio::{Link, Local};

fn program(link: Local) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || link.in_flight())
}

fn main() {
    let _ = program;
}
