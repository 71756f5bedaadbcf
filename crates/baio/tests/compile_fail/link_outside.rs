//! Nobody else makes a link.
#![deny(warnings)]

impl baio::transport::Transport for Mine {}

struct Mine;

fn main() {}
