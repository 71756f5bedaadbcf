//! What a story gets: a volume of its own and a link to it.

use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use baio::{
    Access, Buffer, CreateOptions, EngineOptions, FormatOptions, Identity, Link, LinkOptions, Local, Remote, Result,
    Segment,
};

pub(crate) use crate::story::tell_of;

pub(crate) const PAGE: usize = 4096;

/// The root of the stories' volumes, whoever runs them: embedded, an identity guards against mistakes only.
pub(crate) const ROOT: Identity = Identity::new(0, 0);

pub(crate) trait Made: Link {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Self>;
    fn new_with(options: &LinkOptions) -> Result<Self>;
}

impl Made for Local {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Local> {
        Local::open_with(path, options)
    }

    fn new_with(options: &LinkOptions) -> Result<Local> {
        Local::new_with(options)
    }
}

impl Made for Remote {
    fn open_with(path: &Path, options: &LinkOptions) -> Result<Remote> {
        Remote::open_with(path, options)
    }

    fn new_with(options: &LinkOptions) -> Result<Remote> {
        Remote::new_with(options)
    }
}

/// A volume of 16 MiB in a directory of its own.
pub(crate) struct Volume {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Volume {
    pub(crate) fn new() -> Volume {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("volume.img");
        let format = FormatOptions {
            size_bytes: Some(16 << 20),
            segments: Some(256),
            ..FormatOptions::default()
        };
        baio::format(&path, &format).unwrap();
        Volume { dir, path }
    }

    pub(crate) fn link<L: Made>(&self) -> L {
        L::open_with(&self.path, &options(64)).unwrap()
    }
}

/// With a cache of so many pages.
pub(crate) fn options(pages: usize) -> LinkOptions {
    let options = LinkOptions {
        identity: ROOT,
        engine: EngineOptions {
            slots: 64,
            arena_bytes: 4 << 20,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    };
    match pages {
        0 => options,
        pages => options.with_cache(pages * PAGE),
    }
}

/// A segment of so many pages, opened to write.
pub(crate) fn segment<L: Link>(link: &L, name: &str, pages: usize) -> Segment<L> {
    let options = CreateOptions::of_size((pages * PAGE) as u64);
    link.create_segment(name, &options).wait().unwrap();
    link.open_segment(name, Access::Write).wait().unwrap()
}

pub(crate) fn buffer<L: Link>(link: &L, bytes: &[u8]) -> Buffer {
    let mut buffer = link.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

pub(crate) fn page<L: Link>(link: &L, byte: u8) -> Buffer {
    buffer(link, &[byte; PAGE])
}

/// The first byte of this page, by a direct read.
pub(crate) fn byte_of<L: Link>(segment: &baio::Opened<L>, page: u64) -> u8 {
    let read = segment
        .read_exact_at(page * 4096, buffer(segment.link(), &[0xee; PAGE]))
        .direct();
    let done = read.wait().unwrap();
    assert!(
        done.buffer.iter().all(|byte| *byte == done.buffer[0]),
        "a page of one byte"
    );
    done.buffer[0]
}

/// Polls once; the output if that was enough.
pub(crate) async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Until this is true, driving the link.
pub(crate) fn until<L: Link>(link: &L, what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if is() {
            return;
        }
        let _ = link.turn(baio::Wait::No);
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}
