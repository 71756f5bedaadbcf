//! A short read that nobody looks at.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.read_exact_at(0, file.buffer(4096)?).await;
    file.write_all_at(0, file.buffer(4096)?).await;
    Ok(())
}

fn main() {
    let _ = program;
}
