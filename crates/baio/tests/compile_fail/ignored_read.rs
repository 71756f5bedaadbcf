//! A read whose failure nobody looks at.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.read_at(0, file.buffer(4096)?).await;
    Ok(())
}

fn main() {
    let _ = program;
}
