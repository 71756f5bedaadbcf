//! Every place in a file: sector edges, the end and behind it, 2 GiB, 4 GiB, and the last byte that an offset can name.

use baio_engine::{
    Caching, Durability, Engine, Errno, Error, File, Memory, Op, Open, Policy, Region, Request, Vectored,
};

use crate::backends::{Bench, Case, Stop, blank, bytes_of, direct, pattern, policies, read, write};

/// A mode in which to make a request, and the alignment it needs.
fn modes(file: &File) -> Vec<(Policy, usize)> {
    let need = |policy: Policy| match policy.caching {
        Caching::Direct => file.direct_limits().offset as usize,
        _ => 1,
    };
    policies(file).map(|policy| (policy, need(policy))).collect()
}

fn mode(file: &File, caching: Caching) -> Result<(Policy, usize), Stop> {
    let wanted = modes(file).into_iter().find(|(policy, _)| policy.caching == caching);
    wanted.ok_or_else(|| Stop::Skipped("the file system has no direct I/O".into()))
}

/// A file without blocks. A simulated disk is as sparse; others have memory for every byte.
pub(crate) fn sparse(bench: &Bench, size: u64) -> Result<File, Stop> {
    const IN_MEMORY_MAX: u64 = 256 << 20;
    if let Some((_, file)) = bench.disk(size) {
        return Ok(file);
    }
    if !bench.has_files() && size <= IN_MEMORY_MAX {
        return Ok(bench.file(&vec![0; size as usize]));
    }
    let file = File::open(&bench.path()?, &Open::write()).expect("a test file");
    match file.set_size(size) {
        Ok(()) => Ok(file),
        Err(errno) => Err(Stop::Skipped(format!("no sparse file of {size} bytes: {errno}"))),
    }
}

fn round_trip(engine: &mut Engine, file: &File, offset: u64, len: usize, policy: Policy) {
    let bytes = pattern(offset ^ len as u64, len);
    let done = write(engine, file, offset, &bytes, policy);
    assert_eq!(done.result, Ok(len as u32), "{len} bytes at {offset} {policy:?}");
    let done = read(engine, file, offset, len, policy);
    assert_eq!(done.result, Ok(len as u32), "{len} bytes at {offset} {policy:?}");
    assert!(bytes_of(&done.memory) == bytes, "other bytes at {offset} {policy:?}");
}

/// Around a border: before it, over it, from it on, in steps of what the mode needs.
fn around(bench: &Bench, border: u64) -> Case {
    let file = sparse(bench, border + (1 << 20))?;
    let mut engine = bench.engine();
    for (policy, need) in modes(&file) {
        let step = need.max(1) as u64;
        let border = border.max(3 * step);
        for (before, len) in [(1, 1), (1, 2), (0, 1), (2, 5), (3, 3), (0, 64)] {
            round_trip(&mut engine, &file, border - before * step, len * need, policy);
        }
    }
    Ok(())
}

pub(crate) fn around_the_first_sector(bench: &Bench) -> Case {
    around(bench, 512 * 8)
}

pub(crate) fn around_a_mebibyte(bench: &Bench) -> Case {
    around(bench, 1 << 20)
}

pub(crate) fn around_two_gib(bench: &Bench) -> Case {
    around(bench, 2 << 30)
}

pub(crate) fn around_four_gib(bench: &Bench) -> Case {
    around(bench, 4 << 30)
}

pub(crate) fn around_a_tebibyte(bench: &Bench) -> Case {
    around(bench, 1 << 40)
}

pub(crate) fn at_every_sector_edge_with_every_small_length(bench: &Bench) -> Case {
    let file = bench.file(&pattern(1, 65536));
    let mut engine = bench.engine();
    for (policy, need) in modes(&file) {
        for edge in [0, 512, 1024, 4096, 8192] {
            for (before, len) in [(0, 1), (1, 1), (1, 2), (1, 513), (511, 1024), (0, 512)] {
                let offset = (edge + 512_u64).saturating_sub(before) / need as u64 * need as u64;
                round_trip(&mut engine, &file, offset, usize::next_multiple_of(len, need), policy);
            }
        }
    }
    Ok(())
}

