//! Volumes and their segments, by the commands that make, show and change them.

#[path = "../../../storage/tests/harness/image_text.rs"]
mod image_text;
#[path = "../support/mod.rs"]
mod support;

mod bad_images;
mod bad_requests;
mod commands;
mod freeze;
mod log;
mod looking_changes_nothing;
mod memory_cgroup;
mod one_owner;
mod reads_what_cannot_be_written;
