//! Promise: in a memory cgroup the defaults keep within its limit, and what would not is refused with the limit: nothing
//! is killed. Needs root, who can make a cgroup; says so otherwise.

use std::os::unix::process::ExitStatusExt;

use crate::support::cgroup::Cgroup;
use crate::support::{self, BAIO, Place};

#[test]
fn what_runs_in_a_small_memory_cgroup_is_not_killed() {
    if !support::is_root() {
        return;
    }
    let Some(cgroup) = Cgroup::make("small", 64 << 20) else {
        support::skip("no memory cgroup can be made here");
        return;
    };
    let place = Place::new();
    place.volume("256M", "160M");
    place.write("f", &vec![7; 64 << 20]);
    for (line, code) in [
        ("stress vol#a --mode cached --rw randwrite --size 96M --once", 0),
        ("stress g --rw write --request-size 1M --size 128M --once", 0),
        ("dd if=f of=vol#a bs=1M", 0),
        // Fewer are under way, and a record that has no room goes in parts.
        ("dd if=f of=vol#a bs=1M iodepth=64", 0),
        ("dd if=f of=g bs=48M", 0),
        ("dd if=/dev/zero of=g bs=48M count=1", 0),
        ("dd if=f of=g bs=48M conv=swab", 1),
        ("serve vol --socket s --cache 256M", 1),
        ("stress g --rw write --request-size 1M --depth 64 --size 128M --once", 2),
    ] {
        let mut command = cgroup.command(BAIO);
        command.args(line.split(' ')).current_dir(place.path(""));
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), None, "{line} was killed: {told}");
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
        assert!(code == 0 || told.contains("memory cgroup"), "{line}: {told}");
    }
    // io_uring's workers are killed for pages that only had to be written back.
    let mut command = cgroup.command(BAIO);
    command
        .args(["dd", "if=f", "of=g", "--json"])
        .current_dir(place.path(""));
    let told: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(told["backend"], "threads");
}
