//! The promise: whatever is wrong with a request or an operation is told by its outcome, with the object, the offset, what
//! was asked and what would do; nothing is done by halves; memory and places in tables always come back.

use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use baio_engine::{Argument, Create, Descriptions, EngineOptions, Memory, Open, Vectored, Wait};
use baio_storage::{
    Access, Core, CreateOptions, Fault, FormatOptions, Handle, Identity, Mode, SegmentOp, SegmentRequest, Status,
    StatusWord,
};

use crate::harness::{
    self, BLOCK, ME, ROOT, STRANGER, config, create, open_write, read, read_request, run, start, sync, sync_request,
    write, write_request,
};

const SIZE: u64 = 64 << 10;

/// A volume with one segment of 64 KiB between two neighbours, all opened to write.
struct Fixture {
    core: Core,
    handle: Handle,
    neighbours: [Handle; 2],
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn fixture_with(config: &EngineOptions) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 8 << 20);
    let mut core = Core::open(&path, config).unwrap();
    let mut handles = ["before", "data", "behind"].map(|name| {
        create(&mut core, name, SIZE);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &vec![0xee; SIZE as usize]).unwrap();
        handle
    });
    handles.swap(0, 1);
    let [handle, before, behind] = handles;
    Fixture {
        core,
        handle,
        neighbours: [before, behind],
        path,
        _dir: dir,
    }
}

fn fixture() -> Fixture {
    fixture_with(&config())
}

impl Fixture {
    fn object(&self, name: &str) -> String {
        format!("{}#{}/{name}", self.path.display(), ME.uid)
    }

    /// Nothing but `expected` in the segment, and nothing of it in its neighbours.
    fn assert_holds(&mut self, expected: &[u8]) {
        let Fixture { core, handle, .. } = self;
        assert!(read(core, *handle, 0, SIZE as usize).unwrap() == expected);
        for neighbour in self.neighbours {
            let bytes = read(core, neighbour, 0, SIZE as usize).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0xee), "a neighbour was hit");
        }
    }
}

#[test]
fn a_misaligned_request_names_argument_value_and_need() {
    let mut f = fixture();
    let need = 512; // At most a page; the least that any device here asks for.
    let cases = [
        (SegmentOp::Write { offset: 8192 + 7 }, BLOCK, Argument::Offset, 8192 + 7),
        (SegmentOp::Read { offset: 4096 + 1 }, BLOCK, Argument::Offset, 4096 + 1),
        (
            SegmentOp::Write { offset: 0 },
            BLOCK + 5,
            Argument::Length,
            BLOCK as u64 + 5,
        ),
        (SegmentOp::Read { offset: 0 }, 100, Argument::Length, 100),
    ];
    for (op, len, argument, value) in cases {
        let buffer = f.core.buffer(len).unwrap();
        let outcome = run(&mut f.core, SegmentRequest::new(f.handle, op, buffer));
        assert_eq!(outcome.memory.len(), len, "the memory comes back");
        let error = outcome.result.unwrap_err();
        let Fault::Io(baio_engine::Error::Misaligned {
            argument: found,
            value: said,
            need: asked,
        }) = error.fault
        else {
            panic!("{error}");
        };
        assert_eq!((found, said), (argument, value), "{error}");
        assert!(asked >= need, "{error}");
        assert_eq!(error.object, f.object("data"));
        let (SegmentOp::Read { offset } | SegmentOp::Write { offset }) = op else {
            unreachable!()
        };
        assert_eq!(error.offset, Some(offset));
        assert_eq!(error.code(), "EINVAL");
        assert!(error.need().unwrap().contains(&asked.to_string()), "{error}");
        assert!(error.cure().is_some(), "{error}");
    }
    f.assert_holds(&[0xee; SIZE as usize]);
}

