//! What was given back is not looked at.
#![deny(warnings)]

use baio::{Pin, Remote};

async fn program(pin: Pin<Remote>) -> baio::Result<u8> {
    pin.unpin();
    pin.read(|bytes| bytes[0]).await
}

fn main() {
    let _ = program;
}
