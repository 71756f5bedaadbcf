//! A block device on which chosen writes land late: nbdkit with a shell script for its writes, as a file (nbdfuse), as a
//! loop device. A write whose first bytes are [`LATE`] waits a while before it reaches the disk; all others pass it. The
//! script keeps a log of what begins and what has landed. Needs root and those tools.
//!
//! Nothing stays behind, however this process ends: the loop device is detached as soon as it is open, so that it goes with
//! the last descriptor, and the servers are told by the kernel when their parent is no more (setpriv(1)).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::loop_device::run;
use crate::harness::{NEEDS_ROOT, skip};

/// How a late write begins.
pub(crate) const LATE: &[u8; 7] = b"LATEONE";
/// By how many seconds it is late.
const SECONDS: &str = "0.7";
const PATIENCE: Duration = Duration::from_secs(10);

/// The device. Its parts are taken down in the order in which they stand here.
pub(crate) struct LateDevice {
    pub(crate) path: PathBuf,
    log: PathBuf,
    _held: File,
    _mounted: Server,
    _server: Server,
    _mount: Mount,
}

impl LateDevice {
    /// `None`, and a word about it, where there can be none.
    pub(crate) fn new(dir: &Path, size_bytes: u64) -> Option<LateDevice> {
        LateDevice::start(dir, size_bytes)
            .inspect_err(|why| skip(&format!("no device that is late: {why}")))
            .ok()
    }

    fn start(dir: &Path, size_bytes: u64) -> Result<LateDevice, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(NEEDS_ROOT.into());
        }
        for tool in ["nbdkit", "nbdfuse", "losetup", "setpriv"] {
            run("sh", &["-c", &format!("command -v {tool}")]).map_err(|_| format!("{tool} is not installed"))?;
        }
        let place = |name: &str| dir.join(name).display().to_string();
        let (disk, socket, file, log) = (place("disk"), place("socket"), place("file"), place("log"));
        let told = |error: std::io::Error| error.to_string();
        File::create(&disk)
            .and_then(|disk| disk.set_len(size_bytes))
            .map_err(told)?;
        for path in [&log, &file] {
            File::create(path).map_err(told)?;
        }
        let late = String::from_utf8_lossy(LATE);
        let read = format!("pread=dd if={disk} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=128k status=none");
        // The bytes come on stdin; `$$` is another process for each write.
        let write = format!(
            "pwrite=data={dir}/write.$$; cat > $data; word=$(head -c 7 $data | tr -cd A-Z); echo begin $word >> {log}; \
             [ \"$word\" = {late} ] && sleep {SECONDS}; \
             dd if=$data of={disk} oflag=seek_bytes conv=notrunc seek=$4 bs=128k status=none; \
             rm $data; echo landed $word >> {log}",
            dir = dir.display()
        );
        let size = format!("get_size=echo {size_bytes}");
        // Without many connections, nbdfuse sends one write after the other.
        let yes = [
            "thread_model=echo parallel",
            "can_multi_conn=exit 0",
            "can_write=exit 0",
            "can_flush=exit 0",
            "flush=exit 0",
        ];
        let words = [
            "nbdkit",
            "-f",
            "-U",
            &socket,
            "--threads=32",
            "eval",
            &size,
            &read,
            &write,
        ];
        let server = Server::start(&[&words[..], &yes[..]].concat())?;
        until("nbdkit listens", || Path::new(&socket).exists())?;
        let mount = Mount(PathBuf::from(&file));
        let mounted = Server::start(&["nbdfuse", "-C", "16", &file, "--unix", &socket])?;
        let is_there = || std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() == size_bytes);
        until("nbdfuse shows its file", is_there)?;
        let path = run("losetup", &["--direct-io=on", "--find", "--show", &file])?;
        let held = File::open(&path).map_err(told);
        // While it is open, this only marks it to go with the last descriptor.
        run("losetup", &["--detach", &path])?;
        Ok(LateDevice {
            path: path.into(),
            log: log.into(),
            _held: held?,
            _mounted: mounted,
            _server: server,
            _mount: mount,
        })
    }

    /// Writes a line of ours between those of the device.
    pub(crate) fn note(&self, line: &str) {
        let mut log = File::options().append(true).open(&self.log).unwrap();
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    pub(crate) fn forget(&self) {
        File::create(&self.log).unwrap();
    }
}

pub(crate) fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("waited in vain until {what}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A process that ends with this one at the latest.
struct Server(Child);

impl Server {
    fn start(words: &[&str]) -> Result<Server, String> {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.map(Server).map_err(|error| format!("{}: {error}", words[0]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).unwrap();
        let _ = kill_process(pid, Signal::TERM);
        let ended = until("it ends", || {
            std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).is_ok_and(|stat| stat.contains(") Z "))
        });
        if ended.is_err() {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// What nbdfuse mounts, and unmounts when it ends well.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let mounted = std::fs::metadata(&self.0).map_or(true, |metadata| metadata.len() > 0);
        if mounted {
            let _ = run("umount", &["-l", self.0.to_str().unwrap()]);
        }
    }
}
