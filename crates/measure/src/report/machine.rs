//! On what a report was taken: the machine, the file system and the device below the working files or of what `--target` names, our backend, the peers. All of it
//! from /proc, /sys and the programs themselves; what is not told there stays empty.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use baio_console::device::{Device, text};
use baio_console::mount::Mount;
use baio_engine::Choice;

use crate::report::numbers::bytes;
use crate::report::record::{Machine, Program};
use crate::report::setting::{small_engine, unavailable};
use crate::report::target::Target;

/// Each with the words that make it tell its version.
const PEERS: [(&str, &str); 3] = [("fio", "--version"), ("dd", "--version"), ("qemu-img", "--version")];

/// `dir` is where the working files go.
pub(super) fn look(dir: &Path, target: Option<&Target>) -> Machine {
    let (backend, backend_why) = backend();
    let machine = Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processor: fs::read_to_string("/proc/cpuinfo").map_or_else(|_| String::new(), |text| processor(&text)),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: fs::read_to_string("/proc/meminfo").map_or(0, |text| memory(&text)),
        governor: text(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        backend,
        backend_why,
        peers: PEERS.map(|(name, word)| program(name, word)).into(),
        target: target.map(Target::said),
        ..Machine::default()
    };
    match target {
        None => on_disk(dir, machine),
        Some(target) => on_disk(&target.path, machine),
    }
}

/// Each of what is known, in words; empty where it is not.
pub(super) fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let optional = |value: &Option<String>| value.clone().unwrap_or_default();
    let number = |value: Option<u64>, unit: &str| value.map_or_else(String::new, |value| format!("{value}{unit}"));
    let some = |count: usize| if count == 0 { None } else { u64::try_from(count).ok() };
    let memory = Some(machine.memory_bytes).filter(|bytes| *bytes > 0);
    let backend = match machine.backend_why.is_empty() {
        true => machine.backend.clone(),
        false => format!("{}: {}", machine.backend, machine.backend_why),
    };
    let target = machine.target.iter().map(|target| ("Target", target.clone()));
    let others = [
        ("Kernel", machine.kernel.clone()),
        ("Processor", machine.processor.clone()),
        ("Processors to run on", number(some(machine.processors), "")),
        ("Governor", optional(&machine.governor)),
        ("Memory", memory.map_or_else(String::new, bytes)),
        ("File system", machine.file_system.clone()),
        ("Access times", optional(&machine.atime)),
        ("Device", optional(&machine.device)),
        ("Kind of device", rotational(machine).unwrap_or_default().to_owned()),
        ("Scheduler", optional(&machine.scheduler)),
        ("Requests of its queue", number(machine.nr_requests, "")),
        ("Read-ahead", number(machine.read_ahead_kb, " KiB")),
        ("Write cache", optional(&machine.write_cache)),
        ("Backend", backend),
    ];
    target.chain(others).collect()
}

/// What the kernel says of the device.
pub(super) fn rotational(machine: &Machine) -> Option<&'static str> {
    let said = |yes| {
        if yes {
            "rotating (says the kernel)"
        } else {
            "not rotating"
        }
    };
    machine.rotational.map(said)
}

fn backend() -> (String, String) {
    let Ok(engine) = small_engine(Choice::Auto) else {
        return ("none".into(), "no backend works here; `baio doctor` tells why".into());
    };
    let chosen = engine.explain().backend;
    let why = match unavailable("uring") {
        None => "io_uring works here".to_owned(),
        Some(reason) => format!("no io_uring: {reason}"),
    };
    (chosen.to_owned(), why)
}

fn on_disk(path: &Path, machine: Machine) -> Machine {
    // A device lies on no file system: its node does.
    let is_device = path
        .metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device());
    let mount = File::open(path).ok().filter(|_| !is_device).and_then(Mount::of);
    let machine = match mount {
        None => machine,
        Some(mount) => Machine {
            atime: mount.options.into_iter().find(|option| option.ends_with("atime")),
            file_system: mount.file_system,
            ..machine
        },
    };
    let Some(device) = Device::under(path).ok().flatten() else {
        return machine;
    };
    let disk = device.partition_of.unwrap_or(device.name);
    let read_ahead = text(&Path::new("/sys/block").join(&disk).join("queue/read_ahead_kb"));
    Machine {
        scheduler: device.scheduler,
        nr_requests: device.requests_max,
        read_ahead_kb: read_ahead.and_then(|kib| kib.parse().ok()),
        rotational: device.rotational,
        write_cache: device.write_cache,
        device: Some(disk),
        ..machine
    }
}

fn processor(cpuinfo: &str) -> String {
    // Other processors call it otherwise, or tell nothing.
    let keys = ["model name", "Processor", "cpu", "uarch"];
    let value = |key: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
    };
    keys.into_iter().find_map(value).unwrap_or_default()
}

fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn program(name: &str, word: &str) -> Program {
    let told = Command::new(name).arg(word).output().ok();
    // Some tell it on standard error.
    let version = told.and_then(|told| {
        let text = [told.stdout, told.stderr].concat();
        version_in(&String::from_utf8_lossy(&text))
    });
    Program {
        name: name.to_owned(),
        version,
    }
}

/// The first word of the text that has a digit: `fio-3.36`, `9.4`.
fn version_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let word = words.find(|word| word.contains(|c: char| c.is_ascii_digit()))?;
    Some(word.trim_matches(['(', ')', ',', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:       24684000 kB\n"), 24_684_000 << 10);
        assert_eq!(memory("nothing"), 0);
        let text = "processor\t: 0\nmodel name\t: A Fast One @ 2.00GHz\n";
        assert_eq!(processor(text), "A Fast One @ 2.00GHz");
        assert_eq!(processor("Features: fp\n"), "");
    }

    #[test]
    fn a_version_is_the_first_word_with_a_digit() {
        assert_eq!(version_in("fio-3.36\n").as_deref(), Some("fio-3.36"));
        assert_eq!(version_in("dd (coreutils) 9.4\nCopyright").as_deref(), Some("9.4"));
        assert_eq!(
            version_in("qemu-img version 8.2.2 (Debian 1)").as_deref(),
            Some("8.2.2")
        );
        assert_eq!(version_in(""), None);
    }

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(program("no-such-program-of-baio", "--version").version, None);
    }
}
