//! The promises of a service, on a segment and on a plain file. Real files below.

mod support;

use baio_ring::exchange::Parcel;
use baio_words::entry::{HandleWords, Op, Place, Submission};
use baio_words::{Caching, Durability, Errno, Failure, IoError, Mode, SegmentOp};
use support::tested::{BYTES, Tested};
use support::{Client, tag};

of_each! {
    what_was_written_is_read
    a_range_is_discarded_and_zeroed
    a_file_is_truncated_and_a_segment_is_not
    a_fence_ends_behind_the_writes_before_it
    a_request_that_cannot_be_is_told_so
    a_closed_handle_is_stale_and_what_was_under_way_ends
    more_than_there_are_slots_is_served
    a_cancel_of_what_has_ended_at_once_ends_nothing_else
    a_command_for_nobody_changes_nothing
    the_end_gives_all_memory_back
}

fn client(tested: Tested) -> Client {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let mut client = Client::of(32, dir, move || Ok(Tested::at(&path, &support::config())));
    client.tested = tested;
    client
}

impl Client {
    /// Sends it, and its end with the bytes of its memory.
    fn run(&mut self, asked: Submission) -> (Result<u32, Failure>, Vec<u8>) {
        self.send(&asked.encode());
        let ended = self.next().unwrap();
        assert_eq!(ended.tag, asked.tag);
        (ended.result, self.bytes(asked.tag.index))
    }

    fn bytes(&mut self, place: u32) -> Vec<u8> {
        let Some(Parcel::Memory(memory)) = self.connection.shared.exchange.take(place) else {
            return Vec::new();
        };
        let mut bytes = vec![0; memory.len()];
        memory.copy_out_at(0, &mut bytes);
        bytes
    }

    /// A write of one block of this byte.
    fn write(&mut self, place: u32, handle: HandleWords, byte: u8) -> Submission {
        let mut asked = self.read(place, handle);
        let Some(Parcel::Memory(mut memory)) = self.connection.shared.exchange.take(place) else {
            unreachable!()
        };
        memory.copy_in_at(0, &[byte; 4096]);
        assert!(self.connection.shared.exchange.put(place, Parcel::Memory(memory)));
        asked.op = Op::Write;
        asked
    }
}

fn what_was_written_is_read(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    let write = client.write(1, handle, 7);
    let safe = Submission {
        offset: 8192,
        durability: Durability::Data,
        ..write
    };
    assert_eq!(client.run(safe).0, Ok(4096));
    let sync = Submission {
        handle,
        durability: Durability::Full,
        ..Submission::new(Op::Sync, tag(2))
    };
    assert_eq!(client.run(sync).0, Ok(0));
    let read = client.read(3, handle);
    assert_eq!(
        client.run(Submission { offset: 8192, ..read }),
        (Ok(4096), vec![7; 4096])
    );
    let read = client.read(3, handle);
    assert_eq!(
        client.run(Submission { offset: 4096, ..read }),
        (Ok(4096), vec![0; 4096])
    );
    // At the end there is nothing to read.
    let read = client.read(3, handle);
    let at_end = Submission { offset: BYTES, ..read };
    assert_eq!(client.run(at_end).0, Ok(0));
    client.close();
}