/// Memory of an arena is always aligned; a list can be made that is not.
#[test]
fn misaligned_memory_is_named() {
    let mut f = fixture();
    let mut list = Vectored::with_capacity(2);
    for len in [100, BLOCK - 100] {
        list.push(f.core.buffer(len).unwrap().into()).unwrap();
    }
    let request = SegmentRequest::new(f.handle, SegmentOp::Write { offset: 0 }, Memory::Many(list));
    let error = run(&mut f.core, request).result.unwrap_err();
    assert!(
        matches!(error.fault, Fault::Io(baio_engine::Error::Misaligned { .. })),
        "{error}"
    );
    f.assert_holds(&[0xee; SIZE as usize]);
}

#[test]
fn reads_end_where_the_segment_ends() {
    let mut f = fixture();
    let (core, handle) = (&mut f.core, f.handle);
    let across = read(core, handle, SIZE - BLOCK as u64, 4 * BLOCK).unwrap();
    assert_eq!(across, vec![0xee; BLOCK]);
    for offset in [SIZE, SIZE + BLOCK as u64, u64::MAX - 8191, u64::MAX] {
        assert_eq!(read(core, handle, offset, BLOCK).unwrap(), Vec::<u8>::new());
    }
    assert_eq!(read(core, handle, 0, 2 * SIZE as usize).unwrap().len(), SIZE as usize);
    // So does one into a list: what its memory shows is what there was.
    let mut list = Vectored::with_capacity(1);
    list.push(core.buffer(2 * BLOCK).unwrap().into()).unwrap();
    let offset = SIZE - BLOCK as u64;
    let request = SegmentRequest::new(handle, SegmentOp::Read { offset }, Memory::Many(list));
    let outcome = run(core, request);
    assert_eq!((outcome.result.unwrap(), outcome.memory.len()), (BLOCK as u32, BLOCK));
}

#[test]
fn a_write_across_the_end_is_refused_whole() {
    let mut f = fixture();
    let block = BLOCK as u64;
    for (offset, len) in [
        (SIZE - block, 2 * BLOCK),
        (SIZE, BLOCK),
        (0, SIZE as usize + BLOCK),
        (u64::MAX - block + 1, BLOCK),
        (u64::MAX, BLOCK),
    ] {
        let error = write(&mut f.core, f.handle, offset, &vec![1; len]).unwrap_err();
        assert_eq!((error.code(), error.offset), ("ENOSPC", Some(offset)), "{error}");
        assert!(
            matches!(error.fault, Fault::Beyond { len: asked, size: SIZE, write: true } if asked == len as u64),
            "{error}"
        );
        assert_eq!(error.object, f.object("data"));
    }
    f.assert_holds(&[0xee; SIZE as usize]);
    // Up to the end it may go; nothing at all may go anywhere inside.
    write(&mut f.core, f.handle, SIZE - block, &[1; BLOCK]).unwrap();
    assert_eq!(write(&mut f.core, f.handle, SIZE, &[]).unwrap(), 0);
    let mut expected = [0xee; SIZE as usize];
    expected[SIZE as usize - BLOCK..].fill(1);
    f.assert_holds(&expected);
}

#[test]
fn a_read_only_handle_refuses_writes_and_a_mode_not_built_says_not_yet() {
    let mut f = fixture();
    let (handle, _) = f.core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    let error = write(&mut f.core, handle, 0, &[1; BLOCK]).unwrap_err();
    assert_eq!((error.code(), error.object.clone()), ("EBADF", f.object("data")));
    for mode in [Mode::Kernel, Mode::Uncached] {
        let mut request = read_request(&f.core, f.handle, 0, BLOCK);
        request.mode = mode;
        let outcome = run(&mut f.core, request);
        assert_eq!(outcome.memory.len(), BLOCK);
        let error = outcome.result.unwrap_err();
        assert!(matches!(error.fault, Fault::NotYet(_)), "{error}");
        assert_eq!(error.code(), "EOPNOTSUPP");
        assert!(error.cure().unwrap().contains("direct"), "{error}");
    }
    // Ours is there where the core has been given one.
    let mut request = read_request(&f.core, f.handle, 0, BLOCK);
    request.mode = Mode::Cached;
    let error = run(&mut f.core, request).result.unwrap_err();
    assert!(matches!(error.fault, Fault::NoCache), "{error}");
    f.assert_holds(&[0xee; SIZE as usize]);
}

