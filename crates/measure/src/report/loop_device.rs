//! A loop device over a file of ours. It goes with its last user, however this process ends: it is made so that there is no moment at
//! which it would stay (`LOOP_CONFIGURE` with `LO_FLAGS_AUTOCLEAR`, Linux 5.8). Needs root.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    _held: File,
}

/// Why this cannot be tried here; `None` where it is worth a try.
pub(super) fn missing(tools: &[&str]) -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root, for a loop device".into());
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &&&str| std::env::split_paths(&search).any(|dir| dir.join(tool).is_file());
    let tool = tools.iter().find(|tool| !there(tool))?;
    Some(format!("needs {tool}, which is not installed"))
}

impl LoopDevice {
    /// Over this file, past the kernel's cache of it.
    ///
    /// # Errors
    /// What refused, in words.
    pub(super) fn over(image: &Path) -> Result<LoopDevice, String> {
        let both = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let told = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let control = Path::new("/dev/loop-control");
        let image_file = both(image).map_err(|error| told(image, error))?;
        let control_file = both(control).map_err(|error| told(control, error))?;
        // Whoever asks beside us may be given the same one, and take it first.
        for _ in 0..TRIES {
            // SAFETY: no memory is involved.
            let number = unsafe { libc::ioctl(control_file.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(told(control, io::Error::last_os_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let held = both(&path).map_err(|error| told(&path, error))?;
            match configure(&held, &image_file) {
                Ok(()) => return Ok(LoopDevice { path, _held: held }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(told(&path, error)),
            }
        }
        Err(format!("{}: others take each device first", control.display()))
    }
}

/// How often a device that somebody else has taken is no reason to give up.
const TRIES: u32 = 100;

// Of linux/loop.h.
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_SET_DIRECT_IO: libc::Ioctl = 0x4c08;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_config`, with the `struct loop_info64` in it.
#[repr(C)]
struct Configuration {
    fd: u32,
    block_size: u32,
    /// Device, inode, its device, offset, limit of size.
    places: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Configuration>() == 304);

fn configure(device: &File, image: &File) -> io::Result<()> {
    let configuration = Configuration {
        fd: image.as_raw_fd() as u32,
        block_size: 0,
        places: [0; 5],
        number: 0,
        encryption: [0; 2],
        flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
        names: [0; 64 + 64 + 32],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one such structure, and takes a reference of its own to the file.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) };
    // It would fall back to the kernel's cache without a word; asked alone, it says so.
    // SAFETY: no memory is involved.
    if made < 0 || unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_DIRECT_IO, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The command that makes one like it over this file, and prints its name: for a reader. It stays until it is told to go.
pub(super) fn set_up(image: &str) -> [&str; 5] {
    ["losetup", "--direct-io=on", "-f", "--show", image]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is killed leaves it to the kernel, at whatever moment.
    #[test]
    fn a_device_is_made_to_go_with_its_last_user_and_past_the_cache() {
        if let Some(reason) = missing(&[]) {
            return eprintln!("SKIPPED: {reason}");
        }
        let dir = tempfile::tempdir_in(".").unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let device = match LoopDevice::over(&image) {
            Ok(device) => device,
            Err(reason) => return eprintln!("SKIPPED: {reason}"),
        };
        let name = device.path.file_name().unwrap().to_str().unwrap().to_owned();
        let told = |key: &str| std::fs::read_to_string(format!("/sys/block/{name}/loop/{key}")).unwrap();
        assert_eq!([told("autoclear"), told("dio")], ["1\n", "1\n"]);
        assert_eq!(
            std::fs::read_to_string(format!("/sys/block/{name}/size"))
                .unwrap()
                .trim(),
            "2048"
        );
        drop(device);
    }
}
