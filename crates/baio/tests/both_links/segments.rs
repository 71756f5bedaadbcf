//! Segments: made, opened, resized, renamed, deleted; who may, and what the volume tells.

use baio::{Access, CreateOptions, Error, Fault, Identity, Limits, Link, Remote, ResizeOptions};
use futures_util::future::{join, join_all};

use crate::rig::{Made, PAGE, ROOT, Volume, byte_of, options, page, segment};

fn of_pages(pages: usize) -> CreateOptions {
    CreateOptions::of_size((pages * PAGE) as u64)
}

fn names<L: Link>(link: &L) -> Vec<String> {
    let mut names: Vec<_> = link.list().wait().unwrap().into_iter().map(|info| info.name).collect();
    names.sort_unstable();
    names
}

pub(crate) fn made_listed_and_deleted<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    assert_eq!(names(&link), [""; 0]);
    let info = link.create_segment("one", &of_pages(3)).wait().unwrap();
    assert_eq!(
        (&info.name[..], info.owner_uid, info.size_bytes, info.state),
        ("one", 0, 3 * 4096, "live")
    );
    let other = link.create_segment_of(7, "two", &of_pages(1)).wait().unwrap();
    assert_eq!(other.owner_uid, 7);
    assert_eq!(names(&link), ["one", "two"]);
    link.delete_segment("one").wait().unwrap();
    assert_eq!(names(&link), ["two"]);
    let error = link.delete_segment("one").wait().unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
    link.close().unwrap();
}

pub(crate) fn what_cannot_be_made_is_refused<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let make = |name: &str, bytes| link.create_segment(name, &CreateOptions::of_size(bytes)).wait();
    make("one", 4096).unwrap();
    assert!(matches!(make("one", 4096).unwrap_err().fault, Fault::Exists));
    assert!(matches!(make("a/b", 4096).unwrap_err().fault, Fault::Name(_)));
    assert!(matches!(make("", 4096).unwrap_err().fault, Fault::Name(_)));
    assert!(matches!(
        make("large", 1 << 40).unwrap_err().fault,
        Fault::NoSpace { .. }
    ));
    assert_eq!(make("none", 0).unwrap_err().code(), "EINVAL");
    let error = make("one", 4096).unwrap_err();
    assert!(
        error.to_string().contains("one") && error.to_string().starts_with("create"),
        "{error}"
    );
}

pub(crate) fn opened_and_refused<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let writer = segment(&link, "one", 2);
    writer.write_at(0, page(&link, 7)).wait().unwrap();
    let reader = link.open_segment("one", Access::Read).wait().unwrap();
    assert_eq!((reader.info().size_bytes, byte_of(&reader, 0)), (8192, 7));
    let refused = reader.write_at(0, page(&link, 1)).wait().unwrap_err();
    assert!(matches!(refused.error.fault, Fault::ReadOnly), "{refused}");
    let error = link.open_segment("missing", Access::Read).wait().unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
    let error = link.open_segment_of(9, "one", Access::Read).wait().unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
    assert!(reader.name().ends_with("#0/one"), "{}", reader.name());
    assert_eq!(format!("{reader:?}"), "Segment(0/one)");
}

pub(crate) fn resized_under_open_handles<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 4);
    open.write_at(0, page(&link, 1)).wait().unwrap();
    let info = link
        .resize_segment("one", &ResizeOptions::to_size(64 * 4096))
        .wait()
        .unwrap();
    assert_eq!((info.size_bytes, open.size().wait().unwrap()), (64 * 4096, 64 * 4096));
    assert_eq!(
        (byte_of(&open, 0), byte_of(&open, 63)),
        (1, 0),
        "what it gained is zero"
    );
    open.write_at(63 * 4096, page(&link, 2)).wait().unwrap();
    link.resize_segment("one", &ResizeOptions::to_size(4096))
        .wait()
        .unwrap();
    let beyond = open.write_at(4096, page(&link, 3)).wait().unwrap_err();
    assert!(
        matches!(
            beyond.error.fault,
            Fault::Beyond {
                size: 4096,
                write: true,
                ..
            }
        ),
        "{beyond}"
    );
    assert_eq!(beyond.buffer.map(|back| back.len()), Some(PAGE));
    let error = link
        .resize_segment("one", &ResizeOptions::to_size(1 << 40))
        .wait()
        .unwrap_err();
    assert!(matches!(error.fault, Fault::NoSpace { .. }), "{error}");
    let error = link
        .resize_segment("missing", &ResizeOptions::to_size(4096))
        .wait()
        .unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
    assert_eq!(open.size().wait().unwrap(), 4096);
}

