//! What the explorers promise: nothing acknowledged is lost, whatever is cut, rotten or failing; and they notice when it is.
//!
//! Each looks at a part of what `.ci/run` explores with the program itself, and asks that every kind of state was among it.

#[path = "../../../../tests/part.rs"]
mod part;
#[path = "../reader/mod.rs"]
mod reader;

mod a_format_that_is_cut;
mod a_stale_bucket_takes_nothing;
mod another_reader_agrees;
mod damaged_volumes;
mod every_fault_at_every_request;
mod every_short_sequence;
mod no_page_is_ahead_of_its_log;
mod nothing_acknowledged_is_lost;
mod one_fault_of_the_device;
mod one_wrong_bit;
mod the_engine_keeps_its_word;
mod the_explorer_bites;
mod the_log_keeps_its_word;
mod the_same_seed_tells_the_same_story;
mod what_others_do_to_the_file;
mod what_was_buried_stays_buried;
