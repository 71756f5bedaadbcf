//! Promise: `doctor PATH` tells what a path is and really gives, writes nothing to anything that exists, and never waits.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, fallocate, mknodat};
use serde_json::{Value, json};

use crate::support::confined::Confined;
use crate::support::{self, BAIO, Done, Loop, Place, Unchanged, has, random_bytes};

/// What it tells, which it never waits for.
fn told(place: &Place, path: &str) -> Value {
    let done = place.in_a_minute(&format!("doctor {path} --json"));
    let path = done.succeeds().json()["path"].take();
    assert!(path["modes"].is_array(), "{path}");
    path
}

fn mode<'a>(told: &'a Value, name: &str) -> &'a Value {
    let modes = told["modes"].as_array().unwrap();
    modes.iter().find(|mode| mode["mode"] == name).unwrap()
}

#[track_caller]
fn advises(told: &Value, word: &str) -> bool {
    let advice = told["advice"].as_array().unwrap();
    advice.iter().any(|note| note["found"].as_str().unwrap().contains(word))
}

#[test]
fn a_file_is_only_read() {
    let place = Place::new();
    place.write("data", &random_bytes(1 << 20, 1));
    let before = Unchanged::watch(&place.path("data"));
    let changed = |path: &Path| {
        path.metadata()
            .map(|data| (data.ctime(), data.ctime_nsec(), data.blocks()))
    };
    let inode = changed(&place.path("data")).unwrap();
    let told = told(&place, "data");
    before.check("doctor data");
    assert_eq!(changed(&place.path("data")).unwrap(), inode);
    has(&told, json!({"kind": "file", "size_bytes": 1 << 20}));
    assert_eq!(told["volume"], false);
    assert_eq!(mode(&told, "kernel")["is"], "kernel");
    assert!(
        told["mount_point"].is_string() && told["mount_options"][0].is_string(),
        "{told}"
    );
}

#[test]
fn a_volume_is_only_read() {
    let place = Place::new();
    place.volume("8M", "1M");
    let before = Unchanged::watch(&place.path("vol"));
    let told = told(&place, "vol");
    before.check("doctor vol");
    assert_eq!(told["volume"], true);
    assert_eq!(told["volume_problem"], Value::Null);
}

/// The words of the whole answer: what people read first, and what they are to do.
fn words(place: &Place, path: &str, status: i32) -> (String, Vec<String>) {
    let told = place.baio(&format!("doctor {path} --json")).fails_with(status).json();
    let of = |task: &Value| {
        format!(
            "{} do: {}",
            task["because"].as_str().unwrap(),
            task["what"].as_str().unwrap()
        )
    };
    let tasks = told["to_do"].as_array().unwrap().iter().map(of).collect();
    (told["verdict"].as_str().unwrap().to_owned(), tasks)
}

/// Some features can be tried on a file only. Without a path, `doctor` names those that it has not tried.
#[test]
fn without_a_path_it_names_what_a_path_would_tell() {
    let place = Place::new();
    place.write("data", b"");
    let said = |line: &str| {
        let line = format!("BAIO_KERNEL_LACKS=nowait_streams {BAIO} doctor {line}");
        let told = place.shell(&line).succeeds().text();
        assert!(told.contains("nowait_streams"), "{told}");
        told
    };
    for form in ["", "--verbose"] {
        let told = said(form);
        let row = told
            .lines()
            .find(|line| line.contains("baio doctor PATH"))
            .expect("what a path tells");
        assert!(
            row.contains("uncached (6.14)") || told.contains("lacks uncached"),
            "{told}"
        );
        assert!(!said(&format!("data {form}")).contains("doctor PATH"));
    }
}

