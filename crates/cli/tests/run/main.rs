//! `baio run` and `baio aio-stress`: programs on the drop-in libraries.

#[path = "../support/mod.rs"]
mod support;

mod aio_stress;
mod signals;
mod starts;
