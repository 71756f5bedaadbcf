//! Modules of the kernel that play a disk: scsi_debug and null_blk.

use std::fs;
use std::path::{Path, PathBuf};

use baio_engine::sim::Random;

use super::rig::{DEVICE_BYTES, Rig, Strike, find, run};
use crate::powercut::worker::Failure;

/// Where .ci/guest keeps the modules of its kernel.
const MODULES: &str = "/modules";

fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

pub(super) struct Scsi {
    path: PathBuf,
    host: PathBuf,
    is_deleted: bool,
}

impl Scsi {
    pub(super) fn rig(options: &[&str], is_deleted: bool) -> Result<Box<dyn Rig>, Failure> {
        Ok(Box::new(Scsi::new(options, is_deleted)?))
    }

    fn new(options: &[&str], is_deleted: bool) -> Result<Scsi, Failure> {
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
        Ok(Scsi {
            path: disk_of(&host)?,
            host,
            is_deleted,
        })
    }
}

/// Commands of six bytes have no place for the bit.
pub(super) fn scsi_without_fua() -> Result<Box<dyn Rig>, Failure> {
    let disk = Scsi::new(&["cdb_len=6"], false)?;
    has_no_fua(&disk.path)?;
    Ok(Box::new(disk))
}

/// What is durable there is written, and the whole cache flushed.
fn has_no_fua(device: &Path) -> Result<(), Failure> {
    let queue = Path::new("/sys/block").join(named(device)).join("queue");
    let [cache, fua] = ["write_cache", "fua"].map(|name| fs::read_to_string(queue.join(name)).unwrap_or_default());
    match (cache.trim(), fua.trim()) {
        ("write back", "0") => Ok(()),
        (cache, fua) => Err(format!("{}: its cache is {cache}, and its FUA {fua}", device.display()).into()),
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

const NULLS: &str = "/sys/kernel/config/nullb";
const NULL: &str = "/sys/kernel/config/nullb/nullb7";

struct Null(PathBuf);

fn set_null(name: &str, value: &str) -> Result<(), Failure> {
    let set = fs::write(Path::new(NULL).join(name), value);
    set.map_err(|error| format!("{NULL}/{name}: {error}").into())
}

pub(super) fn null(has_fua: bool) -> Result<Box<dyn Rig>, Failure> {
    if !Path::new(NULLS).exists() {
        return Err("this kernel has no null_blk (modules null_blk, configfs)".into());
    }
    let _ = fs::remove_dir(NULL);
    fs::create_dir(NULL).map_err(|error| format!("{NULL}: {error}"))?;
    // It goes when this returns without it.
    let mut null = Null(PathBuf::new());
    let megabytes = (DEVICE_BYTES >> 20).to_string();
    let settings = [
        ("size", megabytes.as_str()),
        ("memory_backed", "1"),
        ("cache_size", "4"),
        ("discard", "1"),
    ];
    for (name, value) in settings {
        set_null(name, value)?;
    }
    // Before 6.8 it always has it.
    if !has_fua {
        set_null("fua", "0")?;
    }
    null.power_on()?;
    if !has_fua {
        has_no_fua(&null.0)?;
    }
    Ok(Box::new(null))
}

impl Null {
    fn power_on(&mut self) -> Result<(), Failure> {
        set_null("power", "1")?;
        let index = fs::read_to_string(Path::new(NULL).join("index"))?;
        let names = ["/dev/nullb7".to_owned(), format!("/dev/nullb{}", index.trim())];
        self.0 = find("device of null_blk", || {
            names.iter().map(PathBuf::from).find(|path| path.exists())
        })?;
        Ok(())
    }
}

impl Rig for Null {
    fn path(&self) -> PathBuf {
        self.0.clone()
    }

    /// What lies in its cache is gone, and the rest stays.
    fn strike(&mut self, _: &mut Random) -> Result<Strike, Failure> {
        set_null("power", "0")?;
        Ok(Strike::Ends)
    }

    fn mend(&mut self) -> Result<(), Failure> {
        // A worker that ended by itself has left it on.
        set_null("power", "0")?;
        self.power_on()
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let _ = set_null("power", "0");
        let _ = fs::remove_dir(NULL);
    }
}
