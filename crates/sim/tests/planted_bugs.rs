//! Bugs that no edit of a record can express are planted in the storage code itself, one at a time; the explorer must notice
//! each. They are compiled in only with `--cfg baio_seeded_bugs`, which this test sets for a build of its own; the
//! environment then names the one that is there (`seeded_bug` in `crates/storage/src/lib.rs`).
//!
//! It builds the explorer once and runs it once for each bug: some minutes, so it is not run unless asked for:
//!
//!     cargo test -p baio-sim --test planted_bugs -- --ignored

#[path = "../../../tests/part.rs"]
mod part;
mod reader;

use std::path::Path;
use std::process::{Command, Output};

use baio_sim::images::Said;

use Net::{Another, Crash, Damaged, Each, Faults, Log, Stale, Wal};

/// What must find a bug. Each also finds nothing where no bug is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    /// States of random workloads.
    Crash,
    /// One fault of the device, somewhere in a session.
    Faults,
    /// Every fault at every request of short sessions.
    Each,
    /// A bucket falls back to the image before its newest.
    Stale,
    /// Crash states of the durable log, and rotten ones.
    Log,
    /// Pages that wait for a log.
    Wal,
    /// A reader that shares no code with the library.
    Another,
    /// The same, of damaged and of repaired volumes.
    Damaged,
}

const NETS: [Net; 8] = [Crash, Faults, Each, Stale, Log, Wal, Another, Damaged];

const BUGS: &[(&str, Net)] = &[
    // An update writes over the image that it replaces.
    ("generation-not-raised", Crash),
    // What a crashed opening had not healed is believed by the next one.
    ("only-the-last-epoch-is-healed", Crash),
    ("healed-is-noted-before-healing", Crash),
    ("the-healed-epoch-is-whole", Crash),
    // A torn image in the home of the next one is left there.
    ("nothing-is-buried", Crash),
    // A superblock lies in one sector, so no tear shows it: the order of the writes does, and a state without a whole pair.
    ("superblock-copies-at-once", Crash),
    // A crash finds the last writer's clean note and its snapshot.
    ("the-epoch-stays", Crash),
    // An opening decides between two names and does not write the decision down.
    ("half-a-rename-stays", Crash),
    // Requests go to the target, and a crash does not know.
    ("mark-in-memory-only", Crash),
    // A move that goes on after a crash leaves a block out.
    ("a-move-goes-on-behind-its-mark", Crash),
    // A write goes into a chunk that is being copied.
    ("nobody-is-held", Crash),
    // Somebody else gets the blocks that a moved segment still lives in, or goes to.
    ("source-is-released-early", Crash),
    ("a-target-is-not-taken", Crash),
    // An owner's sum after a crash is not what it was before.
    ("a-move-counts-its-source", Crash),
    // A resize and a delete change a segment at a time.
    ("claims-are-shared", Crash),
    // A segment grows back over what it had been cut off.
    ("shrunk-counts-as-zeroed", Crash),
    // What was there before the volume shows.
    ("lazily-means-never", Crash),
    // A write of the deleted segment lands in the next one.
    ("reuse-before-drain", Crash),
    // The later of two updates takes the earlier one back.
    ("two-updates-from-one-image", Crash),
    // A name that had to go on to the next bucket is not found any more.
    ("slots-are-always-free", Crash),
    ("a-tombstone-ends-a-probe", Crash),
    // A refused create stays charged; limits go when their owner holds nothing.
    ("what-is-refused-is-charged", Crash),
    ("idle-owners-lose-their-limits", Crash),
    // The volume is larger, and the room cannot be had, or is not durable, or is forgotten.
    ("grown-blocks-stay-taken", Crash),
    ("volume-grows-unflushed", Crash),
    ("growth-is-forgotten", Crash),
    // A device acknowledged a record and lost it.
    ("nothing-is-read-back", Faults),
    // The table's image rots while the volume is open.
    ("the-mirror-is-not-asked", Faults),
    // A record failed, and the next opening heals nothing.
    ("clean-though-latched", Each),
    // A record failed, and another image is written over what it may have left.
    ("latched-volumes-go-on", Each),
    // A page of the snapshot was acknowledged and lost; the sums are right all the same.
    ("old-snapshot-pages-are-believed", Each),
    // A stale inode comes back and takes blocks that were given to another since.
    ("growth-keeps-its-number", Stale),
    ("move-keeps-its-number", Stale),
    ("older-allocation-wins", Stale),
    // The log: what a crash left half-written, or what lay there before, is taken for the next batch.
    ("log-torn-batch-accepted", Log),
    ("log-ghost-accepted", Log),
    ("log-gap-is-passed-over", Log),
    // What was durable has rotted, and the log ends there as if nothing had been; or what was never durable is told as rot.
    ("log-rot-told-as-tail", Log),
    ("log-watermark-ahead", Log),
    // An LSN, or an epoch, is given once more.
    ("log-epoch-not-raised", Log),
    ("log-lsns-do-not-skip", Log),
    // Of a group that a crash has cut the first records are served.
    ("log-groups-by-halves", Log),
    // A write failed, and is acknowledged.
    ("log-failed-write-acknowledged", Log),
    // New batches lie where an older header still looks for the head.
    ("log-space-reused-early", Log),
    // What was never durable is told as rot; one copy of the header knows the epoch, and rots.
    ("log-tail-told-as-rot", Log),
    ("log-epoch-in-one-copy", Log),
    // Pages wait for the log that is furthest.
    ("gate-of-another", Wal),
    // The library agrees with itself about where names are.
    ("owners-share-their-hash", Another),
    // Of a moving segment that cannot be decoded the target is given away.
    ("a-target-is-not-saved", Damaged),
];

