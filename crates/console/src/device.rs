//! The block device below a path, and what lies below that, as sysfs tells it (Documentation/ABI/stable/sysfs-block).
//!
//! Nothing is opened but files of sysfs, so no device is woken or touched.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::mount::Mount;
use crate::output::Table;
use crate::size::format_size;

/// Devices on devices at most.
const DEPTH_MAX: usize = 8;

/// One device, or one partition with the queue of its disk. What sysfs does not tell is null.
#[derive(Serialize)]
pub struct Device {
    /// As sysfs has it.
    pub name: String,
    /// The disk, for a partition.
    pub partition_of: Option<String>,
    /// The one in force.
    pub scheduler: Option<String>,
    /// What the scheduler does to requests, in one phrase.
    scheduler_cost: Option<&'static str>,
    /// Those that there are.
    pub schedulers: Vec<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Can one write be made durable without a flush of everything?
    pub fua: Option<bool>,
    /// Requests that may wait in the scheduler.
    pub requests_max: Option<u64>,
    hardware_queues: Option<u64>,
    /// Requests that the device takes at a time, in each hardware queue.
    queue_depth: Option<u64>,
    /// Does it turn?
    pub rotational: Option<bool>,
    /// 0: not supported.
    discard_bytes_max: Option<u64>,
    /// 0: not supported.
    write_zeroes_bytes_max: Option<u64>,
    logical_block_bytes: Option<u64>,
    physical_block_bytes: Option<u64>,
    /// 0: not supported.
    atomic_write_bytes_max: Option<u64>,
    /// What a loop device shows.
    backing: Option<Backing>,
    below: Vec<Device>,
}

/// The file of a loop device.
#[derive(Serialize)]
struct Backing {
    file: PathBuf,
    offset_bytes: Option<u64>,
    /// False: every request goes through the page cache of that file.
    direct_io: Option<bool>,
}

impl Device {
    /// The device of this number; `None` where it is none (a file system over the network, in memory, on several devices).
    pub fn of(number: u64) -> Option<Device> {
        Device::numbered(number, DEPTH_MAX)
    }

    /// The device below a file of this device number, on this mount.
    pub fn below(number: u64, mount: Option<&Mount>) -> Option<Device> {
        // btrfs and others have a device number of their own.
        Device::of(number).or_else(|| Device::of_node(&mount?.source).or_else(|| Device::of_upper_layer(mount?)))
    }

    /// The device that a path is, or below the file that it is.
    ///
    /// # Errors
    /// The path cannot be opened to look at it.
    pub fn under(path: &Path) -> std::io::Result<Option<Device>> {
        let metadata = path.metadata()?;
        if metadata.rdev() != 0 {
            return Ok(Device::of(metadata.rdev()));
        }
        let mount = Mount::of(fs::File::open(path)?);
        Ok(Device::below(metadata.dev(), mount.as_ref()))
    }

