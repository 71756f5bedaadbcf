//! Files out of the kernel's page cache, so that what is read next comes from the device.
//!
//! Pages that are dirty cannot be dropped, so they are written first. Pages that another process has mapped stay.

use std::fs::File;
use std::path::Path;

use baio_console::failure::Failure;

use super::job::{Job, Objects};

/// Drops every file of a job; a segment does not go through that cache.
pub(super) fn drop_pages(job: &Job) -> Result<(), Failure> {
    let Objects::Files(paths) = &job.objects else {
        return Ok(());
    };
    for path in paths {
        drop_pages_of(path).map_err(|error| {
            Failure::from_io(job.command, &error)
                .on(path.display().to_string())
                .needing("a file that can be written back and dropped from the kernel's cache")
                .cured_by("leave out --cold, or see what is wrong with the file")
        })?;
    }
    Ok(())
}

/// Everything of a file is on its device, and nothing of it in that cache.
///
/// # Errors
/// What the system said.
pub fn drop_pages_of(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use std::io::IoSliceMut;

    /// Is the first page of the file in the cache? `None` where the file system cannot tell.
    fn is_cached(path: &Path) -> Option<bool> {
        let file = File::open(path).unwrap();
        let mut byte = [0];
        match preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) {
            Ok(_) => Some(true),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }

    #[test]
    fn what_was_just_written_is_in_the_cache_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 64 << 10]).unwrap();
        const TMPFS: u64 = 0x0102_1994;
        let file_system = rustix::fs::statfs(dir.path()).unwrap();
        if file_system.f_type as u64 == TMPFS || is_cached(&path) != Some(true) {
            eprintln!("SKIPPED: this file system lies in the cache, or does not tell what is there");
            return;
        }
        drop_pages_of(&path).unwrap();
        assert_eq!(is_cached(&path), Some(false));
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 << 10]);
    }
}
