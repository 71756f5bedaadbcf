//! Requests carry buffers of many kinds, on both links: what went in comes out.

use std::sync::Arc;
use std::time::Duration;

use baio::{
    Backend, File, IoBuf, IoBufMut, Link, Local, Memory, Mode, OpenOptions, Owned, OwnedBytes, OwnedBytesMut, Remote,
    SegmentOp,
};
use baio_engine::Foreign;

use crate::common;

const TEXT: &[u8; 27] = b"the bytes that are written\n";

type Body<L> = fn(&L, &File<L>);

/// Runs it on both links, on a file that is read and written.
fn on_both(how: OpenOptions, run: (Body<Local>, Body<Remote>)) {
    let dir = tempfile::tempdir().unwrap();
    let how = how.write().create();
    let link = Local::new().unwrap();
    run.0(&link, &how.open(&link, dir.path().join("local")).wait().unwrap());
    let link = Remote::new().unwrap();
    run.1(&link, &how.open(&link, dir.path().join("remote")).wait().unwrap());
}

fn written<L: Link, B: IoBuf>(file: &File<L>, buffer: B) -> B {
    file.write_all_at(0, [0; 27].to_vec()).wait().unwrap();
    let done = file.write_at(0, buffer).wait().unwrap();
    assert_eq!(done.bytes, 27);
    let read = file.read_exact_at(0, vec![0; 27]).wait().unwrap();
    assert_eq!(read.buffer, TEXT);
    done.buffer
}

#[cfg_attr(not(feature = "compio"), allow(dead_code, reason = "for compio's buffers"))]
fn read<L: Link, B: IoBufMut>(file: &File<L>, buffer: B) -> B {
    let done = file.read_at(4, buffer).wait().unwrap();
    assert_eq!(done.bytes, 23);
    done.buffer
}

