//! # baio-shim: what the drop-in libraries have in common
//!
//! | module | what it is |
//! |---|---|
//! | [`cancel`] | a thread is not cancelled inside a shim |
//! | [`counters`] | what a program did with a shim, for `baio run` |
//! | [`mod@file`] | which file a number of the program's stands for |
//! | [`forks`] | is this a forked child? |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cancel;
pub mod counters;
pub mod file;
pub mod forks;
