//! What every command says: messages, progress, pages, keys; and what it looks at without changing it.

#[path = "../support/mod.rs"]
mod support;

mod broken_pipe;
mod doctor_keys;
mod doctor_places;
mod examples;
mod install_docs;
mod messages;
mod metrics;
mod progress;
mod usage_errors;