/// Whoever wrote over what a volume has preallocated would destroy it.
#[test]
fn a_volume_is_not_to_be_written_over() {
    let place = Place::new();
    place.volume("8M", "1M");
    let file = File::options().write(true).open(place.path("vol")).unwrap();
    // Of a volume that was never written to; not every file system preallocates.
    let _ = fallocate(&file, FallocateFlags::empty(), 4 << 20, 4 << 20);
    let whole = told(&place, "vol");
    assert!(!advises(&whole, "never written"), "{whole}");
    let (verdict, _) = words(&place, "vol", 0);
    assert!(!verdict.starts_with("Bad"), "{verdict}");

    file.set_len(3 << 20).unwrap();
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 2 << 20, 4 << 20);
    let before = Unchanged::watch(&place.path("vol"));
    let (verdict, tasks) = words(&place, "vol", 1);
    before.check("doctor of a broken volume");
    assert!(verdict.starts_with("Bad: the volume cannot be opened"), "{verdict}");
    assert!(!verdict.contains("there is nothing to do"), "{verdict}");
    let of_volume: Vec<&String> = tasks.iter().filter(|task| task.starts_with("vol: ")).collect();
    assert!(
        of_volume[0].contains("cannot be opened") && of_volume[0].contains("do: `baio check`"),
        "{tasks:?}"
    );
    assert!(!tasks.iter().any(|task| task.contains("write over")), "{tasks:?}");
}

/// Somebody works with it: that is no damage.
#[test]
fn a_volume_in_use_is_not_called_broken() {
    let place = Place::new();
    place.volume("8M", "1M");
    let holder = support::Holder::start(&place);
    let (verdict, tasks) = words(&place, "vol", 0);
    assert!(!verdict.starts_with("Bad"), "{verdict}");
    assert!(!tasks.iter().any(|task| task.contains("volume")), "{tasks:?}");
    assert!(!tasks.iter().any(|task| task.contains("write over")), "{tasks:?}");
    holder.kill();
}

/// The trials need a file: it never has a name, so the directory itself does not change.
#[test]
fn a_directory_is_not_written_to() {
    let place = Place::new();
    fs::create_dir(place.path("dir")).unwrap();
    let stamp = || {
        let data = place.path("dir").metadata().unwrap();
        (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec())
    };
    let before = stamp();
    let told = told(&place, "dir");
    assert_eq!(stamp(), before);
    assert_eq!(fs::read_dir(place.path("dir")).unwrap().count(), 0);
    assert_eq!(told["kind"], "directory");
    assert!(told["file_system"].is_string());
    let tried = !told["modes"].as_array().unwrap().is_empty();
    assert_ne!(tried, told["untried"].is_string(), "tried, or told why not: {told}");
}

#[test]
fn a_directory_that_is_closed_is_told_and_no_failure() {
    let place = Place::new();
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.path("dir")).unwrap();
    fs::set_permissions(place.path("dir"), fs::Permissions::from_mode(0o555)).unwrap();
    let path = place.path("dir");
    let done = Done(Confined::new().run(BAIO, &["doctor", path.to_str().unwrap(), "--json"]));
    let mut all = done.succeeds().json();
    let verdict = all["verdict"].as_str().unwrap();
    assert!(!verdict.contains("there is nothing to do"), "{verdict}");
    let tasks = all["to_do"].as_array().unwrap();
    let task = tasks
        .iter()
        .find(|task| task["because"].as_str().unwrap().contains("EACCES"));
    let what = task.unwrap_or_else(|| panic!("no task in {all}"))["what"]
        .as_str()
        .unwrap();
    assert!(what.contains("permissions"), "{what}");
    let told = all["path"].take();
    let untried = told["untried"].as_str().unwrap();
    assert!(untried.contains("name a file"), "{untried}");
    assert!(told["modes"].as_array().unwrap().is_empty());
}

#[test]
fn memory_is_not_called_a_disk() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    let place = Place::new();
    fs::write(dir.path().join("data"), [7; 65536]).unwrap();
    for path in [dir.path().to_owned(), dir.path().join("data")] {
        let told = told(&place, path.to_str().unwrap());
        if told["file_system"] != "tmpfs" {
            eprintln!("skipped: /dev/shm is no tmpfs");
            return;
        }
        assert_eq!(told["device"], Value::Null);
        assert_eq!(told["direct_writes"]["are"], "kernel");
        let direct = mode(&told, "direct");
        // Linux takes O_DIRECT on tmpfs since 6.6, and caches.
        assert!(direct["is"] == "kernel" || direct["works"] == false, "{direct}");
        assert!(advises(&told, "direct writes go through"), "{told}");
    }
}

