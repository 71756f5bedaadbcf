//! The volume as a whole: made, opened, looked at, kept still, grown; and what it says of anything that is none.

#[path = "../harness/mod.rs"]
mod harness;

mod copied_while_in_use;
mod epochs_ahead;
mod format_spares;
mod freezes;
mod grows;
mod lives_on_any_device;
mod looks_at_one_bucket;
mod notices_a_device_that_shrank;
mod opens_beside_bad_pages;
mod opens_known;
mod opens_to_read;
mod reads_old_images;
mod recovery_reads_back;
mod refuses_bad_input;
mod serves_on_a_full_host;
mod sizes_and_sectors;
mod slots_come_free;
mod superblock_pairs_in_order;
mod superblock_reads_fail;
mod trusts_its_snapshot;