/// The second asks for less than the first has made of it by then.
pub(crate) fn resized_by_two_at_once<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 4);
    let to = |pages: u64| link.resize_segment("one", &ResizeOptions::grown_to(pages * 4096));
    let (first, second) = link.block_on(join(to(64), to(32))).unwrap();
    assert_eq!(first.unwrap().size_bytes, 64 * 4096);
    let error = second.unwrap_err();
    assert_eq!(error.code(), "EINVAL", "{error}");
    assert!(error.to_string().contains("it has 262144 bytes"), "{error}");
    assert_eq!(open.size().wait().unwrap(), 64 * 4096, "nothing was cut off");
    // What differs by rounding only is no change.
    let same = link
        .resize_segment("one", &ResizeOptions::grown_to(64 * 4096 - 1))
        .wait();
    assert_eq!(same.unwrap().size_bytes, 64 * 4096);
}

/// It moves: something lies behind it.
pub(crate) fn resized_while_it_is_used<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let (open, behind) = (segment(&link, "one", 32), segment(&link, "behind", 4));
    let writes = join_all((0..32_u8).map(|nth| open.write_at(u64::from(nth) * 4096, page(&link, nth + 1))));
    link.block_on(writes)
        .unwrap()
        .into_iter()
        .for_each(|done| drop(done.unwrap()));
    let resize = link.resize_segment("one", &ResizeOptions::to_size(256 * 4096));
    let reads = async {
        for round in 0..200_u64 {
            let nth = round * 7 % 32;
            let read = open.read_exact_at(nth * 4096, page(&link, 0)).await.unwrap();
            assert_eq!(read.buffer[..], [nth as u8 + 1; PAGE]);
            open.write_at(nth * 4096, page(&link, nth as u8 + 1)).await.unwrap();
        }
    };
    let (resized, ()) = link.block_on(join(resize, reads)).unwrap();
    assert_eq!(resized.unwrap().size_bytes, 256 * 4096);
    for nth in 0..32 {
        assert_eq!(byte_of(&open, nth), nth as u8 + 1);
    }
    assert_eq!((byte_of(&open, 255), byte_of(&behind, 0)), (0, 0));
}

pub(crate) fn renamed_under_open_handles<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "old", 2);
    segment(&link, "other", 1);
    let info = link.rename_segment("old", "new").wait().unwrap();
    assert_eq!(info.name, "new");
    open.write_at(0, page(&link, 7)).wait().unwrap();
    let again = link.open_segment("new", Access::Read).wait().unwrap();
    assert_eq!(byte_of(&again, 0), 7);
    assert!(matches!(
        link.rename_segment("new", "other").wait().unwrap_err().fault,
        Fault::Exists
    ));
    assert!(matches!(
        link.rename_segment("old", "newer").wait().unwrap_err().fault,
        Fault::NotFound
    ));
    assert_eq!(names(&link), ["new", "other"]);
}

pub(crate) fn deleted_under_open_handles<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    let reads = join_all((0..16).map(|nth| open.read_at(nth * 4096, page(&link, 1))));
    let (reads, deleted) = link.block_on(join(reads, link.delete_segment("one"))).unwrap();
    deleted.unwrap();
    for read in reads {
        match read {
            Ok(done) => assert_eq!(done.bytes, PAGE),
            Err(failed) => assert!(matches!(failed.error.fault, Fault::Stale), "{failed}"),
        }
    }
    let stale = open.read_at(0, page(&link, 1)).wait().unwrap_err();
    assert!(matches!(stale.error.fault, Fault::Stale), "{stale}");
    assert_eq!(stale.buffer.map(|back| back.len()), Some(PAGE));
    assert!(matches!(open.size().wait().unwrap_err().fault, Fault::Stale));
    assert!(matches!(
        open.sync(baio::Durability::Data).wait().unwrap_err().error.fault,
        Fault::Stale
    ));
    drop(open);
    segment(&link, "one", 1);
}

pub(crate) fn quotas_are_set_and_kept<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let limits = Limits {
        blocks: None,
        segments: Some(2),
    };
    let account = link.set_quota(5, limits).wait().unwrap();
    assert_eq!((account.limits, account.used.segments), (limits, 0));
    for name in ["one", "two"] {
        link.create_segment_of(5, name, &of_pages(1)).wait().unwrap();
    }
    let error = link.create_segment_of(5, "three", &of_pages(1)).wait().unwrap_err();
    let over = matches!(
        error.fault,
        Fault::OverQuota {
            uid: 5,
            used: 2,
            limit: 2,
            ..
        }
    );
    assert!(over, "{error}");
    let account = link.quota(5).wait().unwrap();
    assert_eq!((account.used.segments, account.limits), (2, limits));
    assert!(link.quota(6).wait().unwrap().limits.is_none());
    link.close().unwrap();
    let link: L = volume.link();
    assert_eq!(link.quota(5).wait().unwrap().limits, limits);
}

