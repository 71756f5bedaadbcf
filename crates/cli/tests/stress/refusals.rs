//! Promise: what `baio stress` must not or cannot do is refused before anything is changed, with need and cure.

use std::os::unix::fs::PermissionsExt;

use crate::support::confined::Confined;
use crate::support::refusals;
use crate::support::{self, Done, Place};

#[test]
fn nothing_precious_is_written_over_unasked() {
    let writes = [
        "stress vol --rw write --once",
        "stress vol --rw randrw --runtime 20ms",
        "stress vol --stages read,randwrite",
    ];
    let place = refusals::refuses_to_overwrite_a_volume(&writes, "stress vol --rw read --once");
    place.baio("stress vol --rw write --once --force").succeeds();
    place.baio("list vol").fails_with(1);
}

#[test]
fn a_segment_of_somebody_else() {
    let (writes, reads) = (
        "stress vol#12345/b --rw write --once",
        "stress vol#12345/b --rw read --once",
    );
    refusals::asks_before_writing_a_segment_of_somebody_else(writes, reads);
}

#[test]
fn figures_too_large_to_be_multiplied() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    for line in [
        "stress f --contexts 1024 --offset 16383P",
        "stress f --request-size 16383P --depth 16384 --threads 256",
    ] {
        place.baio(&format!("{line} --json")).fails_with(2);
    }
    for line in [
        "stress f --rw write --size 8191P --threads 256",
        "stress new --rw write --size 8191P",
    ] {
        let error = place.error(line, 1);
        assert_eq!(error["code"], "ENOSPC", "{line}");
    }
    assert_eq!(place.read("f").len(), 64 << 10);
    assert!(!place.path("new").exists());
}

#[test]
fn a_file_that_cannot_be_filled_up_is_as_it_was() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    let line = format!(
        "ulimit -f 128; exec {} stress f --size 256K --rw randwrite --once --json",
        support::BAIO
    );
    let mut child = place.spawn("bash", ["-c", &format!("trap '' XFSZ; {line}")]);
    drop(child.stdin.take());
    let done = support::Done(child.wait_with_output().unwrap()).fails_with(1);
    assert_eq!(done.json()["error"]["code"], "EFBIG");
    assert_eq!(place.read("f").len(), 64 << 10);
}

#[test]
fn a_volume_that_only_its_second_superblock_betrays() {
    let place = Place::new();
    place.volume("16M", "1M");
    let mut bytes = place.read("vol");
    bytes[..4096].fill(0);
    place.write("vol", &bytes);
    place.baio("stress vol --rw write --once").fails_with(1);
}

#[test]
fn a_volume_in_use_is_not_overwritten_even_with_force() {
    let place = Place::new();
    place.volume("16M", "1M");
    let holder = support::Holder::start(&place);
    let error = place.error("stress vol --rw write --once --force", 1);
    assert_eq!(error["code"], "EBUSY");
    let named = error["message"].as_str().unwrap().contains(&holder.pid().to_string());
    assert!(named, "{error}");
    assert_eq!(holder.finish(), 0);
}

