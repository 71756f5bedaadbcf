//! The rules of the log are taken out of the code one at a time, and the test of each must fail then, and for those that it can
//! see the model too. They are compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of its own; the
//! environment names the one that is out (`seeded_bug` in `src/lib.rs`).
//!
//! It builds the storage crate and its test binary of the log once more: a minute or two, so it is not run unless asked for:
//!
//!     cargo test -p baio-storage --test log_planted -- --ignored

#[path = "harness/planted.rs"]
mod planted;

use planted::Bug;

/// Which rule is out, the test that must say so, and whether the model does.
const BUGS: &[(&str, &str, bool)] = &[
    ("log-gap-is-passed-over", "a_lost_middle_batch_ends_the_log", true),
    ("log-torn-batch-accepted", "a_torn_last_batch_is_cut", true),
    (
        "log-rot-told-as-tail",
        "rot_below_the_watermark_is_told_with_its_place",
        false,
    ),
    ("log-tail-told-as-rot", "rot_above_the_watermark_cuts_the_tail", true),
    ("log-ghost-accepted", "ghosts_of_the_last_lap_stay_out", true),
    (
        "log-failed-write-acknowledged",
        "a_failed_write_fails_all_from_it_on",
        true,
    ),
    ("log-epoch-not-raised", "ghosts_of_an_earlier_opening_stay_out", true),
    ("log-epoch-in-one-copy", FALLBACK, false),
    ("log-lsns-do-not-skip", "no_lsn_is_given_twice", true),
    (
        "log-space-reused-early",
        "space_is_not_used_again_before_the_head_is_durable",
        true,
    ),
    (
        "log-watermark-ahead",
        "what_is_in_flight_says_nothing_of_its_neighbours",
        true,
    ),
    ("log-any-stamp-counts", "a_record_that_is_a_batch_is_none", false),
    ("log-groups-by-halves", "a_group_is_recovered_whole_or_not_at_all", true),
];

const MODEL: &str = "the_log_is_the_list";
const FALLBACK: &str = "an_epoch_falls_back_to_either_copy_of_the_header";

fn file_of(test: &str) -> &'static str {
    match test {
        MODEL => "log/model",
        "a_record_that_is_a_batch_is_none" => "log/forged",
        FALLBACK => "log/epochs",
        _ => "log/crashes",
    }
}

#[test]
#[ignore = "builds the crate anew: a minute or two"]
fn are_found() {
    let tests = BUGS.iter().map(|(bug, test, _)| (*bug, *test));
    let model = BUGS.iter().filter(|(.., seen)| *seen).map(|(bug, ..)| (*bug, MODEL));
    let all: Vec<Bug> = tests
        .chain(model)
        .map(|(bug, test)| (bug, file_of(test), test))
        .collect();
    planted::are_found(&all, &[]);
}
