//! The links are this crate's.
#![deny(warnings)]

fn needs_a_link<L: baio::Link>() {}

#[derive(Clone, Debug)]
struct Mine;

fn main() {
    needs_a_link::<Mine>();
}
