//! And its pins.
#![deny(warnings)]

use baio::{Local, Pin};

fn program(pin: Pin<Local>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || pin.page())
}

fn main() {
    let _ = program;
}
