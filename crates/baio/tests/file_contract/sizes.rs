//! Files of any size, in every mode: also those that are no multiple of a page or a sector.

use baio::{Mode, SegmentOp};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, try_write, write};

macro_rules! of_sizes {
    ($($mode:ident: $($case:ident = $len:expr,)*;)*) => {$($(
        pub(crate) fn $case<L: Made>(bench: &Bench<L>) -> Case {
            is_whole(bench, Mode::$mode, $len)
        }
    )*)*};
}

of_sizes! {
    Kernel:
        kernel_of_0 = 0,
        kernel_of_1 = 1,
        kernel_of_511 = 511,
        kernel_of_4095 = 4095,
        kernel_of_4097 = 4097,
        kernel_of_a_mebibyte_and_3 = (1 << 20) + 3,;
    Direct:
        direct_of_0 = 0,
        direct_of_1 = 1,
        direct_of_511 = 511,
        direct_of_4095 = 4095,
        direct_of_4097 = 4097,
        direct_of_a_mebibyte_and_3 = (1 << 20) + 3,;
    Cached:
        cached_of_0 = 0,
        cached_of_1 = 1,
        cached_of_511 = 511,
        cached_of_4095 = 4095,
        cached_of_4097 = 4097,
        cached_of_a_mebibyte_and_3 = (1 << 20) + 3,;
    Uncached:
        uncached_of_0 = 0,
        uncached_of_1 = 1,
        uncached_of_511 = 511,
        uncached_of_4095 = 4095,
        uncached_of_4097 = 4097,
        uncached_of_a_mebibyte_and_3 = (1 << 20) + 3,;
}

/// Read whole, in part and rewritten, it is what it was, and no byte longer.
fn is_whole<L: Made>(bench: &Bench<L>, mode: Mode, len: usize) -> Case {
    bench.gives(mode)?;
    let (path, link) = (bench.file("one", len), bench.link());
    let file = open(&link, &path, mode);
    let known = bytes(len);
    assert_eq!(size(&file), len as u64);
    let room = len.next_multiple_of(PAGE) + PAGE;
    assert_eq!(read(&file, 0, room), known, "all of it");
    for at in (0..len).step_by(PAGE * 100).chain([len / PAGE * PAGE]) {
        let end = len.min(at + PAGE);
        assert_eq!(read(&file, at as u64, PAGE), known[at..end], "at {at}");
    }
    if mode == Mode::Direct {
        // Whole sectors only: of the rest it is told.
        let whole = len / PAGE * PAGE;
        write(&file, 0, &vec![7; whole]);
        assert_eq!(read(&file, 0, room)[..whole], vec![7; whole]);
        let rest = &known[whole..];
        let Err(error) = try_write(&file, whole as u64, rest) else {
            assert_eq!(rest.len() % 512, 0, "a part of a sector was written directly");
            return Ok(());
        };
        assert_eq!(error.code(), "EINVAL", "{error}");
    } else {
        write(&file, 0, &vec![7; len]);
        assert_eq!(read(&file, 0, room), vec![7; len], "written over");
        let last = len.saturating_sub(1) as u64;
        let request = file.request(SegmentOp::Read { offset: last }, buffer(&link, &[0; 5]));
        assert_eq!(file.run(request).wait().unwrap().bytes, len.min(1));
        file.sync(baio::Durability::Data).wait().unwrap();
    }
    assert_eq!(size(&file), len as u64, "no byte longer");
    drop(file);
    link.close().unwrap();
    assert_eq!(std::fs::read(path).unwrap().len(), len);
    Ok(())
}

/// Whole pages, and more of them than the cache has.
pub(crate) fn cached_of_whole_pages<L: Made>(bench: &Bench<L>) -> Case {
    is_whole(bench, Mode::Cached, PAGE)?;
    is_whole(bench, Mode::Cached, 2 << 20)
}