#[test]
fn space_that_was_never_written_is_told_until_it_is() {
    let place = Place::new();
    let path = place.path("log");
    let mut file = File::create(&path).unwrap();
    if fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).is_err() {
        eprintln!("skipped: this file system preallocates nothing");
        return;
    }
    let before = told(&place, "log");
    if before["unwritten_bytes"] == Value::Null {
        eprintln!("skipped: this file system does not tell its extents");
        return;
    }
    assert_eq!(before["unwritten_bytes"], 1 << 20);
    assert!(advises(&before, "never written"), "{before}");
    file.write_all(&random_bytes(1 << 20, 2)).unwrap();
    file.sync_all().unwrap();
    let after = told(&place, "log");
    assert_eq!(after["unwritten_bytes"], 0);
    assert!(!advises(&after, "never written"), "{after}");
}

/// Opening a FIFO waits for its other end.
#[test]
fn streams_are_told_and_not_opened() {
    let place = Place::new();
    mknodat(CWD, place.path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _listener = UnixListener::bind(place.path("socket")).unwrap();
    for (path, kind) in [("fifo", "fifo"), ("socket", "socket"), ("/dev/tty", "character device")] {
        let told = told(&place, path);
        has(&told, json!({"kind": "stream", "stream": kind}));
        assert!(told["untried"].is_string());
        assert!(told["modes"].as_array().unwrap().is_empty());
    }
}

/// A read of `/proc/kmsg` waits for the kernel's next message, though it is called a regular file.
#[test]
fn files_that_the_kernel_makes_up_are_not_read() {
    let place = Place::new();
    for path in ["/proc/self/status", "/proc/kmsg", "/sys/kernel/uevent_seqnum"] {
        if !Path::new(path).exists() {
            eprintln!("skipped: no {path}");
            continue;
        }
        let told = told(&place, path);
        assert_eq!(told["kind"], "file");
        assert!(
            told["untried"].is_string() && told["modes"].as_array().unwrap().is_empty(),
            "{told}"
        );
    }
}

#[test]
fn a_link_is_followed() {
    let place = Place::new();
    place.write("data", b"x");
    symlink("data", place.path("link")).unwrap();
    assert_eq!(told(&place, "link")["kind"], "file");
}

#[test]
fn what_cannot_be_opened_is_an_error_with_its_cure() {
    let place = Place::new();
    place.write("data", b"x");
    symlink("round", place.path("round")).unwrap();
    for (path, code) in [("missing", "ENOENT"), ("data/below", "ENOTDIR"), ("round", "ELOOP")] {
        let failed = place.baio(&format!("doctor {path} --json")).fails_with(1);
        let failed = failed.json()["error"].take();
        has(&failed, json!({"code": code, "object": path}));
        assert!(failed["cure"].is_string(), "{failed}");
    }
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.path("data"), fs::Permissions::from_mode(0o000)).unwrap();
    let path = place.path("data");
    let path = path.to_str().unwrap();
    let failed = Done(Confined::new().run(BAIO, &["doctor", path, "--json"])).fails_with(1);
    let failed = failed.error();
    has(&failed, json!({"code": "EACCES", "object": path}));
    let message = failed["message"].as_str().unwrap();
    assert!(
        !message.contains("/proc/self/fd"),
        "what was typed, not how it was reached: {message}"
    );
}

