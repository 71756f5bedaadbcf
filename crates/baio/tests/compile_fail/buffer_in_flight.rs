//! A buffer that was given to a request is the request's.
#![deny(warnings)]

use baio::{File, Remote};

async fn program(file: &File<Remote>) -> baio::Result<()> {
    let mut buffer = file.buffer(4096)?;
    let write = file.write_at(0, buffer);
    buffer[0] = 1;
    write.await?;
    Ok(())
}

fn main() {
    let _ = program;
}
