//! What the system allows this process, as far as asynchronous I/O depends on it: read from `/proc`, changed nowhere.
//!
//! A fact that cannot be read (no `/proc`, an older kernel) is left open, never guessed.

use std::fs;
use std::path::Path;

use baio::EngineOptions;
use baio_console::output::Table;
use baio_console::size::format_size;
use baio_engine::kernel::Feature;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// `CAP_IPC_LOCK` (capabilities(7)): no limit on locked memory.
const MAY_LOCK: u64 = 1 << 14;

/// `CAP_SYS_ADMIN`: not bound by `kernel.io_uring_disabled = 1`.
const MAY_ADMINISTER: u64 = 1 << 21;

/// The facts. Every key is always there; what could not be learned is null.
#[derive(Serialize)]
pub(super) struct System {
    /// `uname -r`.
    release: String,
    /// `kernel.io_uring_disabled`: 0 for everybody, 1 for a group and the privileged, 2 for nobody.
    io_uring_disabled: Option<u64>,
    /// `kernel.io_uring_group`: the group that 1 leaves; -1 for none.
    io_uring_group: Option<i64>,
    /// `none`, `strict` or `filter`, for this process.
    seccomp: Option<&'static str>,
    seccomp_filters: Option<u64>,
    /// Soft limits of this process; null where there is none.
    locked_memory_bytes_max: Option<u64>,
    /// `CAP_IPC_LOCK`: the limit on locked memory does not bind this process.
    locked_memory_unlimited: bool,
    open_files_max: Option<u64>,
    processes_max: Option<u64>,
    /// `fs.aio-nr` and `fs.aio-max-nr`: operations of native AIO that all users together have, and may have.
    aio_operations: Option<u64>,
    aio_operations_max: Option<u64>,
    /// `vm.overcommit_memory`: 2 where memory is refused before there is none left.
    overcommit_memory: Option<u64>,
    /// What makes this look like a container; empty where nothing does.
    container: Vec<String>,
    #[serde(skip)]
    administers: bool,
}

/// What stands in the way, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blame {
    /// What it is.
    pub(super) cause: String,
    /// What to do.
    pub(super) cure: String,
}

impl System {
    /// Looks around.
    pub(super) fn look() -> System {
        let status = Status::read();
        let capabilities = status.capabilities();
        System {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
            io_uring_group: number("/proc/sys/kernel/io_uring_group"),
            seccomp: status.seccomp(),
            seccomp_filters: status.field("Seccomp_filters:").and_then(|value| value.parse().ok()),
            locked_memory_bytes_max: getrlimit(Resource::Memlock).current,
            locked_memory_unlimited: capabilities & MAY_LOCK != 0,
            open_files_max: getrlimit(Resource::Nofile).current,
            processes_max: getrlimit(Resource::Nproc).current,
            aio_operations: number("/proc/sys/fs/aio-nr"),
            aio_operations_max: number("/proc/sys/fs/aio-max-nr"),
            overcommit_memory: number("/proc/sys/vm/overcommit_memory"),
            container: container(),
            administers: capabilities & MAY_ADMINISTER != 0,
        }
    }

    /// The kernel's release.
    pub(super) fn release(&self) -> &str {
        &self.release
    }

    /// Which of these facts explains that `what`, a backend or a feature, was refused for this `reason`, in which the name
    /// of an error stands; `None` when none does.
    pub(super) fn blames(&self, what: &str, reason: &str) -> Option<Blame> {
        let mut words = reason.split(|c: char| !c.is_ascii_alphanumeric());
        let errno = words.find(|word| word.len() > 2 && word.starts_with('E') && *word == word.to_uppercase())?;
        match (what, errno) {
            ("uring", "EPERM" | "EACCES" | "ENOSYS") => Some(self.blame_for_no_ring(errno)),
            ("aio", "EPERM" | "EACCES" | "ENOSYS") if self.filtered() => Some(Blame {
                cause: "a seccomp filter restricts this process".into(),
                cure: format!("{} io_setup, io_submit, io_getevents and io_destroy", self.profile()),
            }),
            ("aio", "EAGAIN") if self.lacks_operations() => self.blame_for_no_operations(),
            ("uring" | "registered_arena", "ENOMEM") => self.blame_for_no_locked_memory(),
            (_, "EMFILE") => Some(Blame {
                cause: format!("RLIMIT_NOFILE is {}", limit(self.open_files_max)),
                cure: "raise RLIMIT_NOFILE (`ulimit -n`)".into(),
            }),
            ("aio" | "threads" | "worker_threads", "EAGAIN") => Some(Blame {
                cause: format!(
                    "RLIMIT_NPROC is {}, or the container's limit of processes is reached",
                    limit(self.processes_max)
                ),
                cure: "raise RLIMIT_NPROC (`ulimit -u`), or the pids limit of the container".into(),
            }),
            _ => None,
        }
    }

