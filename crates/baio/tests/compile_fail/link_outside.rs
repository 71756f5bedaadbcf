//! Nobody else makes a link: what one would have to be cannot be named.
#![deny(warnings)]

pub fn wants<L: baio::transport::Transport>(_: L) {}

fn main() {}
