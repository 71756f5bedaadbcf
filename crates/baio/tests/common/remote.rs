//! A small volume on a service thread.

use baio::{Access, Choice, Config, CreateOptions, Format, Options, Remote, Segment};

pub fn options(backend: Choice, slots: u32) -> Options {
    Options {
        config: Config {
            backend,
            slots,
            arena_bytes: 8 << 20,
            ..Config::default()
        },
        ..Options::default()
    }
}

pub fn image(size: u64) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = Format {
        size_bytes: Some(size),
        ..Format::default()
    };
    baio::format(&path, &format).unwrap();
    (dir, path)
}

pub fn volume(backend: Choice) -> (tempfile::TempDir, Remote) {
    let (dir, path) = image(16 << 20);
    let volume = Remote::open_with(&path, &options(backend, 128)).unwrap();
    (dir, volume)
}

pub fn segment(volume: &Remote, name: &str, size: u64) -> Segment<Remote> {
    let work = async {
        volume.create_segment(name, &CreateOptions::of_size(size)).await?;
        volume.open_segment(name, Access::Write).await
    };
    volume.block_on(work).unwrap().unwrap()
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