    fn filtered(&self) -> bool {
        self.seccomp.is_some_and(|mode| mode != "none")
    }

    /// What to change where a filter is in force.
    fn profile(&self) -> &'static str {
        if self.container.is_empty() {
            "in whatever started this process (a service manager's SystemCallFilter=, a sandbox), a seccomp filter that allows"
        } else {
            "start the container with a seccomp profile that allows"
        }
    }

    /// The setting is looked at first: what it forbids, no filter can allow.
    fn blame_for_no_ring(&self, errno: &str) -> Blame {
        let cure = "`sysctl -w kernel.io_uring_disabled=0`".to_owned();
        match self.io_uring_disabled {
            Some(2) if errno != "ENOSYS" => Blame {
                cause: "kernel.io_uring_disabled is 2: nobody may make a ring".into(),
                cure,
            },
            Some(1) if errno != "ENOSYS" && !self.administers && !self.in_ring_group() => {
                let group = self.io_uring_group.filter(|&group| group >= 0);
                let cure = match group {
                    Some(group) => format!("{cure}, or join the group {group} (kernel.io_uring_group)"),
                    None => format!("{cure}, or name a group of yours in kernel.io_uring_group"),
                };
                Blame {
                    cause: "kernel.io_uring_disabled is 1: only the privileged and the members of kernel.io_uring_group may make a ring".into(),
                    cure,
                }
            }
            _ if self.filtered() => Blame {
                cause: "a seccomp filter restricts this process (kernel.io_uring_disabled is not the cause)".into(),
                cure: format!("{} io_uring_setup, io_uring_enter and io_uring_register", self.profile()),
            },
            _ if errno == "ENOSYS" => Blame {
                cause: "this kernel has no io_uring".into(),
                cure: format!(
                    "a kernel with CONFIG_IO_URING (Linux {} or newer)",
                    Feature::Ring.line().since
                ),
            },
            _ => Blame {
                cause: "neither kernel.io_uring_disabled nor a seccomp filter forbids it: perhaps a security module (SELinux, AppArmor)".into(),
                cure: "look for a denial in the kernel's log (`dmesg`, `ausearch -m avc`), and allow io_uring there".into(),
            },
        }
    }

    fn in_ring_group(&self) -> bool {
        let Some(wanted) = self.io_uring_group.and_then(|group| u32::try_from(group).ok()) else {
            return false;
        };
        let others = rustix::process::getgroups().unwrap_or_default();
        rustix::process::getegid().as_raw() == wanted || others.iter().any(|group| group.as_raw() == wanted)
    }

    /// Is there no room for an engine? The backend needs worker threads too, and their refusal has the same name.
    fn lacks_operations(&self) -> bool {
        let needed = u64::from(EngineOptions::default().slots) * 2;
        let room = self.aio_operations.zip(self.aio_operations_max);
        room.is_some_and(|(taken, most)| most.saturating_sub(taken) < needed)
    }

    fn blame_for_no_operations(&self) -> Option<Blame> {
        let (taken, most) = (self.aio_operations?, self.aio_operations_max?);
        let enough = taken.saturating_add(most).max(1 << 17);
        Some(Blame {
            cause: format!("fs.aio-nr is {taken} of fs.aio-max-nr {most}: the operations of native AIO are used up"),
            cure: format!("`sysctl -w fs.aio-max-nr={enough}`, or stop what holds them"),
        })
    }

    fn blame_for_no_locked_memory(&self) -> Option<Blame> {
        let most = self.locked_memory_bytes_max.filter(|_| !self.locked_memory_unlimited)?;
        Some(Blame {
            cause: format!("RLIMIT_MEMLOCK is {}", format_size(most)),
            cure: "raise RLIMIT_MEMLOCK (`ulimit -l`; LimitMEMLOCK= of a service, --ulimit memlock=-1 of a container)"
                .into(),
        })
    }

    /// Shows it.
    pub(super) fn add_rows(&self, table: &mut Table) {
        table.row(["kernel", &self.release]);
        let known = |fact: Option<String>| fact.unwrap_or_else(|| "not known".into());
        let disabled = self.io_uring_disabled.map(|value| match value {
            0 => "0: everybody may make a ring".to_owned(),
            1 => "1: only the privileged, and kernel.io_uring_group".to_owned(),
            other => format!("{other}: nobody may make a ring"),
        });
        table.row(["io_uring_disabled", &known(disabled)]);
        let seccomp = self.seccomp.map(|mode| match self.seccomp_filters {
            Some(count) if count > 0 => format!("{mode} ({count} in force)"),
            _ => mode.to_owned(),
        });
        table.row(["seccomp", &known(seccomp)]);
        let locked = self.locked_memory_bytes_max.map_or("unlimited".into(), format_size);
        let exempt = if self.locked_memory_unlimited {
            "; this process is exempt"
        } else {
            ""
        };
        table.row(["RLIMIT_MEMLOCK", &format!("{locked}{exempt}")]);
        table.row(["RLIMIT_NOFILE", &limit(self.open_files_max)]);
        table.row(["RLIMIT_NPROC", &limit(self.processes_max)]);
        let operations = self.aio_operations.zip(self.aio_operations_max);
        table.row([
            "aio-nr",
            &known(operations.map(|(taken, most)| format!("{taken} of aio-max-nr {most}"))),
        ]);
        table.row(["overcommit_memory", &known(self.overcommit_memory.map(overcommit))]);
        let container = self.container.join(", ");
        table.row([
            "container",
            if container.is_empty() {
                "no sign of one"
            } else {
                &container
            },
        ]);
    }
}

