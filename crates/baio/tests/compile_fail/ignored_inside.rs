//! That the link could be driven says nothing of the request.
#![deny(warnings)]

use baio::{File, Link, Local};

fn program(link: &Local, file: &File<Local>) -> baio::Result<()> {
    link.block_on(file.write_at(0, file.buffer(4096)?))?;
    Ok(())
}

fn main() {
    let _ = program;
}