/// What a net says of a bug: what it found, or nothing. Where none is planted it looks at a tenth: `.ci/run` looks at more.
fn cast(net: Net, explorer: &Path, bug: &str) -> Option<String> {
    let many = |states: u32| match bug {
        "" => (states / 10).to_string(),
        _ => states.to_string(),
    };
    let arguments: &[&str] = match net {
        Crash => &["crash", "--first", "--states", &many(60_000), "--seed", "1"],
        Faults => &["faults", "--trials", &many(4_000), "--seed", "1"],
        Each => &["each-request"],
        Stale => &["stale", "--workloads", "500", "--seed", "1"],
        Log => &["log", "--first", "--states", &many(40_000), "--seed", "1"],
        Wal => &["wal", "--first", "--states", &many(3_000), "--seed", "1"],
        Another => return read_by_another(explorer, bug, &["images", "--images", "160"]),
        Damaged => {
            return read_by_another(explorer, bug, &["mutate", "--images", &many(2_400), "--sample", "1"]);
        }
    };
    let found = explore(explorer, bug, arguments);
    let story = String::from_utf8_lossy(&found.stderr).into_owned();
    // Exit status 1 and a command that replays it; a crash of the explorer itself would not count.
    let is_found = found.status.code() == Some(1) && story.contains("replay: ") && !story.contains("panicked");
    assert!(is_found || found.status.success(), "{bug}: {story}");
    is_found.then(|| story.lines().last().unwrap_or_default().to_owned())
}

fn explore(explorer: &Path, bug: &str, arguments: &[&str]) -> Output {
    Command::new(explorer)
        .args(arguments)
        .env("BAIO_SEEDED_BUG", bug)
        .output()
        .unwrap()
}

/// Lets the explorer leave images, and compares what the buggy library says of them with another reader.
fn read_by_another(explorer: &Path, bug: &str, arguments: &[&str]) -> Option<String> {
    let folder = reader::folder("planted-images");
    let folder_text = folder.to_str().unwrap();
    let left = explore(explorer, bug, &[arguments, &["--folder", folder_text]].concat());
    let read = reader::read_all(&folder).expect("this needs python3");
    assert!(read.len() > 100, "{}", String::from_utf8_lossy(&left.stderr));
    let asked = explore(explorer, bug, &["said", "--folder", folder_text]);
    let said = String::from_utf8(asked.stdout).unwrap();
    let library = said.lines().map(|line| serde_json::from_str::<Said>(line).unwrap());
    let mut differences = library.filter_map(|library| reader::difference(&library, &read[&library.image]));
    let unreachable = || {
        let names = read
            .values()
            .flat_map(|said| said["problems"].as_array().into_iter().flatten());
        let mut lost = names.filter(|problem| problem["kind"] == "name-unreachable" || problem["kind"] == "snapshot");
        // Damage may do that; nothing else does.
        lost.next()
            .filter(|_| arguments[0] == "images")
            .map(ToString::to_string)
    };
    let found = differences.next().or_else(unreachable);
    std::fs::remove_dir_all(&folder).unwrap();
    found
}

#[test]
#[ignore = "builds the explorer anew and runs it for each bug: some minutes"]
fn are_found() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "--locked", "-p", "baio-sim", "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", "--cfg baio_seeded_bugs")
        .status()
        .unwrap();
    assert!(built.success());
    let explorer = target.join("debug/baio-sim");
    let bugs = part::ours(BUGS);
    for net in NETS
        .into_iter()
        .filter(|net| bugs.iter().any(|(_, needed)| needed == net))
    {
        assert_eq!(
            cast(net, &explorer, ""),
            None,
            "{net:?} finds a bug where none is planted"
        );
    }
    let missed: Vec<&str> = bugs
        .iter()
        .filter(|(bug, net)| {
            let found = cast(*net, &explorer, bug);
            println!("{bug}, {net:?}: {}", found.as_deref().unwrap_or("not found"));
            found.is_none()
        })
        .map(|(bug, _)| *bug)
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
