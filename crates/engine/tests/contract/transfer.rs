//! Bytes go where they belong, all of them, and come back (docs/inside/engine.md rule 2).

use baio_engine::{
    Arena, Buffer, Caching, Engine, EngineOptions, Errno, Error, File, Memory, Notice, Open, Policy, Region, Request,
    Vectored, Wait,
};

use crate::backends::{
    Bench, Case, Stop, blank, buffer, bytes_of, direct, finish, next, own, pattern, policies, read, write,
};
use crate::device::small_tmpfs;

const SIZE: usize = 1 << 20;

pub(crate) fn what_is_written_is_read_at_every_offset(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let mut model = pattern(1, SIZE);
    let file = bench.file(&model);
    for policy in policies(&file) {
        let ranges: &[(usize, usize)] = match policy.caching {
            Caching::Direct => &[
                (0, 4096),
                (4096, 8192),
                (65536, 128 << 10),
                (SIZE - 4096, 4096),
                (0, SIZE),
            ],
            _ => &[
                (0, 1),
                (4095, 2),
                (12345, 54321),
                (65536, 128 << 10),
                (SIZE - 1, 1),
                (0, SIZE),
            ],
        };
        for (seed, &(offset, len)) in ranges.iter().enumerate() {
            let new = pattern(100 + seed as u64, len);
            model[offset..offset + len].copy_from_slice(&new);
            let written = write(&mut engine, &file, offset as u64, &new, policy);
            assert_eq!(written.result, Ok(len as u32), "{policy:?}");
            assert_eq!(written.bytes_done, len as u32);
            assert_eq!(bytes_of(&written.memory), new, "a write leaves its memory alone");
            let read = read(&mut engine, &file, offset as u64, len, policy);
            assert_eq!(read.result, Ok(len as u32));
            assert_eq!(read.took, policy.caching);
            assert!(
                bytes_of(&read.memory) == new,
                "other bytes came back at {offset} {policy:?}"
            );
        }
        let whole = read(&mut engine, &file, 0, SIZE, policy);
        assert!(bytes_of(&whole.memory) == model, "a write changed its neighbours");
    }
    assert_eq!(engine.stats().errors, 0);
    assert_eq!(engine.stats().requests, engine.stats().completions);
    Ok(())
}

pub(crate) fn end_of_file_inside_a_read_ends_it_there(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(2, 10_000);
    let file = bench.file(&bytes);
    for policy in policies(&file) {
        let read = read(&mut engine, &file, 4096, 16384, policy);
        assert_eq!(read.result, Ok(10_000 - 4096), "{policy:?}");
        assert_eq!(bytes_of(&read.memory)[..10_000 - 4096], bytes[4096..]);
        assert_eq!(bytes_of(&read.memory).len(), 16384, "the memory keeps its length");
    }
    Ok(())
}

pub(crate) fn a_read_past_the_end_is_zero_bytes(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(3, 8192));
    for policy in policies(&file) {
        for offset in [8192, 1 << 20, 1 << 40] {
            let read = read(&mut engine, &file, offset, 4096, policy);
            assert_eq!(read.result, Ok(0), "{offset} {policy:?}");
            assert_eq!(
                bytes_of(&read.memory),
                [0xa5; 4096],
                "nothing was read, so nothing may change"
            );
        }
    }
    Ok(())
}

pub(crate) fn zero_bytes_complete_at_once(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(4, 8192));
    for policy in policies(&file) {
        for request in [
            Request::read(&file, 4096, blank(&engine, 0), policy),
            Request::write(&file, 4096, blank(&engine, 0), policy),
            Request::write(&file, 4096, Memory::None, policy),
            Request::read(&file, 4096, Memory::Many(Vectored::default()), policy),
        ] {
            engine.submit(request).expect("a free slot");
            let done = engine.next_completion().expect("nothing is left to do");
            assert_eq!((done.result, done.iterations), (Ok(0), 0));
        }
    }
    Ok(())
}

fn list(engine: &baio_engine::Engine, lens: impl Iterator<Item = usize>, bytes: Option<&[u8]>) -> Memory {
    let mut parts = Vectored::default();
    let mut at = 0;
    for len in lens {
        let part = match bytes {
            Some(bytes) => buffer(engine, &bytes[at..at + len]),
            None => blank(engine, len),
        };
        at += len;
        parts.push(Memory::Own(part)).expect("a part is no list");
    }
    Memory::Many(parts)
}

fn joined(memory: &Memory) -> Vec<u8> {
    match memory {
        Memory::Many(parts) => parts.parts().iter().flat_map(|part| bytes_of(part).to_vec()).collect(),
        other => panic!("not a list: {other:?}"),
    }
}