#[test]
fn command_lines_that_make_no_sense() {
    refusals::refuses(&[
        ("stress", 2, "EUSAGE"),
        ("stress --job f", 2, "EUSAGE"),
        ("stress f --directory .", 2, "EUSAGE"),
        ("stress empty", 2, "EUSAGE"),
        ("stress new", 1, "ENOENT"),
        ("stress new --size 64K --stages read,randread", 1, "ENOENT"),
        ("stress f --files 2", 1, "ENOENT"),
        ("stress f --backend foo", 2, "EUSAGE"),
        ("stress f --rw sideways", 2, "EUSAGE"),
        ("stress f --runtime 5h", 2, "EUSAGE"),
        ("stress f --ioengine mmap", 2, "EUSAGE"),
        ("stress f --rwmixread 101", 2, "EUSAGE"),
        ("stress f --request-size 4kB", 2, "EUSAGE"),
        ("stress f --request-size 0", 2, "EUSAGE"),
        ("stress f --request-size 128K", 2, "EUSAGE"),
        ("stress f --request-size 2G --depth 16384", 2, "EUSAGE"),
        ("stress f --request-size 16 --verify --mode kernel", 2, "EUSAGE"),
        ("stress new --files 1024 --size 4G --rw write --verify", 2, "EUSAGE"),
        ("stress f --depth 0", 2, "EUSAGE"),
        ("stress f --batch 33", 2, "EUSAGE"),
        ("stress f --threads 17", 2, "EUSAGE"),
        ("stress f --contexts 2 --once", 2, "EUSAGE"),
        ("stress f --contexts 9 --offset 4K", 2, "EUSAGE"),
        ("stress f --contexts 2 --offset 6K --verify", 2, "EUSAGE"),
        ("stress f --rw read --stages read,write", 2, "EUSAGE"),
        ("stress f --mode cached --threads 2", 2, "EUSAGE"),
        ("stress f --mode cached --cache 4K", 2, "EUSAGE"),
        ("stress f --mode cached --cache 2T", 2, "EUSAGE"),
        ("stress f --cache 1M", 2, "EUSAGE"),
        ("stress f --request-size 5000 --rw write", 1, "EINVAL"),
        ("stress . --rw read", 1, "EISDIR"),
        ("stress /dev/null --rw read", 1, "EINVAL"),
        ("stress vol#a --mode kernel", 2, "EUSAGE"),
        ("stress vol#a --mode uncached", 2, "EUSAGE"),
        ("stress vol#a --mode cached --service", 2, "EUSAGE"),
        ("stress vol#a --threads 2", 2, "EUSAGE"),
        ("stress vol#a --service --threads 257", 2, "EUSAGE"),
        ("stress vol#b --service", 1, "ENOENT"),
        ("stress f --service", 2, "EUSAGE"),
        ("stress f --cold", 2, "EUSAGE"),
        ("stress f --interval 1ms --depth 2", 2, "EUSAGE"),
        ("stress f --interval 5", 2, "EUSAGE"),
        ("stress f --cold --mode uncached", 2, "EUSAGE"),
        ("stress vol#a --cold", 2, "EUSAGE"),
        ("stress vol#a --files 2", 2, "EUSAGE"),
        ("stress vol#a --size 2M", 2, "EUSAGE"),
        ("stress vol#a --request-size 512", 2, "EUSAGE"),
        ("stress vol#b", 1, "ENOENT"),
        ("stress unix:missing#a", 1, "ENOENT"),
        ("stress unix:missing", 2, "EUSAGE"),
        ("stress unix:missing#a --mode kernel", 2, "EUSAGE"),
        ("stress unix:missing#a --files 2", 2, "EUSAGE"),
    ]);
}

#[test]
fn a_file_that_cannot_be_filled_does_not_stay() {
    let place = Place::new();
    place
        .baio("stress new --rw write --size 64K --request-size 5000")
        .fails_with(1);
    assert!(!place.path("new").exists());
    place.baio("stress missing/new --rw write --size 64K").fails_with(1);
}

#[test]
fn of_several_files_none_is_changed_where_one_cannot_be() {
    let place = Place::new();
    place.write("f.1", &[1; 4096]);
    // `f.2` is a link to nowhere: it is missing, and cannot be made.
    std::os::unix::fs::symlink("no/where", place.path("f.2")).unwrap();
    place.baio("stress f --files 3 --size 64K --rw write").fails_with(1);
    assert!(!place.path("f.0").exists());
    assert_eq!(place.read("f.1"), [1; 4096]);
    assert!(place.path("f.2").symlink_metadata().is_ok());
}

/// Each of them has room, and all together have none.
#[test]
fn room_is_asked_for_all_files_at_once() {
    let place = Place::new();
    let script = "mkdir tiny && mount -t tmpfs -o size=8m none tiny || { echo none; exit 0; }
        $BAIO stress tiny/f --files 3 --size 4M --rw write --json; ls -A tiny";
    let Some(told) = place.with_mounts_of_its_own(script) else {
        return support::skip("no tmpfs can be mounted here");
    };
    assert!(told.contains("ENOSPC") && told.contains("into 3 files"), "{told}");
    assert_eq!(told.lines().count(), 1, "nothing was made: {told}");
}

#[test]
fn only_our_own_cache_is_filled_before() {
    let place = Place::new();
    place.write("f", &[0; 8192]);
    for line in [
        "--warm 50",
        "--warm 50 --mode kernel",
        "--warm 0 --mode cached",
        "--warm 101 --mode cached",
    ] {
        place.baio(&format!("stress f --once {line} --json")).fails_with(2);
    }
    place.baio("stress f --once --warm 100 --mode cached").succeeds();
}

/// As where the limit of processes is reached.
#[test]
fn where_no_thread_can_be_had_the_run_fails_and_says_so() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = place.path().join("data").to_str().unwrap().to_owned();
    std::fs::write(&data, [7; 65536]).unwrap();
    let confined = Confined::new().without(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let words = ["stress", &data, "--threads", "4", "--backend", "sync", "--once"];
    let told = Done(confined.run(support::BAIO, &words)).fails_with(1);
    let said = told.errors();
    assert!(
        said.contains("4 threads that run at once") && said.contains("ulimit -u"),
        "{said}"
    );
}
