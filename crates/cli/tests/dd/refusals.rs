//! Promise: what cannot work is found before anything is cut, and the message names what was typed; a beginning that an end cannot have is
//! said as GNU dd says it.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::confined::Confined;
use crate::support::gnu;
use crate::support::{self, BAIO, Done, Loop, Place};

/// A directory on a file system that has no uncached I/O, if this machine has one.
fn without_uncached() -> Option<(tempfile::TempDir, String)> {
    let place = tempfile::tempdir_in("/dev/shm").ok()?;
    let file = place.path().join("file");
    std::fs::write(&file, [7; 4096]).ok()?;
    let opened = baio_engine::File::open(&file, &baio_engine::Open::read()).ok()?;
    let has = opened.probe(baio_engine::Caching::Uncached).is_ok();
    let name = place.path().to_str()?.to_owned();
    (!has).then_some((place, name))
}

#[test]
fn uncached_where_there_is_no_such_thing() {
    let place = Place::new();
    let Some((_kept, there)) = without_uncached() else {
        return support::skip("every file system here has uncached I/O");
    };
    place.write("in", b"new");
    let file = format!("{there}/file");
    for line in [
        format!("if=in of={file} mode=uncached"),
        format!("if=in of={file} mode=uncached conv=swab"),
        format!("if=in of={file} mode=uncached conv=notrunc seek=1"),
        format!("if={file} of=out mode=uncached"),
        format!("if={file} of=out mode=uncached iflag=fullblock ibs=100 obs=7"),
        format!("if=in of={there}/made mode=uncached backend=threads"),
    ] {
        place.write("out", b"kept");
        let error = place.error(&format!("dd {line}"), 1);
        assert_eq!(error["code"], "EOPNOTSUPP", "{line}: {error}");
        assert_eq!(error["cure"], "leave out mode=uncached", "{line}: {error}");
        assert!(error["object"].as_str().unwrap().starts_with(&there), "{line}: {error}");
        assert_eq!(place.read("out"), b"kept", "{line}");
        assert_eq!(std::fs::read(&file).unwrap(), [7; 4096], "{line}");
        assert!(!Path::new(&there).join("made").exists(), "{line}");
    }
}

/// The files of `/proc` have no O_DIRECT.
#[test]
fn direct_where_there_is_no_such_thing() {
    let place = Place::new();
    place.write("in", &[1; 4096]);
    for (line, asked) in [
        ("if=/proc/version of=out mode=direct", "mode=direct"),
        ("if=/proc/version of=out iflag=direct", "iflag=direct"),
        ("if=/proc/version of=out iflag=direct,nofollow", "iflag=direct"),
        ("if=/proc/version of=out iflag=direct mode=direct", "iflag=direct"),
        ("if=in of=/proc/self/comm mode=direct", "mode=direct"),
        ("if=in of=/proc/self/comm oflag=direct", "oflag=direct"),
        ("if=in of=/proc/self/comm oflag=direct,nofollow", "oflag=direct"),
    ] {
        place.write("out", b"kept");
        let error = place.error(&format!("dd {line}"), 1);
        assert_eq!(error["code"], "EINVAL", "{line}: {error}");
        assert_eq!(error["cure"], format!("leave out {asked}"), "{line}: {error}");
        assert_eq!(place.read("out"), b"kept", "{line}");
    }
    let error = place.baio("dd --json if=in of=out skip=1B mode=direct").fails_with(1);
    let cure = error.error()["cure"].as_str().unwrap().to_owned();
    assert!(cure.ends_with("leave out mode=direct"), "{cure}");
    assert_eq!(place.read("out"), b"kept");
}

/// What a standard output may do, and what `verify=` says of it before anything is written.
#[test]
fn verify_onto_what_cannot_be_read_again() {
    let place = Place::new();
    place.write("in", &[1; 5000]);
    let (reads, appends) = ((true, false), (true, true));
    for ((read, append), code) in [
        ((false, false), Some("EBADF")),
        (appends, Some("ESPIPE")),
        (reads, None),
    ] {
        place.write("out", b"kept");
        let mut options = OpenOptions::new();
        options.read(read).write(true);
        if append {
            options.custom_flags(libc::O_APPEND);
        }
        let out = options.open(place.path("out")).unwrap();
        let ended = Command::new(BAIO)
            .args(["dd", "if=in", "verify=blake3", "bs=1000"])
            .current_dir(place.path("."))
            .stdout(Stdio::from(out))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(i32::from(code.is_some())), "{told}");
        match code {
            Some("EBADF") => assert!(told.contains("open for writing only"), "{told}"),
            Some(_) => assert!(told.contains("cannot be read back"), "{told}"),
            None => assert!(told.contains("read back and the same"), "{told}"),
        }
        let expected: &[u8] = if code.is_some() { b"kept" } else { &[1; 5000] };
        assert_eq!(place.read("out"), expected, "{told}");
    }
}

