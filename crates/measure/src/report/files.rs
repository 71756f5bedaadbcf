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

/// A new volume with one segment of the caller's, open to be written.
pub(crate) fn new_segment(path: &Path, name: &str, bytes: u64, options: &LinkOptions) -> baio::Result<NewSegment> {
    // What the metadata take, and a second small segment.
    let size = (bytes + (64 << 20)).next_multiple_of(1 << 20);
    baio::format(path, &FormatOptions::of_size(size))?;
    let volume = Local::open_with(path, options)?;
    volume.create_segment(name, &CreateOptions::of_size(bytes)).wait()?;
    let segment = volume.open_segment(name, Access::Write).wait()?;
    Ok((volume, segment))
}

pub(crate) type NewSegment = (Local, Segment<Local>);

/// Of whoever the caller is said to be, with buffers for a few large requests.
pub(super) fn options_of(identity: Identity) -> LinkOptions {
    let engine = EngineOptions {
        arena_bytes: 16 << 20,
        ..EngineOptions::default()
    };
    LinkOptions {
        identity,
        engine,
        ..LinkOptions::default()
    }
}

/// Into the segment, or out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

/// Carries pieces, each with its place and its length, in this order, at most so many in flight: `touch` makes what goes in, or looks at what
/// has come out. Returns how many were in flight at most.
pub(crate) fn carry(
    (volume, segment): (&Local, &Segment<Local>),
    way: Way,
    pieces: impl Iterator<Item = (u64, usize)>,
    depth: usize,
    mut touch: impl FnMut(u64, &mut [u8]),
) -> baio::Result<usize> {
    let mut pieces = pieces.peekable();
    let (mut under_way, mut in_flight_max) = (0, 0);
    while under_way > 0 || pieces.peek().is_some() {
        while under_way < depth
            && let Some(&(offset, len)) = pieces.peek()
        {
            let mut buffer = segment.buffer(len)?;
            let op = match way {
                Way::In => {
                    touch(offset, &mut buffer);
                    SegmentOp::Write { offset }
                }
                Way::Out => SegmentOp::Read { offset },
            };
            let mut request = segment.request(op, buffer);
            request.tag = offset;
            if volume.start(request).is_err() {
                break; // Every slot is taken: some will be free after the turn.
            }
            pieces.next();
            under_way += 1;
        }
        in_flight_max = in_flight_max.max(under_way);
        volume.turn(Wait::one())?;
        while let Some(outcome) = volume.next_outcome() {
            outcome.result?;
            under_way -= 1;
            if let (Way::Out, Some(mut buffer)) = (way, outcome.memory.into_buffer()) {
                touch(outcome.tag, &mut buffer);
            }
        }
    }
    Ok(in_flight_max)
}

/// Makes a volume with one segment of the caller's, all of it written.
pub(super) fn written_segment(path: &Path, name: &str, bytes: u64) -> Result<(), Failure> {
    let options = options_of(Identity::effective());
    let (volume, segment) = new_segment(path, name, bytes, &options).map_err(storage_failure)?;
    let piece = |at: u64| (at, (bytes - at).min(PIECE as u64) as usize);
    let pieces = (0..bytes).step_by(PIECE).map(piece);
    let pieces = pieces.take_while(|_| interrupt::check().is_ok());
    let mut random = Random::new(1);
    carry((&volume, &segment), Way::In, pieces, 8, |_, piece| random.fill(piece)).map_err(storage_failure)?;
    interrupt::refuse()?;
    let synced = segment.sync(Durability::Data).wait();
    synced.map_err(|failed| storage_failure(failed.error))?;
    drop(segment);
    volume.close().map_err(storage_failure)
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
