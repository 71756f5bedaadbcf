//! Options that open nothing.
#![deny(warnings)]

use baio::File;

fn program() {
    File::options().write().create();
}

fn main() {
    let _ = program;
}
