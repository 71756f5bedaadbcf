//! Many requests, many files.

use baio::{Backend, File, Mode, SegmentOp};
use futures_util::future::{join, join_all};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, skip, write};

fn joined_reads<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    let (link, path) = (bench.link_of_slots(16), bench.file("one", 200 * PAGE));
    let known = bytes(200 * PAGE);
    let file = open(&link, &path, mode);
    let reads = (0..200_u64).map(|page| file.read_exact_at(page * 4096, buffer(&link, &[0; PAGE])));
    let ended = link.block_on(join_all(reads)).unwrap();
    for (page, done) in ended.into_iter().enumerate() {
        assert_eq!(done.unwrap().buffer[..], known[page * PAGE..][..PAGE], "page {page}");
    }
    assert_eq!(link.in_flight(), 0);
    Ok(())
}

pub(crate) fn joined_reads_with_fewer_slots<L: Made>(bench: &Bench<L>) -> Case {
    joined_reads(bench, Mode::Kernel)
}

pub(crate) fn joined_cached_reads_with_fewer_slots<L: Made>(bench: &Bench<L>) -> Case {
    joined_reads(bench, Mode::Cached)
}

pub(crate) fn joined_writes_with_fewer_slots<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link_of_slots(16), bench.file("one", 200 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached, Mode::Direct] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        let byte = |page: usize| page as u8 ^ (mode as u8) << 6;
        let writes = (0..200).map(|page| file.write_at((page * PAGE) as u64, buffer(&link, &[byte(page); PAGE])));
        for done in link.block_on(join_all(writes)).unwrap() {
            assert_eq!(done.unwrap().bytes, PAGE);
        }
        file.sync(baio::Durability::Data).wait().unwrap();
        let there = std::fs::read(&path).unwrap();
        for page in 0..200 {
            assert_eq!(
                there[page * PAGE..][..PAGE],
                [byte(page); PAGE],
                "{mode:?}, page {page}"
            );
        }
    }
    Ok(())
}

pub(crate) fn a_file_is_read_and_written_at_once<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 128 * PAGE));
    let file = open(&link, &path, Mode::Kernel);
    for round in 1..5_u8 {
        let writes = (0..64_u64).map(|page| file.write_at(page * 4096, buffer(&link, &[round; PAGE])));
        let reads = (64..128_u64).map(|page| file.read_at(page * 4096, buffer(&link, &[0; PAGE])));
        let (written, read) = link.block_on(join(join_all(writes), join_all(reads))).unwrap();
        assert!(written.into_iter().all(|done| done.unwrap().bytes == PAGE));
        for (nth, done) in read.into_iter().enumerate() {
            assert_eq!(done.unwrap().buffer[..], bytes(128 * PAGE)[(64 + nth) * PAGE..][..PAGE]);
        }
    }
    assert_eq!(read(&file, 0, 64 * PAGE), [4; 64 * PAGE]);
    Ok(())
}

pub(crate) fn tickets_and_futures_share_a_link<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let submit = |page: u64| {
        let request = file.request(SegmentOp::Read { offset: page * 4096 }, buffer(&link, &[0; PAGE]));
        file.submit(request).unwrap()
    };
    let tickets: Vec<_> = (0..20).map(submit).collect();
    let reads = (20..40_u64).map(|page| file.read_at(page * 4096, buffer(&link, &[0; PAGE])));
    for (nth, done) in link.block_on(join_all(reads)).unwrap().into_iter().enumerate() {
        assert_eq!(done.unwrap().buffer[..], bytes(64 * PAGE)[(20 + nth) * PAGE..][..PAGE]);
    }
    for (page, ticket) in tickets.into_iter().enumerate() {
        let outcome = link.wait(ticket).unwrap().expect("its outcome");
        assert_eq!(outcome.result.unwrap(), 4096);
        assert_eq!(
            outcome.memory.into_buffer().unwrap()[..],
            bytes(64 * PAGE)[page * PAGE..][..PAGE]
        );
        assert!(link.wait(ticket).unwrap().is_none(), "it was taken");
    }
    Ok(())
}

/// One descriptor each, of the mode that was asked for.
pub(crate) fn many_files_on_one_core<L: Made>(bench: &Bench<L>) -> Case {
    const FILES: usize = 2000;
    if bench.backend != Backend::Uring {
        return skip("shown once for each link, over uring");
    }
    // The other rows of this process have files open too.
    const DESCRIPTORS: u64 = FILES as u64 + 500;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < DESCRIPTORS) {
        if limit.maximum.is_some_and(|hard| hard < DESCRIPTORS) {
            return skip(format!("it may open {:?} files (`ulimit -n`)", limit.maximum));
        }
        let more = rustix::process::Rlimit {
            current: Some(DESCRIPTORS),
            ..limit
        };
        setrlimit(Resource::Nofile, more).unwrap();
    }
    let link = bench.link();
    let paths: Vec<_> = (0..FILES).map(|nth| bench.path(&nth.to_string())).collect();
    let files: Vec<File<L>> = paths
        .iter()
        .map(|path| {
            baio::OpenOptions::new()
                .write()
                .create()
                .open(&link, path)
                .wait()
                .unwrap()
        })
        .collect();
    for part in (0..FILES).collect::<Vec<_>>().chunks(500) {
        let writes = part
            .iter()
            .map(|&nth| files[nth].write_at(0, buffer(&link, &bytes(nth % 300 + 1))));
        for (nth, done) in link.block_on(join_all(writes)).unwrap().into_iter().enumerate() {
            assert_eq!(done.unwrap().bytes, part[nth] % 300 + 1);
        }
    }
    for (nth, file) in files.iter().enumerate() {
        assert_eq!(read(file, 0, 400), bytes(nth % 300 + 1), "file {nth}");
    }
    write(&files[FILES - 1], 0, b"last");
    drop(files);
    link.close().unwrap();
    assert!(std::fs::read(&paths[FILES - 1]).unwrap().starts_with(b"last"));
    assert_eq!(std::fs::read(&paths[0]).unwrap(), bytes(1));
    Ok(())
}
