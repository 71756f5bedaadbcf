//! The ring while the kernel refuses to take what is queued.

use std::io::{Read, Seek, SeekFrom};

use super::entries::Pieces;
use super::*;
use crate::file::File;
use crate::memory::{Memory, Vectored};
use crate::policy::{Durability, Policy};
use crate::request::Request;

fn ring() -> Option<Uring> {
    let ring = Uring::new(8, Affinity::OneThread);
    ring.map_err(|why| eprintln!("skipped: {why}")).ok()
}

/// A file, and what stands in it.
fn file() -> (std::fs::File, File) {
    let kept = tempfile::tempfile().unwrap();
    let file = File::from_fd(kept.try_clone().unwrap().into(), "a file").unwrap();
    (kept, file)
}

fn content(mut kept: &std::fs::File) -> String {
    let mut text = String::new();
    kept.seek(SeekFrom::Start(0)).unwrap();
    kept.read_to_string(&mut text).unwrap();
    text
}

fn write(slots: &mut Slots, file: &File, text: &str) -> RequestId {
    let arena = Arena::new(1 << 16).unwrap();
    let mut buffer = arena.buffer(text.len()).unwrap();
    buffer.copy_from_slice(text.as_bytes());
    slots
        .insert(Request::write(file, 0, buffer, Policy::kernel()), 1)
        .unwrap()
}

fn until_one_has_ended(ring: &mut Uring, slots: &mut Slots) -> (RequestId, i32) {
    let mut done = Done::default();
    while done.raw.is_empty() {
        ring.turn(slots, Wait::one(), &mut done).unwrap();
    }
    done.raw[0]
}

/// Its entry names a place in a table, not a file.
#[test]
fn a_write_queued_before_its_file_was_detached_goes_to_no_other() {
    for refused in [None, Some((Errno::EAGAIN, 0)), Some((Errno::EBUSY, 0))] {
        let Some(mut ring) = ring() else { return };
        if ring.registered_files.is_none() {
            return eprintln!("skipped: {}", Feature::RegisteredFiles.missing());
        }
        let mut slots = Slots::new(8);
        let ((kept_one, one), (kept_other, other)) = (file(), file());
        ring.attach(Attach::File(&one)).unwrap();
        let id = write(&mut slots, &one, "to the first");
        assert_eq!(ring.start(&mut slots, &[id]), 1);
        ring.refused = refused;
        ring.detach(Detached::File(&one));
        ring.attach(Attach::File(&other)).unwrap();
        ring.refused = None;
        assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, 12), "{refused:?}");
        assert_eq!(
            (content(&kept_one).as_str(), content(&kept_other).as_str()),
            ("to the first", "")
        );
        // The place is free again: no lock of the file is kept alive.
        let taken = |ring: &Uring| {
            ring.registered_files
                .as_ref()
                .unwrap()
                .iter()
                .filter(|used| **used)
                .count()
        };
        assert_eq!((taken(&ring), ring.leaving.len()), (1, 0));
    }
}

#[test]
fn a_cancellation_that_found_no_room_is_sent_later() {
    let Some(mut ring) = ring() else { return };
    let mut slots = Slots::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
    let arena = Arena::new(1 << 16).unwrap();
    let read = Request::read_stream(&pipe, arena.buffer(16).unwrap());
    let id = slots.insert(read, 1).unwrap();
    ring.start(&mut slots, &[id]);
    ring.refused = Some((Errno::EAGAIN, 0));
    // More than the queue has room for.
    for _ in 0..100 {
        ring.cancel(&slots, RequestId { slot: 7, generation: 7 });
    }
    ring.cancel(&slots, id);
    ring.refused = None;
    assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, -libc::ECANCELED));
}

/// A turn that may sleep does not ask a kernel that has no memory over and over.
#[test]
fn a_ring_that_is_refused_is_not_stormed() {
    let Some(mut ring) = ring() else { return };
    let mut slots = Slots::new(8);
    let (_kept, file) = file();
    let id = write(&mut slots, &file, "a little");
    ring.start(&mut slots, &[id]);
    ring.refused = Some((Errno::EAGAIN, 0));
    let until = sys::monotonic().after(Duration::from_millis(50));
    while sys::monotonic() < until {
        ring.turn(&mut slots, Wait::one(), &mut Done::default()).unwrap();
    }
    let (_, entered) = ring.refused.take().unwrap();
    assert!(entered <= 50, "{entered} times in 50 ms");
    assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, 8));
}

