//! It comes back through the result, and else not.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    let buffer = file.buffer(4096)?;
    file.write_at(0, buffer).await?;
    assert!(buffer.is_empty());
    Ok(())
}

fn main() {
    let _ = program;
}
