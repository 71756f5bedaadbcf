//! The devices: how each is made, what happens to it while somebody works, and how it is made whole again.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::powercut::worker::Failure;
use crate::random::Random;

/// Of each device.
pub(super) const DEVICE_BYTES: u64 = 24 << 20;
/// A device that was made is seen within so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of the pool, until it is grown. A neighbour takes what is left of it.
const POOL_BYTES: u64 = DEVICE_BYTES + (4 << 20);
/// Where .ci/guest keeps the modules of its kernel.
const MODULES: &str = "/modules";

/// Two blank disks that may be written over.
#[derive(Clone, Debug)]
pub struct Disks {
    /// What lies below the devices.
    pub first: PathBuf,
    /// Records, and the table of a pool.
    pub second: PathBuf,
}

impl Disks {
    /// Zeros in all places that a device uses.
    pub(super) fn blank(&self) -> Result<(), Failure> {
        let zeros = vec![0; 1 << 20];
        for disk in [&self.first, &self.second] {
            let file = fs::File::options().write(true).open(disk)?;
            for at in (0..2 * DEVICE_BYTES).step_by(zeros.len()) {
                file.write_all_at(&zeros, at)?;
            }
            file.sync_all()?;
        }
        Ok(())
    }
}

/// What a strike does to whoever works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    /// Nothing.
    None,
    /// Some requests fail; who works may go on.
    Fails,
    /// No request ends well any more: who works ends, by itself.
    Ends,
}

/// A device under test.
pub(super) trait Rig {
    fn path(&self) -> PathBuf;

    /// Something happens to it.
    fn strike(&mut self, _random: &mut Random) -> Result<Strike, Failure> {
        Ok(Strike::None)
    }

