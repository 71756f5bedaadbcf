//! # baio-shim: what the drop-in libraries have in common
//!
//! | module | what it is |
//! |---|---|
//! | [`counters`] | what a program did with a shim, for `baio run` |
//! | [`signals`] | the program's signals are for its own threads |

pub mod counters;
pub mod signals;