pub(crate) fn one_byte_changes_and_its_neighbours_stay(bench: &Bench) -> Case {
    let mut model = pattern(2, 16384);
    let file = bench.file(&model);
    let mut engine = bench.engine();
    for offset in [0, 1, 511, 512, 4095, 4096, 12_287, 16_383] {
        model[offset] = !model[offset];
        assert_eq!(
            write(
                &mut engine,
                &file,
                offset as u64,
                &model[offset..=offset],
                Policy::kernel()
            )
            .result,
            Ok(1)
        );
    }
    let whole = read(&mut engine, &file, 0, 16384, Policy::kernel());
    assert!(bytes_of(&whole.memory) == model);
    Ok(())
}

pub(crate) fn near_the_largest_offset_reads_are_empty(bench: &Bench) -> Case {
    let file = bench.file(&pattern(3, 8192));
    let mut engine = bench.engine();
    for (policy, need) in modes(&file) {
        let len = need.max(1);
        let last = (i64::MAX as u64 - len as u64) / need as u64 * need as u64;
        for offset in [last, last - (1 << 32), 1 << 62] {
            let offset = offset / need as u64 * need as u64;
            let done = read(&mut engine, &file, offset, len, policy);
            let behind_what_the_file_system_has =
                matches!(done.result, Err(Error::System(Errno::EINVAL | Errno::EFBIG)));
            assert!(
                done.result == Ok(0) || behind_what_the_file_system_has,
                "{offset} {policy:?}: {:?}",
                done.result
            );
            assert!(bytes_of(&done.memory).iter().all(|&byte| byte == 0xa5));
        }
    }
    Ok(())
}

pub(crate) fn near_the_largest_offset_writes_fail_and_change_nothing(bench: &Bench) -> Case {
    let bytes = pattern(4, 8192);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    for (policy, need) in modes(&file) {
        let last = (i64::MAX as u64 - need as u64) / need as u64 * need as u64;
        let done = write(&mut engine, &file, last, &vec![1; need], policy);
        let told = done.result.expect_err("no file is that large").errno();
        assert!([Errno::EFBIG, Errno::ENOSPC, Errno::EINVAL].contains(&told), "{told:?}");
        assert_eq!(done.bytes_done, 0);
    }
    let whole = read(&mut engine, &file, 0, 16384, Policy::kernel());
    assert_eq!(whole.result, Ok(8192));
    assert!(bytes_of(&whole.memory)[..8192] == bytes);
    Ok(())
}

pub(crate) fn a_byte_behind_the_largest_offset_is_refused(bench: &Bench) -> Case {
    let file = bench.file(&pattern(5, 8192));
    let mut engine = bench.engine();
    let last = i64::MAX as u64;
    for (offset, len) in [
        (last, 1),
        (last - 1, 2),
        (last - 4095, 4097),
        (1 << 63, 1),
        (u64::MAX, 1),
    ] {
        let done = read(&mut engine, &file, offset, len, Policy::kernel());
        assert_eq!(
            (done.result, done.iterations),
            (Err(Error::System(Errno::EFBIG)), 0),
            "{offset}"
        );
        let done = write(&mut engine, &file, offset, &vec![0; len], Policy::kernel());
        assert_eq!(
            (done.result, done.iterations),
            (Err(Error::System(Errno::EFBIG)), 0),
            "{offset}"
        );
    }
    Ok(())
}

