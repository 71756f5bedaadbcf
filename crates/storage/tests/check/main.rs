//! What is damaged, on purpose or not: read all the same, named, repaired.

#[path = "../harness/mod.rs"]
mod harness;

mod crafted_images;
mod gives_up_last;
mod hostile_images;
mod in_service;
mod keeps_what_is_quarantined;
mod names_every_problem;
mod read_errors_heal;
mod repairs_single_losses;
mod stale_inodes_lose;
