//! The rules that `cache/races.rs` and the stories of the log name are taken out of the code one at a time, and the test of each must fail
//! then; and so must the model of `cache/any_mix.rs`, which knows none of them, for those that it can see; and
//! `requests/end_at_every_step.rs` for two that it found. (The explorer finds those of the log too, all but the stamp:
//! `crates/sim/tests/planted_bugs.rs`.) They are compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of
//! its own; the environment names the one that is out (`seeded_bug` in `src/lib.rs`).
//!
//! It builds the storage crate and four of its test binaries once more: a minute or two, so it is not run unless asked for:
//!
//!     cargo test -p baio-storage --test planted_races -- --ignored

#[path = "harness/planted.rs"]
mod planted;

use planted::{Bug, LIB};

/// Which rule is out, and the test that must say so.
#[rustfmt::skip]
const BUGS: &[Bug] = &[
    ("reserve-keeps-pages", "cache/races", "r1_a_cached_read_never_gives_what_was_there_before_a_direct_write_that_has_ended"),
    ("reserve-lets-newcomers-in", "cache/races", "r1_a_cached_read_never_gives_what_was_there_before_a_direct_write_that_has_ended"),
    ("first-comers-are-forgotten", "cache/races", "r1_a_direct_write_that_began_before_anything_was_cached_counts_too"),
    ("any-flush-covers", "cache/races", "r2_a_flush_covers_only_what_was_written_before_it_began"),
    ("reserve-drops-changes", "cache/races", "r3_a_direct_write_beside_changed_bytes_of_its_page_loses_neither"),
    ("reuse-before-drain", "cache/races", "r4_no_write_of_a_deleted_segment_lands_in_the_next_one"),
    ("deleted-pages-stay", "cache/races", "r4_no_write_of_a_deleted_segment_lands_in_the_next_one"),
    ("shrink-leaves-the-cache-alone", "cache/races", "r4_no_write_behind_a_new_end_lands_in_the_neighbour"),
    ("size-is-shown-early", "cache/races", "r5_a_reader_never_sees_what_was_there_before_a_segment_grew"),
    ("a-read-ends-at-a-gap", "cache/races", "r6_a_read_over_cached_and_missing_pages_ends_with_its_last_part"),
    ("half-is-the-whole", "cache/races", "r6_an_io_that_was_made_two_ends_with_the_second"),
    ("what-others-write-is-safe", "cache/races", "r7_a_durable_write_waits_for_pages_that_write_back_has_taken"),
    ("any-change-wakes", "cache/races", "r8_whoever_is_woken_can_go_on"),
    ("any-change-wakes", "cache/races", "table_1_letting_go_of_a_page_wakes_nobody_who_waits_for_its_write_back"),
    ("the-ended-still-wait", "cache/races", "a_cancel_during_a_delete_ends_each_request_once"),
    ("given-up-and-nobody-woken", "cache/races", "a_cancel_during_a_resize_lets_the_resize_and_the_others_go_on"),
    ("who-was-abandoned-is-on-the-device", "requests/end_at_every_step", "beside_a_move"),
    ("who-waits-is-not-released", "requests/end_at_every_step", "beside_nothing"),
    ("a-cold-read-overtakes-direct-writes", "cache/bypass", "a_cold_read_gives_what_a_direct_write_has_left_that_ended_before_it"),
    ("a-cold-read-passes-what-is-here", "cache/bypass", "a_cold_read_gives_what_a_cached_write_has_left_that_was_done_before_it"),
    ("pages-show-before-their-bytes", "cache/write_through", "a_page_shows_no_bytes_that_it_never_had"),
    ("a-lent-page-is-changed-in-place", "cache/lend", "what_is_lent_stays_as_it_is_and_who_writes_writes_a_copy"),
    ("rename-starts-its-generation-anew", "volume/slots_come_free", "of_the_two_inodes_of_half_a_rename_one_names_the_other"),
    ("renames-know-no-generation", LIB, "volume::contents::tests::a_rename_is_known_by_slot_generation_uuid_and_run"),
    ("renames-know-no-age", LIB, "volume::contents::tests::of_inodes_that_name_each_other_the_latest_stays"),
    ("the-first-reading-is-believed", LIB, "volume::beside::tests::a_reading_that_met_a_change_is_made_again"),
    ("gate-of-another", "cache/gates", "a_page_never_goes_out_before_the_log_of_its_own_gate"),
    ("gate-of-another", "cache/gates", "no_mix_of_logs_writes_a_page_before_its_own"),
    ("gate-of-another", "cache/model", "with_a_buffer_pool"),
    ("log-gap-is-passed-over", "log/crashes", "a_lost_middle_batch_ends_the_log"),
    ("log-torn-batch-accepted", "log/crashes", "a_torn_last_batch_is_cut"),
    ("log-rot-told-as-tail", "log/crashes", "rot_below_the_watermark_is_told_with_its_place"),
    ("log-tail-told-as-rot", "log/crashes", "rot_above_the_watermark_cuts_the_tail"),
    ("log-ghost-accepted", "log/crashes", "ghosts_of_the_last_lap_stay_out"),
    ("log-failed-write-acknowledged", "log/crashes", "a_failed_write_fails_all_from_it_on"),
    ("log-epoch-not-raised", "log/crashes", "ghosts_of_an_earlier_opening_stay_out"),
    ("log-epoch-in-one-copy", "log/epochs", "an_epoch_falls_back_to_either_copy_of_the_header"),
    ("log-lsns-do-not-skip", "log/crashes", "no_lsn_is_given_twice"),
    ("log-space-reused-early", "log/crashes", "space_is_not_used_again_before_the_head_is_durable"),
    ("log-watermark-ahead", "log/crashes", "what_is_in_flight_says_nothing_of_its_neighbours"),
    ("log-any-stamp-counts", "log/forged", "a_record_that_is_a_batch_is_none"),
    ("log-groups-by-halves", "log/crashes", "a_group_is_recovered_whole_or_not_at_all"),
];

/// What the model alone must notice, without knowing what to look for.
const SEEN_BY_THE_MODEL: &[&str] = &[
    "reserve-keeps-pages",
    "first-comers-are-forgotten",
    "any-flush-covers",
    "reserve-drops-changes",
    "shrink-leaves-the-cache-alone",
    "a-read-ends-at-a-gap",
    "what-others-write-is-safe",
    "any-change-wakes",
];
const MODEL: (&str, &str) = ("cache/any_mix", "any_mix_through_a_core_agrees_with_an_array");

#[test]
#[ignore = "builds the crate anew: a minute or two"]
fn are_found() {
    let model = SEEN_BY_THE_MODEL.iter().map(|bug| (*bug, MODEL.0, MODEL.1));
    let all: Vec<Bug> = BUGS.iter().copied().chain(model).collect();
    planted::are_found(&all, &[("BAIO_MODEL_OPS", "250000")]);
}
