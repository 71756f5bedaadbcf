//! So do its segments.
#![deny(warnings)]

use baio::{Local, Segment};

fn program(segment: Segment<Local>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || segment.info().name.clone())
}

fn main() {
    let _ = program;
}
