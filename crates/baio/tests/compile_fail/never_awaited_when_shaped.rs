//! Shaping a request does not start it.
#![deny(warnings)]

use baio::{Durability, File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?).direct().durable(Durability::Data);
    Ok(())
}

fn main() {
    let _ = program;
}
