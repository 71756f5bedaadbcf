//! Every promise that the volume asks of its device is broken here once, by editing the record of an honest run; the
//! explorer must notice. What each flush and durable write is for can be read from these stories.
//!
//! *Power cut alone*: found without any rot. *Rot*: one metadata page must rot as well, for the format keeps everything
//! twice; then no promise was found broken without rot. *Nothing*: no promise breaks under this model, and the table says why.
//!
//! What is seen first of a broken promise depends on the workload: that a segment is gone, that it shows somebody's bytes,
//! that two have one block, that a check finds damage, that the volume does not open. Each has those that this one can come to; a panic,
//! or a promise that has nothing to do with it, does not pass for it.

use baio_sim::explore::Plan;
use baio_sim::mutate::{self, Weakening};
use baio_sim::report::Failure;
use baio_sim::trials::{self, Until};
use baio_sim::violation::Kind::{self, Failed, Leak, Lost, Overlap, Refused, Space};

use crate::part;

/// The deepest of these needs about 9,000.
const STATES: u64 = 40_000;

/// Where a promise is not expected to break.
const STATES_WITHOUT: u64 = 2_000;

/// What a promise that is broken may come to.
type Broken = (&'static str, &'static [Kind]);

const BY_A_POWER_CUT: &[Broken] = &[
    // The record is durable, the zeroes are not: the new segment shows what its blocks held before.
    ("create-without-flush", &[Leak]),
    // Shown at once, without any crash; it proves that the stale bytes are there to be found.
    ("create-without-zeroes", &[Leak]),
    // A create in a bucket last written before the healed epoch is acknowledged; its table image is lost. The next opening finds
    // an old, valid image, believes it whole, and never looks at the mirror.
    ("volatile-table", &[Lost]),
    // The same for a delete: the segment is back.
    ("volatile-tombstone", &[Lost]),
    ("user-sync-ignored", &[Lost]),
    ("user-durable-write-volatile", &[Lost]),
    // Noticed only where a sync or close followed: an unsynced write may be lost.
    ("user-write-dropped", &[Lost]),
    // What was written before a clean close is promised to last; the power fails while the volume is closed.
    ("close-without-flush", &[Lost]),
    // A process is killed when its record is in the device's cache. The next one reads it there and serves it; its healing
    // writes only the mirror, for the table is whole as far as it can see. Then the power fails and the cache is lost; the
    // table's older image is of a healed epoch, and is served.
    ("open-without-flush", &[Lost]),
    // A clean volume is opened and used, and the power fails. The raised epoch was only in the device's cache, so the next
    // opening finds a clean volume, heals nothing and believes the snapshot: half a rename stays, or blocks that somebody has are free.
    ("epoch-held", &[Overlap, Space, Lost]),
    // The same, if the cut takes all four copies.
    ("epoch-volatile", &[Overlap, Space, Lost]),
    // Copies 2 and 3 stay older and older while 0 and 1 go on: an update cut after copy 0 leaves no two that agree.
    ("epoch-rear-held", &[Refused]),
    // Three openings in a row are cut, each after copy 0: four different sequences.
    ("superblock-healing-dropped", &[Refused]),
    ("resize-volatile", &[Lost, Failed, Overlap]),
    // What lies behind the old end are bytes of whoever had the blocks before.
    ("grow-without-zeroes", &[Leak, Lost]),
    ("grow-without-flush", &[Leak, Lost]),
    ("rename-volatile", &[Lost, Failed, Overlap]),
    // Between the two records the segment has no name.
    ("rename-old-name-first", &[Lost, Failed, Overlap]),
    // The second record of the move is written over a bucket that does not have the first.
    ("move-begins-volatile", &[Failed, Lost, Leak]),
    ("move-copy-volatile", &[Leak, Lost]),
    ("move-mark-before-copy", &[Leak, Lost]),
    ("move-end-before-copy", &[Leak, Lost]),
    // The blocks of the source are given away, and after the power cut the segment is half there.
    ("move-end-volatile", &[Failed, Lost, Leak, Overlap]),
    ("quota-volatile", &[Lost, Failed]),
    ("volume-growth-held", &[Lost, Refused, Failed]),
];