    /// It is whole again, with what it held.
    fn mend(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

type Make = fn(&Disks) -> Result<Box<dyn Rig>, Failure>;

/// All of them, and what each is.
pub(super) const ALL: [(&str, Make, &str); 11] = [
    ("flakey", flakey, "dm-flakey: writes, reads or both fail for a while"),
    ("thin", thin, "a thin pool that is full, and is grown"),
    (
        "delay",
        delay,
        "dm-delay: reads, writes and flushes take different times",
    ),
    ("crypt", crypt, "dm-crypt with sectors of 4 KiB"),
    (
        "scsi-512",
        |_| Scsi::new(&["sector_size=512"], false),
        "scsi_debug, sectors of 512",
    ),
    (
        "scsi-4096",
        |_| Scsi::new(&["sector_size=4096"], false),
        "scsi_debug, sectors of 4096",
    ),
    (
        "scsi-one",
        |_| Scsi::new(&["max_queue=1"], false),
        "scsi_debug, one request at a time",
    ),
    (
        "scsi-unmap",
        |_| Scsi::new(&["lbpu=1", "lbpws=1"], false),
        "scsi_debug that unmaps",
    ),
    (
        "scsi-deleted",
        |_| Scsi::new(&[], true),
        "scsi_debug, deleted under load",
    ),
    ("null", null, "null_blk with a volatile cache"),
    ("nbd-cut", nbd, "nbd whose server is killed"),
];

/// Runs it to its end, which must be a good one.
pub(super) fn run(program: &str, words: &[&str]) -> Result<String, Failure> {
    // There may be no udev that makes the nodes of devices.
    let ran = Command::new(program)
        .args(words)
        .env("DM_DISABLE_UDEV", "1")
        .stdin(Stdio::null())
        .output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).trim().replace('\n', "; ");
        return Err(format!("{program} {}: {said}", words.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

pub(super) fn sectors() -> u64 {
    DEVICE_BYTES / 512
}

/// A device of device-mapper, which goes when it is dropped.
#[derive(Debug)]
pub(super) struct Mapped(String);

impl Mapped {
    pub(super) fn new(name: &str, table: &str) -> Result<Mapped, Failure> {
        let _ = run("dmsetup", &["remove", "--retry", name]);
        run("dmsetup", &["create", name, "--table", table])?;
        Ok(Mapped(name.into()))
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.0)
    }

    fn change(&self, table: &str) -> Result<(), Failure> {
        run("dmsetup", &["load", &self.0, "--table", table])?;
        run("dmsetup", &["suspend", "--noflush", "--nolockfs", &self.0])?;
        run("dmsetup", &["resume", &self.0])?;
        Ok(())
    }

    pub(super) fn message(&self, message: &str) -> Result<(), Failure> {
        run("dmsetup", &["message", &self.0, "0", message])?;
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Err(error) = run("dmsetup", &["remove", "--retry", &self.0]) {
            eprintln!("baio-sim: {error}");
        }
    }
}

struct Flakey {
    device: Mapped,
    whole: String,
    below: String,
}

fn flakey(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let below = disks.first.display().to_string();
    let whole = format!("0 {} linear {below} 0", sectors());
    let device = Mapped::new("baio-flakey", &whole)?;
    Ok(Box::new(Flakey { device, whole, below }))
}

impl Rig for Flakey {
    fn path(&self) -> PathBuf {
        self.device.path()
    }

    fn strike(&mut self, random: &mut Random) -> Result<Strike, Failure> {
        let flakey = |what: &str| format!("0 {} flakey {} 0 0 3600 1 {what}", sectors(), self.below);
        let done = match random.below(3) {
            0 => self.device.change(&flakey("error_writes")),
            // Before 6.5 it cannot fail reads alone.
            1 => self
                .device
                .change(&flakey("error_reads"))
                .or_else(|_| self.device.change(&flakey("error_writes"))),
            _ => self.device.change(&format!("0 {} error", sectors())),
        };
        done?;
        thread::sleep(Duration::from_millis(random.below(400)));
        if random.percent(50) {
            self.device.change(&self.whole)?;
        }
        Ok(Strike::Fails)
    }

    fn mend(&mut self) -> Result<(), Failure> {
        self.device.change(&self.whole)
    }
}

struct Thin {
    // In the order in which they go.
    device: Mapped,
    neighbour: Mapped,
    pool: Mapped,
    data: Mapped,
    table: Mapped,
    below: String,
    is_grown: bool,
}

fn pool_table(bytes: u64) -> String {
    format!(
        "0 {} thin-pool /dev/mapper/baio-table /dev/mapper/baio-data 128 0 1 error_if_no_space",
        bytes / 512
    )
}

fn thin(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let below = disks.first.display().to_string();
    let table = Mapped::new("baio-table", &format!("0 8192 linear {} 0", disks.second.display()))?;
    let data = Mapped::new("baio-data", &format!("0 {} linear {below} 0", POOL_BYTES / 512))?;
    let pool = Mapped::new("baio-pool", &pool_table(POOL_BYTES))?;
    pool.message("create_thin 0")?;
    pool.message("create_thin 1")?;
    let thin = |name, number| {
        let table = format!("0 {} thin {} {number}", sectors(), pool.path().display());
        Mapped::new(name, &table)
    };
    let (device, neighbour) = (thin("baio-thin", 0)?, thin("baio-neighbour", 1)?);
    Ok(Box::new(Thin {
        device,
        neighbour,
        pool,
        data,
        table,
        below,
        is_grown: false,
    }))
}

impl Rig for Thin {
    fn path(&self) -> PathBuf {
        let _ = &self.table;
        self.device.path()
    }

    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        let neighbour = fs::File::options().write(true).open(self.neighbour.path())?;
        let bytes = vec![1; 1 << 20];
        // Until the pool is full, which the sync says, or the neighbour is.
        for at in (0..DEVICE_BYTES).step_by(bytes.len()) {
            let written = neighbour.write_all_at(&bytes, at);
            if written.and_then(|()| neighbour.sync_data()).is_err() {
                break;
            }
        }
        Ok(Strike::Fails)
    }

    fn mend(&mut self) -> Result<(), Failure> {
        if !self.is_grown {
            let bytes = 2 * DEVICE_BYTES;
            self.data
                .change(&format!("0 {} linear {} 0", bytes / 512, self.below))?;
            self.pool.change(&pool_table(bytes))?;
            self.is_grown = true;
        }
        Ok(())
    }
}

impl Rig for Mapped {
    fn path(&self) -> PathBuf {
        Mapped::path(self)
    }
}

fn delay(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let below = disks.first.display();
    let table = format!("0 {} delay {below} 0 1 {below} 0 5 {below} 0 9", sectors());
    Ok(Box::new(Mapped::new("baio-delay", &table)?))
}

fn crypt(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let (below, key) = (disks.first.display(), "5a".repeat(64));
    let table = format!(
        "0 {} crypt aes-xts-plain64 {key} 0 {below} 0 1 sector_size:4096",
        sectors()
    );
    Ok(Box::new(Mapped::new("baio-crypt", &table)?))
}

/// The first thing that such a search finds, within some time.
fn find(what: &str, mut search: impl FnMut() -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = search() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("there is no {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

struct Scsi {
    path: PathBuf,
    host: PathBuf,
    is_deleted: bool,
}

impl Scsi {
    #[allow(clippy::new_ret_no_self, reason = "as the other functions of the table")]
    fn new(options: &[&str], is_deleted: bool) -> Result<Box<dyn Rig>, Failure> {
        let module = children(Path::new(MODULES))
            .into_iter()
            .find(|path| path.to_string_lossy().ends_with("scsi_debug.ko"))
            .ok_or("there is no module scsi_debug")?;
        let _ = run("rmmod", &["scsi_debug"]);
        let module = module.display().to_string();
        let mebibytes = format!("dev_size_mb={}", DEVICE_BYTES >> 20);
        run("insmod", &[&[module.as_str(), &mebibytes, "delay=0"], options].concat())?;
        let adapter = Path::new("/sys/bus/pseudo/drivers/scsi_debug/adapter0");
        let host = find("host of scsi_debug", || {
            let hosts = children(adapter).into_iter();
            hosts.into_iter().find(|path| named(path).starts_with("host"))
        })?;
        Ok(Box::new(Scsi {
            path: disk_of(&host)?,
            host,
            is_deleted,
        }))
    }
}

fn named(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// hostN/targetN:0:0/N:0:0:0/block/sdX
fn disk_of(host: &Path) -> Result<PathBuf, Failure> {
    find("disk of scsi_debug", || {
        let targets = children(host)
            .into_iter()
            .filter(|path| named(path).starts_with("target"));
        let disks = targets.flat_map(|target| children(&target));
        let mut blocks = disks.flat_map(|disk| children(&disk.join("block")));
        let device = Path::new("/dev").join(named(&blocks.next()?));
        device.exists().then_some(device)
    })
}

impl Rig for Scsi {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        if !self.is_deleted {
            return Ok(Strike::None);
        }
        let delete = Path::new("/sys/block").join(named(&self.path)).join("device/delete");
        fs::write(delete, "1")?;
        Ok(Strike::Ends)
    }

    fn mend(&mut self) -> Result<(), Failure> {
        if self.is_deleted {
            let scan = Path::new("/sys/class/scsi_host").join(named(&self.host)).join("scan");
            fs::write(scan, "- - -")?;
            self.path = disk_of(&self.host)?;
        }
        Ok(())
    }
}

impl Drop for Scsi {
    fn drop(&mut self) {
        let _ = run("rmmod", &["scsi_debug"]);
    }
}

const NULL: &str = "/sys/kernel/config/nullb/nullb7";

struct Null(PathBuf);

fn null(_: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let at = Path::new(NULL);
    let _ = fs::remove_dir(at);
    fs::create_dir(at).map_err(|error| format!("{NULL}: {error}"))?;
    let megabytes = (DEVICE_BYTES >> 20).to_string();
    let settings = [
        ("size", megabytes.as_str()),
        ("memory_backed", "1"),
        ("cache_size", "4"),
        ("discard", "1"),
        ("power", "1"),
    ];
    for (name, value) in settings {
        fs::write(at.join(name), value).map_err(|error| format!("{NULL}/{name}: {error}"))?;
    }
    let index = fs::read_to_string(at.join("index"))?;
    let names = ["/dev/nullb7".to_owned(), format!("/dev/nullb{}", index.trim())];
    let device = find("device of null_blk", || {
        names.iter().map(PathBuf::from).find(|path| path.exists())
    })?;
    Ok(Box::new(Null(device)))
}

impl Rig for Null {
    fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let _ = fs::write(Path::new(NULL).join("power"), "0");
        let _ = fs::remove_dir(NULL);
    }
}

const NBD: &str = "/dev/nbd0";

struct Nbd {
    dir: PathBuf,
    server: Child,
}

fn nbd(_: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let dir = std::env::temp_dir().join(format!("baio-nbd-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir)?;
    fs::File::create(dir.join("disk"))?.set_len(DEVICE_BYTES)?;
    let server = connect(&dir)?;
    Ok(Box::new(Nbd { dir, server }))
}

/// A server of the file, and the kernel's client.
fn connect(dir: &Path) -> Result<Child, Failure> {
    let socket = dir.join("socket");
    let _ = fs::remove_file(&socket);
    let server = Command::new("nbdkit")
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(&socket)
        .arg("file")
        .arg(dir.join("disk"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("nbdkit: {error}"))?;
    find("socket of nbdkit", || socket.exists().then(|| socket.clone()))?;
    // Without a time limit requests that are under way when the server goes never end.
    let socket = socket.display().to_string();
    run("nbd-client", &["-unix", &socket, "-timeout", "3", NBD])?;
    Ok(server)
}

impl Nbd {
    fn disconnect(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Rig for Nbd {
    fn path(&self) -> PathBuf {
        NBD.into()
    }

    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        self.disconnect();
        Ok(Strike::Ends)
    }

    fn mend(&mut self) -> Result<(), Failure> {
        self.disconnect();
        let _ = run("nbd-client", &["-d", NBD]);
        self.server = connect(&self.dir)?;
        Ok(())
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = run("nbd-client", &["-d", NBD]);
        self.disconnect();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