#[test]
fn a_device_is_told_with_what_lies_below() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    place.write("image", &random_bytes(4 << 20, 3));
    let Some(device) = Loop::over(&place.path("image")) else {
        return;
    };
    let before = Unchanged::watch(&place.path("image"));
    let told = told(&place, device.0.to_str().unwrap());
    before.check("doctor of the device");
    has(&told, json!({"kind": "block device", "size_bytes": 4 << 20}));
    assert_eq!(told["file_system"], Value::Null);
    assert_eq!(mode(&told, "direct")["works"], true);
    assert!(told["alignment_source"].is_string());
    let shown = &told["device"];
    assert_eq!(shown["name"], device.0.file_name().unwrap().to_str().unwrap());
    for key in ["scheduler", "write_cache"] {
        assert!(shown[key].is_string(), "{key}: {shown}");
    }
    for key in [
        "requests_max",
        "logical_block_bytes",
        "discard_bytes_max",
        "write_zeroes_bytes_max",
    ] {
        assert!(shown[key].is_u64(), "{key}: {shown}");
    }
    assert!(shown["rotational"].is_boolean());
    assert_eq!(shown["backing"]["file"], place.path("image").to_str().unwrap());
    let buffered = fs::read_to_string(format!("/sys/block/{}/loop/dio", shown["name"].as_str().unwrap()));
    let buffered = buffered.is_ok_and(|dio| dio.trim() == "0");
    assert_eq!(shown["backing"]["direct_io"], !buffered);
    assert_eq!(advises(&told, "through the page cache of"), buffered);
}

/// A file on FUSE, gone with it: nbdfuse in front of an nbdkit that keeps it in memory.
struct Fuse {
    point: PathBuf,
    server: Child,
}

impl Fuse {
    fn at(point: PathBuf) -> Result<Fuse, String> {
        fs::create_dir(&point).unwrap();
        let server = Command::new("nbdfuse")
            .arg(point.join(""))
            .args(["--command", "nbdkit", "-s", "--exit-with-parent", "memory", "1M"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = server.map_err(|error| format!("nbdfuse: {error}"))?;
        let mut fuse = Fuse { point, server };
        for _ in 0..1000 {
            if fuse.point.join("nbd").exists() {
                return Ok(fuse);
            }
            if let Ok(Some(status)) = fuse.server.try_wait() {
                return Err(format!("nbdfuse ends with {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("nbdfuse does not mount".into())
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let done = Command::new("fusermount3").arg("-u").arg(&self.point).status();
        if !done.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg(&self.point).status();
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

#[test]
fn on_fuse_durable_writes_are_told_to_be_made_so_by_a_sync() {
    let place = Place::new();
    let fuse = match Fuse::at(place.path("mount")) {
        Ok(fuse) => fuse,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for path in ["mount/nbd", "mount"] {
        let told = told(&place, path);
        assert_eq!(told["durable_writes"]["by"], "sync", "{path}");
        let reason = told["durable_writes"]["reason"].as_str().unwrap();
        assert!(reason.contains("`fuse") && reason.contains("RWF_DSYNC"), "{reason}");
        let text = String::from_utf8(place.baio(&format!("doctor {path} --verbose")).succeeds().0.stdout).unwrap();
        assert!(text.contains("durable writes") && text.contains(reason), "{text}");
    }
    drop(fuse);
}

/// ext4 takes `O_DIRECT` on a file whose data it journals, and goes through its page cache: doctor says so and why, and so does what
/// measures.
#[test]
fn direct_io_that_is_none_is_told_with_the_reason() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let script = "truncate -s 32M image && mkfs.ext4 -q -F image && mkdir m && mount -o loop,data=journal image m || { echo none; exit 0; }
        head -c 65536 /dev/zero >m/f
        $BAIO doctor m/f --json; $BAIO latency m/f --writes 2 --json; umount m";
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .env("BAIO", support::BAIO)
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    if told.starts_with("none") {
        return support::skip("ext4 cannot be mounted here (it takes mkfs.ext4 and loop devices)");
    }
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let doctor = &told[0]["path"];
    assert_eq!(mode(doctor, "direct")["is"], "kernel", "{doctor}");
    assert_eq!(doctor["direct_writes"]["are"], "kernel", "{doctor}");
    let reason = doctor["direct_writes"]["reason"].as_str().unwrap();
    assert!(reason.contains("data=journal"), "{reason}");
    for latency in &told[1..] {
        assert_eq!(latency["mode"], "kernel", "{latency}");
    }
}
