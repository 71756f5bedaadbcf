//! Files that grow: by requests of every mode, from outside, and while others read.

use baio::{Durability, Mode};
use futures_util::future::join_all;

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, write};

fn grows<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    bench.gives(mode)?;
    let link = bench.link();
    let path = bench.file("one", PAGE);
    let file = open(&link, &path, mode);
    assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
    for page in 1..40_u64 {
        write(&file, page * 4096, &[page as u8; PAGE]);
        assert_eq!(size(&file), (page + 1) * 4096);
    }
    // Across the end.
    write(&file, 39 * 4096, &[77; 3 * PAGE]);
    assert_eq!(size(&file), 42 * 4096);
    assert_eq!(
        read(&file, 38 * 4096, 8 * PAGE),
        [vec![38; PAGE], vec![77; 3 * PAGE]].concat()
    );
    file.sync(Durability::Data).wait().unwrap();
    let there = std::fs::read(path).unwrap();
    assert_eq!((there.len(), &there[..PAGE]), (42 * PAGE, &bytes(PAGE)[..]));
    Ok(())
}

pub(crate) fn kernel_writes_grow_it<L: Made>(bench: &Bench<L>) -> Case {
    grows(bench, Mode::Kernel)
}

pub(crate) fn direct_writes_grow_it<L: Made>(bench: &Bench<L>) -> Case {
    grows(bench, Mode::Direct)
}

pub(crate) fn uncached_writes_grow_it<L: Made>(bench: &Bench<L>) -> Case {
    grows(bench, Mode::Uncached)
}

pub(crate) fn cached_writes_grow_it<L: Made>(bench: &Bench<L>) -> Case {
    grows(bench, Mode::Cached)
}

pub(crate) fn kernel_writes_behind_the_end_leave_zeros<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 10);
    let file = open(&link, &path, Mode::Kernel);
    write(&file, 10_000, &[5; 7]);
    let known = [bytes(10), vec![0; 9990], vec![5; 7]].concat();
    assert_eq!(read(&file, 0, 20_000), known);
    assert_eq!(size(&file), 10_007);
    Ok(())
}

/// Whoever reads through the cache sees what the same link has added behind the end.
pub(crate) fn cached_readers_see_what_a_kernel_write_adds<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 4 * PAGE);
    let reader = open(&link, &path, Mode::Cached);
    let writer = open(&link, &path, Mode::Kernel);
    assert_eq!(read(&reader, 0, 8 * PAGE), bytes(4 * PAGE));
    write(&writer, 4 * 4096, &[3; PAGE]);
    assert_eq!(size(&reader), 5 * 4096);
    assert_eq!(read(&reader, 4 * 4096, PAGE), [3; PAGE]);
    Ok(())
}

/// What was there before is read as it was, whatever comes behind it.
pub(crate) fn cached_readers_go_on_while_it_grows<L: Made>(bench: &Bench<L>) -> Case {
    const PAGES: usize = 64;
    let link = bench.link();
    let path = bench.file("one", PAGES * PAGE);
    let known = bytes(PAGES * PAGE);
    let reader = open(&link, &path, Mode::Cached);
    let writer = open(&link, &path, Mode::Kernel);
    for round in 0..20_usize {
        let reads = (0..16).map(|nth| {
            let page = (round * 16 + nth * 5) % PAGES;
            let (reader, known) = (&reader, &known[page * PAGE..(page + 1) * PAGE]);
            let buffer = buffer(&link, &[0; PAGE]);
            async move {
                let done = reader.read_exact_at((page * PAGE) as u64, buffer).await.unwrap();
                assert_eq!(&done.buffer[..], known, "page {page}");
            }
        });
        let growth = writer.write_at(((PAGES + round) * PAGE) as u64, buffer(&link, &[round as u8; PAGE]));
        let both = futures_util::future::join(join_all(reads), growth);
        let (_, grown) = link.block_on(both).unwrap();
        assert_eq!(grown.unwrap().bytes, PAGE);
    }
    assert_eq!(size(&reader), ((PAGES + 20) * PAGE) as u64);
    assert_eq!(read(&writer, ((PAGES + 19) * PAGE) as u64, PAGE), [19; PAGE]);
    Ok(())
}

pub(crate) fn growth_from_outside_is_read<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 100);
    for mode in [Mode::Kernel, Mode::Direct] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        let outside = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        outside.set_len(100).unwrap();
        assert_eq!(read(&file, 0, 2 * PAGE).len(), 100);
        outside.set_len(5000).unwrap();
        assert_eq!(read(&file, 0, 2 * PAGE).len(), 5000, "{mode:?}");
        assert_eq!(size(&file), 5000);
    }
    Ok(())
}
