//! Several handles on one file, clones of a handle, and names that come to mean another file.

use baio::{Durability, File, Mode, Wait};

use crate::rig::{Bench, Case, Made, PAGE, buffer, bytes, open, read, size, try_write, write};

/// What goes beside the cache of a link and what goes through it are one file.
fn agree<L: Made>(bench: &Bench<L>, beside: Mode) -> Case {
    bench.gives(beside)?;
    let link = bench.link();
    let path = bench.file("one", 16 * PAGE);
    let (cached, other) = (open(&link, &path, Mode::Cached), open(&link, &path, beside));
    assert_eq!(read(&cached, 0, 16 * PAGE), bytes(16 * PAGE));
    for round in 1..6_u8 {
        let page = u64::from(round) * 2;
        write(&cached, page * 4096, &[round; PAGE]);
        assert_eq!(
            read(&other, page * 4096, PAGE),
            [round; PAGE],
            "written cached, read {beside:?}"
        );
        write(&other, page * 4096, &[100 + round; PAGE]);
        assert_eq!(read(&cached, page * 4096, PAGE), [100 + round; PAGE], "the other way");
    }
    write(&cached, 0, &[42; PAGE]);
    write(&other, 4096, &[43; PAGE]);
    other.sync(Durability::Data).wait().unwrap();
    let there = std::fs::read(path).unwrap();
    assert_eq!(
        there[..2 * PAGE],
        [[42; PAGE], [43; PAGE]].concat(),
        "a sync by either is of both"
    );
    Ok(())
}

pub(crate) fn a_kernel_and_a_cached_handle_agree<L: Made>(bench: &Bench<L>) -> Case {
    agree(bench, Mode::Kernel)
}

pub(crate) fn a_direct_and_a_cached_handle_agree<L: Made>(bench: &Bench<L>) -> Case {
    agree(bench, Mode::Direct)
}

pub(crate) fn two_cached_handles_share_pages<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 4 * PAGE);
    let (one, two) = (open(&link, &path, Mode::Cached), open(&link, &path, Mode::Cached));
    write(&one, 4096, &[7; PAGE]);
    assert_eq!(read(&two, 4096, PAGE), [7; PAGE]);
    drop(one);
    write(&two, 0, &[6; PAGE]);
    two.sync(Durability::Data).wait().unwrap();
    assert_eq!(
        std::fs::read(path).unwrap()[..2 * PAGE],
        [[6; PAGE], [7; PAGE]].concat()
    );
    Ok(())
}

pub(crate) fn a_cached_handle_for_reading_does_not_keep_a_writer_out<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 4 * PAGE);
    let reader = baio::OpenOptions::new().cached().open(&link, &path).wait().unwrap();
    assert_eq!(read(&reader, 0, PAGE), bytes(4 * PAGE)[..PAGE]);
    let writer = open(&link, &path, Mode::Cached);
    write(&writer, 0, &[7; PAGE]);
    assert_eq!(read(&reader, 0, PAGE), [7; PAGE]);
    drop(reader);
    writer.sync(Durability::Data).wait().unwrap();
    assert_eq!(std::fs::read(path).unwrap()[..PAGE], [7; PAGE]);
    Ok(())
}

fn is_another<L: Made>(bench: &Bench<L>, mode: Mode) -> Case {
    let link = bench.link();
    let (path, new) = (bench.file("one", 2 * PAGE), bench.path("new"));
    let before = open(&link, &path, mode);
    write(&before, 0, &[1; PAGE]);
    before.sync(Durability::Data).wait().unwrap();
    std::fs::write(&new, [9; 2 * PAGE]).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let after = open(&link, &path, mode);
    assert_eq!(read(&before, 0, PAGE), [1; PAGE], "the handle stays with its file");
    assert_eq!(read(&after, 0, PAGE), [9; PAGE], "the name means the other");
    write(&before, 0, &[2; PAGE]);
    assert_eq!(read(&after, 0, PAGE), [9; PAGE]);
    before.sync(Durability::Data).wait().unwrap();
    after.sync(Durability::Data).wait().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), [9; 2 * PAGE]);
    Ok(())
}

pub(crate) fn a_file_replaced_by_rename_is_another<L: Made>(bench: &Bench<L>) -> Case {
    is_another(bench, Mode::Kernel)
}

