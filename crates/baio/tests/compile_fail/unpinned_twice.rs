//! A page is given back once.
#![deny(warnings)]

use baio::{Pin, Remote};

fn program(pin: Pin<Remote>) {
    pin.unpin();
    pin.unpin();
}

fn main() {
    let _ = program;
}
