//! An operation that may have failed.
#![deny(warnings)]

use baio::{CreateOptions, Link, Remote};

async fn program(link: &Remote) {
    link.create_segment("one", &CreateOptions::of_size(1 << 20)).await;
    link.delete_segment("one").wait();
}

fn main() {
    let _ = program;
}
