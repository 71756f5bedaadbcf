//! Segments that move while they are used.

#[path = "../harness/mod.rs"]
mod harness;

mod defrag;
mod defrag_begun;
mod discards_beside_a_move;
mod segments;
mod stop;
