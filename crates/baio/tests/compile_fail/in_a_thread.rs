//! What stays in the thread of its link.
#![deny(warnings)]
#![allow(dead_code)]

use baio::{Buffer, Link, Local, Pin, Request, Segment};

/// A local link stays in its thread.
fn local_in_a_thread(link: Local) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || link.in_flight())
}

/// So do its segments.
fn segment_in_a_thread(segment: Segment<Local>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || segment.info().name.clone())
}

/// And its requests.
fn request_in_a_thread(request: Request<Local, Buffer>) -> std::thread::JoinHandle<bool> {
    std::thread::spawn(move || request.wait().is_ok())
}

/// And its pins.
fn pin_in_a_thread(pin: Pin<Local>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || pin.page())
}

fn main() {}