pub(crate) fn a_list_is_written_and_read_in_order(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(5, SIZE));
    for policy in policies(&file) {
        let lens: &[usize] = match policy.caching {
            Caching::Direct => &[4096, 8192, 4096, 65536],
            _ => &[1, 4095, 0, 3, 70_000, 17],
        };
        let total = lens.iter().sum();
        let bytes = pattern(6, total);
        let memory = list(&engine, lens.iter().copied(), Some(&bytes));
        let written = finish(&mut engine, Request::write(&file, 8192, memory, policy));
        assert_eq!(written.result, Ok(total as u32));
        let memory = list(&engine, lens.iter().rev().copied(), None);
        let read = finish(&mut engine, Request::read(&file, 8192, memory, policy));
        assert_eq!(read.result, Ok(total as u32));
        assert!(joined(&read.memory) == bytes, "{policy:?}");
    }
    Ok(())
}

/// The kernel takes at most 1024 parts a call (IOV_MAX).
pub(crate) fn a_list_of_more_than_1024_parts_goes_on(bench: &Bench) -> Case {
    const PARTS: usize = 2500;
    let mut engine = bench.engine();
    let file = bench.file(&vec![0; PARTS * 4096]);
    for policy in policies(&file) {
        let len_of = |part: usize| match policy.caching {
            Caching::Direct => 4096,
            _ => 1 + part * 7 % 900,
        };
        let total: usize = (0..PARTS).map(len_of).sum();
        let bytes = pattern(7, total);
        let memory = list(&engine, (0..PARTS).map(len_of), Some(&bytes));
        let written = finish(&mut engine, Request::write(&file, 0, memory, policy));
        assert_eq!(
            (written.result, written.bytes_done),
            (Ok(total as u32), total as u32),
            "{policy:?}"
        );
        // Direct parts fill their pages, so that neighbours are one piece to the kernel.
        let is_one = policy.caching == Caching::Direct;
        assert!(
            !bench.has_files() || is_one || written.iterations >= 3,
            "{} iterations",
            written.iterations
        );
        drop(written);
        let memory = list(&engine, (0..PARTS).map(len_of), None);
        let read = finish(&mut engine, Request::read(&file, 0, memory, policy));
        assert_eq!(read.result, Ok(total as u32));
        assert!(joined(&read.memory) == bytes, "{policy:?}");
    }
    Ok(())
}

pub(crate) fn shared_memory_makes_the_round_trip(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(8, 65536));
    let region = Region::create(65536).expect("shared memory");
    let bytes = pattern(9, 8192);
    for policy in policies(&file) {
        let source = region.span(4096, 8192).expect("inside");
        let target = region.span(32768, 8192).expect("inside");
        source.copy_in(&bytes);
        target.copy_in(&[0; 8192]);
        let written = finish(&mut engine, Request::write(&file, 4096, Memory::Span(source), policy));
        assert_eq!(written.result, Ok(8192));
        let read = finish(
            &mut engine,
            Request::read(&file, 4096, Memory::Span(target.clone()), policy),
        );
        assert_eq!(read.result, Ok(8192));
        let mut seen = vec![0; 8192];
        target.copy_out(&mut seen);
        assert!(seen == bytes, "{policy:?}");
    }
    Ok(())
}

pub(crate) fn frozen_bytes_are_written_by_several_requests_at_once(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(10, 65536));
    let bytes = pattern(11, 4096);
    for policy in policies(&file) {
        let frozen = buffer(&engine, &bytes).freeze();
        for block in 0..8 {
            engine
                .submit(Request::write(&file, block * 8192, frozen.clone(), policy))
                .expect("a free slot");
        }
        for _ in 0..8 {
            assert_eq!(next(&mut engine).result, Ok(4096));
        }
        let thawed = frozen.thaw().expect("every request has given its share back");
        assert_eq!(&thawed[..], bytes);
        for block in 0..8 {
            let read = read(&mut engine, &file, block * 8192, 4096, policy);
            assert!(bytes_of(&read.memory) == bytes);
        }
    }
    Ok(())
}

/// The backend knows the file by a number, or why not: it never does, or this kernel cannot.
fn attached(engine: &mut Engine, file: &File) -> Result<(), Stop> {
    if engine.attach(file) {
        return Ok(());
    }
    let features = engine.explain().features;
    let lacks = features.into_iter().find(|(name, _)| *name == "registered_files");
    match lacks.and_then(|(_, had)| had.err()) {
        Some(why) => Err(Stop::Skipped(why)),
        // There is a table, and a policy lets nobody change it.
        None if crate::refused::is_child() => Err(Stop::Skipped("refused here".into())),
        None => Err(Stop::Refused("it registers nothing".into())),
    }
}

