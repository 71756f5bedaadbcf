//! Operations on segments: done once or not at all, whatever fails.

#[path = "../harness/mod.rs"]
mod harness;

mod changes_ownership;
mod create_waits;
mod end_to_end;
mod finishes_renames;
mod lists_in_slices;
mod repeats;
mod resize_rename_quota;
mod survives_faults;
