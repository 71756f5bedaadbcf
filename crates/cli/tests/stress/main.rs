//! `baio stress`: patterns, stages, verification, and what is refused.

#[path = "../support/mod.rs"]
mod support;

mod cached;
mod patterns;
mod refusals;
mod service;
mod signals;
mod stages;
mod verify;
