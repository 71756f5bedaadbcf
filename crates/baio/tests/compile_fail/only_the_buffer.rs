//! The buffer comes through the result only.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    let buffer = file.read_at(0, file.buffer(4096)?).await.buffer;
    assert!(!buffer.is_empty());
    Ok(())
}

fn main() {
    let _ = program;
}
