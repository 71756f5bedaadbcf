//! Requests with several buffers.

use baio::{Buffer, Mode};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size};

const MODES: [Mode; 4] = [Mode::Kernel, Mode::Uncached, Mode::Direct, Mode::Cached];

pub(crate) fn buffers_lie_one_behind_the_other<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in MODES.into_iter().filter(|&mode| bench.gives(mode).is_ok()) {
        let path = bench.file("one", 8 * PAGE);
        let file = open(&link, &path, mode);
        let list = (1..=4).map(|byte| buffer(&link, &[byte; PAGE])).collect();
        assert_eq!(
            file.write_vectored_at(8192, list).wait().unwrap().bytes,
            4 * PAGE,
            "{mode:?}"
        );
        let known = [[1; PAGE], [2; PAGE], [3; PAGE], [4; PAGE]].concat();
        assert_eq!(read(&file, 8192, 4 * PAGE), known, "{mode:?}");
        let list = vec![buffer(&link, &[0; 2 * PAGE]), buffer(&link, &[0; 2 * PAGE])];
        let done = file.read_vectored_at(8192, list).wait().unwrap();
        assert_eq!((done.bytes, together(&done.buffer)), (4 * PAGE, known), "{mode:?}");
        file.sync(baio::Durability::Data).wait().unwrap();
    }
    Ok(())
}

fn together(list: &[Buffer]) -> Vec<u8> {
    list.iter().flat_map(|buffer| buffer.iter().copied()).collect()
}

pub(crate) fn buffers_of_several_lengths<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("new"));
    let file = baio::OpenOptions::new()
        .write()
        .create()
        .open(&link, &path)
        .wait()
        .unwrap();
    let known = bytes(10_000);
    let parts = [&known[..1], &known[1..1], &known[1..4097], &known[4097..]];
    let list = parts.iter().map(|part| buffer(&link, part)).collect();
    assert_eq!(file.write_vectored_at(7, list).wait().unwrap().bytes, 10_000);
    assert_eq!(size(&file), 10_007);
    let list = [9000, 3, 997].map(|len| buffer(&link, &vec![0; len])).into();
    let done = file.read_vectored_at(7, list).wait().unwrap();
    assert_eq!((done.bytes, together(&done.buffer)), (10_000, known));
    Ok(())
}

pub(crate) fn a_list_across_the_end_is_short<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE + 100));
    let file = open(&link, &path, Mode::Kernel);
    let list = || vec![buffer(&link, &[0; PAGE]), buffer(&link, &[0; PAGE])];
    let done = file.read_vectored_at(0, list()).wait().unwrap();
    assert_eq!((done.bytes, done.buffer.len()), (PAGE + 100, 2));
    assert_eq!(together(&done.buffer)[..done.bytes], bytes(PAGE + 100));
    let failed = file.read_vectored_at(0, list()).exact().wait().unwrap_err();
    assert_eq!(
        (failed.bytes_done, failed.buffer.map(|list| list.len())),
        (PAGE + 100, Some(2))
    );
    Ok(())
}

pub(crate) fn a_cached_list<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    let file = open(&link, &path, Mode::Cached);
    let list = [100, 5000, 1].map(|len| buffer(&link, &vec![6; len])).into();
    assert_eq!(file.write_vectored_at(50, list).wait().unwrap().bytes, 5101);
    let mut known = bytes(8 * PAGE);
    known[50..5151].fill(6);
    let list = [PAGE, 3 * PAGE, 6 * PAGE]
        .map(|len| buffer(&link, &vec![0; len]))
        .into();
    let done = file.read_vectored_at(0, list).wait().unwrap();
    assert_eq!(
        (done.bytes, &together(&done.buffer)[..8 * PAGE]),
        (8 * PAGE, &known[..])
    );
    Ok(())
}

pub(crate) fn an_empty_list<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    for mode in MODES.into_iter().filter(|&mode| bench.gives(mode).is_ok()) {
        let file = open(&link, &path, mode);
        let none = || Vec::<Buffer>::new();
        assert_eq!(file.read_vectored_at(0, none()).wait().unwrap().bytes, 0, "{mode:?}");
        assert_eq!(file.write_vectored_at(0, none()).wait().unwrap().bytes, 0, "{mode:?}");
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes(PAGE));
    Ok(())
}

pub(crate) fn the_buffers_come_back_in_order<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = baio::File::open(&link, &path).wait().unwrap();
    let list = (1..=5)
        .map(|byte| buffer(&link, &vec![byte; byte as usize * 10]))
        .collect();
    // Refused: the file was opened to read.
    let failed = file.write_vectored_at(0, list).wait().unwrap_err();
    let back = failed.buffer.unwrap();
    assert_eq!(back.len(), 5);
    for (nth, buffer) in (1_u8..).zip(&back) {
        assert_eq!(buffer[..], vec![nth; usize::from(nth) * 10]);
    }
    Ok(())
}