/// The setting, and what it means to a broker.
fn overcommit(setting: u64) -> String {
    match setting {
        2 => "2: memory is counted strictly, and a client can end a broker (SIGBUS)".to_owned(),
        other => other.to_string(),
    }
}

fn limit(most: Option<u64>) -> String {
    most.map_or("unlimited".into(), |most| most.to_string())
}

fn number<N: std::str::FromStr>(path: &str) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `/proc/self/status` (proc(5)).
struct Status(String);

impl Status {
    fn read() -> Status {
        Status(fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    fn seccomp(&self) -> Option<&'static str> {
        match self.field("Seccomp:")? {
            "0" => Some("none"),
            "1" => Some("strict"),
            "2" => Some("filter"),
            _ => None,
        }
    }

    fn capabilities(&self) -> u64 {
        let hexadecimal = self.field("CapEff:").unwrap_or("0");
        u64::from_str_radix(hexadecimal, 16).unwrap_or(0)
    }
}

/// Signs of a container. None of them proves one, and one may show none.
fn container() -> Vec<String> {
    let mut signs = Vec::new();
    for marker in ["/.dockerenv", "/run/.containerenv"] {
        if Path::new(marker).exists() {
            signs.push(marker.to_owned());
        }
    }
    if let Ok(manager) = std::env::var("container") {
        signs.push(format!("container={manager}"));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        signs.push("KUBERNETES_SERVICE_HOST".into());
    }
    let groups = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    for manager in ["docker", "kubepods", "containerd", "libpod", "lxc"] {
        if groups.contains(manager) {
            signs.push(format!("{manager} in /proc/1/cgroup"));
        }
    }
    // The whole range is mapped onto itself outside of user namespaces (user_namespaces(7)).
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if !map.is_empty() && !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        signs.push("a user namespace".into());
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> System {
        System {
            release: "6.18.0".into(),
            io_uring_disabled: Some(0),
            io_uring_group: Some(-1),
            seccomp: Some("none"),
            seccomp_filters: Some(0),
            locked_memory_bytes_max: Some(64 << 10),
            locked_memory_unlimited: false,
            open_files_max: Some(1024),
            processes_max: None,
            aio_operations: Some(65_000),
            aio_operations_max: Some(65_536),
            overcommit_memory: Some(0),
            container: Vec::new(),
            administers: false,
        }
    }

    const REFUSED: &str = "EPERM (Operation not permitted)";

    #[track_caller]
    fn blamed(system: &System, backend: &str, reason: &str) -> (String, String) {
        let blame = system.blames(backend, reason).expect("something to blame");
        (blame.cause, blame.cure)
    }

    #[test]
    fn the_setting_is_named_with_its_value() {
        let system = System {
            io_uring_disabled: Some(2),
            seccomp: Some("filter"),
            ..quiet()
        };
        let (cause, cure) = blamed(&system, "uring", REFUSED);
        assert!(cause.contains("io_uring_disabled is 2"), "{cause}");
        assert_eq!(cure, "`sysctl -w kernel.io_uring_disabled=0`");
    }

    #[test]
    fn the_setting_that_leaves_a_group_is_told_to_whom_it_concerns() {
        let system = System {
            io_uring_disabled: Some(1),
            io_uring_group: Some(4_000_000_000),
            ..quiet()
        };
        let (cause, cure) = blamed(&system, "uring", REFUSED);
        assert!(cause.contains("io_uring_disabled is 1"), "{cause}");
        assert!(cure.contains("join the group 4000000000"), "{cure}");
        let privileged = System {
            administers: true,
            ..system
        };
        let (cause, _) = blamed(&privileged, "uring", REFUSED);
        assert!(!cause.contains("is 1"), "it does not bind the privileged: {cause}");
    }

    #[test]
    fn a_filter_is_named_and_the_setting_acquitted() {
        for reason in [REFUSED, "ENOSYS (Function not implemented)"] {
            let filtered = System {
                seccomp: Some("filter"),
                ..quiet()
            };
            let (cause, cure) = blamed(&filtered, "uring", reason);
            assert!(cause.contains("seccomp filter restricts"), "{cause}");
            assert!(cure.contains("io_uring_setup") && !cure.contains("sysctl"), "{cure}");
            let contained = System {
                container: vec!["/.dockerenv".into()],
                ..filtered
            };
            let (_, cure) = blamed(&contained, "uring", reason);
            assert!(cure.contains("start the container"), "{cure}");
        }
    }

    #[test]
    fn without_filter_and_setting_other_things_are_suspected() {
        let (cause, _) = blamed(&quiet(), "uring", REFUSED);
        assert!(cause.contains("security module"), "{cause}");
        let (cause, _) = blamed(&quiet(), "uring", "ENOSYS (Function not implemented)");
        assert!(cause.contains("has no io_uring"), "{cause}");
    }

    #[test]
    fn limits_are_named_with_their_figures() {
        let (cause, cure) = blamed(&quiet(), "registered_arena", "refused: ENOMEM; raise RLIMIT_MEMLOCK");
        assert_eq!(cause, "RLIMIT_MEMLOCK is 64 KiB");
        assert!(cure.contains("ulimit -l"), "{cure}");
        let (cause, cure) = blamed(&quiet(), "aio", "EAGAIN (Resource temporarily unavailable)");
        assert!(cause.contains("65000 of fs.aio-max-nr 65536"), "{cause}");
        assert!(cure.contains("fs.aio-max-nr=131072"), "{cure}");
        let roomy = System {
            aio_operations: Some(0),
            ..quiet()
        };
        let (cause, _) = blamed(&roomy, "aio", "EAGAIN (Resource temporarily unavailable)");
        assert!(
            cause.contains("RLIMIT_NPROC"),
            "operations are left, so it was a thread: {cause}"
        );
        let (cause, _) = blamed(&quiet(), "threads", "EAGAIN (Resource temporarily unavailable)");
        assert!(cause.contains("RLIMIT_NPROC is unlimited"), "{cause}");
        let (cause, _) = blamed(&quiet(), "uring", "EMFILE (Too many open files)");
        assert_eq!(cause, "RLIMIT_NOFILE is 1024");
    }

    #[test]
    fn what_can_end_a_broker_is_shown() {
        assert!(overcommit(2).contains("a client can end a broker"));
        for harmless in [0, 1] {
            assert!(!overcommit(harmless).contains("broker"));
        }
    }

    #[test]
    fn nothing_is_blamed_for_what_it_does_not_explain() {
        let exempt = System {
            locked_memory_unlimited: true,
            ..quiet()
        };
        assert_eq!(exempt.blames("uring", "ENOMEM (Out of memory)"), None);
        assert_eq!(quiet().blames("uring", "not asked for"), None);
        assert_eq!(quiet().blames("aio", "ENOMEM (Cannot allocate memory)"), None);
        assert_eq!(quiet().blames("uring", "EIO (Input/output error)"), None);
    }
}