fn a_range_is_discarded_and_zeroed(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    for (place, block) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
        let write = client.write(place, handle, 7);
        let offset = block * 4096;
        assert_eq!(client.run(Submission { offset, ..write }).0, Ok(4096));
    }
    let mut ask = |op, mode| {
        let asked = Submission {
            handle,
            durability: Durability::Data,
            mode,
            ..Submission::of(op, tag(5))
        };
        client.run(asked).0
    };
    let (offset, len) = (4096, 4096);
    // A file system without O_DIRECT has no such mode, and takes any bytes.
    let direct = ask(SegmentOp::Discard { offset, len }, Mode::Direct);
    assert_eq!(direct, Ok(0));
    let (offset, none) = (8192, 0);
    assert_eq!(ask(SegmentOp::Zero { offset, len }, Mode::Direct), Ok(0));
    assert_eq!(ask(SegmentOp::Zero { offset: 0, len: none }, Mode::Direct), Ok(0));
    let cached = ask(SegmentOp::Zero { offset: 0, len }, Mode::Cached);
    assert_eq!(cached, Err(Failure::NoCache));
    let askew = ask(SegmentOp::Discard { offset: 1, len }, Mode::Direct);
    assert!(
        matches!(askew, Err(Failure::Io(IoError::Misaligned { value: 1, .. }))) || tested.grows() && askew == Ok(0),
        "{askew:?}"
    );
    let far = (BYTES, 3 << 40);
    let beyond = ask(
        SegmentOp::Discard {
            offset: far.0,
            len: far.1,
        },
        Mode::Direct,
    );
    match tested.grows() {
        true => assert_eq!(beyond, Ok(0), "there is nothing to give back"),
        false => assert_eq!(beyond, Err(Failure::Beyond { size: BYTES })),
    }
    let read = client.read(6, handle);
    let (ended, bytes) = client.run(read);
    assert_eq!((ended, bytes), (Ok(4096), vec![7; 4096]));
    for (offset, byte) in [(4096, 0), (8192, 0), (12288, 7)] {
        let read = client.read(6, handle);
        let (ended, bytes) = client.run(Submission { offset, ..read });
        assert_eq!((ended, bytes), (Ok(4096), vec![byte; 4096]), "at {offset}");
    }
    client.close();
}

fn a_file_is_truncated_and_a_segment_is_not(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    let write = client.write(1, handle, 7);
    assert_eq!(client.run(write).0, Ok(4096));
    let mut ask = |op, durability| {
        let asked = Submission {
            handle,
            durability,
            ..Submission::of(op, tag(5))
        };
        client.run(asked).0
    };
    let told = |done| if tested.grows() { done } else { Err(Failure::NotAFile) };
    let longer = SegmentOp::Allocate { offset: BYTES, len: 1 };
    assert_eq!(ask(longer, Durability::Data), told(Ok(0)));
    assert_eq!(
        ask(SegmentOp::Allocate { offset: 0, len: 0 }, Durability::None),
        told(Ok(0))
    );
    assert_eq!(ask(SegmentOp::Truncate { len: 10 }, Durability::Full), told(Ok(0)));
    let too_long = Err(Failure::Io(IoError::System(Errno::EFBIG)));
    assert_eq!(
        ask(SegmentOp::Truncate { len: 1 << 63 }, Durability::None),
        told(too_long)
    );
    let read = client.read(6, handle);
    let (ended, bytes) = client.run(read);
    let left = if tested.grows() { 10 } else { 4096 };
    assert_eq!((ended, &bytes[..left]), (Ok(left as u32), &[7; 4096][..left]));
    client.close();
}

/// Also behind those that found no slot and were held.
fn a_fence_ends_behind_the_writes_before_it(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    for place in 1..30 {
        let write = client.write(place, handle, 7);
        let offset = u64::from(place % 16) * 4096;
        client.push(&Submission { offset, ..write }.encode());
    }
    let fence = Submission {
        handle,
        durability: Durability::Full,
        ..Submission::of(SegmentOp::Fence, tag(30))
    };
    client.push(&fence.encode());
    client.publish();
    for nth in 1..31 {
        let ended = client.next().unwrap();
        assert_eq!(nth == 30, ended.tag.index == 30, "the fence is the last");
        assert_eq!(ended.result, Ok(if nth == 30 { 0 } else { 4096 }));
        drop(client.bytes(ended.tag.index));
    }
    client.close();
}

fn a_request_that_cannot_be_is_told_so(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    let stale = HandleWords {
        generation: handle.generation + 1,
        ..handle
    };
    let read = client.read(1, stale);
    let (ended, memory) = client.run(read);
    assert_eq!((ended, memory.len()), (Err(Failure::Stale), 4096));
    let nowhere = HandleWords { index: 999, ..handle };
    let read = client.read(1, nowhere);
    assert_eq!(client.run(read).0, Err(Failure::Stale));
    let read = client.read(1, handle);
    let cached = Submission {
        mode: Mode::Cached,
        ..read
    };
    assert_eq!(client.run(cached).0, Err(Failure::NoCache));
    let read = client.read(1, handle);
    let askew = client.run(Submission { offset: 1, ..read }).0;
    match askew {
        // A file system without O_DIRECT is asked in vain, or takes any offset.
        Err(Failure::Io(IoError::Misaligned { value: 1, .. } | IoError::NoDescription { .. })) | Ok(4096) => {}
        other => panic!("{other:?}"),
    }
    let write = client.write(1, handle, 1);
    let far = client.run(Submission { offset: BYTES, ..write }).0;
    match tested.grows() {
        true => assert_eq!(far, Ok(4096)),
        false => assert_eq!(far, Err(Failure::Beyond { size: BYTES })),
    }
    client.close();
}

