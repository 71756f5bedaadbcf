//! Ranges that are given back or made zero.

use baio::{Durability, Error, Fault, File, Mode, OpenOptions, Request};

use crate::rig::{Bench, Case, Made, PAGE, bytes, open, read, size, skip, write};

/// Done, or why this place cannot show it.
fn done<L: Made>(request: Request<L, ()>) -> Case {
    match request.wait().map_err(Error::from) {
        Ok(_) => Ok(()),
        Err(error) if error.code() == "EOPNOTSUPP" => skip(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

fn is_zeros<L: Made>(bench: &Bench<L>, ask: fn(&File<L>, u64, u64) -> Request<L, ()>, mode: Mode) -> Case {
    bench.gives(mode)?;
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    let file = open(&link, &path, mode);
    let mut known = bytes(8 * PAGE);
    assert_eq!(read(&file, 0, 8 * PAGE), known);
    done(ask(&file, 4096, 3 * 4096))?;
    known[PAGE..4 * PAGE].fill(0);
    assert_eq!(read(&file, 0, 8 * PAGE), known);
    write(&file, 8192, &[1; PAGE]);
    known[2 * PAGE..3 * PAGE].fill(1);
    file.sync(Durability::Data).wait().unwrap();
    assert_eq!((std::fs::read(&path).unwrap(), size(&file)), (known, 8 * 4096));
    Ok(())
}

pub(crate) fn a_discarded_range_is_zeros<L: Made>(bench: &Bench<L>) -> Case {
    is_zeros(bench, |file, offset, len| file.discard(offset, len), Mode::Kernel)?;
    is_zeros(bench, |file, offset, len| file.discard(offset, len), Mode::Direct)
}

pub(crate) fn a_zeroed_range_is_zeros<L: Made>(bench: &Bench<L>) -> Case {
    is_zeros(bench, |file, offset, len| file.zero(offset, len), Mode::Kernel)?;
    is_zeros(bench, |file, offset, len| file.zero(offset, len), Mode::Direct)
}

pub(crate) fn a_cached_range_is_zeroed<L: Made>(bench: &Bench<L>) -> Case {
    is_zeros(bench, |file, offset, len| file.zero(offset, len), Mode::Cached)?;
    is_zeros(bench, |file, offset, len| file.discard(offset, len), Mode::Cached)
}

pub(crate) fn a_discard_keeps_the_size<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = open(&link, &path, Mode::Kernel);
    done(file.discard(2 * 4096, 16 * 4096))?;
    assert_eq!(size(&file), 4 * 4096);
    assert_eq!(
        read(&file, 0, 8 * PAGE),
        [&bytes(4 * PAGE)[..2 * PAGE], &[0; 2 * PAGE]].concat()
    );
    Ok(())
}

pub(crate) fn an_empty_range_is_no_failure<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        file.discard(0, 0).wait().unwrap();
        file.zero(4096, 0).wait().unwrap();
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn a_range_askew_is_refused_of_a_direct_file<L: Made>(bench: &Bench<L>) -> Case {
    bench.gives(Mode::Direct)?;
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = open(&link, &path, Mode::Direct);
    for request in [file.discard(1, 4096), file.zero(0, 4095)] {
        let failed = request.wait().unwrap_err();
        assert_eq!(failed.error.code(), "EINVAL", "{failed}");
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(4 * PAGE));
    Ok(())
}

pub(crate) fn a_handle_to_read_refuses_both<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = OpenOptions::new().mode(mode).open(&link, &path).wait().unwrap();
        for request in [file.discard(0, 4096), file.zero(0, 4096)] {
            let failed = request.wait().unwrap_err();
            assert!(matches!(failed.error.fault, Fault::ReadOnly), "{mode:?}: {failed}");
        }
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(4 * PAGE));
    Ok(())
}
