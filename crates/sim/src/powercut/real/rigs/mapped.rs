//! What device-mapper makes of a disk.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use baio_engine::sim::Random;

use super::rig::{DEVICE_BYTES, Disks, Rig, Strike, run, sectors};
use crate::powercut::worker::Failure;

/// A device of device-mapper, which goes when it is dropped.
#[derive(Debug)]
pub(in super::super) struct Mapped(String);

impl Mapped {
    pub(in super::super) fn new(name: &str, table: &str) -> Result<Mapped, Failure> {
        let _ = run("dmsetup", &["remove", "--retry", name]);
        run("dmsetup", &["create", name, "--table", table])?;
        Ok(Mapped(name.into()))
    }

    pub(in super::super) fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.0)
    }

    fn change(&self, table: &str) -> Result<(), Failure> {
        run("dmsetup", &["load", &self.0, "--table", table])?;
        self.suspended(|| Ok(()))
    }

    /// Nothing comes through meanwhile.
    fn suspended(&self, meanwhile: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        run("dmsetup", &["suspend", "--noflush", "--nolockfs", &self.0])?;
        let done = meanwhile();
        run("dmsetup", &["resume", &self.0])?;
        done
    }

    pub(in super::super) fn message(&self, message: &str) -> Result<(), Failure> {
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

pub(super) fn flakey(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
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

    fn fails_by_itself(&self) -> bool {
        true
    }

    fn mend(&mut self) -> Result<(), Failure> {
        self.device.change(&self.whole)
    }
}

/// Of the pool, at first. A neighbour takes what is left of it.
const POOL_BYTES: u64 = DEVICE_BYTES + (4 << 20);
/// It is grown by so much, after each time that it was full.
const GROWN_BYTES: u64 = 4 << 20;

struct Thin {
    // In the order in which they go.
    device: Mapped,
    neighbour: Mapped,
    pool: Mapped,
    data: Mapped,
    _table: Mapped,
    below: String,
    bytes: u64,
    has_snapshot: bool,
}

fn data_table(bytes: u64, below: &str) -> String {
    format!("0 {} linear {below} 0", bytes / 512)
}

fn pool_table(bytes: u64) -> String {
    format!(
        "0 {} thin-pool /dev/mapper/baio-table /dev/mapper/baio-data 128 0 1 error_if_no_space",
        bytes / 512
    )
}

pub(super) fn thin(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let below = disks.first.display().to_string();
    let table = Mapped::new("baio-table", &format!("0 8192 linear {} 0", disks.second.display()))?;
    let data = Mapped::new("baio-data", &data_table(POOL_BYTES, &below))?;
    let pool = Mapped::new("baio-pool", &pool_table(POOL_BYTES))?;
    pool.message("create_thin 0")?;
    pool.message("create_thin 1")?;
    let thin = |name, number, sectors| {
        let table = format!("0 {sectors} thin {} {number}", pool.path().display());
        Mapped::new(name, &table)
    };
    let device = thin("baio-thin", 0, sectors())?;
    // It finds no end before the pool has none left.
    let neighbour = thin("baio-neighbour", 1, 4 * sectors())?;
    Ok(Box::new(Thin {
        device,
        neighbour,
        pool,
        data,
        _table: table,
        below,
        bytes: POOL_BYTES,
        has_snapshot: false,
    }))
}

impl Rig for Thin {
    fn path(&self) -> PathBuf {
        self.device.path()
    }

    /// From the snapshot on also what is written over wants space of its own, and the neighbour takes all there is.
    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        self.device.suspended(|| self.pool.message("create_snap 2 0"))?;
        self.has_snapshot = true;
        let neighbour = fs::File::options().write(true).open(self.neighbour.path())?;
        let bytes = vec![1; 1 << 20];
        // Until the pool is full, which the sync says.
        for at in (0..4 * DEVICE_BYTES).step_by(bytes.len()) {
            let written = neighbour.write_all_at(&bytes, at);
            if written.and_then(|()| neighbour.sync_data()).is_err() {
                return Ok(Strike::Fails);
            }
        }
        Err("the neighbour has not filled the pool".into())
    }

    fn fails_by_itself(&self) -> bool {
        true
    }

    fn mend(&mut self) -> Result<(), Failure> {
        self.bytes += GROWN_BYTES;
        self.data.change(&data_table(self.bytes, &self.below))?;
        self.pool.change(&pool_table(self.bytes))?;
        if std::mem::take(&mut self.has_snapshot) {
            self.pool.message("delete 2")?;
        }
        Ok(())
    }
}

impl Rig for Mapped {
    fn path(&self) -> PathBuf {
        Mapped::path(self)
    }
}

struct Delay {
    device: Mapped,
    _halves: [Mapped; 2],
}

impl Rig for Delay {
    fn path(&self) -> PathBuf {
        self.device.path()
    }
}

/// Of a quick half and a slow one, in turn: writes overtake each other, and parts of one; each half lets reads overtake writes.
pub(super) fn delay(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let (below, sectors) = (disks.first.display(), sectors());
    let half = |name, at, [read, write, flush]: [u32; 3]| {
        let table = format!(
            "0 {} delay {below} {at} {read} {below} {at} {write} {below} {at} {flush}",
            sectors / 2
        );
        Mapped::new(name, &table)
    };
    let halves = [
        half("baio-quick", 0, [0, 1, 3])?,
        half("baio-slow", sectors / 2, [1, 9, 5])?,
    ];
    let [quick, slow] = halves.each_ref().map(|half| half.path().display().to_string());
    let device = Mapped::new("baio-delay", &format!("0 {sectors} striped 2 8 {quick} 0 {slow} 0"))?;
    Ok(Box::new(Delay {
        device,
        _halves: halves,
    }))
}

pub(super) fn crypt(disks: &Disks) -> Result<Box<dyn Rig>, Failure> {
    let (below, key) = (disks.first.display(), "5a".repeat(64));
    let table = format!(
        "0 {} crypt aes-xts-plain64 {key} 0 {below} 0 1 sector_size:4096",
        sectors()
    );
    Ok(Box::new(Mapped::new("baio-crypt", &table)?))
}
