//! A change that never happens, and one that may have failed.
#![deny(warnings)]

use baio::{Pin, Remote};

async fn program(pin: &Pin<Remote>) {
    pin.change(1, |bytes| bytes.fill(0));
    pin.changeable(1).await;
}

fn main() {
    let _ = program;
}
