//! Requests on what was opened: the same on both links, down to the words of a failure.

use baio::{Durability, Fault, File, Mode, OpenOptions};
use futures_util::future::join_all;

use crate::rig::{Made, PAGE, Volume, buffer, byte_of, options, page, segment};

pub(crate) fn requests_on_a_segment<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    assert_eq!(open.default_mode(), Mode::Direct);
    let done = open
        .write_all_at(0, page(&link, 1))
        .durable(Durability::Data)
        .wait()
        .unwrap();
    assert_eq!((done.bytes, done.buffer[0]), (PAGE, 1));
    open.write_vectored_at(4096, vec![page(&link, 2), page(&link, 3)])
        .wait()
        .unwrap();
    assert_eq!([0, 1, 2, 3].map(|nth| byte_of(&open, nth)), [1, 2, 3, 0]);
    match open.zero(4096, 4096).wait() {
        Ok(_) => assert_eq!([0, 1, 2].map(|nth| byte_of(&open, nth)), [1, 0, 3]),
        Err(failed) => assert_eq!(failed.error.code(), "EOPNOTSUPP"),
    }
    open.fence(Durability::Full).wait().unwrap();
    open.sync(Durability::Data).wait().unwrap();
    // Across the end, and at it.
    let short = open.read_at(15 * 4096, buffer(&link, &[9; 3 * PAGE])).wait().unwrap();
    assert_eq!((short.bytes, short.buffer.len()), (PAGE, 3 * PAGE));
    let pages = vec![page(&link, 9), page(&link, 9)];
    let short = open.read_vectored_at(15 * 4096, pages).wait().unwrap();
    assert_eq!(
        (
            short.bytes,
            short.buffer[0][0],
            short.buffer[1].len(),
            short.buffer[1][0]
        ),
        (PAGE, 0, PAGE, 9)
    );
    // Memory of another owner, through the page cache.
    let short = open.read_at(15 * 4096 + 4000, vec![9; 300]).cached().wait().unwrap();
    assert_eq!(
        (short.bytes, short.buffer.len(), short.buffer[95], short.buffer[96]),
        (96, 300, 0, 9)
    );
    let parts = vec![vec![9; 4000], vec![9; 200]];
    let short = open.read_vectored_at(15 * 4096, parts).cached().wait().unwrap();
    assert_eq!(
        (
            short.bytes,
            short.buffer[1].len(),
            short.buffer[1][95],
            short.buffer[1][96]
        ),
        (PAGE, 200, 0, 9)
    );
    let failed = open
        .read_exact_at(15 * 4096, vec![9; 5000])
        .cached()
        .wait()
        .unwrap_err();
    assert_eq!(
        (failed.bytes_done, failed.buffer.map(|back| (back.len(), back[4096]))),
        (PAGE, Some((5000, 9)))
    );
    assert_eq!(open.read_at(16 * 4096, page(&link, 0)).wait().unwrap().bytes, 0);
    let copy = open.clone();
    drop(open);
    assert_eq!((byte_of(&copy, 0), copy.size().wait().unwrap()), (1, 16 * 4096));
}

pub(crate) fn refused_requests_say_the_same<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 2);
    let told = |failed: baio::Failed<baio::Buffer>| {
        assert_eq!(failed.buffer.map(|back| back.len()), Some(PAGE), "{}", failed.error);
        let told = failed.error.to_string();
        told.replace(volume.path.to_str().unwrap(), "VOLUME")
    };
    let refused = [
        told(open.write_at(1, page(&link, 0)).wait().unwrap_err()),
        told(open.write_at(8192, page(&link, 0)).wait().unwrap_err()),
        told(open.read_exact_at(8192, page(&link, 0)).wait().unwrap_err()),
        told(open.read_at(0, page(&link, 0)).mode(Mode::Kernel).wait().unwrap_err()),
        told(open.write_at(8192, page(&link, 0)).cached().wait().unwrap_err()),
    ];
    let beginnings = [
        "write VOLUME#0/one at 1: the offset 1 is not a multiple of",
        "write VOLUME#0/one at 8192: a write of 4096 bytes goes beyond its end at 8192",
        "read VOLUME#0/one at 8192: a read of 4096 bytes goes beyond its end at 8192",
        "read VOLUME#0/one at 0: the kernel's page cache on a segment is not available yet",
        "write VOLUME#0/one at 8192: a write of 4096 bytes goes beyond its end at 8192",
    ];
    for (told, beginning) in refused.iter().zip(beginnings) {
        assert!(told.starts_with(beginning), "{told}");
    }
}

pub(crate) fn modes_of_a_segment<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let direct = segment(&link, "one", 8);
    let cached = direct.clone().with_mode(Mode::Cached);
    cached.write_at(100, buffer(&link, &[5; 200])).wait().unwrap();
    let read = direct.read_at(0, page(&link, 0)).wait().unwrap();
    assert_eq!(
        (read.buffer[99], read.buffer[100], read.buffer[299], read.buffer[300]),
        (0, 5, 5, 0)
    );
    direct.write_at(0, page(&link, 9)).wait().unwrap();
    assert_eq!(
        cached.read_at(7, buffer(&link, &[0; 3])).wait().unwrap().buffer[..],
        [9; 3]
    );
}

pub(crate) fn files_beside_a_volume<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 2);
    let path = volume.dir.path().join("plain");
    let file = OpenOptions::new().write().create().open(&link, &path).wait().unwrap();
    let both = join_all([open.write_at(0, page(&link, 1)), file.write_at(0, page(&link, 2))]);
    link.block_on(both)
        .unwrap()
        .into_iter()
        .for_each(|done| drop(done.unwrap()));
    assert_eq!(byte_of(&open, 0), 1);
    assert_eq!(std::fs::read(&path).unwrap(), [2; PAGE]);
    let error = File::open(&link, volume.dir.path()).wait().unwrap_err();
    assert_eq!(error.code(), "EISDIR", "{error}");
    // The volume's own file is a plain file too, to be read.
    let image = File::open(&link, &volume.path).wait().unwrap();
    assert_eq!(image.size().wait().unwrap(), 16 << 20);
    link.close().unwrap();
}

pub(crate) fn a_link_without_a_volume_has_no_segments<L: Made>() {
    let link = L::new_with(&options(16)).unwrap();
    let refused = [
        link.list().wait().map(drop),
        link.info().wait().map(drop),
        link.quota(0).wait().map(drop),
        link.create_segment("one", &baio::CreateOptions::of_size(4096))
            .wait()
            .map(drop),
        link.open_segment("one", baio::Access::Read).wait().map(drop),
        link.delete_segment("one").wait(),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error.fault, Fault::NotVolume(_)), "{error}");
    }
    assert!(link.stats().wait().is_ok() && link.cache_stats().wait().unwrap().is_some());
    link.close().unwrap();
}