fn a_closed_handle_is_stale_and_what_was_under_way_ends(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    // More than there are slots: some are held when the close comes.
    for place in 1..32 {
        let read = client.read(place, handle);
        client.push(&read.encode());
    }
    let close = Submission {
        handle,
        ..Submission::new(Op::CloseHandle, Default::default())
    };
    client.push(&close.encode());
    client.send(&close.encode());
    for _ in 1..32 {
        let ended = client.next().unwrap();
        assert_eq!(ended.result, Ok(4096));
        assert_eq!(client.bytes(ended.tag.index).len(), 4096);
    }
    let read = client.read(1, handle);
    assert_eq!(client.run(read).0, Err(Failure::Stale));
    client.close();
}

fn more_than_there_are_slots_is_served(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    assert!(support::config().slots < 32);
    for round in 0..4 {
        for place in 1..32 {
            let mut asked = client.read(place, handle);
            asked.offset = u64::from(place % 16) * 4096;
            client.push(&asked.encode());
        }
        client.publish();
        let mut seen = Vec::new();
        for _ in 1..32 {
            let ended = client.next().unwrap();
            assert_eq!(ended.result, Ok(4096), "round {round}");
            assert!(matches!(ended.took, Caching::Direct | Caching::Kernel));
            drop(client.bytes(ended.tag.index));
            seen.push(ended.tag.index);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..32));
    }
    client.close();
}

/// What there is nothing to do for, or what is refused, has ended as it began; its cancel comes behind the start of another.
fn a_cancel_of_what_has_ended_at_once_ends_nothing_else(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    let stale = HandleWords {
        generation: handle.generation + 1,
        ..handle
    };
    for (handle_of_first, ended) in [(handle, Ok(0)), (stale, Err(Failure::Stale))] {
        let nothing = Submission {
            handle: handle_of_first,
            ..Submission::of(SegmentOp::Discard { offset: 0, len: 0 }, tag(1))
        };
        let write = client.write(2, handle, 7);
        for asked in [nothing, write, Submission::new(Op::Cancel, tag(1))] {
            client.push(&asked.encode());
        }
        client.publish();
        let mut ends = [client.next().unwrap(), client.next().unwrap()];
        ends.sort_by_key(|end| end.tag.index);
        assert_eq!(ends.map(|end| end.result), [ended, Ok(4096)]);
        drop(client.bytes(2));
    }
    client.close();
}

fn a_command_for_nobody_changes_nothing(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    // Nothing of that tag is under way, nor anything behind that handle.
    client.push(&Submission::new(Op::Cancel, tag(5)).encode());
    let close = Submission {
        handle: HandleWords {
            generation: handle.generation + 1,
            ..handle
        },
        ..Submission::new(Op::CloseHandle, Default::default())
    };
    client.send(&close.encode());
    client.settle();
    let read = client.read(1, handle);
    assert_eq!(client.run(read).0, Ok(4096));
    client.close();
}

fn the_end_gives_all_memory_back(tested: Tested) {
    let mut client = client(tested);
    let handle = client.open();
    for place in 1..32 {
        let read = client.read(place, handle);
        client.push(&read.encode());
    }
    // What no client sends: a request whose memory is not there.
    let broken = Submission {
        handle,
        place: Place::Arena { at: 0, len: 4096 },
        ..Submission::new(Op::Read, tag(0))
    };
    client.send(&broken.encode());
    while let Some(ended) = client.next() {
        drop(client.bytes(ended.tag.index));
    }
    let (arena, shared) = (client.connection.arena.clone(), client.connection.shared.clone());
    client.connection.thread.join().unwrap();
    for place in 0..32 {
        drop(shared.exchange.take(place));
    }
    assert_eq!(arena.free_bytes(), 1 << 20);
}
