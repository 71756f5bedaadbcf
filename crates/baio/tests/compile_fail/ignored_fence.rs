//! A fence that may not have made anything safe.
#![deny(warnings)]

use baio::{Durability, File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    file.fence(Durability::Full).await;
    Ok(())
}

fn main() {
    let _ = program;
}