fn standard<L: Link>(_: &L, file: &File<L>) {
    let vec = TEXT.to_vec();
    let place = vec.as_ptr();
    let vec = written(file, vec);
    assert_eq!(
        (&vec[..], vec.as_ptr()),
        (&TEXT[..], place),
        "it is the same allocation"
    );
    let boxed: Box<[u8]> = TEXT.to_vec().into();
    assert_eq!(*written(file, boxed), *TEXT);
    let shared: Arc<[u8]> = Arc::from(&TEXT[..]);
    let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
    let requests = [file.write_at(0, one), file.write_at(100, other)];
    for request in requests {
        assert_eq!(*request.wait().unwrap().buffer, *TEXT);
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    written(file, shared);
    assert_eq!(written(file, &TEXT[..]), TEXT);
    assert_eq!(written(file, TEXT), TEXT);
    assert_eq!(written(file, String::from_utf8(TEXT.to_vec()).unwrap()).len(), 27);

    let longer = [&TEXT[4..], &[0; 7]].concat();
    file.write_all_at(0, TEXT).wait().unwrap();
    // The file's end lies within; bytes behind it stay as they are.
    let end = file.size().wait().unwrap();
    let tail = file.read_at(end - 3, vec![9; 5]).wait().unwrap();
    assert_eq!((tail.bytes, &tail.buffer[3..]), (3, &[9, 9][..]));
    let vec = file.read_at(4, vec![0; 30]).wait().unwrap();
    assert_eq!((vec.bytes, &vec.buffer), (30, &longer));
    let boxed = file.read_at(4, vec![0; 30].into_boxed_slice()).wait().unwrap();
    assert_eq!(*boxed.buffer, *longer);
    // None at all.
    assert_eq!(file.read_at(0, Vec::<u8>::new()).wait().unwrap().bytes, 0);
    assert_eq!(file.write_at(0, &[][..]).wait().unwrap().bytes, 0);
}

#[test]
fn the_standard_librarys() {
    on_both(OpenOptions::new(), (standard, standard));
}

fn lists<L: Link>(_: &L, file: &File<L>) {
    let parts = vec![TEXT[..5].to_vec(), Vec::new(), TEXT[5..].to_vec()];
    let parts = file.write_vectored_at(0, parts).wait().unwrap().buffer;
    assert_eq!(parts.concat(), TEXT);
    let read = file.read_vectored_at(0, vec![vec![0; 20], vec![0; 20]]).wait().unwrap();
    assert_eq!(
        (read.bytes, &read.buffer[0][..], &read.buffer[1][..7]),
        (27, &TEXT[..20], &TEXT[20..])
    );
}

#[test]
fn lists_of_them() {
    on_both(OpenOptions::new(), (lists, lists));
}

#[derive(Debug)]
#[repr(align(4096))]
struct Page([u8; 4096]);

#[derive(Debug)]
struct BoxedPage(Box<Page>);

// SAFETY: the bytes are initialised, and in the box's allocation, which nobody else can reach.
#[allow(unsafe_code)]
unsafe impl OwnedBytes for BoxedPage {
    fn bytes(&mut self) -> (*mut u8, usize) {
        (self.0.0.as_mut_ptr(), 4096)
    }
}
// SAFETY: the pointer may be used to write them.
#[allow(unsafe_code)]
unsafe impl OwnedBytesMut for BoxedPage {}

/// Direct requests use its own address, so it must be aligned, and is told so; a bounce is asked for and counted.
fn direct<L: Link>(link: &L, file: &File<L>) {
    let page = file
        .write_at(0, Owned(BoxedPage(Box::new(Page([7; 4096])))))
        .wait()
        .unwrap();
    let Owned(mut page) = page.buffer;
    page.0.0.fill(0);
    let Owned(page) = file.read_at(0, Owned(page)).wait().unwrap().buffer;
    assert!(page.0.0 == [7; 4096] && link.bounced() == (0, 0));

    let mut vec = vec![0; 4097];
    let skip = usize::from((vec.as_ptr() as usize).is_multiple_of(2));
    vec.truncate(4096);
    let shifted = Owned(Shifted(vec![8; 4097], skip));
    let failed = file.write_at(0, shifted).wait().unwrap_err();
    assert_eq!(failed.error.code(), "EINVAL", "{}", failed.error);
    let shifted = failed.buffer.unwrap();
    let failed = file.write_at(1, vec![0; 4096]).wait().unwrap_err();
    assert_eq!(std::io::Error::from(failed).kind(), std::io::ErrorKind::InvalidInput);
    file.write_at(0, shifted).bounced().wait().unwrap();
    assert_eq!(link.bounced(), (1, 4096));
    let read = file.read_at(0, vec).bounced().wait().unwrap();
    assert!(read.buffer == [8; 4096] && link.bounced().0 >= 1);
}

/// Begins at an odd address.
#[derive(Debug)]
struct Shifted(Vec<u8>, usize);

// SAFETY: the bytes are in the vector's allocation, which nobody else can reach.
#[allow(unsafe_code)]
unsafe impl OwnedBytes for Shifted {
    fn bytes(&mut self) -> (*mut u8, usize) {
        (self.0[self.1..].as_mut_ptr(), 4096)
    }
}

#[test]
fn of_the_users_own_types() {
    on_both(OpenOptions::new().direct(), (direct, direct));
}

fn through_the_cache<L: Link>(link: &L) {
    let segment = common::segment(link, "buffers", 1 << 20).with_mode(Mode::Cached);
    segment.write_all_at(5, TEXT).wait().unwrap();
    segment
        .write_all_at(40_000, Arc::<[u8]>::from(&TEXT[..]))
        .wait()
        .unwrap();
    for offset in [5, 40_000] {
        assert_eq!(segment.read_exact_at(offset, vec![0; 27]).wait().unwrap().buffer, TEXT);
    }
    let both = segment
        .read_vectored_at(5, vec![vec![0; 20], vec![0; 7]])
        .wait()
        .unwrap();
    assert_eq!(both.buffer.concat(), TEXT);
}

#[test]
fn the_cache_copies_in_and_out_of_them() {
    let cached = common::options(Backend::Auto, 128).with_cache(1 << 20);
    let (_dir, path) = common::image(16 << 20);
    let link = Local::open_with(&path, &cached).unwrap();
    through_the_cache(&link);
    link.close().unwrap();
    let (_dir, path) = common::image(16 << 20);
    through_the_cache(&Remote::open_with(&path, &cached).unwrap());
}

/// A bounce would write what others share.
#[test]
fn shared_memory_is_not_read_into_by_a_bounce() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![9; 8192]).unwrap();
    let link = Local::new().unwrap();
    let file = File::options().direct().open(&link, &path).wait().unwrap();
    let shared: Arc<[u8]> = Arc::from(vec![1; 4096]);
    let read = || {
        let memory = Memory::from(Foreign::of_arc(Arc::clone(&shared)));
        file.run(file.request(SegmentOp::Read { offset: 0 }, memory)).direct()
    };
    for read in [read(), read().bounced()] {
        let failed = read.wait().unwrap_err();
        assert!(failed.error.to_string().contains("shared and read-only"), "{failed}");
    }
    assert_eq!(shared[..], [1; 4096]);
}

/// Memory of no bytes has an address that no device takes.
#[test]
fn nothing_may_be_bounced_and_written_in_no_pieces() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![9; 8192]).unwrap();
    let link = Local::new().unwrap();
    let file = File::options().write().every_mode().open(&link, &path).wait().unwrap();
    // Refused or not: it answers.
    let _ = file.read_at(0, Vec::<u8>::new()).direct().wait();
    assert_eq!(
        file.read_at(0, Vec::<u8>::new())
            .direct()
            .bounced()
            .wait()
            .unwrap()
            .bytes,
        0
    );
    let pieces = Vec::<Vec<u8>>::new();
    assert_eq!(file.write_vectored_at(0, pieces).wait().unwrap().bytes, 0);
}

