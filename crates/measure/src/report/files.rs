//! What experiments work on: files and segments that are really written, with noise in them.
//!
//! A hole is read without a device, and a durable write into an unwritten extent runs at half its rate.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use baio::{
    Access, CreateOptions, Durability, EngineOptions, FormatOptions, Identity, Link, LinkOptions, Local, Segment,
    SegmentOp, Wait,
};
use baio_console::failure::Failure;
use baio_stress::{Random, drop_pages_of};

use crate::figures::interrupt;
use crate::report::setting::storage_failure;

const PIECE: usize = 1 << 20;

/// Makes a file of `bytes` bytes, all of them written and synced, and none left in the kernel's cache.
pub(super) fn written_file(path: &Path, bytes: u64) -> Result<(), Failure> {
    let told = |error: std::io::Error| Failure::from_io("report", &error).on(path.display().to_string());
    let mut file = File::create_new(path).map_err(told)?;
    let mut random = Random::new(1);
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        interrupt::refuse()?;
        random.fill(&mut piece);
        let len = left.min(PIECE as u64);
        file.write_all(&piece[..len as usize]).map_err(told)?;
        left -= len;
    }
    drop_pages_of(path).map_err(told)
}

/// Everything of the file is on its device and none of it in the kernel's cache: what one side leaves there would count for or
/// against the next.
pub(super) fn settle(path: &Path) -> Result<(), String> {
    drop_pages_of(path).map_err(|error| format!("empty the kernel's cache of {}: {error}", path.display()))
}

/// The same, and then the first `bytes` bytes are there, and no others.
pub(super) fn warm(path: &Path, bytes: u64) -> Result<(), String> {
    settle(path)?;
    let told = |error: std::io::Error| format!("read {} into the kernel's cache: {error}", path.display());
    let file = File::open(path).map_err(told)?;
    // Else it would read ahead.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).map_err(|error| told(error.into()))?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(PIECE as u64);
        file.read_exact_at(&mut piece[..len as usize], at).map_err(told)?;
        at += len;
    }
    Ok(())
}

/// Makes a volume with one segment of the caller's, all of it written.
pub(super) fn written_segment(path: &Path, name: &str, bytes: u64) -> Result<(), Failure> {
    let format = FormatOptions {
        size_bytes: Some(bytes + (64 << 20)),
        ..FormatOptions::default()
    };
    baio::format(path, &format).map_err(storage_failure)?;
    let options = LinkOptions {
        identity: Identity::effective(),
        engine: EngineOptions {
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    };
    let volume = Local::open_with(path, &options).map_err(storage_failure)?;
    volume
        .create_segment(name, &CreateOptions::of_size(bytes))
        .wait()
        .map_err(storage_failure)?;
    let segment = volume
        .open_segment(name, Access::Write)
        .wait()
        .map_err(storage_failure)?;
    fill(&volume, &segment, bytes)?;
    drop(segment);
    volume.close().map_err(storage_failure)
}

fn fill(volume: &Local, segment: &Segment<Local>, bytes: u64) -> Result<(), Failure> {
    const UNDER_WAY: usize = 8;
    let mut random = Random::new(1);
    let (mut at, mut under_way) = (0, 0);
    while at < bytes || under_way > 0 {
        interrupt::refuse()?;
        while at < bytes && under_way < UNDER_WAY {
            let len = (bytes - at).min(PIECE as u64);
            let mut buffer = segment.buffer(len as usize).map_err(storage_failure)?;
            random.fill(&mut buffer);
            let request = segment.request(SegmentOp::Write { offset: at }, buffer);
            let refused = |_| Failure::new("report", "EAGAIN", "every slot is taken");
            segment.submit(request).map_err(refused)?;
            at += len;
            under_way += 1;
        }
        volume.turn(Wait::one()).map_err(storage_failure)?;
        while let Some(outcome) = volume.next_outcome() {
            outcome.result.map_err(storage_failure)?;
            under_way -= 1;
        }
    }
    let synced = segment.sync(Durability::Data).wait();
    synced.map(drop).map_err(|failed| storage_failure(failed.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_has_its_size_and_no_page_of_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let size = 3 * PIECE as u64 / 2 + 5;
        written_file(&path, size).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, size);
        assert!(bytes.chunks(4096).all(|page| page.iter().any(|&byte| byte != 0)));
        assert_ne!(
            bytes[..PIECE / 4],
            bytes[PIECE..PIECE + PIECE / 4],
            "not one piece again and again"
        );
        assert!(written_file(&path, 1).is_err(), "nothing is written over");
    }
}