pub(crate) fn a_cached_file_replaced_by_rename_is_another<L: Made>(bench: &Bench<L>) -> Case {
    is_another(bench, Mode::Cached)
}

pub(crate) fn a_removed_file_is_read_on<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in [Mode::Kernel, Mode::Cached] {
        let path = bench.file("one", 2 * PAGE);
        let file = open(&link, &path, mode);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&file, 4096, PAGE), bytes(2 * PAGE)[PAGE..], "{mode:?}");
        write(&file, 0, &[7; PAGE]);
        file.sync(Durability::Full).wait().unwrap();
    }
    Ok(())
}

pub(crate) fn clones_are_one_file<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    let file = open(&link, &path, Mode::Kernel);
    let copy = file.clone();
    assert_eq!((copy.handle(), copy.name()), (file.handle(), file.name()));
    drop(file);
    write(&copy, 0, &[7; 10]);
    assert_eq!(read(&copy, 0, 10), [7; 10]);
    Ok(())
}

pub(crate) fn a_mode_for_a_clone_is_its_own<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    let file = open(&link, &path, Mode::Cached);
    let kernel = file.clone().with_mode(Mode::Kernel);
    assert_eq!(
        (file.default_mode(), kernel.default_mode()),
        (Mode::Cached, Mode::Kernel)
    );
    // Only the kernel's cache lets it grow to any size.
    write(&kernel, 0, &[1; PAGE]);
    assert_eq!(read(&file, 0, PAGE), [1; PAGE]);
    assert_eq!(kernel.handle(), file.handle());
    Ok(())
}

/// Descriptors of this process that mean this file.
fn descriptors(of: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let means_it = |fd: std::io::Result<std::fs::DirEntry>| {
        let target = std::fs::read_link(fd.ok()?.path()).ok()?;
        (target == of).then_some(())
    };
    all.filter_map(means_it).count()
}

fn is_closed_soon<L: Made>(link: &L, path: &std::path::Path) {
    for _ in 0..2000 {
        if descriptors(path) == 0 {
            return;
        }
        // What was changed is written first; over a service the close is on its way.
        link.turn(Wait::No).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} descriptors are left", descriptors(path));
}

pub(crate) fn the_last_clone_closes_it<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    for mode in [Mode::Kernel, Mode::Direct, Mode::Cached] {
        if bench.gives(mode).is_err() {
            continue;
        }
        let path = bench.file(&format!("{mode:?}"), PAGE);
        let file = open(&link, &path, mode);
        let copy = file.clone();
        assert_eq!(read(&file, 0, PAGE), bytes(PAGE));
        drop(file);
        assert_eq!(read(&copy, 0, PAGE), bytes(PAGE), "{mode:?}");
        assert_ne!(descriptors(&path), 0, "{mode:?}");
        drop(copy);
        is_closed_soon(&link, &path);
    }
    Ok(())
}

pub(crate) fn a_request_keeps_it_open<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", PAGE);
    let request = open(&link, &path, Mode::Kernel).read_at(0, buffer(&link, &[0; PAGE]));
    assert_eq!(request.wait().unwrap().buffer[..], bytes(PAGE));
    let measure = open(&link, &path, Mode::Kernel).size();
    assert_eq!(measure.wait().unwrap(), 4096);
    is_closed_soon(&link, &path);
    Ok(())
}

/// After the last close the cache does not say what the file was: somebody else has changed it.
pub(crate) fn a_forgotten_file_is_read_anew<L: Made>(bench: &Bench<L>) -> Case {
    let link = bench.link();
    let path = bench.file("one", 2 * PAGE);
    let file = open(&link, &path, Mode::Cached);
    write(&file, 0, &[7; PAGE]);
    drop(file);
    is_closed_soon(&link, &path);
    assert_eq!(
        std::fs::read(&path).unwrap()[..PAGE],
        [7; PAGE],
        "it was written before it was forgotten"
    );
    std::fs::write(&path, [8; 4 * PAGE]).unwrap();
    let again: File<L> = open(&link, &path, Mode::Cached);
    assert_eq!((read(&again, 0, PAGE), size(&again)), (vec![8; PAGE], 4 * 4096));
    assert_eq!(try_write(&again, 3 * 4096, &[1; PAGE]).unwrap(), PAGE);
    Ok(())
}
