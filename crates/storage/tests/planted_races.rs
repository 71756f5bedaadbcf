//! The rules that `cache/races.rs` names are taken out of the code one at a time, and the test of each must fail then; and so
//! must the model of `cache/any_mix.rs`, which knows none of them, for those that it can see; and `requests/end_at_every_step.rs` for
//! two that it found. They are
//! compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of its own; the environment names the one
//! that is out (`seeded_bug` in `src/lib.rs`).
//!
//! It builds the storage crate and two of its test binaries once more: a minute or two, so it is not run unless asked for:
//!
//!     cargo test -p baio-storage --test planted_races -- --ignored

#[path = "harness/planted.rs"]
mod planted;

use planted::Bug;

/// Which rule is out, and the test that must say so.
const BUGS: &[(&str, &str)] = &[
    (
        "reserve-keeps-pages",
        "r1_a_cached_read_never_gives_what_was_there_before_a_direct_write_that_has_ended",
    ),
    (
        "reserve-lets-newcomers-in",
        "r1_a_cached_read_never_gives_what_was_there_before_a_direct_write_that_has_ended",
    ),
    (
        "first-comers-are-forgotten",
        "r1_a_direct_write_that_began_before_anything_was_cached_counts_too",
    ),
    (
        "any-flush-covers",
        "r2_a_flush_covers_only_what_was_written_before_it_began",
    ),
    (
        "reserve-drops-changes",
        "r3_a_direct_write_beside_changed_bytes_of_its_page_loses_neither",
    ),
    (
        "reuse-before-drain",
        "r4_no_write_of_a_deleted_segment_lands_in_the_next_one",
    ),
    (
        "deleted-pages-stay",
        "r4_no_write_of_a_deleted_segment_lands_in_the_next_one",
    ),
    (
        "shrink-leaves-the-cache-alone",
        "r4_no_write_behind_a_new_end_lands_in_the_neighbour",
    ),
    (
        "size-is-shown-early",
        "r5_a_reader_never_sees_what_was_there_before_a_segment_grew",
    ),
    (
        "a-read-ends-at-a-gap",
        "r6_a_read_over_cached_and_missing_pages_ends_with_its_last_part",
    ),
    ("half-is-the-whole", "r6_an_io_that_was_made_two_ends_with_the_second"),
    (
        "what-others-write-is-safe",
        "r7_a_durable_write_waits_for_pages_that_write_back_has_taken",
    ),
    ("any-change-wakes", "r8_whoever_is_woken_can_go_on"),
    (
        "any-change-wakes",
        "table_1_letting_go_of_a_page_wakes_nobody_who_waits_for_its_write_back",
    ),
    (
        "the-ended-still-wait",
        "a_cancel_during_a_delete_ends_each_request_once",
    ),
    (
        "given-up-and-nobody-woken",
        "a_cancel_during_a_resize_lets_the_resize_and_the_others_go_on",
    ),
    ("who-was-abandoned-is-on-the-device", "beside_a_move"),
    ("who-waits-is-not-released", "beside_nothing"),
    (
        "a-cold-read-overtakes-direct-writes",
        "a_cold_read_gives_what_a_direct_write_has_left_that_ended_before_it",
    ),
    (
        "a-cold-read-passes-what-is-here",
        "a_cold_read_gives_what_a_cached_write_has_left_that_was_done_before_it",
    ),
    (
        "pages-show-before-their-bytes",
        "a_page_shows_no_bytes_that_it_never_had",
    ),
    (
        "a-lent-page-is-changed-in-place",
        "what_is_lent_stays_as_it_is_and_who_writes_writes_a_copy",
    ),
    (
        "the-first-reading-is-believed",
        "volume::beside::tests::a_reading_that_met_a_change_is_made_again",
    ),
    (
        "gate-of-another",
        "a_page_never_goes_out_before_the_log_of_its_own_gate",
    ),
    ("gate-of-another", "no_mix_of_logs_writes_a_page_before_its_own"),
    ("gate-of-another", "with_a_buffer_pool"),
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
const MODEL: &str = "any_mix_through_a_core_agrees_with_an_array";

fn file_of(test: &str) -> &'static str {
    match test {
        MODEL => "cache/any_mix",
        "beside_nothing" | "beside_a_move" => "requests/end_at_every_step",
        test if test.starts_with("a_cold_read_") => "cache/bypass",
        "a_page_never_goes_out_before_the_log_of_its_own_gate" | "no_mix_of_logs_writes_a_page_before_its_own" => {
            "cache/gates"
        }
        "with_a_buffer_pool" => "cache/model",
        "a_page_shows_no_bytes_that_it_never_had" => "cache/write_through",
        "what_is_lent_stays_as_it_is_and_who_writes_writes_a_copy" => "cache/lend",
        test if test.starts_with("volume::") => planted::LIB,
        _ => "cache/races",
    }
}

#[test]
#[ignore = "builds the crate anew: a minute or two"]
fn are_found() {
    let model = SEEN_BY_THE_MODEL.iter().map(|bug| (*bug, MODEL));
    let all: Vec<Bug> = BUGS
        .iter()
        .copied()
        .chain(model)
        .map(|(bug, test)| (bug, file_of(test), test))
        .collect();
    planted::are_found(&all, &[("BAIO_MODEL_OPS", "250000")]);
}
