//! A small volume on a service thread.

use baio::{Backend, Remote};

use super::{image, options};

pub fn volume(backend: Backend) -> (tempfile::TempDir, Remote) {
    let (dir, path) = image(16 << 20);
    let volume = Remote::open_with(&path, &options(backend, 128)).unwrap();
    (dir, volume)
}

/// The id of this process's thread of that name, which the kernel cuts at 15 bytes.
pub fn thread_named(name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u64>().ok());
    ids.find(|id| {
        let comm = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    })
}
