//! The file system that an open file lies on, from `/proc/self/mountinfo` (proc(5)).

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use serde::Serialize;

/// One mount.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The name that the kernel gives the file system: `ext4`, `fuse.sshfs`.
    pub file_system: String,
    /// Where.
    pub mount_point: PathBuf,
    /// What is mounted: a device, or whatever the file system calls it.
    pub source: String,
    /// Those of the mount, then those of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// The one that the file behind `fd` was reached through; `None` where `/proc` does not tell.
    pub fn of(fd: impl AsFd) -> Option<Mount> {
        let raw = fd.as_fd().as_raw_fd();
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{raw}")).ok()?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().find_map(|line| Mount::parse(line, id))
    }

    /// Was it mounted with this option?
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option)
    }

    /// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`, if 36 is the `id`.
    fn parse(line: &str, id: &str) -> Option<Mount> {
        let (place, system) = line.split_once(" - ")?;
        let place: Vec<&str> = place.split(' ').collect();
        let [known, _, _, _, point, options, ..] = place[..] else {
            return None;
        };
        if known != id {
            return None;
        }
        let mut system = system.split(' ');
        let (kind, source) = (system.next()?, system.next()?);
        let mut all: Vec<String> = options.split(',').map(str::to_owned).collect();
        for option in system.next().unwrap_or("").split(',') {
            if !option.is_empty() && !all.iter().any(|known| known == option) {
                all.push(option.to_owned());
            }
        }
        Some(Mount {
            file_system: kind.to_owned(),
            mount_point: unescaped(point).into(),
            source: unescaped(source),
            options: all,
        })
    }
}

/// Blanks, tabs, line ends and backslashes appear there as `\040` and the like.
fn unescaped(word: &str) -> String {
    let mut parts = word.split('\\');
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r"36 35 98:0 /mnt1 /my\040disk rw,noatime master:1 - ext3 /dev/root rw,errors=continue";

    #[test]
    fn a_line_is_read() {
        let mount = Mount::parse(LINE, "36").unwrap();
        assert_eq!(mount.file_system, "ext3");
        assert_eq!(mount.mount_point, PathBuf::from("/my disk"));
        assert_eq!(mount.source, "/dev/root");
        assert_eq!(mount.options, ["rw", "noatime", "errors=continue"]);
        assert!(mount.has("noatime") && !mount.has("atime"));
    }

    #[test]
    fn other_lines_and_nonsense_are_passed_over() {
        for line in [LINE, "", " - ", "35 - x y", r"35 1 2 3 \9 o - x"] {
            assert_eq!(Mount::parse(line, "35"), None, "{line}");
        }
        assert_eq!(unescaped(r"a\b\04"), r"a\b\04");
        assert_eq!(unescaped(r"a\0400"), "a 0");
    }

    #[test]
    fn this_process_has_a_root() {
        let root = fs::File::open("/").unwrap();
        assert_eq!(Mount::of(&root).unwrap().mount_point, PathBuf::from("/"));
    }
}