/// Who may not see a segment is not told whether it exists.
#[test]
fn strangers_learn_nothing() {
    let mut f = fixture();
    let core = &mut f.core;
    let refusal = |error: baio_storage::Error, name: &str| {
        assert_eq!(error.code(), "EACCES", "{error}");
        (error.to_string().replace(name, "NAME"), error.offset)
    };
    let told: Vec<_> = ["data", "none"]
        .into_iter()
        .map(|name| {
            let opened = core.open_segment(STRANGER, ME.uid, name, Access::Read).unwrap_err();
            let deleted = core.delete(STRANGER, ME.uid, name).unwrap_err();
            let options = CreateOptions::of_size(1);
            let created = core.create(STRANGER, ME.uid, name, &options).unwrap_err();
            (refusal(opened, name), refusal(deleted, name), refusal(created, name))
        })
        .collect();
    assert_eq!(told[0], told[1], "the answers differ by more than the name");
    assert_eq!(
        core.open_segment(ME, ME.uid, "none", Access::Read).unwrap_err().code(),
        "ENOENT"
    );
    assert_eq!(
        core.open_segment(ROOT, ME.uid, "none", Access::Read)
            .unwrap_err()
            .code(),
        "ENOENT"
    );
    assert!(core.list(STRANGER).unwrap().is_empty());
    assert_eq!(core.list(ROOT).unwrap().len(), 3);
    // The same name is free for another owner; root may do all.
    core.create(STRANGER, STRANGER.uid, "data", &CreateOptions::of_size(1))
        .unwrap();
    core.open_segment(ROOT, STRANGER.uid, "data", Access::Write).unwrap();
    core.delete(ROOT, STRANGER.uid, "data").unwrap();
    // A mode that lets the group read lets it read.
    let shared = CreateOptions {
        mode: 0o640,
        group: Some(55),
        ..CreateOptions::of_size(1)
    };
    core.create(ROOT, ME.uid, "shared", &shared).unwrap();
    let member = Identity::new(2000, 55);
    core.open_segment(member, ME.uid, "shared", Access::Read).unwrap();
    assert_eq!(
        core.open_segment(member, ME.uid, "shared", Access::Write)
            .unwrap_err()
            .code(),
        "EACCES"
    );
    let path = f.path.clone();
    f.core.close().unwrap();
    for name in ["data", "none"] {
        assert_eq!(
            Core::inspect_segment(&path, STRANGER, ME.uid, name).unwrap_err().code(),
            "EACCES"
        );
    }
    assert_eq!(
        Core::inspect_segment(&path, ME, ME.uid, "none").unwrap_err().code(),
        "ENOENT"
    );
    assert_eq!(
        Core::inspect_segment(&path, ME, ME.uid, "data").unwrap().size_bytes,
        SIZE
    );
}

#[test]
fn a_handle_dies_with_its_segment() {
    let mut f = fixture();
    let core = &mut f.core;
    let second = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap().0;
    core.delete(ME, ME.uid, "data").unwrap();
    // The place and the blocks are taken again by another of the same name.
    create(core, "data", SIZE);
    let new = open_write(core, "data");
    for handle in [f.handle, second] {
        let error = write(core, handle, 0, &[1; BLOCK]).unwrap_err();
        assert!(matches!(error.fault, Fault::Stale), "{error}");
        assert_eq!(error.code(), "ESTALE");
        assert!(read(core, handle, 0, BLOCK).is_err());
        assert!(sync(core, handle).is_err());
        assert!(core.size(handle).is_err());
        core.close_handle(handle);
    }
    assert_eq!(read(core, new, 0, SIZE as usize).unwrap(), vec![0; SIZE as usize]);
    core.close_handle(new);
    assert!(read(core, new, 0, BLOCK).is_err());
    assert!(core.size(new).is_err());
}

