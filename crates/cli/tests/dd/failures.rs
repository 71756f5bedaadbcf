//! Promise: where writes or reads fail, `baio dd` has written what GNU dd has, counts what it counts, and says the same reason: full devices,
//! files that may not grow, inputs that cannot be read, readers that have gone.

use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use crate::support::gnu::{self, Case};
use crate::support::{self, BAIO, Done, Place, random_bytes};

const FULL: &[Case<'_>] = &[
    ("bin", "/dev/full", "bs=100"),
    ("bin", "/dev/full", ""),
    ("bin", "/dev/full", "obs=1000"),
    ("bin", "/dev/full", "ibs=1000 obs=100"),
    ("bin", "/dev/full", "obs=10000"),
    ("bin", "/dev/full", "conv=swab bs=100"),
    ("bin", "/dev/full", "conv=sync bs=10000"),
    ("bin", "/dev/full", "conv=noerror bs=100"),
    ("|bin", "/dev/full", "bs=100"),
    ("|bin", "/dev/full", "obs=100"),
    ("empty", "/dev/full", "bs=100"),
    ("bin", "/dev/full", "count=0"),
    ("holes", "/dev/full", "bs=1000 conv=sparse"),
];

/// A file may have 2 or 4 KiB, as the shell counts.
const LIMITED: &[Case<'_>] = &[
    ("!large", "-", "bs=1000"),
    ("!large", "-", "bs=1024"),
    ("!large", "-", ""),
    ("!large", "-", "bs=64K"),
    ("!large", "-", "ibs=1000 obs=700"),
    ("!large", "-", "ibs=100 obs=10000"),
    ("!large", "-", "ibs=1 obs=3000"),
    ("!large", "-", "conv=swab bs=999"),
    ("!large", "-", "conv=ucase"),
    ("!large", "-", "bs=1000 seek=2"),
    ("!large", "-", "ibs=1000 obs=1000"),
    ("!large", "-", "ibs=3000 obs=3000"),
    ("!large", "-", "bs=1000 oflag=append"),
    ("!large", "-", "bs=1000 oflag=dsync"),
    ("!large", "-", "bs=1000 conv=fsync"),
    ("!large", "-", "bs=1000 status=noxfer"),
    ("!large", "-", "bs=1000 status=none"),
    ("!bin", "-", "bs=1000 count=1"),
    ("!large", "old", "bs=100 conv=notrunc"),
];

#[test]
fn outputs_that_are_full() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    let cases = [FULL, LIMITED].into_iter().flatten();
    let (mut found, mut ran) = (Vec::new(), 0);
    for case in cases {
        found.extend(gnu::differences(&place, *case));
        ran += 1;
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{ran} cases agree with GNU dd");
}

