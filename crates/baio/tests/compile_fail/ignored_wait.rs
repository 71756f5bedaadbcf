//! The blocking form is no way around.
#![deny(warnings)]

use baio::{File, Local};

fn program(file: &File<Local>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?).wait();
    Ok(())
}

fn main() {
    let _ = program;
}
