//! A request that never starts.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?);
    Ok(())
}

fn main() {
    let _ = program;
}
