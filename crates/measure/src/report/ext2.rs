//! A small ext2 of our own to work on: an image in the working directory, on a loop device. Needs root and the tools.
//!
//! Nothing stays behind, however this process ends: the file system is mounted in a mount namespace of the thread that works
//! on it, which ends with that thread and the processes it has started, and the loop device goes with its last user.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::path::Path;

use crate::report::loop_device::{LoopDevice, missing, output};

const TOOLS: [&str; 2] = ["mkfs.ext2", "mount"];

/// What the file system itself needs.
const SPARE: u64 = 64 << 20;

/// Gives `work` a directory on an ext2 with room for `bytes` bytes, in a thread of its own.
///
/// # Errors
/// Why there is no such directory here, in words.
pub(super) fn on_ext2<T: Send>(dir: &Path, bytes: u64, work: impl FnOnce(&Path) -> T + Send) -> Result<T, String> {
    if let Some(reason) = missing(&TOOLS) {
        return Err(reason);
    }
    let image = dir.join("ext2.img");
    let done = std::thread::scope(|scope| {
        let worker = || {
            // What it runs inherits what it blocks, and shall end when the report does.
            baio_process::signals::let_all_through();
            mounted(dir, &image, bytes + SPARE, work)
        };
        let worker = baio_process::thread::named("ext2").start_in(scope, worker);
        let worker = worker.map_err(|error| format!("start a thread: {error}"))?;
        worker.join().unwrap_or_else(|_| Err("the thread ended badly".into()))
    });
    // The next experiment needs the room.
    let _ = fs::remove_file(&image);
    done
}

fn mounted<T>(dir: &Path, image: &Path, bytes: u64, work: impl FnOnce(&Path) -> T) -> Result<T, String> {
    let told = |error: std::io::Error| format!("{}: {error}", image.display());
    let file = File::create_new(image).map_err(told)?;
    file.set_len(bytes).map_err(told)?;
    drop(file);
    let shown = image.display().to_string();
    output(&["mkfs.ext2", "-q", "-F", "-b", "4096", "-m", "0", &shown])?;
    // SAFETY: no memory is involved; the thread gets a view of the mounts of its own, as this module wants it.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("a mount namespace: {error}"));
    }
    // Else what is mounted here might appear outside too.
    output(&["mount", "--make-rprivate", "/"])?;
    let device = LoopDevice::over(image)?;
    let place = dir.join("ext2");
    fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let shown = place.display().to_string();
    let mounted = output(&["mount", "-t", "ext2", &device.path.display().to_string(), &shown]);
    drop(device);
    let done = mounted.map(|_| work(&place));
    if done.is_ok() {
        output(&["umount", &shown])?;
    }
    fs::remove_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_ext2_that_nobody_else_sees_and_that_goes() {
        let dir = tempfile::tempdir().unwrap();
        let worked = on_ext2(dir.path(), 1 << 20, |place| {
            fs::write(place.join("file"), b"there").unwrap();
            let mounts = |of: &str| fs::read_to_string(of).unwrap();
            let here = mounts("/proc/thread-self/mounts");
            let line = here
                .lines()
                .find(|line| line.contains(place.to_str().unwrap()))
                .unwrap();
            assert!(line.contains(" ext2 "), "{line}");
            // The process's main thread has not seen it.
            assert!(!mounts("/proc/self/mounts").contains(place.to_str().unwrap()));
        });
        if let Err(reason) = worked {
            eprintln!("SKIPPED: {reason}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