#[test]
fn a_full_table_hands_the_request_back_untouched() {
    let mut f = fixture_with(&EngineOptions { slots: 8, ..config() });
    let core = &mut f.core;
    let mut tickets = Vec::new();
    let back = loop {
        let mut request = read_request(core, f.handle, SIZE - BLOCK as u64, 4 * BLOCK);
        request.tag = 77;
        match core.start(request) {
            Ok(ticket) => tickets.push(ticket),
            Err(back) => break back,
        }
    };
    assert!((4..=8).contains(&tickets.len()), "{}", tickets.len());
    assert_eq!((back.tag, back.memory.len()), (77, 4 * BLOCK), "as it was given");
    // Operations have slots of their own.
    core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    for ticket in tickets {
        assert_eq!(core.wait(ticket).unwrap().unwrap().result.unwrap(), BLOCK as u32);
        assert!(core.wait(ticket).unwrap().is_none(), "an outcome is taken once");
    }
    let ticket = core.start(back).unwrap();
    core.wait(ticket).unwrap().unwrap().result.unwrap();
    // Outcomes that nobody takes fill the table too: it does not grow.
    let mut started = 0;
    for _ in 0..100 {
        let request = read_request(core, f.handle, SIZE, BLOCK);
        started += u32::from(core.start(request).is_ok());
        core.turn(Wait::No).unwrap();
    }
    assert_eq!(started, 8);
    for _ in 0..8 {
        assert_eq!(core.next_outcome().unwrap().result.unwrap(), 0);
    }
    assert!(core.next_outcome().is_none());
}

#[test]
fn abandoned_requests_give_everything_back() {
    let mut f = fixture();
    let core = &mut f.core;
    let whole = core.engine().arena().free_bytes();
    for round in 0..500 {
        let request = read_request(core, f.handle, 0, BLOCK);
        let ticket = start(core, request);
        if round % 2 == 0 {
            core.turn(Wait::No).unwrap();
        }
        if round % 3 == 0 {
            core.cancel(ticket);
        }
        core.abandon(ticket);
        assert!(matches!(core.poll(ticket, None), Poll::Ready(None)));
        core.abandon(ticket);
    }
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    core.turn(Wait::No).unwrap();
    assert_eq!(core.engine().arena().free_bytes(), whole);
    assert!(core.next_outcome().is_none());
    core.delete(ME, ME.uid, "data").unwrap();
}

#[test]
fn a_status_word_moves_when_somebody_reaps() {
    let mut f = fixture();
    let core = &mut f.core;
    let word = StatusWord::new();
    let mut request = write_request(core, f.handle, 0, &[1; BLOCK]);
    request.status = Some(word.clone());
    let ticket = start(core, request);
    assert_eq!(word.get(), Status::InFlight);
    while word.get() == Status::InFlight {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(word.get(), Status::Done(BLOCK as u32));
    core.wait(ticket).unwrap().unwrap().result.unwrap();
    let mut request = write_request(core, f.handle, 3, &[1; BLOCK]);
    request.status = Some(word.clone());
    let ticket = start(core, request);
    core.wait(ticket).unwrap().unwrap().result.unwrap_err();
    assert_eq!(word.get(), Status::Failed(baio_engine::Errno::EINVAL));
    // A word stays true for those who gave up on the outcome.
    let mut request = write_request(core, f.handle, SIZE, &[1; BLOCK]);
    request.status = Some(word.clone());
    let ticket = start(core, request);
    core.abandon(ticket);
    assert!(matches!(word.get(), Status::Failed(_)));
}

/// A deadline in the past, on a real device: the request is answered, one way or the other, and nothing is lost by it.
#[test]
fn deadlines_answer_and_lose_nothing() {
    let mut f = fixture();
    let core = &mut f.core;
    let whole = core.engine().arena().free_bytes();
    let (mut late, mut done) = (0, 0);
    for round in 0..200 {
        let mut request = read_request(core, f.handle, round % 16 * BLOCK as u64, BLOCK);
        request.deadline = Some(core.engine().now().after(Duration::from_micros(round % 4 * 20)));
        let ticket = start(core, request);
        match core.wait(ticket).unwrap().unwrap().result {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(["EINDETERMINATE", "ECANCELED"].contains(&error.code()), "{error}");
                late += 1;
            }
        }
    }
    println!("{done} in time, {late} late");
    core.delete(ME, ME.uid, "data").unwrap();
    assert_eq!(core.in_flight(), 0);
    core.turn(Wait::No).unwrap();
    assert_eq!(core.engine().arena().free_bytes(), whole);
    f.core.close().unwrap();
}

