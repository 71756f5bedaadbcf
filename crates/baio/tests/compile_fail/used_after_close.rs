//! A link that was closed is gone.
#![deny(warnings)]

use baio::{Link, Remote};

fn program(link: Remote) -> baio::Result<usize> {
    link.close()?;
    Ok(link.in_flight())
}

fn main() {
    let _ = program;
}
