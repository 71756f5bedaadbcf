//! Whose the memory of a request is: it comes back whatever happens, and misplaced memory is bounced only when asked.
//!
//! Other owned buffers (`Vec<u8>` and its kin) belong here as well.

use std::sync::Arc;

use baio::{Fault, Memory, Mode, OpenOptions};
use baio_engine::Region;

use crate::rig::{ARENA, Bench, Case, Made, PAGE, buffer, bytes, open, read, size};

pub(crate) fn the_buffer_comes_back_when_alignment_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 2 * PAGE));
    let file = open(&link, &path, Mode::Direct);
    for (offset, len) in [(1, PAGE), (0, 100)] {
        let failed = file.write_at(offset, buffer(&link, &vec![9; len])).wait().unwrap_err();
        assert_eq!(
            (failed.error.code(), failed.error.offset),
            ("EINVAL", Some(offset)),
            "{failed}"
        );
        assert_eq!(failed.buffer.unwrap()[..], vec![9; len]);
        let failed = file.read_at(offset, buffer(&link, &vec![9; len])).wait().unwrap_err();
        assert_eq!(failed.buffer.unwrap()[..], vec![9; len]);
    }
    Ok(())
}

pub(crate) fn the_buffer_comes_back_when_writing_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let free = link.arena_free_bytes();
    let file = OpenOptions::new().open(&link, &path).wait().unwrap();
    let failed = file.write_at(0, buffer(&link, b"back")).wait().unwrap_err();
    assert_eq!(failed.buffer.unwrap()[..], *b"back");
    assert_eq!(link.arena_free_bytes(), free);
    Ok(())
}

pub(crate) fn the_buffer_comes_back_when_the_mode_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let failed = file.write_at(0, buffer(&link, &[3; PAGE])).direct().wait().unwrap_err();
    assert_eq!(failed.buffer.unwrap()[..], [3; PAGE]);
    Ok(())
}

pub(crate) fn shared_memory_is_written_and_not_read_into<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        let frozen = buffer(&link, &[8; PAGE]).freeze();
        let writes = (0..3).map(|page| file.write_at(page * 4096, frozen.clone()));
        for written in link
            .block_on(futures_util::future::join_all(writes.collect::<Vec<_>>()))
            .unwrap()
        {
            assert_eq!(written.unwrap().buffer[..], [8; PAGE], "{mode:?}");
        }
        assert_eq!(read(&file, 0, 4 * PAGE)[..3 * PAGE], [8; 3 * PAGE], "{mode:?}");
        let into = Memory::Shared(frozen);
        let failed = file.read_at(0, into).wait().unwrap_err();
        assert_eq!(
            (failed.error.code(), failed.buffer.map(|back| back.len())),
            ("EFAULT", Some(PAGE)),
            "{mode:?}"
        );
    }
    Ok(())
}

pub(crate) fn all_memory_comes_back<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 16 * PAGE));
    let free = link.arena_free_bytes();
    assert_eq!(free, ARENA, "the cache has memory of its own");
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        for round in 0..100_u64 {
            let kept = file.read_at(round % 20 * 4096, buffer(&link, &[0; PAGE])).wait();
            drop(kept);
            drop(file.write_at(round % 16 * 4096, buffer(&link, &[1; PAGE])).wait());
        }
    }
    assert_eq!(link.arena_free_bytes(), free);
    assert!(link.buffer(ARENA * 4).is_err(), "there is no more than there is");
    Ok(())
}

/// Memory that begins one byte behind a page.
fn askew(bytes: &[u8]) -> (Arc<Region>, Memory) {
    let region = Region::create(bytes.len() + 2 * PAGE).unwrap();
    let span = region.span(1, bytes.len() as u32).unwrap();
    span.copy_in(bytes);
    (region, Memory::Span(span))
}

fn of(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_out_at(0, &mut bytes);
    bytes
}

pub(crate) fn misplaced_memory_is_refused_and_comes_back<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 2 * PAGE));
    let file = open(&link, &path, Mode::Direct);
    let failed = file.write_at(0, askew(&[6; PAGE]).1).wait().unwrap_err();
    assert_eq!(failed.error.code(), "EINVAL", "{failed}");
    assert_eq!(of(&failed.buffer.unwrap()), [6; PAGE]);
    assert_eq!(
        (read(&file, 0, PAGE), link.bounced()),
        (bytes(2 * PAGE)[..PAGE].to_vec(), (0, 0))
    );
    Ok(())
}

pub(crate) fn misplaced_memory_is_bounced_when_asked<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 2 * PAGE));
    let free = link.arena_free_bytes();
    let file = open(&link, &path, Mode::Direct);
    let done = file.read_at(0, askew(&[0; 4 * PAGE]).1).bounced().wait().unwrap();
    assert_eq!((done.bytes, done.buffer.len()), (2 * PAGE, 4 * PAGE));
    assert_eq!(of(&done.buffer)[..2 * PAGE], bytes(2 * PAGE));
    assert_eq!(link.bounced(), (1, 4 * 4096));
    assert_eq!(link.arena_free_bytes(), free);
    Ok(())
}

pub(crate) fn a_bounced_write_is_counted<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = open(&link, &path, Mode::Direct);
    for page in 0..3_u64 {
        let done = file
            .write_at(page * 4096, askew(&[5; PAGE]).1)
            .bounced()
            .wait()
            .unwrap();
        assert_eq!((done.bytes, of(&done.buffer)), (PAGE, vec![5; PAGE]));
    }
    assert_eq!(read(&file, 0, 3 * PAGE), [5; 3 * PAGE]);
    assert_eq!(link.bounced(), (3, 3 * 4096));
    Ok(())
}

pub(crate) fn what_need_not_bounce_is_not_counted<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        assert_eq!(
            file.read_at(0, buffer(&link, &[0; PAGE]))
                .bounced()
                .wait()
                .unwrap()
                .bytes,
            PAGE
        );
        if mode != Mode::Direct {
            // The kernel copies from anywhere, and so does the cache.
            assert_eq!(
                file.write_at(0, askew(&[5; PAGE]).1).bounced().wait().unwrap().bytes,
                PAGE,
                "{mode:?}"
            );
        }
    }
    assert_eq!(link.bounced(), (0, 0));
    Ok(())
}

pub(crate) fn a_bounce_without_room_fails_with_the_memory<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = open(&link, &path, Mode::Direct);
    let mut all = Vec::new();
    while let Ok(buffer) = link.buffer(PAGE) {
        all.push(buffer);
    }
    let failed = file.write_at(0, askew(&[5; PAGE]).1).bounced().wait().unwrap_err();
    assert!(
        matches!(failed.error.fault, Fault::NoMemory { asked: 4096 }),
        "{failed}"
    );
    assert!(of(&failed.buffer.unwrap()) == [5; PAGE]);
    all.pop();
    assert_eq!(
        file.write_at(0, askew(&[5; PAGE]).1).bounced().wait().unwrap().bytes,
        PAGE
    );
    assert_eq!((link.bounced().0, size(&file)), (1, 4 * 4096));
    Ok(())
}
