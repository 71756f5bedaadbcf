//! `baio run`: programs on the drop-in libraries.

#[path = "../support/mod.rs"]
mod support;

mod signals;
mod starts;
