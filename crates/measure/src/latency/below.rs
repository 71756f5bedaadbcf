//! What lies below the target, as sysfs tells it, and whether a write there must be made durable to be safe.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use baio_console::device::Device;
use baio_engine::Durability;
use baio_stress::Ground;
use serde::Serialize;

/// The device, as far as it matters for latencies. What is not known is null.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Below {
    pub(super) device: Option<String>,
    /// Of a partition, its disk; its queue is the disk's.
    #[serde(skip)]
    pub(super) disk: Option<String>,
    pub(super) scheduler: Option<String>,
    #[serde(skip)]
    pub(super) schedulers: Vec<String>,
    pub(super) write_cache: Option<String>,
    pub(super) fua: Option<bool>,
}

impl Below {
    pub(super) fn look(ground: &Ground) -> Below {
        Below::of(&ground.path)
    }

    /// Of a device, or of the one below a file.
    pub(crate) fn of(path: &Path) -> Below {
        // Something that cannot be looked at is told by those who open it.
        let Some(device) = Device::under(path).ok().flatten() else {
            return Below::default();
        };
        let disk = device.partition_of.as_ref().unwrap_or(&device.name).clone();
        Below {
            disk: Some(disk),
            device: Some(device.name),
            scheduler: device.scheduler,
            schedulers: device.schedulers,
            write_cache: device.write_cache,
            fua: device.fua,
        }
    }

    /// What each write must ask for to be safe when it is known complete, and why.
    pub(super) fn durability(&self, ground: &Ground) -> (Durability, &'static str) {
        let is_device = ground
            .path
            .metadata()
            .is_ok_and(|found| found.file_type().is_block_device());
        match (self.write_cache.as_deref(), is_device) {
            (Some("write through"), true) => (
                Durability::None,
                "the device has no write cache: what is complete is durable",
            ),
            (Some("write through"), false) => (
                Durability::Data,
                "it lies in a file, and its file system may have to write too",
            ),
            (Some(_), _) => (Durability::Data, "the device has a write cache"),
            (None, _) => (Durability::Data, "whether the device has a write cache is not known"),
        }
    }

    /// `vda, scheduler none, write back`.
    pub(super) fn sentence(&self) -> String {
        let scheduler = self.scheduler.as_ref().map(|name| format!("scheduler {name}"));
        let cache = self.write_cache.as_ref().map(|kind| format!("cache {kind}"));
        let known = [self.device.clone(), scheduler, cache];
        let known: Vec<String> = known.into_iter().flatten().collect();
        match known.is_empty() {
            true => "a device that cannot be seen".to_owned(),
            false => known.join(", "),
        }
    }
}

/// As it is typed and told.
pub(super) fn name(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "none",
        Durability::Data => "data",
        Durability::Full => "full",
    }
}