    fn numbered(number: u64, depth: usize) -> Option<Device> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(Device::at(&place, depth))
    }

    /// The device with this node, such as the source of a mount.
    fn of_node(node: &str) -> Option<Device> {
        let metadata = Path::new(node).metadata().ok().filter(|_| node.starts_with("/dev/"))?;
        Device::of(metadata.rdev())
    }

    /// The device of the layer that an overlay writes to; `None` for other mounts, and where that layer is out of sight.
    fn of_upper_layer(mount: &Mount) -> Option<Device> {
        let mut options = mount.options.iter();
        let upper = options.find_map(|option| option.strip_prefix("upperdir=/"))?;
        let metadata = Path::new("/").join(upper).metadata().ok()?;
        Device::of(metadata.dev())
    }

    fn at(place: &Path, depth: usize) -> Device {
        let partition = place.join("partition").exists();
        let disk = place.parent().filter(|_| partition).unwrap_or(place);
        let of = |name: &str| text(&disk.join("queue").join(name));
        let number = |name: &str| of(name).and_then(|text| text.parse().ok());
        let yes = |name: &str| number(name).map(|value: u64| value != 0);
        let (schedulers, scheduler) = parted(&of("scheduler").unwrap_or_default());
        let queues = fs::read_dir(disk.join("mq")).ok().map(|queues| queues.count() as u64);
        let backing = Backing::of(disk);
        Device {
            name: name_of(place),
            partition_of: partition.then(|| name_of(disk)),
            scheduler_cost: scheduler.as_deref().and_then(cost),
            scheduler,
            schedulers,
            write_cache: of("write_cache"),
            fua: yes("fua"),
            requests_max: number("nr_requests"),
            hardware_queues: queues.filter(|&count| count > 0),
            queue_depth: queue_depth(disk),
            rotational: yes("rotational"),
            discard_bytes_max: number("discard_max_bytes"),
            write_zeroes_bytes_max: number("write_zeroes_max_bytes"),
            logical_block_bytes: number("logical_block_size"),
            physical_block_bytes: number("physical_block_size"),
            atomic_write_bytes_max: number("atomic_write_unit_max_bytes"),
            below: below(disk, backing.as_ref(), depth),
            backing,
        }
    }

    /// What costs speed here, and what to do about it.
    pub fn advice(&self) -> Vec<(String, String)> {
        let mut advice = Vec::new();
        let disk = self.partition_of.as_ref().unwrap_or(&self.name);
        if let Some(backing) = self.backing.as_ref().filter(|backing| backing.direct_io == Some(false)) {
            advice.push((
                format!(
                    "{disk} goes through the page cache of {}: what is direct here is cached there",
                    backing.file.display()
                ),
                format!("`losetup --direct-io=on /dev/{disk}`"),
            ));
        }
        if self.scheduler.as_deref() == Some("bfq") && self.rotational == Some(false) {
            advice.push((
                format!("the scheduler of {disk} is bfq, which may leave a fast device idle"),
                format!("`echo none > /sys/block/{disk}/queue/scheduler`"),
            ));
        }
        advice.extend(self.below.iter().flat_map(Device::advice));
        advice
    }

    /// Shows it and what lies below.
    pub fn add_rows(&self, table: &mut Table, indent: usize) {
        let mut row = |what: &str, said: Option<String>| {
            if let Some(said) = said {
                table.row([format!("{:indent$}{what}", ""), said]);
            }
        };
        let part = self.partition_of.as_ref().map(|disk| format!(", a part of {disk}"));
        row("device", Some(format!("{}{}", self.name, part.unwrap_or_default())));
        row(
            "  scheduler",
            self.scheduler.as_ref().map(|name| match self.scheduler_cost {
                Some(cost) => format!("{name}: {cost}"),
                None => name.clone(),
            }),
        );
        row(
            "  write cache",
            self.write_cache.as_ref().map(|kind| self.cache_sentence(kind)),
        );
        row("  queue", self.queue_sentence());
        row(
            "  rotational",
            self.rotational.map(|yes| if yes { "yes" } else { "no" }.into()),
        );
        let offered = |most: Option<u64>| {
            most.map(|most| match most {
                0 => "not supported".to_owned(),
                most => format!("at most {} at a time", format_size(most)),
            })
        };
        row("  discard", offered(self.discard_bytes_max));
        row("  write zeroes", offered(self.write_zeroes_bytes_max));
        row("  atomic writes", offered(self.atomic_write_bytes_max));
        let blocks = self.logical_block_bytes.zip(self.physical_block_bytes);
        row(
            "  blocks",
            blocks.map(|(logical, physical)| format!("logical {logical} B, physical {physical} B")),
        );
        row("  shows", self.backing.as_ref().map(Backing::sentence));
        for device in &self.below {
            device.add_rows(table, indent + 2);
        }
    }

    fn cache_sentence(&self, kind: &str) -> String {
        let means = match (kind, self.fua) {
            ("write through", _) => "what is written is durable, and a flush costs nothing",
            ("write back", Some(true)) => "a durable write is one write with FUA, without a flush",
            ("write back", _) => "a durable write needs a flush of the whole cache (no FUA)",
            _ => return kind.to_owned(),
        };
        format!("{kind}: {means}")
    }

    fn queue_sentence(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(requests) = self.requests_max {
            parts.push(format!("{requests} requests wait at most (nr_requests)"));
        }
        if let Some(depth) = self.queue_depth {
            parts.push(format!("{depth} run at a time"));
        }
        if let Some(queues) = self.hardware_queues {
            parts.push(format!("hardware queues: {queues}"));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Backing {
    fn of(disk: &Path) -> Option<Backing> {
        let place = disk.join("loop");
        Some(Backing {
            file: text(&place.join("backing_file"))?.into(),
            offset_bytes: text(&place.join("offset")).and_then(|text| text.parse().ok()),
            direct_io: text(&place.join("dio")).map(|text| text == "1"),
        })
    }

    fn sentence(&self) -> String {
        let offset = match self.offset_bytes {
            None | Some(0) => String::new(),
            Some(bytes) => format!(" from byte {bytes}"),
        };
        let way = match self.direct_io {
            Some(true) => ", by direct I/O",
            Some(false) => ", through its page cache",
            None => "",
        };
        format!("{}{offset}{way}", self.file.display())
    }
}

/// What a scheduler of the kernel does to requests.
fn cost(scheduler: &str) -> Option<&'static str> {
    Some(match scheduler {
        "none" => "requests go to the device as they come: the least work for each",
        "mq-deadline" => "sorted under one lock of the device: some work for each, and reads overtake writes",
        "kyber" => "lets in as many as keep its latency targets: little work for each, and writes may be held back",
        "bfq" => {
            "shares the device fairly among processes: the most work for each, and it may wait for a process's next"
        }
        _ => return None,
    })
}

/// Of `none [mq-deadline] kyber`: all words, and the one that is in force.
fn parted(line: &str) -> (Vec<String>, Option<String>) {
    let inner = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let words = line.split_whitespace();
    let current = words.clone().find(|word| word.starts_with('[')).map(inner);
    let all: Vec<String> = words.map(inner).collect();
    // A device without a queue of its own has a bare `none`.
    let only = all.first().filter(|_| all.len() == 1).cloned();
    (all, current.or(only))
}

/// SCSI tells it of the device; every multi-queue driver of its queues.
fn queue_depth(disk: &Path) -> Option<u64> {
    let places = ["device/queue_depth", "mq/0/nr_tags"];
    places.iter().find_map(|place| text(&disk.join(place))?.parse().ok())
}

fn below(disk: &Path, backing: Option<&Backing>, depth: usize) -> Vec<Device> {
    let Some(depth) = depth.checked_sub(1) else {
        return Vec::new();
    };
    if let Some(backing) = backing {
        let metadata = backing.file.metadata().ok();
        let number = metadata.map(|metadata| match metadata.rdev() {
            0 => metadata.dev(),
            itself => itself,
        });
        let device = number.and_then(|number| Device::numbered(number, depth));
        return device.into_iter().collect();
    }
    let parts = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = parts.filter_map(|part| fs::canonicalize(part.path()).ok()).collect();
    places.sort();
    places.iter().map(|place| Device::at(place, depth)).collect()
}

fn name_of(place: &Path) -> String {
    place.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a file of sysfs tells; none where it is empty or not there.
pub fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_in_force_stands_in_brackets() {
        let (all, current) = parted("none [mq-deadline] kyber");
        assert_eq!(all, ["none", "mq-deadline", "kyber"]);
        assert_eq!(current.as_deref(), Some("mq-deadline"));
        assert_eq!(parted("none").1.as_deref(), Some("none"));
        assert_eq!(parted("none kyber").1, None);
        assert_eq!(parted("").1, None);
    }

    #[test]
    fn a_device_is_read_from_its_directory() {
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("sdx");
        let part = disk.join("sdx1");
        for (name, said) in [
            ("queue/scheduler", "none [bfq]"),
            ("queue/write_cache", "write back"),
            ("queue/fua", "0"),
            ("queue/nr_requests", "64"),
            ("queue/rotational", "0"),
            ("queue/discard_max_bytes", "0"),
            ("queue/write_zeroes_max_bytes", "nonsense"),
            ("device/queue_depth", "31"),
            ("sdx1/partition", "1"),
        ] {
            let file = disk.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{said}\n")).unwrap();
        }
        let device = Device::at(&part, DEPTH_MAX);
        assert_eq!(
            (device.name.as_str(), device.partition_of.as_deref()),
            ("sdx1", Some("sdx"))
        );
        assert_eq!(device.scheduler.as_deref(), Some("bfq"));
        assert!(device.scheduler_cost.is_some());
        assert_eq!((device.fua, device.rotational), (Some(false), Some(false)));
        assert_eq!((device.requests_max, device.queue_depth), (Some(64), Some(31)));
        assert_eq!(
            (device.discard_bytes_max, device.write_zeroes_bytes_max),
            (Some(0), None)
        );
        assert!(device.cache_sentence("write back").contains("flush of the whole cache"));
        let [(found, cure)] = &device.advice()[..] else {
            panic!("bfq on a device that does not rotate is worth a word");
        };
        assert!(
            found.contains("bfq") && cure.contains("/sys/block/sdx/queue/scheduler"),
            "{found}: {cure}"
        );
    }
}