/// A file system that allows so much says so by itself: then GNU dd copies nothing, and so does ours.
#[test]
fn files_that_cannot_be_so_long() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    let mut found = Vec::new();
    for case in [
        ("bin", "-", "bs=1M skip=100000000"),
        ("bin", "old", "bs=1M skip=100000000 conv=notrunc"),
        ("bin", "-", "bs=1M skip=100000000 conv=noerror"),
        ("<bin", "-", "bs=1M skip=100000000"),
        ("<bin", "-", "ibs=100 obs=7 skip=100000000000000B status=none"),
    ] {
        found.extend(gnu::differences(&place, case));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Behind the last offset nothing can be read, and nothing says that it ends there.
#[test]
fn the_last_offset_ends_a_copy_that_passes_over_failures() {
    let place = tempfile::tempdir_in("/dev/shm");
    let Ok(place) = place else {
        return support::skip("no tmpfs, which has the longest files");
    };
    std::fs::write(place.path().join("in"), b"something").unwrap();
    for (line, bytes) in [
        ("bs=1 skip=9223372036854775807 conv=noerror", 0),
        ("bs=512 skip=18014398509481983 conv=noerror", 0),
        ("bs=512 skip=9223372036854775600B conv=noerror,sync", 512),
        ("ibs=512 obs=3 skip=9223372036854775600B conv=noerror,swab", 0),
    ] {
        let ended = Command::new("timeout")
            .args(["60", BAIO, "dd", "if=in", "of=out"])
            .args(line.split(' '))
            .current_dir(place.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        let told = &told[..told.len().min(1000)];
        assert_eq!(ended.status.code(), Some(0), "{line}: {told}");
        let written = std::fs::read(place.path().join("out")).unwrap();
        assert_eq!(written, vec![0; bytes], "{line}: {told}");
    }
}

#[test]
fn behind_the_end_of_a_device() {
    let place = Place::new();
    if !support::is_root() || !gnu::is_there(&place) {
        return;
    }
    gnu::write_inputs(&place);
    place.write("image", &[5; 1 << 20]);
    let Some(device) = Loop::over(&place.path("image")) else {
        return;
    };
    let node = device.0.to_str().unwrap();
    let standard = format!("<{node}");
    let mut found = Vec::new();
    for case in [
        (node, "-", "bs=1M skip=1"),
        (node, "-", "bs=1M skip=2"),
        (node, "old", "bs=1M skip=2 status=none"),
        (node, "-", "bs=1000 skip=1049 conv=noerror"),
        (node, "-", "ibs=1000 obs=7 skip=9999"),
        (&standard, "-", "bs=1M skip=1"),
        (&standard, "-", "bs=1M skip=2"),
        (&standard, "pipe", "bs=1000 skip=1049 conv=swab"),
        ("empty", node, "bs=1M seek=1"),
        ("empty", node, "bs=1M seek=2"),
        ("bin", node, "bs=1M seek=2"),
        ("bin", node, "bs=1000 seek=2000 conv=sparse"),
    ] {
        found.extend(gnu::differences(&place, case));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Of what may be written and not read nobody can say that it is no volume; what is too short for one is written as by GNU dd.
#[test]
fn a_volume_that_may_only_be_written_is_not_destroyed() {
    let place = Place::new();
    place.volume("4M", "1M");
    place.write("short", &[1; 1000]);
    let before = place.read("vol");
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    for name in ["vol", "short"] {
        std::fs::set_permissions(place.path(name), Permissions::from_mode(0o222)).unwrap();
    }
    let to = |name: &str| format!("of={}", place.path(name).display());
    for more in [&[][..], &["oflag=append", "conv=notrunc"], &["oflag=nofollow"]] {
        let vol = to("vol");
        let words = [&["dd", "if=/dev/zero", &vol, "count=1"][..], more].concat();
        let told = Done(Confined::new().run(BAIO, &words)).fails_with(1);
        let said = told.errors();
        assert!(
            said.contains("may hold a baio volume") && said.contains("chmod"),
            "{more:?}: {said}"
        );
    }
    let short = to("short");
    Done(Confined::new().run(BAIO, &["dd", "if=/dev/zero", &short, "count=1"])).succeeds();
    for name in ["vol", "short"] {
        std::fs::set_permissions(place.path(name), Permissions::from_mode(0o644)).unwrap();
    }
    assert!(place.read("vol") == before);
    assert_eq!(place.read("short"), [0; 512]);
}

/// A descriptor that the shell has opened has no name, and perhaps no `/proc` to be opened once more by.
#[test]
fn a_volume_behind_standard_output_is_not_destroyed() {
    let place = Place::new();
    place.volume("4M", "1M");
    let before = place.read("vol");
    place.write("junk", &[7; 64 << 10]);
    place.write("long", &[1; 256 << 10]);
    let has_proc = "true";
    // In a world of its own, and only there.
    let has_none = "mount -t tmpfs none /proc";
    let may_unmount = place.shell("unshare -m true").status() == 0;
    for world in [has_proc, has_none] {
        if world == has_none && !may_unmount {
            return support::skip("a_volume_behind_standard_output_is_not_destroyed: needs root");
        }
        let run = |line: &str| match world == has_none {
            true => place.shell(&format!("unshare -m sh -c '{world}; {line}'")),
            false => place.shell(line),
        };
        for to in ["1<>vol", ">>vol"] {
            let told = run(&format!("{BAIO} dd if=junk {to}"));
            assert_eq!(told.status(), 1, "{world}, {to}: {}", told.errors());
            assert!(told.errors().contains("volume"), "{world}, {to}: {}", told.errors());
            assert!(place.read("vol") == before, "{world}, {to}");
        }
        // What is no volume is written, where that can be known.
        assert_eq!(run(&format!("{BAIO} dd if=junk 1<>long")).status(), 0, "{world}");
        assert_eq!(run(&format!("{BAIO} dd if=junk >new")).status(), 0, "{world}");
        assert_eq!(place.read("new").len(), 64 << 10, "{world}");
    }
}
