//! A range that may not have been given back.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.discard(0, 4096).await;
    file.zero(0, 4096).await;
    Ok(())
}

fn main() {
    let _ = program;
}
