//! Requests on segments and files: what each does to the bytes, and that each ends.

#[path = "../harness/mod.rs"]
mod harness;

mod beside_the_drivers_own;
mod counts;
mod discards_and_zeros;
mod end_at_every_step;
mod fences;
mod files_change_their_size;
mod files_of_any_size;
mod foreign_completions;
mod outcomes;
mod outside_loops;
mod the_last_page_grows;