/// The file is two blocks and a half; what is read begins at `offset`, and `expected` bytes of it are there.
fn ends(bench: &Bench, caching: Caching, offset: u64, len: usize, expected: usize) -> Case {
    let bytes = pattern(6, 10_240);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    let (policy, need) = mode(&file, caching)?;
    let (offset, len) = (offset / need as u64 * need as u64, len.next_multiple_of(need));
    let expected = match need {
        ..=512 => expected,
        // Sectors larger than the case was made for.
        _ => bytes.len().saturating_sub(offset as usize).min(len),
    };
    let done = read(&mut engine, &file, offset, len, policy);
    assert_eq!((done.result, done.bytes_done), (Ok(expected as u32), expected as u32));
    let (there, rest) = bytes_of(&done.memory).split_at(expected);
    assert!(there == bytes.get(offset as usize..).map_or(&[][..], |from| &from[..expected]));
    if caching == Caching::Kernel || expected == 0 {
        assert!(
            rest.iter().all(|&byte| byte == 0xa5),
            "bytes behind the end were touched"
        );
    }
    Ok(())
}

macro_rules! ends {
    ($($case:ident($offset:expr, $len:expr, $expected:expr))*) => {
        pub(crate) mod a_cached_read {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                ends(bench, Caching::Kernel, $offset, $len, $expected)
            })*
        }
        pub(crate) mod a_direct_read {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                ends(bench, Caching::Direct, $offset, $len, $expected)
            })*
        }
    };
}

ends! {
    that_ends_before_the_end(0, 8192, 8192)
    that_ends_at_the_end(8192, 2048, 2048)
    over_the_end(4096, 8192, 6144)
    from_the_last_sector_on(9728, 4096, 512)
    far_over_the_end(0, 1 << 20, 10_240)
    at_the_end(10_240, 4096, 0)
    behind_the_end(12_288, 4096, 0)
    far_behind_the_end(1 << 40, 65536, 0)
}

pub(crate) fn no_bytes_anywhere_are_no_bytes(bench: &Bench) -> Case {
    let file = bench.file(&pattern(7, 8192));
    let mut engine = bench.engine();
    for (policy, _) in modes(&file) {
        for offset in [0, 4096, 8192, 1 << 40, i64::MAX as u64 & !4095] {
            for request in [
                Request::read(&file, offset, blank(&engine, 0), policy),
                Request::write(&file, offset, blank(&engine, 0), policy),
            ] {
                let done = finish!(engine, request);
                assert_eq!((done.result, done.iterations), (Ok(0), 0), "{offset} {policy:?}");
            }
        }
    }
    assert_eq!(file.size(), Ok(8192));
    Ok(())
}

fn only_files(bench: &Bench) -> Case {
    bench.path().map(drop)
}

pub(crate) fn a_write_over_the_end_makes_the_file_longer(bench: &Bench) -> Case {
    only_files(bench)?;
    let mut engine = bench.engine();
    for caching in [Caching::Kernel, Caching::Direct] {
        let file = bench.file(&pattern(8, 10_000));
        let Ok((policy, need)) = mode(&file, caching) else {
            continue;
        };
        let offset = 9999 / need as u64 * need as u64;
        let len = usize::next_multiple_of(8000, need);
        round_trip(&mut engine, &file, offset, len, policy);
        assert_eq!(file.size(), Ok(offset + len as u64), "{caching:?}");
        let start = read(&mut engine, &file, 0, 4096, Policy::kernel());
        assert!(bytes_of(&start.memory) == &pattern(8, 10_000)[..4096]);
    }
    Ok(())
}

pub(crate) fn a_write_behind_the_end_leaves_a_hole_of_zeros(bench: &Bench) -> Case {
    only_files(bench)?;
    let mut engine = bench.engine();
    for caching in [Caching::Kernel, Caching::Direct] {
        let file = bench.file(&pattern(9, 4096));
        let Ok((policy, _)) = mode(&file, caching) else {
            continue;
        };
        round_trip(&mut engine, &file, 1 << 20, 4096, policy);
        for (policy, _) in modes(&file) {
            let hole = read(&mut engine, &file, 4096, (1 << 20) - 4096, policy);
            assert_eq!(hole.result, Ok((1 << 20) - 4096));
            assert!(bytes_of(&hole.memory).iter().all(|&byte| byte == 0), "{policy:?}");
        }
    }
    Ok(())
}

