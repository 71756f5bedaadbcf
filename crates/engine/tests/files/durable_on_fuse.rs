//! Promise: a durable write to a file on FUSE is durable when it completes, on every backend: its server has been told to
//! flush since it got the bytes. The kernel itself sends asynchronous direct writes on without an fsync.
//!
//! The server is nbdfuse in front of nbdkit, whose log tells what arrives, in order. Where they are missing, or the user
//! may not mount, there is nothing to show.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::backends::{Bench, blank, finish, next, policies};
use baio_engine::{Durability, DurableBy, Engine, File, Open, Request};

const BLOCK: usize = 4096;

struct Mount {
    dir: tempfile::TempDir,
    server: Child,
}

impl Mount {
    fn new() -> Result<Mount, String> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        std::fs::create_dir(dir.path().join("mount")).expect("a mount point");
        let server = Command::new("nbdfuse")
            .arg(dir.path().join("mount/"))
            .args(["--command", "nbdkit", "-s", "--exit-with-parent", "--filter=log"])
            .args(["memory", "16M"])
            .arg(format!("logfile={}", dir.path().join("log").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = server.map_err(|error| format!("nbdfuse: {error}"))?;
        let mut mount = Mount { dir, server };
        for _ in 0..1000 {
            if mount.file().exists() {
                return Ok(mount);
            }
            if let Ok(Some(status)) = mount.server.try_wait() {
                return Err(format!("nbdfuse ends with {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("nbdfuse does not mount".into())
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("mount/nbd")
    }

    /// Of all that has arrived: when the last write began, when the last flush that succeeded did, and how many flushes.
    fn arrived(&self) -> (Option<usize>, Option<usize>, usize) {
        let log = std::fs::read_to_string(self.dir.path().join("log")).expect("the server's log");
        let words: Vec<Vec<&str>> = log.lines().map(|line| line.split_whitespace().collect()).collect();
        let last = |what: &str| words.iter().rposition(|words| words.contains(&what));
        let flushes = words.iter().filter(|words| words.contains(&"Flush")).count();
        (last("Write"), last("Flush"), flushes)
    }

    /// Nothing that was acknowledged may lie in the server's memory alone.
    fn assert_flushed(&self, what: &str) {
        let (written, flushed, _) = self.arrived();
        let log = std::fs::read_to_string(self.dir.path().join("log")).expect("the server's log");
        assert!(
            written.is_some() && flushed > written,
            "{what}: no flush behind the write\n{log}"
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let point = self.dir.path().join("mount");
        let unmount = |program: &str, options: &[&str]| {
            let done = Command::new(program)
                .args(options)
                .arg(&point)
                .stderr(Stdio::null())
                .status();
            done.is_ok_and(|status| status.success())
        };
        if !unmount("fusermount3", &["-u"]) && !unmount("umount", &[]) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

fn explained(engine: &Engine) -> Option<String> {
    let features = engine.explain().features;
    let found = features.into_iter().find(|(name, _)| *name == "durable_write_flag")?;
    found.1.err()
}

#[test]
fn the_server_has_flushed_what_is_acknowledged() {
    let mount = match Mount::new() {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for bench in Bench::each(|row| !row.is_simulated()) {
        let row = bench.row;
        let mut engine = bench.engine();
        let file = File::open(&mount.file(), &Open::write()).expect("a file on FUSE");
        assert_eq!(explained(&engine), None, "nothing was written");
        let mut writes = 0;
        for (policy, durability) in policies(&file)
            .flat_map(|policy| [Durability::Data, Durability::Full].map(|durability| (policy, durability)))
        {
            let what = format!("{}, {:?}, {durability:?}", row.name, policy.caching);
            let policy = policy.durable(durability);
            for block in 0..4 {
                let write = Request::write(&file, block * BLOCK as u64, blank(&engine, BLOCK), policy);
                assert_eq!(finish(&mut engine, write).result, Ok(BLOCK as u32));
                mount.assert_flushed(&what);
            }
            // Many at once: each is behind a flush, and they share some.
            let (_, _, before) = mount.arrived();
            for block in 0..32 {
                let write = Request::write(&file, block * BLOCK as u64, blank(&engine, BLOCK), policy);
                engine.submit(write).expect("a slot");
            }
            for _ in 0..32 {
                assert_eq!(next(&mut engine).result, Ok(BLOCK as u32));
            }
            mount.assert_flushed(&what);
            let (_, _, after) = mount.arrived();
            assert!(after - before <= 32, "{what}: {} flushes for 32 writes", after - before);
            writes += 36;
        }
        assert_eq!(file.durable_by(), DurableBy::Sync);
        assert_eq!(engine.stats().durable_by_sync, writes);
        let why = explained(&engine).expect("a feature that is told");
        assert!(why.contains("FUSE") && why.contains("mount/nbd"), "{why}");
    }
}