/// An identity that is not root's, of a volume that is not its own: as embedded code guards itself against mistakes.
pub(crate) fn others_see_their_own<L: Made>() {
    const OTHER: Identity = Identity::new(54321, 54321);
    let volume = Volume::new();
    let link: L = volume.link();
    segment(&link, "roots", 1);
    link.create_segment_of(OTHER.uid, "theirs", &of_pages(1))
        .wait()
        .unwrap();
    link.close().unwrap();
    let mut as_other = options(16);
    as_other.identity = OTHER;
    let link = L::open_with(&volume.path, &as_other).unwrap();
    assert_eq!(link.identity(), OTHER);
    assert_eq!(names(&link), ["theirs"]);
    let refused = |error: Error| assert!(matches!(error.code(), "EACCES" | "EPERM" | "ENOENT"), "{error}");
    refused(
        link.open_segment_of(ROOT.uid, "roots", Access::Read)
            .wait()
            .map(drop)
            .unwrap_err(),
    );
    refused(link.create_segment_of(1, "ones", &of_pages(1)).wait().unwrap_err());
    refused(link.set_quota(OTHER.uid, Limits::default()).wait().unwrap_err());
    refused(link.quota(ROOT.uid).wait().unwrap_err());
    let view = link.info().wait().unwrap();
    assert!(view.whole.is_none() && view.own.used.segments == 1);
    link.create_segment("mine", &of_pages(1)).wait().unwrap();
    assert_eq!(names(&link), ["mine", "theirs"]);
}

pub(crate) fn the_volume_tells_of_itself<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    segment(&link, "one", 8);
    let view = link.info().wait().unwrap();
    assert!(view.size_bytes > 8 << 20 && view.block_size == 4096 && !view.clean);
    assert_eq!((view.own.used.segments, view.whole.is_some()), (1, true));
    assert_eq!(link.name(), volume.path.display().to_string());
    assert!(link.now() < link.deadline(std::time::Duration::from_secs(1)));
}

pub(crate) fn counters_count<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let before = link.stats().wait().unwrap();
    for nth in 0..8 {
        open.write_at(nth * 4096, page(&link, 1)).wait().unwrap();
        open.read_at(nth * 4096, page(&link, 1)).cached().wait().unwrap();
        open.read_at(nth * 4096, page(&link, 1)).cached().wait().unwrap();
    }
    let after = link.stats().wait().unwrap();
    assert!(after.completions >= before.completions + 8, "{after:?}");
    let cache = link.cache_stats().wait().unwrap().unwrap();
    assert_eq!(
        (cache.frames, cache.pages_missed + cache.pages_hit >= 16),
        (64, true),
        "{cache:?}"
    );
    assert!(["uring", "aio", "threads", "sync"].contains(&link.backend().wait().unwrap()));
    assert_eq!(link.bounced(), (0, 0));
    assert_eq!(link.in_flight(), 0);
}

pub(crate) fn what_was_written_is_there_after_a_close<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 40).with_mode(baio::Mode::Cached);
    let writes = join_all((0..40_u8).map(|nth| open.write_at(u64::from(nth) * 4096, page(&link, nth))));
    link.block_on(writes)
        .unwrap()
        .into_iter()
        .for_each(|done| drop(done.unwrap()));
    link.close().unwrap();
    drop(open);
    let link: L = volume.link();
    let open = link.open_segment("one", Access::Read).wait().unwrap();
    for nth in 0..40 {
        assert_eq!(byte_of(&open, nth), nth as u8);
    }
}

pub(crate) fn an_operation_runs_beside_requests<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 4);
    let makes = join_all((0..20).map(|nth| link.create_segment(&format!("s{nth}"), &of_pages(4))));
    let reads = join_all((0..50).map(|nth| open.read_at(nth % 4 * 4096, page(&link, 1))));
    let (made, read) = link.block_on(join(makes, reads)).unwrap();
    made.into_iter().for_each(|made| drop(made.unwrap()));
    assert!(read.into_iter().all(|read| read.unwrap().bytes == PAGE));
    assert_eq!(names(&link).len(), 21);
}

pub(crate) fn operations_of_many_threads() {
    let volume = Volume::new();
    let link: Remote = volume.link();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let link = &link;
            scope.spawn(move || {
                for nth in 0..10 {
                    let name = format!("t{thread}-{nth}");
                    let open = segment(link, &name, 2);
                    open.write_at(4096, page(link, thread)).wait().unwrap();
                    assert_eq!(byte_of(&open, 1), thread);
                    if nth % 2 == 0 {
                        drop(open);
                        link.delete_segment(&name).wait().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(names(&link).len(), 20);
}
