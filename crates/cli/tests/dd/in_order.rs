//! Promise: whatever the operands are, `baio dd` writes the bytes, counts the records, says what the system said and ends as GNU dd does. One
//! line a case; what differs stands in docs/use/dd.md and docs/inside/dd.md. What `random.rs` draws does not stand here again.

use crate::support::gnu::{self, Case};
use crate::support::{self, BAIO, Place};

const BLOCKS: &[Case<'_>] = &[
    (
        "bin",
        "old",
        "ibs=100 obs=30 skip=333 iflag=skip_bytes seek=777 oflag=seek_bytes conv=notrunc",
    ),
    ("bin", "-", "ibs=100 obs=30 count=550 iflag=count_bytes"),
    ("bin", "-", "ibs=100 obs=30 count=5 iflag=count_bytes"),
    ("bin", "-", "bs=100 ibs=7 obs=13"),
    ("large", "-", "ibs=1000 obs=7777"),
    ("large", "-", "ibs=7777 obs=1000 count=3"),
    ("large", "old", "ibs=64K obs=32K"),
    ("large", "pipe", "ibs=1000 obs=7777"),
    ("bin", "-", "ibs=2x50 obs=2x25"),
    ("bin", "-", "ibs=1b obs=1w"),
    ("bin", "-", "ibs=1kB obs=1K"),
    ("bin", "-", "ibs=1KiB obs=1KB"),
    ("bin", "-", "ibs=100c obs=30c count=3x2"),
    ("bin", "-", "bs=1M"),
    ("bin", "-", "bs=1xM count=1x1"),
    ("bin", "old", "skip=1000 ibs=10 obs=20"),
    ("bin", "old", "skip=333 ibs=10 obs=20"),
    ("bin", "old", "skip=334 ibs=10 obs=20"),
];

const PADDING: &[Case<'_>] = &[
    ("|bin", "-", "conv=sync,swab bs=1001"),
    ("bin", "-", "conv=sync count=1500 iflag=count_bytes bs=1000"),
    ("dir", "-", ""),
    ("dir", "old", "bs=100"),
    ("dir", "old", "bs=100 conv=notrunc"),
    ("dir", "-", "conv=noerror,sync count=3"),
    ("dir", "-", "conv=noerror,sync count=2 ibs=10 obs=100"),
    ("dir", "-", "conv=noerror,sync count=2 status=none"),
    ("dir", "-", "iflag=directory"),
    ("dir", "-", "iflag=direct"),
    ("dir", "-", "iflag=directory,direct"),
    ("dir", "-", "skip=1"),
    ("dir", "old", "skip=3 bs=10 count=0"),
    ("/proc/self/mem", "-", "bs=512"),
    ("/proc/self/mem", "-", "bs=512 conv=noerror,sync count=4"),
    (
        "/proc/self/mem",
        "-",
        "ibs=512 obs=100 conv=noerror,sync count=4 seek=1",
    ),
    (
        "/proc/self/mem",
        "old",
        "bs=100 conv=noerror,sync,notrunc count=4 skip=2 seek=2",
    ),
    ("/proc/self/mem", "pipe", "bs=100 conv=noerror,sync count=2"),
];

const FLAGS: &[Case<'_>] = &[
    ("bin", "old", "oflag=append conv=notrunc"),
    ("bin", "old", "oflag=append"),
    ("bin", "old", "oflag=append conv=notrunc bs=1000 seek=1"),
    ("bin", "-", "oflag=append bs=100 count=3"),
    ("|bin", "old", "oflag=append conv=notrunc bs=1000"),
    ("bin", "old", "oflag=append conv=notrunc ibs=10 obs=999"),
    ("bin", "-", "oflag=dsync bs=1000"),
    ("bin", "-", "oflag=sync bs=1000"),
    ("bin", "-", "oflag=sync,dsync ibs=1000 obs=500"),
    ("bin", "old", "oflag=dsync conv=notrunc seek=3 bs=100"),
    ("bin", "-", "iflag=sync,dsync"),
    ("bin", "-", "iflag=nocache oflag=nocache"),
    ("bin", "old", "iflag=nocache count=0"),
    ("bin", "old", "oflag=nocache count=0 conv=notrunc,fdatasync"),
    ("bin", "-", "iflag=noatime"),
    ("bin", "-", "iflag=nofollow"),
    ("link", "-", "iflag=nofollow"),
    ("link", "-", ""),
    ("bin", "-", "oflag=nofollow,noatime"),
    ("bin", "-", "iflag=directory"),
    ("bin", "-", "iflag=noctty,nonblock oflag=noctty,nonblock"),
    ("<bin", "-", "iflag=directory"),
    ("<dir", "-", "iflag=directory"),
    ("<bin", "-", "iflag=nofollow bs=100"),
    ("bin", "-", "iflag=fullblock bs=1000"),
    ("|bin", "-", "iflag=fullblock bs=1000"),
    ("|bin", "-", "iflag=fullblock ibs=1000 obs=77"),
    ("|bin", "-", "iflag=fullblock,nonblock count=0"),
    ("bin", "old", "conv=excl"),
    ("bin", "-", "conv=excl ibs=10"),
    ("bin", "-", "conv=nocreat"),
    ("bin", "old", "conv=nocreat ibs=10"),
    ("missing", "-", ""),
    ("missing", "old", "ibs=10"),
    ("one", "-", "of=link oflag=nofollow"),
    ("one", "-", "of=link conv=excl"),
    ("one", "-", "of=dir"),
    ("one", "-", "of=dir/new"),
    ("one", "-", "of=missing/new oflag=nofollow"),
    ("one", "-", "of=bin/new"),
    ("one", "-", "oflag=directory"),
    ("one", "old", "oflag=nofollow,directory"),
    ("one", "old", "oflag=nofollow,nonblock conv=notrunc seek=1"),
    ("one", "old", "oflag=nofollow conv=excl"),
    ("one", "-", "oflag=nofollow conv=nocreat"),
    ("one", "-", "oflag=noatime,nonblock conv=excl"),
    ("bin/x", "-", ""),
    ("link", "-", "iflag=nofollow,directory"),
    ("bin", "-", "conv=fsync"),
    ("bin", "-", "conv=fdatasync ibs=10"),
    ("bin", "pipe", "conv=fsync"),
    ("bin", "pipe", "conv=fdatasync ibs=10"),
];