pub(crate) fn registered_memory_and_files_change_nothing(bench: &Bench) -> Case {
    let config = EngineOptions {
        register_arena: true,
        arena_bytes: 1 << 20,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let bytes = pattern(12, 65536);
    let file = bench.file(&bytes);
    attached(&mut engine, &file)?;
    for round in 0..2 {
        for policy in policies(&file) {
            let new = pattern(13 + round, 8192);
            let written = write(&mut engine, &file, 8192, &new, policy);
            assert_eq!(written.result, Ok(8192));
            let read = read(&mut engine, &file, 4096, 16384, policy);
            assert_eq!(read.result, Ok(16384));
            assert_eq!(bytes_of(&read.memory)[..4096], bytes[4096..8192]);
            assert_eq!(bytes_of(&read.memory)[4096..12288], new);
            assert_eq!(
                finish(&mut engine, Request::sync(&file, baio_engine::Durability::Full)).result,
                Ok(0)
            );
        }
        // The second round runs unregistered again.
        engine.detach(&file);
    }
    Ok(())
}

/// Pieces of registered memory, side by side and apart, and with foreign memory between them.
pub(crate) fn lists_of_registered_memory_change_nothing(bench: &Bench) -> Case {
    let config = EngineOptions {
        register_arena: true,
        arena_bytes: 1 << 20,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let foreign = Arena::new(1 << 20).expect("memory");
    let file = bench.file(&pattern(40, 65536));
    engine.attach(&file);
    for policy in policies(&file) {
        // Which of six pages of the arena the parts are; 6 is foreign.
        for (round, order) in [
            &[0, 1, 2][..],
            &[0, 2, 4],
            &[1, 2, 5, 4],
            &[0, 6, 1],
            &[6],
            &[3, 3 + 1, 6, 0, 1],
        ]
        .into_iter()
        .enumerate()
        {
            let list = |engine: &Engine| {
                let mut pages: Vec<_> = (0..6).map(|_| engine.buffer(4096)).collect();
                pages.push(foreign.buffer(4096));
                let mut list = Vectored::with_capacity(order.len());
                for &page in order {
                    let part = pages[page].take().expect("a page").into();
                    list.push(part).expect("no list");
                }
                Memory::Many(list)
            };
            let bytes = pattern(41 + round as u64, order.len() * 4096);
            let mut memory = list(&engine);
            fill_parts(&mut memory, &bytes);
            let written = finish(&mut engine, Request::write(&file, 8192, memory, policy));
            assert_eq!(written.result, Ok(bytes.len() as u32));
            drop(written);
            let memory = list(&engine);
            let read = finish(&mut engine, Request::read(&file, 8192, memory, policy));
            assert_eq!(read.result, Ok(bytes.len() as u32));
            assert!(crate::streams::joined(&read.memory) == bytes, "{order:?}");
        }
    }
    Ok(())
}

fn fill_parts(memory: &mut Memory, bytes: &[u8]) {
    let Memory::Many(list) = memory else { return };
    let mut parts: Vec<Memory> = list.drain().collect();
    for (part, bytes) in parts.iter_mut().zip(bytes.chunks(4096)) {
        if let Memory::Own(buffer) = part {
            buffer.copy_from_slice(bytes);
        }
    }
    for part in parts {
        list.push(part).expect("no list");
    }
}

/// How often in vain. A child that another case is starting has a copy of every descriptor until its exec, and Linux 6.1 lets go of what left
/// a ring's table a second later; what stays registered holds the lock for as long as the engine lives.
fn tries_to_lock(file: &File) -> Option<usize> {
    (0..500).position(|_| {
        let locked = file.try_lock(true);
        if locked.is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        locked.is_ok()
    })
}

/// Before Linux 6.13 the kernel closes none while a request waits on a registered file that began before.
pub(crate) fn a_detached_file_is_closed_beside_a_read_that_waits(bench: &Bench) -> Case {
    let path = bench.path()?;
    // Memory that is registered keeps files, too.
    let config = EngineOptions {
        register_arena: true,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = File::open(&path, &Open::write()).expect("a test file");
    attached(&mut engine, &file)?;
    let (pipe, writer) = bench.pipe()?;
    assert!(!engine.attach(&pipe), "a stream may let a request wait for ever");
    let waits = Request::read_stream(&pipe, blank(&engine, 16));
    engine.submit(waits).expect("a free slot");
    engine.turn(Wait::No).expect("a turn");
    assert!(tries_to_lock(&file).is_some(), "nobody holds the lock");
    engine.detach(&file);
    drop(file);
    let again = File::open(&path, &Open::write()).expect("a test file");
    assert!(tries_to_lock(&again).is_some(), "it is still open, with its lock");
    drop(writer);
    assert_eq!(next(&mut engine).result, Ok(0));
    Ok(())
}

/// What stays registered keeps the lock of a closed file.
pub(crate) fn a_file_attached_twice_is_let_go_by_one_detach(bench: &Bench) -> Case {
    let path = bench.path()?;
    let mut engine = bench.engine();
    let mut waited = 0;
    for _ in 0..200 {
        let file = File::open(&path, &Open::write()).expect("a test file");
        waited += i32::from(tries_to_lock(&file).expect("nobody holds the lock") > 0);
        if waited > 20 {
            break;
        }
        attached(&mut engine, &file)?;
        engine.attach(&file);
        engine.detach(&file);
    }
    Ok(())
}

pub(crate) fn uncached_requests_work_or_say_that_they_do_not(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(14, 65536));
    let policy = Policy {
        caching: Caching::Uncached,
        ..Policy::default()
    };
    let bytes = pattern(15, 5000);
    let lacks = || Err(Stop::Skipped("the file system has no RWF_DONTCACHE".into()));
    // The word of a policy is passed on.
    let is_refused = |result| match result {
        Err(Error::System(Errno::EOPNOTSUPP)) => true,
        Err(Error::System(Errno::ENOSYS | Errno::EINVAL | Errno::EPERM)) => crate::refused::is_child(),
        _ => false,
    };
    let written = write(&mut engine, &file, 77, &bytes, policy);
    if is_refused(written.result) {
        return lacks();
    }
    assert_eq!((written.result, written.took), (Ok(5000), Caching::Uncached));
    let read = read(&mut engine, &file, 77, 5000, policy);
    if crate::refused::is_child() && is_refused(read.result) {
        return lacks();
    }
    assert_eq!(read.result, Ok(5000));
    assert!(bytes_of(&read.memory) == bytes);
    Ok(())
}

pub(crate) fn a_full_device_tells_how_far_it_came(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (file, _mount, room) = if !bench.has_files() {
        (bench.file(&[0; 65536]), None, 32768)
    } else {
        let mount = small_tmpfs(32768)?;
        let file = File::open(
            &mount.path().join("file"),
            &Open {
                create: baio_engine::Create::New,
                ..Open::write()
            },
        );
        (file.expect("a file on tmpfs"), Some(mount), 32768)
    };
    let bytes = pattern(16, 65536);
    let full = write(&mut engine, &file, 65536 - room, &bytes, Policy::kernel());
    assert_eq!(full.result, Err(Error::System(Errno::ENOSPC)));
    assert!(
        full.bytes_done >= room as u32 && full.bytes_done < 65536,
        "{} bytes",
        full.bytes_done
    );
    let read = read(&mut engine, &file, 65536 - room, 65536, Policy::kernel());
    assert_eq!(read.result, Ok(full.bytes_done));
    let len = full.bytes_done as usize;
    assert!(bytes_of(&read.memory)[..len] == bytes[..len]);
    Ok(())
}

/// Thousands of requests, a handful of slots: each completes once, with its own bytes.
pub(crate) fn many_requests_go_through_few_slots(bench: &Bench) -> Case {
    const BLOCKS: u64 = 64;
    const REQUESTS: u64 = 5000;
    let config = EngineOptions {
        slots: 6,
        reserved_slots: 2,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let bytes = pattern(17, BLOCKS as usize * 4096);
    let file = bench.file(&bytes);
    let policy = direct(&file).unwrap_or(Policy::kernel());
    let mut spare: Vec<Buffer> = (0..4).map(|_| blank(&engine, 4096)).collect();
    let mut seen = vec![0_u8; REQUESTS as usize];
    let mut submitted = 0;
    for _ in 0..REQUESTS {
        while submitted < REQUESTS
            && let Some(memory) = spare.pop()
        {
            let block = submitted * 7 % BLOCKS;
            let request = Request::read(&file, block * 4096, memory, policy).tagged(submitted);
            match engine.submit(request) {
                Ok(_) => submitted += 1,
                Err(back) => {
                    spare.push(own(back.memory));
                    break;
                }
            }
        }
        let done = next(&mut engine);
        assert_eq!((done.notice, done.result), (Notice::Completed, Ok(4096)));
        let block = (done.tag * 7 % BLOCKS) as usize;
        assert!(
            bytes_of(&done.memory) == &bytes[block * 4096..][..4096],
            "request {} has another's bytes",
            done.tag
        );
        seen[done.tag as usize] += 1;
        spare.push(own(done.memory));
    }
    assert!(seen.iter().all(|&times| times == 1));
    assert_eq!(engine.stats().in_flight_max, 4);
    Ok(())
}