pub(crate) fn a_file_that_shrank_ends_earlier(bench: &Bench) -> Case {
    only_files(bench)?;
    let file = bench.file(&pattern(10, 65536));
    let mut engine = bench.engine();
    for size in [40_960, 4096, 0] {
        file.set_size(size).expect("a shorter file");
        for (policy, _) in modes(&file) {
            assert_eq!(
                read(&mut engine, &file, 0, 65536, policy).result,
                Ok(size as u32),
                "{policy:?}"
            );
        }
    }
    Ok(())
}

pub(crate) fn what_one_mode_wrote_the_other_reads(bench: &Bench) -> Case {
    let file = bench.file(&vec![0; 65536]);
    let direct = direct(&file)?;
    let mut engine = bench.engine();
    for (seed, [from, to]) in [[Policy::kernel(), direct], [direct, Policy::kernel()]]
        .into_iter()
        .enumerate()
    {
        // The page is in the cache, so that a direct write has to drop it.
        assert_eq!(read(&mut engine, &file, 8192, 4096, Policy::kernel()).result, Ok(4096));
        let bytes = pattern(20 + seed as u64, 4096);
        assert_eq!(write(&mut engine, &file, 8192, &bytes, from).result, Ok(4096));
        let done = read(&mut engine, &file, 8192, 4096, to);
        assert!(bytes_of(&done.memory) == bytes, "{from:?} to {to:?}");
    }
    Ok(())
}

pub(crate) fn a_synced_file_reads_the_same_through_another_description(bench: &Bench) -> Case {
    let path = bench.path()?;
    let file = File::open(&path, &Open::write()).expect("a test file");
    let mut engine = bench.engine();
    for (policy, _) in modes(&file) {
        let bytes = pattern(30, 8192);
        assert_eq!(write(&mut engine, &file, 0, &bytes, policy).result, Ok(8192));
        assert_eq!(finish!(engine, Request::sync(&file, Durability::Full)).result, Ok(0));
        assert!(std::fs::read(&path).expect("a test file")[..8192] == bytes);
    }
    Ok(())
}

/// The kernel moves at most 0x7ffff000 bytes in one call, so this takes two. One page of shared memory stands for most of
/// the list: it needs no memory, and what was read is told by the last part, a buffer of its own.
fn past_two_gib(bench: &Bench, caching: Caching) -> Case {
    const PART: u64 = 32 << 20;
    const PARTS: u64 = 67;
    let total = PART * PARTS;
    unless_shown_elsewhere()?;
    if !bench.has_files() && caching == Caching::Kernel {
        return Err(Stop::Refused("its modes are all one".into()));
    }
    let (file, _kept) = match caching {
        // Holes of a tmpfs take no memory when they are read; other file systems fill the page cache with zeros.
        Caching::Kernel if bench.has_files() => {
            let kept = on_tmpfs()?;
            let file = File::open(kept.path(), &Open::write()).expect("a test file");
            file.set_size(total).expect("a sparse file");
            (file, Some(kept))
        }
        _ => (sparse(bench, total)?, None),
    };
    let (policy, _) = mode(&file, caching)?;
    let mut engine = bench.engine();
    let marks = [0, 0x7fff_f000 - 4096, 0x7fff_f000, 0x8000_0000, total - 4096];
    for mark in marks {
        assert_eq!(
            write(&mut engine, &file, mark, &pattern(mark, 4096), Policy::kernel()).result,
            Ok(4096)
        );
    }
    let region = Region::create(PART as usize).expect("shared memory");
    let mut list = Vectored::default();
    for _ in 0..PARTS - 1 {
        list.push(Memory::Span(region.span(0, PART as u32).expect("inside")))
            .expect("a part");
    }
    let last = Region::create(PART as usize).expect("shared memory");
    let last = last.span(0, PART as u32).expect("inside");
    list.push(Memory::Span(last.clone())).expect("a part");
    let done = finish!(engine, Request::read(&file, 0, Memory::Many(list), policy));
    assert_eq!((done.result, u64::from(done.bytes_done)), (Ok(total as u32), total));
    let mut end = vec![0; PART as usize];
    last.copy_out(&mut end);
    let mut expected = vec![0; PART as usize];
    expected[PART as usize - 4096..].copy_from_slice(&pattern(total - 4096, 4096));
    assert!(end == expected, "other bytes in the last part");
    Ok(())
}