const DIRECT: &[Case<'_>] = &[
    ("even", "-", "oflag=direct bs=4096"),
    ("bin", "-", "oflag=direct bs=4096"),
    ("bin", "old", "oflag=direct bs=4096 seek=1"),
    ("bin", "old", "oflag=direct bs=4096 conv=notrunc"),
    ("large", "-", "iflag=direct bs=4096"),
    ("large", "-", "iflag=direct oflag=direct bs=8192"),
    ("large", "-", "iflag=direct oflag=direct ibs=4096 obs=8192 conv=swab"),
    ("large", "-", "iflag=direct bs=4096 skip=3 count=5 conv=ucase"),
    ("large", "-", "oflag=direct obs=8192 ibs=100"),
    ("large", "-", "oflag=direct,dsync bs=4096 count=3"),
    ("bin", "-", "oflag=direct bs=4096 conv=sync"),
    ("holes", "-", "oflag=direct bs=4096 conv=sparse"),
    ("large", "pipe", "iflag=direct bs=4096"),
    ("bin", "-", "iflag=direct,nofollow bs=4096"),
    ("bin", "-", "oflag=direct,nofollow bs=4096"),
];

const STREAMS: &[Case<'_>] = &[
    ("|holes", "-", "conv=sparse bs=1000"),
    ("|bin", "-", "skip=2000 iflag=skip_bytes bs=300"),
    ("|bin", "-", "skip=100 bs=1000"),
    ("|bin", "pipe", "seek=1"),
    ("|large", "pipe", "bs=64K iflag=fullblock"),
    ("|large", "-", "obs=64K ibs=1K iflag=fullblock"),
    ("|empty", "-", "bs=10"),
    ("|one", "-", "bs=10"),
    ("|one", "-", "obs=10"),
    ("|even", "-", "count=1500 iflag=count_bytes bs=1000"),
    ("|even", "-", "count=1500B ibs=1000 obs=10"),
    ("<bin", "pipe", "bs=100 skip=3 count=3"),
    ("<empty", "-", "bs=100 skip=3"),
    ("/dev/zero", "-", "ibs=100 obs=77 count=100"),
    ("/dev/zero", "-", "conv=swab count=3"),
    ("/dev/null", "old", "ibs=100 obs=77"),
];

const STATUS: &[Case<'_>] = &[
    ("bin", "-", "status=none"),
    ("bin", "-", "status=noxfer"),
    ("bin", "-", "status=progress"),
    ("bin", "-", "status=none ibs=10"),
    ("bin", "-", "status=noxfer ibs=10"),
    ("bin", "-", "status=progress ibs=10"),
    ("missing", "-", "status=none"),
    ("bin", "-", "skip=100 status=none"),
];

const REFUSED: &[Case<'_>] = &[
    ("bin", "-", "bs=0"),
    ("bin", "-", "bs=x"),
    ("bin", "-", "bs=-1"),
    ("bin", "-", "count=1q"),
    ("bin", "-", "conv=ucase,lcase"),
    ("bin", "-", "conv=excl,nocreat"),
    ("bin", "-", "iflag=direct,nocache"),
    ("bin", "-", "conv=nothing"),
    ("bin", "-", "iflag=nothing"),
    ("bin", "-", "oflag=fullblock"),
    ("bin", "-", "status=nothing"),
    ("bin", "-", "nothing=1"),
    ("bin", "-", "nothing"),
];

