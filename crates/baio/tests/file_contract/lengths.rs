//! Files that are made shorter and longer by request, and space that is set aside.

use baio::{Durability, Error, File, Mode, OpenOptions, Request};
use futures_util::future::{join, join_all};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, skip, write};

const MODES: [Mode; 4] = [Mode::Kernel, Mode::Direct, Mode::Cached, Mode::Uncached];

fn modes<L: Made>(bench: &Bench<L>) -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|&mode| bench.gives(mode).is_ok())
}

pub(crate) fn a_truncate_makes_it_shorter<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in modes(bench) {
        let path = bench.file("one", 16 * PAGE);
        let file = open(&link, &path, mode);
        assert_eq!(read(&file, 0, 16 * PAGE), bytes(16 * PAGE));
        for len in [9 * 4096, 8 * 4096 + 100, 4096, 7, 0] {
            assert_eq!(file.truncate(len).wait().unwrap().bytes, 0, "{mode:?}");
            assert_eq!(size(&file), len, "{mode:?}");
            assert_eq!(read(&file, 0, 16 * PAGE), bytes(16 * PAGE)[..len as usize], "{mode:?}");
        }
        file.sync(Durability::Data).wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 0], "{mode:?}");
    }
    Ok(())
}

/// What was cut off does not come back, whatever was cached of it.
pub(crate) fn a_truncate_makes_it_longer<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in modes(bench) {
        let path = bench.file("one", 4 * PAGE);
        let file = open(&link, &path, mode);
        write(&file, 4096, &[9; PAGE]);
        assert_eq!(read(&file, 0, 4 * PAGE).len(), 4 * PAGE);
        file.truncate(100).wait().unwrap();
        file.truncate(6 * 4096).wait().unwrap();
        let known = [&bytes(100)[..], &[0; 6 * PAGE - 100]].concat();
        assert_eq!(read(&file, 0, 8 * PAGE), known, "{mode:?}");
        write(&file, 5 * 4096, &[1; PAGE]);
        file.sync(Durability::Data).wait().unwrap();
        let there = std::fs::read(&path).unwrap();
        assert_eq!(there[..5 * PAGE], known[..5 * PAGE], "{mode:?}");
        assert_eq!(there[5 * PAGE..], [1; PAGE], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn a_cut_is_seen_by_every_handle<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    let (cached, kernel) = (open(&link, &path, Mode::Cached), open(&link, &path, Mode::Kernel));
    assert_eq!(read(&cached, 0, 8 * PAGE), bytes(8 * PAGE));
    write(&cached, 4 * 4096, &[9; PAGE]);
    kernel.truncate(2 * 4096).wait().unwrap();
    assert_eq!((read(&cached, 4096, 8 * PAGE).len(), size(&cached)), (PAGE, 8192));
    cached.truncate(4096).wait().unwrap();
    assert_eq!((read(&kernel, 0, 8 * PAGE).len(), size(&kernel)), (PAGE, 4096));
    cached.sync(Durability::Data).wait().unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes(8 * PAGE)[..PAGE],
        "what was changed behind it is not written"
    );
    Ok(())
}

/// Reads that are under way end: with what was there, or with what is left.
pub(crate) fn readers_live_through_truncates<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in modes(bench) {
        let path = bench.file("one", 64 * PAGE);
        let known = bytes(64 * PAGE);
        let file = open(&link, &path, mode);
        for len in [40_u64, 64, 3, 50, 0] {
            let reads = join_all((0..32_u64).map(|page| file.read_at(page * 2 * 4096, buffer(&link, &[0xee; PAGE]))));
            let (reads, cut) = link.block_on(join(reads, file.truncate(len * 4096))).unwrap();
            cut.unwrap();
            for (nth, done) in reads.into_iter().enumerate() {
                let (done, at) = (done.unwrap(), nth * 2 * PAGE);
                let got = &done.buffer[..done.bytes];
                let is_there = *got == known[at..at + got.len()] || got.iter().all(|byte| *byte == 0);
                assert!(is_there, "{mode:?}, page {}", nth * 2);
            }
            assert_eq!(size(&file), len * 4096, "{mode:?}");
        }
    }
    Ok(())
}

pub(crate) fn a_cancelled_truncate_cuts_nothing<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let mut cut = file.truncate(0);
    cut.cancel();
    assert_eq!(cut.wait().unwrap_err().error.code(), "ECANCELED");
    drop(file.truncate(0));
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

/// Done, or why this place cannot show it.
fn done<L: Made>(request: Request<L, ()>) -> Case {
    match request.wait().map_err(Error::from) {
        Ok(_) => Ok(()),
        Err(error) if error.code() == "EOPNOTSUPP" => skip(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn an_allocation_makes_it_longer<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in modes(bench) {
        // Of the one before, what was changed is still written.
        let path = bench.file(&format!("{mode:?}"), PAGE);
        let file = open(&link, &path, mode);
        done(file.allocate(0, 10 * 4096))?;
        assert_eq!(size(&file), 10 * 4096, "{mode:?}");
        assert_eq!(
            read(&file, 0, 16 * PAGE),
            [&bytes(PAGE)[..], &[0; 9 * PAGE]].concat(),
            "no byte changed, {mode:?}"
        );
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert!(blocks >= 10 * 8, "{mode:?}: {blocks} blocks");
        write(&file, 9 * 4096, &[1; PAGE]);
        assert_eq!(read(&file, 9 * 4096, PAGE), [1; PAGE], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn both_are_refused_where_nothing_may_change<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    for mode in modes(bench) {
        let file = OpenOptions::new().mode(mode).open(&link, &path).wait().unwrap();
        for request in [file.truncate(0), file.allocate(0, 8192)] {
            let failed = request.wait().unwrap_err();
            assert!(
                matches!(failed.error.fault, baio::Fault::ReadOnly),
                "{mode:?}: {failed}"
            );
        }
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn both_are_refused_of_a_pipe<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let file = open(&link, &path, Mode::Kernel);
    for request in [file.truncate(0), file.allocate(0, 8192)] {
        let failed = request.wait().unwrap_err();
        assert!(failed.error.to_string().contains(path.to_str().unwrap()), "{failed}");
    }
    Ok(())
}

pub(crate) fn a_durable_truncate<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file: File<L> = open(&link, &path, mode);
        for durability in [Durability::Data, Durability::Full] {
            let len = size(&file) / 2;
            file.truncate(len).durable(durability).wait().unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), len, "{mode:?}");
        }
    }
    Ok(())
}

/// Somebody opens it to begin anew, while another has it cached.
pub(crate) fn an_open_that_cuts_a_cached_file_is_seen<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    let cached = open(&link, &path, Mode::Cached);
    assert_eq!(read(&cached, 0, 8 * PAGE), bytes(8 * PAGE));
    write(&cached, 4 * 4096, &[9; PAGE]);
    let anew = OpenOptions::new().write().truncate().open(&link, &path).wait().unwrap();
    write(&anew, 0, b"anew");
    assert_eq!(read(&cached, 0, 8 * PAGE), b"anew");
    cached.sync(Durability::Data).wait().unwrap();
    drop((cached, anew));
    link.close().unwrap();
    assert_eq!(
        std::fs::read(path).unwrap(),
        b"anew",
        "what was changed before is not written behind it"
    );
    Ok(())
}