pub(crate) fn a_direct_read_goes_past_two_gib(bench: &Bench) -> Case {
    past_two_gib(bench, Caching::Direct)
}

pub(crate) fn a_cached_read_goes_past_two_gib(bench: &Bench) -> Case {
    past_two_gib(bench, Caching::Kernel)
}

/// Gigabytes are moved once, not again in each bad environment, nor under each refusal.
fn unless_shown_elsewhere() -> Case {
    match crate::environment::is_entered() || crate::refused::is_child() {
        true => Err(Stop::Skipped("shown in the usual environment".into())),
        false => Ok(()),
    }
}

fn on_tmpfs() -> Result<tempfile::NamedTempFile, Stop> {
    tempfile::NamedTempFile::new_in("/dev/shm").map_err(|error| Stop::Skipped(format!("/dev/shm: {error}")))
}

/// Written from one shared buffer over and over, so it needs room on the disk only; tmpfs has that.
pub(crate) fn a_write_goes_past_two_gib(bench: &Bench) -> Case {
    const PART: u64 = 8 << 20;
    const PARTS: u64 = 260;
    only_files(bench)?;
    unless_shown_elsewhere()?;
    let available = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = available.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    if kib.is_none_or(|kib| kib < 8 << 20) {
        return Err(Stop::Skipped("needs 8 GiB of available memory".into()));
    }
    // One at a time: four backends at once would need four times as much.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let target =
        tempfile::NamedTempFile::new_in("/dev/shm").map_err(|error| Stop::Skipped(format!("/dev/shm: {error}")))?;
    let file = File::open(target.path(), &Open::write()).expect("a test file");
    let mut engine = bench.engine();
    let frozen = crate::backends::buffer(&engine, &pattern(1, PART as usize)).freeze();
    let mut list = Vectored::default();
    for _ in 0..PARTS {
        list.push(Memory::Shared(frozen.clone())).expect("a part");
    }
    let done = finish!(engine, Request::write(&file, 0, Memory::Many(list), Policy::kernel()),);
    if done.result == Err(Error::System(Errno::ENOSPC)) {
        return Err(Stop::Skipped("/dev/shm is too small".into()));
    }
    assert_eq!(
        (done.result, u64::from(done.bytes_done)),
        (Ok((PART * PARTS) as u32), PART * PARTS)
    );
    assert!(done.iterations >= 2, "the kernel takes less than 2 GiB a call");
    for part in [0, 1, 255, 256, PARTS - 1] {
        let done = read(&mut engine, &file, part * PART, PART as usize / 2, Policy::kernel());
        assert!(bytes_of(&done.memory) == &frozen[..PART as usize / 2], "part {part}");
    }
    Ok(())
}

pub(crate) fn a_range_is_synced_wherever_it_lies(bench: &Bench) -> Case {
    let file = bench.file(&pattern(40, 65536));
    let mut engine = bench.engine();
    for (offset, len) in [
        (0, 0),
        (0, 65536),
        (1, 1),
        (4096, 1 << 40),
        (1 << 40, 4096),
        (0, i64::MAX as u64),
    ] {
        let range = Request::bare(Op::SyncRange { offset, len }, Some(&file), Policy::kernel());
        assert_eq!(finish!(engine, range).result, Ok(0), "{offset}+{len}");
    }
    for (offset, len) in [(1 << 63, 1), (u64::MAX, 0), (i64::MAX as u64, 2), (0, u64::MAX)] {
        let range = Request::bare(Op::SyncRange { offset, len }, Some(&file), Policy::kernel());
        assert!(finish!(engine, range).result.is_err(), "{offset}+{len}");
        assert_eq!(file.acknowledge_failure(), None);
    }
    Ok(())
}
