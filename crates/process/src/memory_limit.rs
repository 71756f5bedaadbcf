//! What the memory cgroup of this process allows: as real as what the machine has, and whoever goes beyond it is killed. And whether the
//! system refuses memory before there is none left.

use std::path::{Path, PathBuf};

/// The smallest limit of the memory cgroups that this process is in; `None` where there is none, or it cannot be read.
#[must_use]
pub fn of_cgroup() -> Option<u64> {
    cgroup_limit(&|path| std::fs::read_to_string(path).ok())
}

/// Does the system count strictly what memory it has promised (`vm.overcommit_memory` is 2, proc_sys_vm(5))? It promises shared memory page by
/// page then, at the first touch, and may have none to promise. False where that cannot be read.
#[must_use]
pub fn counts_strictly() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    setting.is_ok_and(|setting| setting.trim() == "2")
}

fn cgroup_limit(read: &impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mounts"))?;
    let mut least = None;
    for mount in mounts.lines() {
        let [_, at, kind, options, ..] = mount.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let (file, controller) = match kind {
            "cgroup2" => ("memory.max", ""),
            "cgroup" if options.split(',').any(|option| option == "memory") => ("memory.limit_in_bytes", "memory"),
            _ => continue,
        };
        let Some(group) = group_of(&groups, controller) else {
            continue;
        };
        // A limit of a group is one of all below it. In a container the path may be one of the host: then only the top is there.
        let inside = PathBuf::from(at).join(group.trim_start_matches('/'));
        let levels = inside.ancestors().take_while(|level| level.starts_with(at));
        let limits = levels.filter_map(|level| read(&level.join(file))?.trim().parse::<u64>().ok());
        least = limits.chain(least).min();
    }
    least
}

/// The group in a hierarchy: `4:memory:/a/b`; the second version has neither number nor name.
fn group_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let mut names = parts.next()?.split(',');
        let group = parts.next()?;
        names.any(|name| name == controller).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_in(files: &[(&str, &str)]) -> Option<u64> {
        cgroup_limit(&|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_smallest_limit_above_the_process_counts() {
        let two = ("/proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        let group = ("/proc/self/cgroup", "0::/a/b\n");
        assert_eq!(limit_in(&[two, group]), None);
        let files = [
            two,
            group,
            ("/cg/a/b/memory.max", "max\n"),
            ("/cg/a/memory.max", "67108864\n"),
            ("/cg/memory.max", "134217728\n"),
        ];
        assert_eq!(limit_in(&files), Some(64 << 20));
        let one = (
            "/proc/self/mounts",
            "x /cg/cpu cgroup rw,cpu 0 0\nx /cg/m cgroup rw,memory 0 0\n",
        );
        let group = ("/proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory:/a\n0::/\n");
        let files = [one, group, ("/cg/m/a/memory.limit_in_bytes", "4096\n")];
        assert_eq!(limit_in(&files), Some(4096));
        // Of the host: a container sees the top of what is its own.
        let files = [one, group, ("/cg/m/memory.limit_in_bytes", "8192\n")];
        assert_eq!(limit_in(&files), Some(8192));
    }
}