/// A directory that may not be read or written is as it is with GNU dd; root may all of it.
#[test]
fn what_may_not_be_opened() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    if rustix::process::geteuid().is_root() {
        return support::skip("root may open everything");
    }
    gnu::write_inputs(&place);
    let secret = place.path("secret");
    place.write("secret", b"x");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    let found = gnu::differences(&place, ("secret", "-", "bs=10"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// In a directory such as /tmp the kernel keeps a stranger's file and pipe from whoever would have made one of that name.
#[test]
fn what_a_stranger_has_put_into_the_place_of_an_output() {
    let place = Place::new();
    if !gnu::is_there(&place) || !support::is_root() {
        return;
    }
    let protects = |what: &str| {
        let told = std::fs::read_to_string(format!("/proc/sys/fs/{what}")).unwrap_or_default();
        told.trim().parse().unwrap_or(0) > 0
    };
    if !protects("protected_regular") || !protects("protected_fifos") {
        return support::skip("fs.protected_regular or fs.protected_fifos is 0 here");
    }
    let strange = "install -d -m 1777 s && echo x > s/f && mkfifo s/p && chmod 666 s/f s/p && chown 12345 s/f s/p";
    place.shell(strange).succeeds();
    place.write("in", b"a secret");
    for target in ["s/f", "s/p"] {
        for program in ["dd".to_owned(), format!("{BAIO} dd")] {
            // Whoever opens the pipe waits for a reader.
            let told = place.shell(&format!("timeout 60 {program} if=in of={target}"));
            let what = format!("{program} {target}: {}", told.errors());
            assert_eq!(told.status(), 1, "{what}");
            assert!(told.errors().contains("Permission denied"), "{what}");
        }
    }
    assert_eq!(place.read("s/f"), b"x\n");
}

/// An input that is missing is never made, and neither is a target for it.
#[test]
fn what_is_only_read_is_never_made() {
    let place = Place::new();
    for line in [
        "if=missing of=new",
        "if=missing of=new ibs=10",
        "if=missing of=new mode=direct",
        "if=missing of=new iflag=noatime",
        "if=missing of=new iflag=nofollow conv=sync",
        "if=missing#a of=new",
        "if=unix:missing#a of=new conv=swab",
        "if=missing of=new mode=cached backend=threads",
    ] {
        let error = place.error(&format!("dd {line}"), 1);
        assert_eq!(error["code"], "ENOENT", "{line}: {error}");
        assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 0, "{line}");
    }
}

#[test]
fn a_reader_that_has_gone() {
    let place = Place::new();
    for line in ["bs=64K", "ibs=64K obs=1K", "conv=swab bs=4K"] {
        let script = format!("{BAIO} dd if=/dev/zero {line} | head -c 100 | wc -c; echo");
        let told = place.shell(&script).succeeds();
        assert_eq!(told.out(), b"100\n\n", "{line}");
        assert!(told.errors().contains("EPIPE"), "{line}: {}", told.errors());
    }
}

/// A segment is a device: what fits is written, and the rest fails, also where records are converted.
#[test]
fn segments_that_are_full() {
    let place = Place::new();
    place.volume("8M", "64K");
    let size = 64 << 10;
    let bytes = random_bytes(size + 100, 1);
    place.write("in", &bytes);
    for (line, records) in [
        ("bs=30000 iodepth=8", ["2+1 records in", "2+0 records out"]),
        ("bs=1000 conv=sync,noerror", ["65+1 records in", "65+0 records out"]),
        ("ibs=1000 obs=30000", ["65+1 records in", "2+1 records out"]),
        ("ibs=1000 obs=4096", ["65+1 records in", "16+0 records out"]),
        (
            "bs=1000 conv=notrunc seek=1 mode=cached",
            ["65+0 records in", "64+0 records out"],
        ),
    ] {
        let told = place.baio(&format!("dd --json if=in of=vol#a {line}")).fails_with(1);
        assert_eq!(told.records(), records, "{line}");
        assert_eq!(told.error()["code"], "ENOSPC", "{line}");
        assert_eq!(told.error()["offset"], size, "{line}");
        let back = place.baio("dd if=vol#a bs=1000").succeeds();
        let from = if line.contains("seek") { 1000 } else { 0 };
        assert_eq!(&back.out()[from..], &bytes[..size - from], "{line}");
        assert_eq!(
            place.json("stat vol")["clean"],
            true,
            "{line}: closed, although it failed"
        );
    }
    // What fits exactly does not fail.
    place
        .baio_fed("dd of=vol#a bs=4K iflag=fullblock", &bytes[..size])
        .succeeds();
    place.baio("dd if=/dev/zero of=vol#a bs=4K count=16").succeeds();
    place.baio("dd if=/dev/null of=vol#a bs=4K seek=16").succeeds();
}

/// Many pieces are under way when a file system has no more room, and one may find a little behind another that found none: the file
/// ends where the figures do, whoever opened it, and no earlier than it did before.
#[test]
fn a_file_that_has_no_room_ends_where_the_figures_do() {
    let place = Place::new();
    place.write("in", &random_bytes(2 << 20, 4));
    let script = r#"mkdir -p small && mount -t tmpfs -o size=256k none small || { echo none; exit 0; }
        for round in 1 2 3 4 5 6 7 8; do for way in 'new of=small/new' 'new of=small/new conv=notrunc' 'standard' 'old of=small/old conv=notrunc'; do
            rm -f small/*; set -- $way; out=small/$1; shift
            test $out = small/old && head -c 9000 in > small/old
            told=$($BAIO dd if=in "$@" bs=4K iodepth=64 backend=threads 2>&1 > small/standard | grep -o '^[0-9]* bytes')
            size=$(stat -c %s $out)
            cmp -n $size in $out > differs 2>&1 && differs= || differs=$(cat differs)
            echo "$out:$size bytes:$told:$differs"
        done; done"#;
    let Some(told) = place.with_mounts_of_its_own(script) else {
        return support::skip("no tmpfs can be mounted here");
    };
    assert_eq!(told.lines().count(), 32, "{told}");
    for line in told.lines() {
        let parts: Vec<&str> = line.split(':').collect();
        assert_eq!(parts[3], "", "{line}");
        // What was there before stays there.
        let is_old = parts[0] == "small/old" && parts[1] == "9000 bytes";
        assert!(parts[1] == parts[2] || is_old, "{line}");
    }
}

/// A standard output that somebody opened with O_DIRECT takes whole sectors, and nothing else: those are there, and counted.
#[test]
fn a_standard_output_that_is_direct() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    place.write("in", &random_bytes((96 << 10) + 100, 5));
    for line in [
        "ibs=512 obs=8192",
        "ibs=512 obs=4096 conv=swab",
        "bs=4096 conv=sync,noerror count=3",
        "bs=64K",
    ] {
        let [theirs, ours] = ["dd", BAIO].map(|program| {
            let out = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .custom_flags(libc::O_DIRECT)
                .open(place.path("out"));
            let output = Command::new(program)
                .args((program == BAIO).then_some("dd"))
                .arg("if=in")
                .args(line.split(' '))
                .current_dir(place.path("."))
                .env("LC_ALL", "C")
                .stdout(Stdio::from(out.ok()?))
                .output()
                .unwrap();
            Some((Done(output), place.read("out")))
        });
        let (Some((theirs, their_bytes)), Some((ours, our_bytes))) = (theirs, ours) else {
            return support::skip("no O_DIRECT here");
        };
        if theirs.status() == 0 && !line.contains("count") {
            return support::skip("what is direct here takes any byte");
        }
        assert_eq!(ours.status(), theirs.status(), "{line}: {}", ours.errors());
        assert_eq!(ours.records(), theirs.records(), "{line}: {}", ours.errors());
        assert!(our_bytes == their_bytes, "{line}");
    }
}

/// Memory of this process is a file with bytes that can be read and others that give EIO: where its first page begins, which is the
/// program's, and where the stack ends, at whose end the environment is. Nobody writes either.
fn edges() -> [u64; 2] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of = |line: &str| {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        let parse = |text: &str| u64::from_str_radix(text, 16).ok();
        Some([parse(begin)?, parse(end)?])
    };
    let begin = maps.lines().next().and_then(of).unwrap()[0];
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    [begin, stack.and_then(of).unwrap()[1]]
}

/// A disk with a bad spot gives EIO in the middle of what can be read.
#[test]
fn a_bad_spot() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    let [begin, end] = edges();
    let starts = [begin - 8192, begin - 1500, end - 1500, end - 1024];
    let (mut found, mut ran) = (Vec::new(), 0);
    for start in starts {
        for line in [
            "bs=4096 count=4",
            "bs=4096 count=4 conv=noerror",
            "bs=4096 count=4 conv=noerror,sync",
            "bs=1000 count=9 conv=noerror,sync",
            "bs=1000 count=3 conv=sync",
            "bs=1000 count=3",
            "bs=512 count=20 conv=noerror,sync",
            "ibs=1000 obs=3000 count=9 conv=noerror,sync",
            "ibs=1000 obs=300 count=9 conv=noerror,sync,swab",
            "ibs=1000 obs=300 count=2 conv=ucase",
            "ibs=512 obs=100000 count=20",
            "bs=64 count=100 conv=noerror,sync status=none",
            "bs=64 count=100 conv=noerror,sync iflag=fullblock",
            "bs=1000 count=9 conv=noerror,sync,sparse seek=2",
            "bs=1000 count=6500B conv=noerror,sync",
        ] {
            // Behind the stack there is nothing for ever, and a read that fails counts only where `sync` makes a record of it, which
            // GNU dd does not after a short one.
            let is_short = start == end - 1500 || !(line.starts_with("bs=512") || line.starts_with("bs=64"));
            if line.contains("noerror") && start > begin && is_short {
                continue;
            }
            let [theirs, ours] = ["dd", BAIO].map(|program| from_memory(&place, program, start, line));
            let case = format!("{line} from {start:x} ({begin:x} {end:x})");
            found.extend(gnu::compare(("memory", "-", &case), theirs, ours));
            ran += 1;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{ran} cases agree with GNU dd");
}

/// A direct read that meets a bad sector brings nothing: what is sound before it comes record by record.
#[test]
fn a_bad_sector_read_directly() {
    let place = Place::new();
    if !gnu::is_there(&place) || !support::is_root() {
        return;
    }
    place.write("image", &random_bytes(16 * 512, 6));
    let table = "0 5 linear LOOP 0\n5 1 error\n6 10 linear LOOP 6\n";
    let Some(device) = support::Mapped::over(&place.path("image"), table) else {
        return;
    };
    let path = device.path();
    let mut found = Vec::new();
    for line in ["bs=512", "bs=1536", "bs=2560", "bs=4096", "bs=512 seek=1"] {
        found.extend(gnu::differences(&place, (&path, "-", &format!("iflag=direct {line}"))));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Many records wait for the pipe by then, each in a buffer of its own.
#[test]
fn a_bad_sector_read_directly_for_a_slow_pipe() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let bytes = random_bytes(600 * 512, 7);
    place.write("image", &bytes);
    let table = "0 500 linear LOOP 0\n500 1 error\n501 99 linear LOOP 501\n";
    let Some(device) = support::Mapped::over(&place.path("image"), table) else {
        return;
    };
    let path = device.path();
    let copy = format!("{BAIO} dd if={path} iflag=direct bs=4000 iodepth=128 | (sleep 1; cat)");
    let told = place.shell(&copy);
    let errors = told.errors();
    assert_eq!(told.records(), ["64+0 records in", "64+0 records out"], "{errors}");
    assert!(errors.contains("Input/output error"), "{errors}");
    support::assert_same(told.out(), &bytes[..64 * 4000], "what is sound");
}

fn from_memory(place: &Place, program: &str, start: u64, line: &str) -> (Done, Option<Vec<u8>>) {
    let _ = std::fs::remove_file(place.path("out"));
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(start)).unwrap();
    let mut command = Command::new(program);
    if program == BAIO {
        command.arg("dd");
    }
    let output = command
        .args(format!("of=out {line}").split(' '))
        .current_dir(place.path("."))
        .env("LC_ALL", "C")
        .stdin(Stdio::from(memory))
        .output()
        .unwrap();
    (Done(output), std::fs::read(place.path("out")).ok())
}

/// The program's start-up puts /dev/null in the place of a closed descriptor; what was to be copied there is not copied.
#[test]
fn a_closed_standard_input_or_output_is_no_target() {
    let place = Place::new();
    place.write("in", b"something");
    place.write("keep", b"this");
    for line in ["dd if=in >&-", "dd of=keep conv=notrunc <&-"] {
        let done = place.shell(&format!("'{BAIO}' {line}"));
        assert_eq!(done.status(), 1, "{line}: {}", done.errors());
        assert!(
            done.errors().contains("Bad file descriptor"),
            "{line}: {}",
            done.errors()
        );
    }
    assert_eq!(place.read("keep"), b"this");
}

/// GNU dd tells by its status that it could not say what it had to.
#[test]
fn what_cannot_be_said_is_told_by_the_status() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    place.write("in", &random_bytes(1000, 3));
    for said_to in ["2>/dev/full", "2>&-", "2>/dev/null"] {
        for operands in ["", "status=noxfer", "status=none", "skip=9"] {
            let line = format!("if=in of=out {operands} {said_to}");
            let [theirs, ours] = ["dd".to_owned(), format!("{BAIO} dd")]
                .map(|program| place.shell(&format!("{program} {line}")).status());
            assert_eq!(ours, theirs, "{line}");
            let copied = if operands == "skip=9" { 0 } else { 1000 };
            assert_eq!(place.read("out").len(), copied, "{line}");
        }
    }
}

/// Nobody reads there: an open would wait for ever.
#[test]
fn a_seek_on_a_named_pipe_is_refused_before_it_is_opened() {
    let place = Place::new();
    place.write("in", &random_bytes(1000, 3));
    place.shell("mkfifo pipe").succeeds();
    let told = place
        .shell(&format!("timeout 60 {BAIO} dd if=in of=pipe seek=1"))
        .fails_with(1);
    assert!(told.errors().contains("cannot seek"), "{}", told.errors());
}

/// Each write is durable by itself, the size that zeros at the end leave is not: one system call more makes it so.
#[test]
fn the_size_of_a_durable_copy_is_durable_too() {
    let place = Place::new();
    let mut bytes = random_bytes(4096, 3);
    bytes.resize(8192, 0);
    place.write("in", &bytes);
    let calls = |flag: &str| {
        let line = format!("dd if=in of=out bs=4K conv=sparse {flag} backend=sync");
        let told = place.json(&line);
        assert_eq!(place.read("out").len(), 8192);
        told["system_calls"].as_u64().unwrap()
    };
    let unsafe_calls = calls("");
    for flag in ["oflag=dsync", "oflag=sync"] {
        assert_eq!(calls(flag), unsafe_calls + 1, "{flag}");
    }
}

/// A direct copy opens its output twice. What the umask leaves of a new file's mode is for who opens it later, as with GNU dd.
#[test]
fn a_direct_output_may_be_made_under_any_umask() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let bytes = random_bytes(8192 + 100, 3);
    place.write("in", &bytes);
    set_permissions(place.path(""), Permissions::from_mode(0o777)).unwrap();
    place
        .shell(&format!("cp {BAIO} baio && chmod 755 baio && chmod 644 in"))
        .succeeds();
    let user = match rustix::process::geteuid().is_root() {
        true => "setpriv --reuid=65534 --regid=65534 --clear-groups",
        false => "",
    };
    for umask in [0o000, 0o222, 0o444, 0o277, 0o777] {
        let copy = format!("umask {umask:o}; ./baio dd if=in of=o{umask:o} bs=4096 oflag=direct");
        place.shell(&format!("{user} sh -c '{copy}'")).succeeds();
        let made = place.path(&format!("o{umask:o}"));
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o666 & !umask);
        let readable = format!("{user} chmod 644 o{umask:o}");
        place.shell(&readable).succeeds();
        assert_eq!(std::fs::read(&made).unwrap(), bytes);
    }
}
