//! The parts of the kill test: the child that works until it is killed, and the model of what it may have left.
//!
//! The child says each thing on its line to the parent before it begins it, and again when it has returned:
//!
//! ```text
//! create OP NAME BLOCKS RESERVE    delete OP NAME    resize OP NAME BLOCKS    rename OP NAME NEW    move OP NAME
//! done OP | failed OP
//! write ID NAME AT BLOCKS STAMP    wrote ID | refused ID
//! ```

pub(crate) mod child;
pub(crate) mod model;

use crate::harness::BLOCK;

/// The content of a block: every word of it says which write it comes from.
pub(crate) fn block(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK / 8)
}
