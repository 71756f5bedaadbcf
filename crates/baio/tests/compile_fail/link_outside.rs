//! Nobody else makes a link.
#![deny(warnings)]

impl baio::link::sealed::Sealed for Mine {}

struct Mine;

fn main() {}