#[test]
fn every_case_of_the_table() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    let tables = [BLOCKS, PADDING, FLAGS, DIRECT, STREAMS, STATUS];
    let mut found = Vec::new();
    for case in tables.into_iter().flatten() {
        found.extend(gnu::differences(&place, *case));
    }
    for case in REFUSED {
        gnu::both_refuse(&place, *case);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whoever goes on with standard input and output finds them where GNU dd leaves them, also after a failure.
#[test]
fn standard_streams_are_left_where_the_copy_ends() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    let (mut found, ours) = (Vec::new(), format!("{} dd", support::BAIO));
    for line in [
        "ibs=3 obs=5 count=20",
        "ibs=1000 obs=7 count=2",
        "bs=100 conv=swab count=3",
        "bs=1000 conv=sync",
        "ibs=10 obs=30 skip=7 count=3",
        "bs=100 count=5 seek=1",
        "ibs=100 obs=1000 count=5 seek=1 conv=notrunc",
        "ibs=100 obs=1000 of=/dev/full",
        "bs=100 conv=sparse count=4",
        "ibs=700 obs=300 oflag=append count=2",
    ] {
        for limit in ["", "trap '' XFSZ; ulimit -f 2;"] {
            let told = ["dd", &ours].map(|dd| {
                let _ = std::fs::remove_file(place.path("out"));
                place.shell(&format!("{limit} ({dd} {line}; echo -; cat >left) < holes > out"));
                (place.read("out"), place.read("left"))
            });
            if told[0] != told[1] {
                found.push(format!(
                    "{limit} {line}: {:?}",
                    told.map(|(out, left)| (out.len(), left.len()))
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Reads take more than a record, and go on beside the writes: where records end on their borders and where they do not, nobody can tell.
#[test]
fn what_is_read_ahead() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    let mut long = support::random_bytes(1_000_003, 11);
    long[300_000..500_000].fill(0);
    place.write("long", &long);
    let mut found = Vec::new();
    for sizes in [
        "bs=1000",
        "bs=64K",
        "bs=256K",
        "bs=262145",
        "ibs=999 obs=7000",
        "ibs=300000 obs=4096",
        "ibs=4096 obs=300000",
    ] {
        for more in [
            "conv=swab",
            "conv=sync,noerror",
            "conv=sparse,notrunc seek=1",
            "conv=ucase skip=1 count=3",
            "conv=sync count=600001B skip=777B",
            "conv=lcase oflag=append,dsync count=5",
        ] {
            for (input, target) in [("long", "old"), ("<long", "pipe")] {
                let line = format!("{sizes} {more}");
                found.extend(gnu::differences(&place, (input, target, &line)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let told = |more: &str| {
        let line = format!("dd --json if=long of=out bs=1000 conv=swab {more}");
        place.baio(&line).succeeds().json()
    };
    for backend in ["threads", "auto", "sync"] {
        let told = told(&format!("backend={backend}"));
        let under_way = if told["backend"] == "sync" { 1..=1 } else { 2..=9 };
        assert!(under_way.contains(&told["in_flight_max"].as_u64().unwrap()), "{told}");
    }
    // The last record that `count=` allows ends what is read ahead.
    for (count, reads) in [(262, 1), (263, 2), (524, 2)] {
        let told = told(&format!("count={count}"));
        assert_eq!(told["parts"][0]["requests"], reads, "{told}");
    }
    // Where it reads what it writes, each record is read when its turn has come.
    let told = place.baio("dd --json if=long of=long bs=1000 conv=swab,notrunc seek=1 count=900");
    assert_eq!(told.succeeds().json()["in_flight_max"], 1);
}

/// What waits to be written has buffers of its own: there is memory for all that `iodepth=` lets wait, however the records are read or gathered.
#[test]
fn there_is_memory_for_what_waits_to_be_written() {
    let place = Place::new();
    let (block, count) = (200 << 10, 204);
    place.write("in", &support::random_bytes(block * count, 12));
    // Records of more than a half of what is read at once, and a reader that comes late.
    let copy = format!("{BAIO} dd if=in bs={block} iodepth=128 conv=sync count={count} status=none");
    let told = place.shell(&format!("{copy} | (sleep 1; cat) | cmp - in && echo same"));
    assert_eq!(told.text(), "same\n", "{}", told.errors());
    // Small records become pieces of 256 KiB, and there are fewer of those.
    place.volume("80M", "64M");
    let told = place.json("dd if=/dev/zero of=vol#a bs=8K count=8192 iodepth=1024 oflag=dsync backend=threads");
    assert!(told["in_flight_max"].as_u64().unwrap() <= 33, "{told}");
}
