//! Every promise that the volume asks of its device is broken here once, by editing the record of an honest run; the
//! explorer must notice. What each flush and durable write is for can be read from these stories.
//!
//! *Power cut alone*: found without any rot. *Rot*: one metadata page must rot as well, for the format keeps everything
//! twice; then no promise was found broken without rot. *Nothing*: no promise breaks under this model, and the test says why.

use baio_sim::explore::Plan;
use baio_sim::mutate::{self, Weakening};
use baio_sim::report::Failure;
use baio_sim::trials::{self, Until};
use baio_sim::violation::Kind;

use crate::part;

/// The deepest of these needs about 9,000.
const STATES: u64 = 40_000;

/// Where a promise is not expected to break.
const STATES_WITHOUT: u64 = 2_000;

/// Is this one of those that this run takes? (`tests/part.rs`)
fn is_ours(name: &str) -> bool {
    let all: Vec<&str> = mutate::ALL.iter().map(|weakening| weakening.name).collect();
    part::ours(&all).contains(&name)
}

fn first_failure(name: &str, rot: bool, states: u64) -> Option<Failure> {
    let weakening = Weakening::by_name(name).expect("a weakening of this name");
    let plan = Plan {
        rot,
        weakening: Some(weakening),
        ..Plan::of(1)
    };
    let report = trials::run(&plan, Until::Broken(states), 1);
    let failure = report.failures.into_iter().next();
    match &failure {
        Some(failure) => println!("{name}, after {} states: {}", report.states, failure.violation),
        None => println!("{name}: no promise broken in {} states", report.states),
    }
    failure
}

/// What is seen first of a broken promise depends on the workload: that a segment is gone, that it shows somebody's bytes,
/// that two have one block, that a check finds damage, that the volume does not open. `kinds` are those that this one can come
/// to; a panic, or a promise that has nothing to do with it, does not pass for it.
fn a_power_cut_alone_shows(name: &str, kinds: &[Kind]) {
    if !is_ours(name) {
        return;
    }
    let failure = first_failure(name, false, STATES).expect("a broken promise");
    assert!(kinds.contains(&failure.violation.kind), "{name}: {}", failure.violation);
}

/// The same where a page must rot as well, or a check must look at what no opening does.
fn rot_shows(name: &str, kinds: &[Kind]) {
    if !is_ours(name) {
        return;
    }
    let failure = first_failure(name, true, STATES).expect("a broken promise");
    assert!(kinds.contains(&failure.violation.kind), "{name}: {}", failure.violation);
    let is_checks = failure.violation.story.contains("a check finds");
    assert!(failure.rotten || is_checks, "{name}: {}", failure.violation);
}

/// Without any of these nothing is wrong, as far as they look: so it is they that were noticed.
#[test]
fn an_honest_volume_on_an_honest_device_breaks_no_promise() {
    let report = trials::run(&Plan::of(1), Until::Broken(STATES), 1);
    assert!(report.failures.is_empty(), "{}", report.failures[0].violation);
}

fn nothing_shows(name: &str) {
    assert!(first_failure(name, true, STATES_WITHOUT).is_none());
}

/// The record is durable, the zeroes are not: the new segment shows what its blocks held before.
#[test]
fn a_create_that_does_not_flush_its_zeroes() {
    a_power_cut_alone_shows("create-without-flush", &[Kind::Leak]);
}

/// Shown at once, without any crash; it proves that the stale bytes are there to be found.
#[test]
fn a_create_that_does_not_zero() {
    a_power_cut_alone_shows("create-without-zeroes", &[Kind::Leak]);
}

/// A create in a bucket last written before the healed epoch is acknowledged; its table image is lost. The next opening finds
/// an old, valid image, believes it whole, and never looks at the mirror.
#[test]
fn a_table_image_that_is_not_durable() {
    a_power_cut_alone_shows("volatile-table", &[Kind::Lost]);
}

/// The same for a delete: the segment is back.
#[test]
fn a_tombstone_that_is_not_durable() {
    a_power_cut_alone_shows("volatile-tombstone", &[Kind::Lost]);
}

/// The mirror image is lost after the acknowledgement, a new image lands in the table, and the acknowledged one rots.
#[test]
fn a_mirror_image_that_is_not_durable() {
    rot_shows("volatile-mirror", &[Kind::Lost]);
}

/// A crash leaves the mirror ahead. An opening serves the table's older image, which is of an epoch that was healed long
/// ago, so it asks nobody. Then an image of the table rots, the mirror is asked, and takes the served state back.
#[test]
fn a_mirror_written_before_the_table() {
    rot_shows("mirror-before-table", &[Kind::Lost, Kind::Failed]);
}

#[test]
fn a_sync_that_does_not_flush() {
    a_power_cut_alone_shows("user-sync-ignored", &[Kind::Lost]);
}

#[test]
fn a_durable_write_that_is_not() {
    a_power_cut_alone_shows("user-durable-write-volatile", &[Kind::Lost]);
}

/// Noticed only where a sync or close followed: an unsynced write may be lost.
#[test]
fn a_write_that_never_arrives() {
    a_power_cut_alone_shows("user-write-dropped", &[Kind::Lost]);
}

/// What was written before a clean close is promised to last; the power fails while the volume is closed.
#[test]
fn a_close_that_does_not_flush() {
    a_power_cut_alone_shows("close-without-flush", &[Kind::Lost]);
}