/// What rings has to be asked for too, and there is no room for the question.
#[test]
fn a_full_queue_that_is_refused_breaks_no_ring_whose_doorbell_is_lent() {
    let Some(mut ring) = ring() else { return };
    let mut slots = Slots::new(64);
    let (_kept, file) = file();
    let ids: Vec<_> = (0..64).map(|_| write(&mut slots, &file, "a little")).collect();
    ring.refused = Some((Errno::EAGAIN, 0));
    let started = ring.start(&mut slots, &ids);
    assert!(started > 0 && ring.ring.submission().is_full(), "{started} fit in");
    let doorbell = ring.doorbell();
    doorbell.ring();
    let mut done = Done::default();
    let until = sys::monotonic().after(Duration::from_millis(50));
    while sys::monotonic() < until {
        assert_eq!(ring.turn(&mut slots, Wait::one(), &mut done), Ok(()));
    }
    let (_, entered) = ring.refused.take().unwrap();
    assert!(entered <= 100, "{entered} times in 50 ms");
    while done.raw.len() < started || !done.rang {
        ring.turn(&mut slots, Wait::one(), &mut done).unwrap();
    }
    assert!(done.raw.iter().all(|(_, raw)| *raw == 8), "{:?}", done.raw);
}

/// A thread's table of rings is short, and holds open what it has.
#[test]
fn rings_beyond_those_that_a_thread_may_register_work_too() {
    let Some(first) = ring() else { return };
    if !first.entrance.is_registered() {
        eprintln!("skipped: {:?}", first.features);
        return;
    }
    drop(first);
    let (kept, file) = file();
    for _ in 0..3 {
        let mut rings: Vec<Uring> = (0..20).filter_map(|_| ring()).collect();
        let registered = rings.iter().filter(|ring| ring.entrance.is_registered()).count();
        assert_eq!(
            registered,
            16.min(rings.len()),
            "IO_RINGFD_REG_MAX, all of them given back"
        );
        for (number, ring) in rings.iter_mut().enumerate() {
            let mut slots = Slots::new(8);
            let text = format!("ring {number:2}");
            let id = write(&mut slots, &file, &text);
            ring.start(&mut slots, &[id]);
            assert_eq!(until_one_has_ended(ring, &mut slots), (id, 7));
            assert_eq!(content(&kept), text);
        }
    }
}

/// An arena larger than the kernel takes at a time. What crosses from one piece into the next goes unregistered.
#[test]
fn memory_of_every_piece_and_across_two_is_written_whole() {
    const PIECE: usize = 1 << 18;
    let Some(mut ring) = ring() else { return };
    let (kept, file) = file();
    let arena = Arena::new(4 * PIECE).unwrap();
    let pieces = Pieces::of(&arena, PIECE.trailing_zeros());
    assert_eq!(pieces.ranges().len(), 4);
    if let Err(refused) = ring.attach_pieces(pieces) {
        eprintln!("skipped: {refused}");
        return;
    }
    let stamped = |len: usize, stamp: u8| {
        let mut buffer = arena.buffer(len).unwrap();
        buffer.fill(stamp);
        buffer
    };
    let number = |ring: &Uring, bytes: &[u8]| {
        let pieces = ring.entries.arena.as_ref().unwrap();
        pieces.number_of(bytes.as_ptr().cast_mut(), bytes.len())
    };
    let crossing = stamped(PIECE + 4096, 1);
    let within: Vec<_> = [(PIECE - 4096, 2), (PIECE, 3), (PIECE, 4)]
        .into_iter()
        .map(|(len, stamp)| stamped(len, stamp))
        .collect();
    assert_eq!(number(&ring, &crossing), None);
    assert_eq!(number(&ring, &crossing[..PIECE]), Some(0));
    assert_eq!(number(&ring, &crossing[PIECE - 1..=PIECE]), None);
    assert_eq!(number(&ring, &[0; 8]), None);
    assert_eq!(
        within.iter().map(|buffer| number(&ring, buffer)).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
    let mut list = Vectored::with_capacity(3);
    for buffer in within {
        list.push(buffer.into()).unwrap();
    }
    let mut slots = Slots::new(8);
    let mut at = 0;
    for memory in [Memory::from(crossing), Memory::Many(list)] {
        let len = memory.len();
        let request = Request::write(&file, at, memory, Policy::kernel());
        let id = slots.insert(request, 1).unwrap();
        assert_eq!(ring.start(&mut slots, &[id]), 1);
        assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, len as i32));
        at += len as u64;
    }
    let mut bytes = Vec::new();
    (&kept).seek(SeekFrom::Start(0)).unwrap();
    (&kept).read_to_end(&mut bytes).unwrap();
    let stamps = [(PIECE + 4096, 1), (PIECE - 4096, 2), (PIECE, 3), (PIECE, 4)];
    let expected: Vec<u8> = stamps
        .iter()
        .flat_map(|&(len, stamp)| std::iter::repeat_n(stamp, len))
        .collect();
    assert!(bytes == expected);
}