/// A plain file beside the volume: a pipe that nobody writes to.
#[test]
fn a_deadline_ends_a_request_that_would_wait_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut core = Core::new(&config()).unwrap();
    if core.engine().explain().backend == "sync" {
        harness::skip("the sync backend cannot give up");
        return;
    }
    let options = Open {
        write: true, // Both ends: opening does not wait.
        descriptions: Descriptions::Only(baio_engine::Caching::Kernel),
        create: Create::Never,
        claim_device: false,
    };
    let handle = core.open_file(&fifo, &options).unwrap();
    let whole = core.engine().arena().free_bytes();
    let mut request = read_request(&core, handle, 0, BLOCK);
    request.mode = Mode::Kernel;
    request.deadline = Some(core.engine().now().after(Duration::from_millis(20)));
    let ticket = start(&mut core, request);
    core.close_handle(handle);
    let error = core.wait(ticket).unwrap().unwrap().result.unwrap_err();
    assert_eq!(error.code(), "EINDETERMINATE", "{error}");
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    core.turn(Wait::No).unwrap();
    assert_eq!(core.engine().arena().free_bytes(), whole);
}

#[test]
fn a_create_that_cannot_be_says_what_there_is() {
    let mut f = fixture();
    let core = &mut f.core;
    let info = core.volume_info().unwrap();
    let (free, largest) = (info.free_bytes, info.largest_free_bytes);
    for size in [free + 1, u64::MAX, u64::MAX - 4095] {
        let error = core
            .create(harness::ROOT, ME.uid, "x", &CreateOptions::of_size(size))
            .unwrap_err();
        let Fault::NoSpace {
            asked,
            free: told,
            largest: run,
        } = error.fault
        else {
            panic!("{error}");
        };
        assert_eq!((told, run), (Some(free), Some(largest)));
        assert!(asked >= size.min(1 << 60), "{asked}");
        assert_eq!(error.code(), "ENOSPC");
        assert!(error.cure().is_some());
    }
    // In pieces there is enough, in one piece not.
    core.delete(ME, ME.uid, "data").unwrap();
    let info = core.volume_info().unwrap();
    assert_eq!(info.free_bytes, free + SIZE);
    assert_eq!(info.largest_free_bytes, largest);
    let options = CreateOptions::of_size(largest + 1);
    assert_eq!(core.create(ME, ME.uid, "x", &options).unwrap_err().code(), "ENOSPC");
    core.create(ME, ME.uid, "x", &CreateOptions::of_size(largest)).unwrap();
    assert_eq!(core.volume_info().unwrap().free_bytes, SIZE);
    let error = core.create(ME, ME.uid, "x", &CreateOptions::of_size(1)).unwrap_err();
    assert!(matches!(error.fault, Fault::Exists), "{error}");
    assert_eq!(error.code(), "EEXIST");
    let error = core.create(ME, ME.uid, "y", &CreateOptions::of_size(0)).unwrap_err();
    assert_eq!(error.code(), "EINVAL", "{error}");
    assert_eq!(core.volume_info().unwrap().free_bytes, SIZE);
}

