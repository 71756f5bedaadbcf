//! A list that may not have been written.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.write_vectored_at(0, vec![file.buffer(4096)?]).await;
    Ok(())
}

fn main() {
    let _ = program;
}