/// In another thread the same place is another ring's.
#[test]
fn a_ring_that_is_dropped_in_another_thread_takes_no_place_there_and_its_own_is_found_again() {
    let Some(first) = ring() else { return };
    if !first.entrance.is_registered() {
        eprintln!("skipped: {:?}", first.features);
        return;
    }
    let (_kept, file) = file();
    let theirs = file.clone();
    std::thread::spawn(move || {
        let Some(mut own) = ring() else { return };
        drop(first);
        let mut slots = Slots::new(8);
        let id = write(&mut slots, &theirs, "elsewhere");
        own.start(&mut slots, &[id]);
        assert_eq!(until_one_has_ended(&mut own, &mut slots), (id, 9));
    })
    .join()
    .unwrap();
    let rings: Vec<Uring> = (0..16).filter_map(|_| ring()).collect();
    assert!(rings.iter().all(|ring| ring.entrance.is_registered()), "sixteen places");
}

/// As on a kernel before Linux 6.9.
#[test]
fn a_ring_that_cannot_truncate_has_it_done_beside_it() {
    let Some(mut ring) = ring() else { return };
    let mut slots = Slots::new(8);
    let (kept, file) = file();
    // Where the kernel can.
    let _ = ring.attach(Attach::File(&file));
    ring.beside = Some(Beside::default());
    for len in [70_000, 5] {
        let id = slots
            .insert(Request::truncate(&file, len, Durability::None), 1)
            .unwrap();
        assert_eq!(ring.start(&mut slots, &[id]), 1);
        // It is not called back, and told as it was.
        ring.cancel(&slots, id);
        assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, 0));
        assert_eq!(kept.metadata().unwrap().len(), len);
        assert!(!ring.beside.as_ref().is_some_and(|beside| beside.has(id)));
    }
    let (end, _other) = std::io::pipe().unwrap();
    let pipe = File::from_fd(end.into(), "a pipe").unwrap();
    let id = slots.insert(Request::truncate(&pipe, 0, Durability::None), 1).unwrap();
    ring.start(&mut slots, &[id]);
    assert_eq!(until_one_has_ended(&mut ring, &mut slots), (id, -libc::EINVAL));
}

/// A kernel that finds a FIFO writable (before Linux 6.4 any pipe) does not have the write at hand for a moment: a cancellation that comes in
/// that moment finds nothing, and the write goes to a worker, who waits for ever.
#[test]
fn a_cancellation_that_came_too_early_is_sent_again() {
    let Some(mut ring) = ring() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let ends = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let fifo = File::from_fd(ends.into(), "a FIFO").unwrap();
    let mut slots = Slots::new(8);
    for _ in 0..20 {
        let arena = Arena::new(1 << 20).unwrap();
        let write = Request::write_stream(&fifo, arena.buffer(1 << 20).unwrap());
        let id = slots.insert(write, 1).unwrap();
        ring.start(&mut slots, &[id]);
        ring.cancel(&slots, id);
        let until = sys::monotonic().after(Duration::from_secs(20));
        let mut done = Done::default();
        while done.raw.is_empty() {
            let wait = Wait::Until {
                count: 1,
                min_wait: Duration::ZERO,
                deadline: Some(until),
            };
            ring.turn(&mut slots, wait, &mut done).unwrap();
            assert!(sys::monotonic() < until, "it was never found");
        }
        slots.remove(id);
    }
}
