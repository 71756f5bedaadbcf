//! `baio report`: its experiments run small, its files are kept and shown. No figure is asserted, for a benchmark is no test.

#[path = "../support/mod.rs"]
mod support;

mod cache;
mod figures;
mod pipelines;
mod saved;
mod small;
mod special;
mod target;
