//! A close that may have failed to write back.
#![deny(warnings)]

use baio::{Link, Remote};

fn program(link: Remote) {
    link.close();
}

fn main() {
    let _ = program;
}
