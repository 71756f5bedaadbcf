//! Reads and writes: across the end, at it and behind it, and the modes that carry them.

use baio::{Caching, Durability, Fault, Mode};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, try_read, write};

const MODES: [Mode; 4] = [Mode::Kernel, Mode::Uncached, Mode::Direct, Mode::Cached];

fn modes<L: Made>(bench: &Bench<L>) -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|&mode| bench.gives(mode).is_ok())
}

pub(crate) fn what_was_written_is_read<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in modes(bench) {
        let path = bench.file(&format!("{mode:?}"), 16 * PAGE);
        let file = open(&link, &path, mode);
        for page in [3_u64, 0, 15, 7] {
            write(&file, page * 4096, &[page as u8 + 1; PAGE]);
        }
        for page in [0_u64, 3, 7, 15] {
            assert_eq!(read(&file, page * 4096, PAGE), [page as u8 + 1; PAGE], "{mode:?}");
        }
        file.sync(Durability::Data).wait().unwrap();
        let there = std::fs::read(&path).unwrap();
        assert_eq!(there[3 * PAGE..4 * PAGE], [4; PAGE], "{mode:?}");
        assert_eq!(there[PAGE..3 * PAGE], bytes(16 * PAGE)[PAGE..3 * PAGE], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn a_read_across_the_end_is_short<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 3 * PAGE);
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        let done = file.read_at(8192, buffer(&link, &[0xee; 3 * PAGE])).wait().unwrap();
        assert_eq!(done.bytes, PAGE, "{mode:?}");
        assert_eq!(done.buffer.len(), 3 * PAGE, "the whole buffer comes back, {mode:?}");
        assert_eq!(done.buffer[..PAGE], bytes(3 * PAGE)[2 * PAGE..], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn a_read_at_the_end_is_empty<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    for mode in modes(bench) {
        assert_eq!(read(&open(&link, &path, mode), 4096, PAGE), [], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn a_read_behind_the_end_is_empty<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    for mode in modes(bench) {
        assert_eq!(read(&open(&link, &path, mode), 1 << 30, PAGE), [], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn no_bytes_are_no_failure<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        assert_eq!(read(&file, 0, 0), [], "{mode:?}");
        write(&file, 0, &[]);
        assert_eq!(file.read_exact_at(0, buffer(&link, &[])).wait().unwrap().bytes, 0);
        assert_eq!(file.read_at(0, Vec::<u8>::new()).wait().unwrap().bytes, 0, "{mode:?}");
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn an_exact_read_across_the_end_fails_with_the_buffer<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 2 * PAGE);
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        let failed = file
            .read_exact_at(4096, buffer(&link, &[0xee; 2 * PAGE]))
            .wait()
            .unwrap_err();
        let beyond = matches!(
            failed.error.fault,
            Fault::Beyond {
                len: 8192,
                size: 8192,
                write: false
            }
        );
        assert!(beyond, "{mode:?}: {failed}");
        assert_eq!((failed.error.offset, failed.bytes_done), (Some(4096), PAGE), "{mode:?}");
        let back = failed.buffer.unwrap();
        assert_eq!(back.len(), 2 * PAGE, "{mode:?}");
        assert_eq!(back[..PAGE], bytes(2 * PAGE)[PAGE..], "{mode:?}: what there was");
    }
    Ok(())
}

pub(crate) fn an_exact_read_behind_the_end_fails<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        for offset in [4096, 1 << 20] {
            let failed = file
                .read_exact_at(offset, buffer(&link, &[0; PAGE]))
                .wait()
                .unwrap_err();
            assert!(
                matches!(failed.error.fault, Fault::Beyond { write: false, .. }),
                "{mode:?}: {failed}"
            );
            assert_eq!(
                (failed.bytes_done, failed.buffer.map(|back| back.len())),
                (0, Some(PAGE)),
                "{mode:?}"
            );
        }
    }
    Ok(())
}

pub(crate) fn an_exact_read_up_to_the_end_is_done<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 2 * PAGE);
    for mode in modes(bench) {
        let done = open(&link, &path, mode)
            .read_exact_at(4096, buffer(&link, &[0; PAGE]))
            .wait()
            .unwrap();
        assert_eq!(
            (done.bytes, &done.buffer[..]),
            (PAGE, &bytes(2 * PAGE)[PAGE..]),
            "{mode:?}"
        );
    }
    Ok(())
}

pub(crate) fn a_hole_reads_as_zeros<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.path("sparse");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        assert_eq!(read(&file, (1 << 29) + 4096, 4 * PAGE), [0; 4 * PAGE], "{mode:?}");
    }
    Ok(())
}

pub(crate) fn an_offset_that_cannot_be_is_refused<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    for mode in modes(bench) {
        let file = open(&link, &path, mode);
        let offset = u64::MAX - 4095;
        let failed = file.write_at(offset, buffer(&link, &[1; PAGE])).wait().unwrap_err();
        let codes = ["EFBIG", "EINVAL", "ENOSPC"];
        assert!(codes.contains(&failed.error.code()), "{mode:?}: {failed}");
        assert_eq!(failed.buffer.unwrap()[..], [1; PAGE], "{mode:?}");
        match try_read(&file, offset, PAGE) {
            Ok(read) => assert_eq!(read, [], "{mode:?}"),
            Err(error) => assert!(codes.contains(&error.code()), "{mode:?}: {error}"),
        }
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn a_part_of_a_page_is_written<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in [Mode::Kernel, Mode::Uncached, Mode::Cached] {
        let path = bench.file(&format!("{mode:?}"), 3 * PAGE);
        let file = open(&link, &path, mode);
        write(&file, 4000, &[9; 200]);
        let mut known = bytes(3 * PAGE);
        known[4000..4200].fill(9);
        assert_eq!(read(&file, 0, 3 * PAGE), known, "{mode:?}");
        file.sync(Durability::Data).wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), known, "{mode:?}");
    }
    Ok(())
}

pub(crate) fn the_result_tells_what_carried_it<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    let took = |mode| {
        let read = open(&link, &path, mode).read_at(0, buffer(&link, &[0; PAGE])).wait();
        read.unwrap().took
    };
    assert_eq!(took(Mode::Kernel), Caching::Kernel);
    // Where the kernel cannot drop pages behind a request it keeps them.
    assert!(matches!(took(Mode::Uncached), Caching::Uncached | Caching::Kernel));
    bench.gives(Mode::Direct)?;
    assert!(matches!(took(Mode::Direct), Caching::Direct | Caching::Kernel));
    Ok(())
}

pub(crate) fn a_mode_of_one_request_does_not_stay<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let link = bench.link();
    let path = bench.file("one", 2 * PAGE);
    let file = open(&link, &path, Mode::Cached);
    let askew = |mode| file.read_at(1, buffer(&link, &[0; 10])).mode(mode).wait();
    assert_eq!(askew(Mode::Direct).unwrap_err().error.code(), "EINVAL");
    assert_eq!(file.read_at(1, buffer(&link, &[0; 10])).wait().unwrap().bytes, 10);
    assert_eq!(askew(Mode::Kernel).unwrap().bytes, 10);
    assert_eq!((file.default_mode(), size(&file)), (Mode::Cached, 8192));
    Ok(())
}