/// A process is killed when its record is in the device's cache. The next one reads it there and serves it; its healing
/// writes only the mirror, for the table is whole as far as it can see. Then the power fails and the cache is lost; the
/// table's older image is of a healed epoch, and is served.
#[test]
fn an_opening_that_does_not_flush() {
    a_power_cut_alone_shows("open-without-flush", &[Kind::Lost]);
}

/// A crash between table and mirror; the opening serves the table's image, which has no second home; it rots.
#[test]
fn healing_that_is_not_written_down() {
    rot_shows("healing-dropped", &[Kind::Lost]);
}

/// The healed epoch is durable before the healing is: the next opening believes it.
#[test]
fn healing_that_is_not_durable_when_the_healed_epoch_is() {
    rot_shows("healing-held", &[Kind::Lost]);
}

/// A clean volume is opened and used, and the power fails. The raised epoch was only in the device's cache, so the next
/// opening finds a clean volume, heals nothing and believes the snapshot: half a rename stays, or blocks that somebody has are free.
#[test]
fn a_raised_epoch_that_is_not_durable() {
    a_power_cut_alone_shows("epoch-held", &[Kind::Overlap, Kind::Space, Kind::Lost]);
}

/// One copy is lost, so the next update, cut half-way, leaves three different sequences, and a rotten copy the fourth.
#[test]
fn copies_of_the_raised_epoch_that_are_not_durable() {
    rot_shows("epoch-volatile", &[Kind::Refused, Kind::Space]);
}

#[test]
fn copies_0_and_1_that_are_not_durable_before_2_and_3() {
    rot_shows("epoch-front-held", &[Kind::Refused]);
}

/// Copies 2 and 3 stay older and older while 0 and 1 go on: an update cut after copy 0 leaves no two that agree.
#[test]
fn copies_2_and_3_that_are_not_durable() {
    a_power_cut_alone_shows("epoch-rear-held", &[Kind::Refused]);
}

/// Three openings in a row are cut, each after copy 0: four different sequences.
#[test]
fn superblock_copies_that_are_not_healed_before_the_next_update() {
    a_power_cut_alone_shows("superblock-healing-dropped", &[Kind::Refused]);
}

/// If the healed epoch is lost, the next opening heals more than it must. That costs time and breaks nothing.
#[test]
fn a_lost_healed_epoch_costs_only_time() {
    nothing_shows("healed-epoch-held");
}

/// If the note of the clean close is lost, the next opening heals what needs no healing.
#[test]
fn a_lost_note_of_a_clean_close_costs_only_time() {
    nothing_shows("clean-note-held");
}

#[test]
fn a_resize_that_is_not_durable() {
    a_power_cut_alone_shows("resize-volatile", &[Kind::Lost, Kind::Failed, Kind::Overlap]);
}

/// What lies behind the old end are bytes of whoever had the blocks before.
#[test]
fn a_segment_that_grows_into_what_was_not_zeroed() {
    a_power_cut_alone_shows("grow-without-zeroes", &[Kind::Leak, Kind::Lost]);
}

#[test]
fn a_segment_that_grows_and_does_not_flush_its_zeroes() {
    a_power_cut_alone_shows("grow-without-flush", &[Kind::Leak, Kind::Lost]);
}

#[test]
fn a_rename_that_is_not_durable() {
    a_power_cut_alone_shows("rename-volatile", &[Kind::Lost, Kind::Failed, Kind::Overlap]);
}

/// Between the two records the segment has no name.
#[test]
fn a_rename_that_gives_up_the_old_name_first() {
    a_power_cut_alone_shows("rename-old-name-first", &[Kind::Lost, Kind::Failed, Kind::Overlap]);
}

/// The second record of the move is written over a bucket that does not have the first.
#[test]
fn a_move_whose_first_record_is_not_durable() {
    a_power_cut_alone_shows("move-begins-volatile", &[Kind::Failed, Kind::Lost, Kind::Leak]);
}

#[test]
fn a_move_whose_copy_is_not_durable() {
    a_power_cut_alone_shows("move-copy-volatile", &[Kind::Leak, Kind::Lost]);
}

#[test]
fn a_move_that_records_its_mark_before_the_copy() {
    a_power_cut_alone_shows("move-mark-before-copy", &[Kind::Leak, Kind::Lost]);
}

#[test]
fn a_move_that_ends_before_its_last_chunk_is_copied() {
    a_power_cut_alone_shows("move-end-before-copy", &[Kind::Leak, Kind::Lost]);
}

/// The blocks of the source are given away, and after the power cut the segment is half there.
#[test]
fn a_move_whose_last_record_is_not_durable() {
    a_power_cut_alone_shows(
        "move-end-volatile",
        &[Kind::Failed, Kind::Lost, Kind::Leak, Kind::Overlap],
    );
}

#[test]
fn a_quota_that_is_not_durable() {
    a_power_cut_alone_shows("quota-volatile", &[Kind::Lost, Kind::Failed]);
}

#[test]
fn a_volume_that_was_larger() {
    a_power_cut_alone_shows("volume-growth-held", &[Kind::Lost, Kind::Refused, Kind::Failed]);
}

/// Each page of a snapshot carries its epoch and a checksum, and the sums must add up; else the table is read.
#[test]
fn a_lost_snapshot_costs_only_time() {
    nothing_shows("snapshot-held");
}
