//! Promise: in a memory cgroup the defaults keep within its limit, and what would not is refused with the limit: nothing
//! is killed. Needs root, who can make a cgroup; says so otherwise.

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{BAIO, Place};

/// One with 64 MiB, gone with this.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> Option<Cgroup> {
        let (parent, limit) = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ]
        .into_iter()
        .find(|(parent, _)| Path::new(parent).join("cgroup.procs").exists())?;
        let path = Path::new(parent).join(format!("baio-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let made = Cgroup(path);
        fs::write(made.0.join(limit), (64 << 20).to_string()).ok()?;
        Some(made)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn what_runs_in_a_small_memory_cgroup_is_not_killed() {
    if !support::is_root() {
        return;
    }
    let Some(cgroup) = Cgroup::make() else {
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
        let procs = cgroup.0.join("cgroup.procs");
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]).arg(procs);
        command.arg(BAIO).args(line.split(' ')).current_dir(place.path(""));
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), None, "{line} was killed: {told}");
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
        assert!(code == 0 || told.contains("memory cgroup"), "{line}: {told}");
    }
}
