//! Syncs, fences and durable writes: what has ended well has reached the file. That it survives a power cut is shown on the simulation.

use baio::{Durability, Mode, OpenOptions};
use futures_util::future::{join, join_all};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, write};

fn synced<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 8 * PAGE));
    let file = open(&link, &path, mode);
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        let byte = durability as u8 + 1;
        for page in 0..8 {
            write(&file, page * 4096, &[byte; PAGE]);
        }
        let done = file.sync(durability).wait().unwrap();
        assert_eq!(done.bytes, 0);
        if durability != Durability::None {
            assert_eq!(std::fs::read(&path).unwrap(), [byte; 8 * PAGE], "{durability:?}");
        }
    }
    Ok(())
}

pub(crate) fn a_sync_after_kernel_writes<L: Made>(bench: &Bench<L>) -> Case {
    synced(bench, Mode::Kernel)
}

pub(crate) fn a_sync_after_cached_writes<L: Made>(bench: &Bench<L>) -> Case {
    synced(bench, Mode::Cached)
}

pub(crate) fn a_sync_of_nothing<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 10));
    for mode in [Mode::Kernel, Mode::Cached] {
        let file = open(&link, &path, mode);
        file.sync(Durability::Full).wait().unwrap();
        file.fence(Durability::Full).wait().unwrap();
    }
    Ok(())
}

pub(crate) fn a_sync_through_a_handle_to_read<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let (writer, reader) = (
        open(&link, &path, Mode::Kernel),
        baio::File::open(&link, &path).wait().unwrap(),
    );
    write(&writer, 0, &[3; PAGE]);
    reader.sync(Durability::Data).wait().unwrap();
    reader.fence(Durability::Data).wait().unwrap();
    Ok(())
}

/// Of one fence.
const WRITES: usize = 30;

pub(crate) fn a_fence_ends_behind_the_writes_before_it<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", 64 * PAGE));
    for mode in [Mode::Kernel, Mode::Cached, Mode::Direct] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let file = open(&link, &path, mode);
        let byte = mode as u8 + 1;
        // So few that `join_all` has polled each once, and so begun it, before the fence is: it polls 32 at most in a row.
        let writes = (0..WRITES).map(|page| file.write_at((page * PAGE) as u64, buffer(&link, &[byte; PAGE])));
        let writes = join_all(writes.collect::<Vec<_>>());
        let fence = async {
            file.fence(Durability::Data).await.unwrap();
            std::fs::read(&path).unwrap()
        };
        let (ended, there) = link.block_on(join(writes, fence)).unwrap();
        assert!(ended.into_iter().all(|ended| ended.unwrap().bytes == PAGE));
        let late = |page: &usize| there[page * PAGE..][..PAGE] != [byte; PAGE];
        assert_eq!(
            (0..WRITES).find(late),
            None,
            "{mode:?}: the first page behind the fence"
        );
    }
    Ok(())
}

fn durable<L: Made>(bench: &Bench<L>, mode: Mode, durability: Durability) -> Case {
    bench.gives(mode)?;
    let (link, path) = (bench.link(), bench.file("one", 4 * PAGE));
    let file = OpenOptions::new().write().mode(mode).open(&link, &path).wait().unwrap();
    let write = |offset, byte| file.write_at(offset, buffer(&link, &[byte; PAGE])).durable(durability);
    let done = write(4096, 9).wait().unwrap();
    assert_eq!((done.bytes, &done.buffer[..]), (PAGE, &[9; PAGE][..]));
    let mut known = bytes(4 * PAGE);
    known[PAGE..2 * PAGE].fill(9);
    assert_eq!(std::fs::read(&path).unwrap(), known, "without a sync");
    let both = link.block_on(join(write(0, 5), write(8192, 6))).unwrap();
    assert_eq!((both.0.unwrap().bytes, both.1.unwrap().bytes), (PAGE, PAGE));
    known[..PAGE].fill(5);
    known[2 * PAGE..3 * PAGE].fill(6);
    assert_eq!(std::fs::read(&path).unwrap(), known);
    Ok(())
}

pub(crate) fn a_durable_kernel_write<L: Made>(bench: &Bench<L>) -> Case {
    durable(bench, Mode::Kernel, Durability::Data)
}

pub(crate) fn a_durable_direct_write<L: Made>(bench: &Bench<L>) -> Case {
    durable(bench, Mode::Direct, Durability::Data)
}

pub(crate) fn a_durable_cached_write<L: Made>(bench: &Bench<L>) -> Case {
    durable(bench, Mode::Cached, Durability::Data)
}

pub(crate) fn a_fully_durable_write<L: Made>(bench: &Bench<L>) -> Case {
    durable(bench, Mode::Kernel, Durability::Full)
}