/// Or a check must look at what no opening does.
const BY_ROT: &[Broken] = &[
    // The mirror image is lost after the acknowledgement, a new image lands in the table, and the acknowledged one rots.
    ("volatile-mirror", &[Lost]),
    // A crash leaves the mirror ahead. An opening serves the table's older image, which is of an epoch that was healed long
    // ago, so it asks nobody. Then an image of the table rots, the mirror is asked, and takes the served state back.
    ("mirror-before-table", &[Lost, Failed]),
    // A crash between table and mirror; the opening serves the table's image, which has no second home; it rots.
    ("healing-dropped", &[Lost]),
    // The healed epoch is durable before the healing is: the next opening believes it.
    ("healing-held", &[Lost]),
    // One copy is lost, so the next update, cut half-way, leaves three different sequences, and a rotten copy the fourth.
    ("epoch-front-held", &[Refused]),
];

const BY_NOTHING: &[Broken] = &[
    // If the healed epoch is lost, the next opening heals more than it must. That costs time and breaks nothing.
    ("healed-epoch-held", &[]),
    // If the note of the clean close is lost, the next opening heals what needs no healing.
    ("clean-note-held", &[]),
    // Each page of a snapshot carries its epoch and a checksum, and the sums must add up; else the table is read.
    ("snapshot-held", &[]),
];

/// Breaks those of a table that this run takes (`tests/part.rs`), and looks at what came of each.
fn each_of(table: &[Broken], rot: bool, states: u64, look: impl Fn(&str, &[Kind], Option<Failure>)) {
    let all: Vec<&str> = mutate::ALL.iter().map(|weakening| weakening.name).collect();
    let ours = part::ours(&all);
    for (name, kinds) in table.iter().filter(|(name, _)| ours.contains(name)) {
        let weakening = Some(Weakening::by_name(name).expect("a weakening of this name"));
        let plan = Plan {
            rot,
            weakening,
            ..Plan::of(1)
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let report = trials::run(&plan, Until::Broken(states), threads);
        let failure = report.failures.into_iter().next();
        match &failure {
            Some(failure) => println!("{name}, after {} states: {}", report.states, failure.violation),
            None => println!("{name}: no promise broken in {} states", report.states),
        }
        look(name, kinds, failure);
    }
}

fn must_be_of(kinds: &[Kind], name: &str, failure: Option<Failure>) -> Failure {
    let failure = failure.unwrap_or_else(|| panic!("{name}: no promise is broken"));
    assert!(kinds.contains(&failure.violation.kind), "{name}: {}", failure.violation);
    failure
}

#[test]
fn a_power_cut_alone_shows() {
    each_of(BY_A_POWER_CUT, false, STATES, |name, kinds, failure| {
        must_be_of(kinds, name, failure);
    });
}

#[test]
fn rot_shows() {
    each_of(BY_ROT, true, STATES, |name, kinds, failure| {
        let failure = must_be_of(kinds, name, failure);
        let is_checks = failure.violation.story.contains("a check finds");
        assert!(failure.rotten || is_checks, "{name}: {}", failure.violation);
    });
}

#[test]
fn nothing_shows() {
    each_of(BY_NOTHING, true, STATES_WITHOUT, |name, _, failure| {
        assert!(failure.is_none(), "{name}");
    });
}

#[test]
fn each_promise_stands_in_one_table() {
    let mut tabled: Vec<&str> = [BY_A_POWER_CUT, BY_ROT, BY_NOTHING]
        .concat()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let mut all: Vec<&str> = mutate::ALL.iter().map(|weakening| weakening.name).collect();
    tabled.sort_unstable();
    all.sort_unstable();
    assert_eq!(tabled, all);
}

/// Without any of these nothing is wrong, as far as they look: so it is they that were noticed.
#[test]
fn an_honest_volume_on_an_honest_device_breaks_no_promise() {
    let report = trials::run(&Plan::of(1), Until::Broken(STATES), 1);
    assert!(report.failures.is_empty(), "{}", report.failures[0].violation);
}