#[test]
fn names_sizes_and_reserves_are_kept() {
    let mut f = fixture();
    let core = &mut f.core;
    let too_long = "x".repeat(256);
    for (name, code) in [
        ("", "EINVAL"),
        ("a#b", "EINVAL"),
        ("a/b", "EINVAL"),
        ("a\nb", "EINVAL"),
        (too_long.as_str(), "ENAMETOOLONG"),
    ] {
        let made = core.create(ME, ME.uid, name, &CreateOptions::of_size(1)).unwrap_err();
        let opened = core.open_segment(ME, ME.uid, name, Access::Read).unwrap_err();
        let deleted = core.delete(ME, ME.uid, name).unwrap_err();
        for error in [made, opened, deleted] {
            assert_eq!(error.code(), code, "{error}");
            assert!(error.need().unwrap().contains("255"), "{error}");
        }
    }
    for (asked, reserve, size_bytes, reserve_bytes) in [
        (1, 0, 4096, 4096),
        (4096, 0, 4096, 4096),
        (4097, 0, 8192, 8192),
        (4096, 4095, 4096, 4096),
        (4096, 20_000, 4096, 20_480),
    ] {
        let name = "x".repeat(255);
        let options = CreateOptions {
            reserve_bytes: reserve,
            ..CreateOptions::of_size(asked)
        };
        let free = core.volume_info().unwrap().free_bytes;
        let info = core.create(ME, ME.uid, &name, &options).unwrap();
        assert_eq!((info.size_bytes, info.reserve_bytes), (size_bytes, reserve_bytes));
        assert_eq!(core.volume_info().unwrap().free_bytes, free - reserve_bytes);
        let (handle, opened) = core.open_segment(ME, ME.uid, &name, Access::Write).unwrap();
        assert_eq!(opened, info);
        assert_eq!(core.size(handle).unwrap(), size_bytes);
        assert_eq!(
            write(core, handle, size_bytes, &[1; BLOCK]).unwrap_err().code(),
            "ENOSPC",
            "the reserve is not the segment"
        );
        core.delete(ME, ME.uid, &name).unwrap();
        assert_eq!(core.volume_info().unwrap().free_bytes, free);
    }
}

#[test]
fn a_full_inode_table_says_how_many_there_can_be() {
    let mut f = fixture();
    let core = &mut f.core;
    let max = core.volume_info().unwrap().segments_max;
    for number in 3..max {
        let options = CreateOptions::of_size(1);
        core.create(harness::ROOT, ME.uid, &format!("n{number}"), &options)
            .unwrap();
    }
    let free = core.volume_info().unwrap().free_bytes;
    let error = core
        .create(harness::ROOT, ME.uid, "more", &CreateOptions::of_size(1))
        .unwrap_err();
    assert!(
        matches!(error.fault, Fault::TableFull { segments_max } if segments_max == Some(max)),
        "{error}"
    );
    assert_eq!(error.code(), "ENOSPC");
    assert!(error.cure().unwrap().contains("--segments"), "{error}");
    assert_eq!(core.volume_info().unwrap().free_bytes, free);
    core.delete(ME, ME.uid, "n3").unwrap();
    core.create(harness::ROOT, ME.uid, "more", &CreateOptions::of_size(1))
        .unwrap();
    assert_eq!(core.list(ME).unwrap().len() as u64, max);
}

/// What a device no longer gives is an error, never what the memory held before.
#[test]
fn a_short_read_of_the_table_is_not_filled_from_old_memory() {
    let mut f = fixture();
    let core = &mut f.core;
    core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&f.path).unwrap();
    file.set_len(0).unwrap();
    let error = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap_err();
    assert_eq!(error.code(), "EIO", "{error}");
}

/// The smallest and the oddest shapes that format takes.
#[test]
fn every_block_size_serves() {
    let dir = tempfile::tempdir().unwrap();
    for block_size in [4096, 8192, 16384, 65536] {
        let path = dir.path().join(format!("{block_size}.img"));
        let options = FormatOptions {
            size_bytes: Some(4 << 20),
            max_size_bytes: Some(64 << 20),
            block_size,
            ..FormatOptions::default()
        };
        Core::format(&path, &options).unwrap();
        let mut core = harness::open(&path);
        let info = core.create(ME, ME.uid, "a", &CreateOptions::of_size(1)).unwrap();
        assert_eq!(info.size_bytes, u64::from(block_size));
        let handle = open_write(&mut core, "a");
        let last = u64::from(block_size) - BLOCK as u64;
        write(&mut core, handle, last, &[1; BLOCK]).unwrap();
        assert!(write(&mut core, handle, last + BLOCK as u64, &[1; BLOCK]).is_err());
        run(&mut core, sync_request(handle)).result.unwrap();
        core.close().unwrap();
        assert_eq!(Core::inspect(&path, ME).unwrap().1, [info]);
    }
}