/// What nobody waits for keeps its memory until the kernel has let go.
#[test]
fn abandoned_ones_are_dropped_late() {
    let shared: Arc<[u8]> = Arc::from(vec![1; 1 << 20]);
    let dir = tempfile::tempdir().unwrap();
    let link = Local::new().unwrap();
    let file = OpenOptions::new()
        .write()
        .create()
        .open(&link, dir.path().join("file"))
        .wait()
        .unwrap();
    let mut write = file.write_at(0, Arc::clone(&shared));
    link.block_on(std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut write).poll(context);
        assert!(polled.is_pending());
        std::task::Poll::Ready(())
    }))
    .unwrap();
    drop(write);
    while link.in_flight() > 0 {
        link.turn(baio::Wait::one()).unwrap();
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    // Cancelled before it began: it comes back at once.
    let mut write = file.write_at(0, vec![1; 10]);
    write.cancel();
    assert_eq!(write.wait().unwrap_err().buffer.unwrap(), [1; 10]);
    let write = file.write_at(0, vec![1; 10]).within(Duration::from_secs(10)).wait();
    assert_eq!(write.unwrap().buffer, [1; 10]);
}

#[cfg(feature = "bytes")]
mod bytes_crate {
    use bytes::{Bytes, BytesMut};

    use super::*;

    fn both<L: Link>(_: &L, file: &File<L>) {
        let bytes = Bytes::copy_from_slice(&[&TEXT[..], TEXT].concat());
        // A part of what others share.
        assert_eq!(written(file, bytes.slice(27..)), TEXT[..]);
        assert_eq!(written(file, Bytes::from_static(TEXT)), TEXT[..]);
        assert_eq!(written(file, BytesMut::from(&TEXT[..])), TEXT[..]);
        let mut both = BytesMut::zeroed(60);
        let other = both.split_off(30);
        file.write_all_at(27, [0; 7].to_vec()).wait().unwrap();
        let seen = file.read_at(4, other).wait().unwrap().buffer;
        assert_eq!(seen, [&TEXT[4..], &[0; 7]].concat());
        assert!(both.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn of_the_crate_bytes() {
        on_both(OpenOptions::new(), (both, both));
    }
}

#[cfg(feature = "compio")]
mod compio_crate {
    use baio::Compio;
    use compio::buf::{IntoInner, IoBuf};

    use super::*;

    fn theirs<L: Link>(_: &L, file: &File<L>) {
        written(file, Compio(TEXT.to_vec()));
        written(file, Compio("the bytes that are written\n"));
        // Bytes in the value itself.
        let Compio(array) = written(file, Compio(*TEXT));
        assert_eq!(array, *TEXT);
        let part = [&[1; 5], &TEXT[..], &[2; 5]].concat().slice(5..32);
        assert_eq!(written(file, Compio(part)).0.into_inner().len(), 37);

        // A read goes from the first byte to the capacity.
        let Compio(empty) = read(file, Compio(Vec::with_capacity(100)));
        assert_eq!((&empty[..], empty.capacity()), (&TEXT[4..], 100));
        let Compio(longer) = read(file, Compio(vec![9; 40]));
        assert_eq!((&longer[..23], &longer[23..]), (&TEXT[4..], &[9; 17][..]));
        let mut some = Vec::with_capacity(50);
        some.extend([9; 3]);
        let Compio(some) = read(file, Compio(some));
        assert_eq!(some, TEXT[4..]);
        let Compio(array) = read(file, Compio([0; 64]));
        assert_eq!(array[..23], TEXT[4..]);
        let Compio(slice) = read(file, Compio(Vec::with_capacity(64).slice(..40)));
        assert_eq!(slice.into_inner(), TEXT[4..]);
        let lists = vec![Compio(Vec::with_capacity(20)), Compio(Vec::with_capacity(20))];
        let read = file.read_vectored_at(0, lists).wait().unwrap();
        assert_eq!(
            (&read.buffer[0].0[..], &read.buffer[1].0[..]),
            (&TEXT[..20], &TEXT[20..])
        );
        // A failed one is as it was.
        let failed = file
            .read_exact_at(u64::MAX - 5, Compio(vec![3; 10]))
            .wait()
            .unwrap_err();
        assert_eq!(failed.buffer.unwrap().0, [3; 10]);
    }

    #[test]
    fn of_compio() {
        on_both(OpenOptions::new(), (theirs, theirs));
    }
}
