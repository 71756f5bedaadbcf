//! The promise: one core has as many files as there are descriptors. Each has those that were asked for and no more, gives them back with its
//! last handle, its pages with them; and when there are none left, that is told with what to do about it.

mod harness;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_engine::{Caching, Create, Descriptions, Memory, Open, Wait};
use baio_storage::{Core, Error, Handle, Mode, SegmentOp, SegmentRequest, Ticket};
use harness::through_cache::{self, cache_of, end, got};
use harness::{run, start};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FILES: usize = 2000;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn allow(descriptors: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    assert!(
        maximum.is_none_or(|most| most >= descriptors),
        "`ulimit -Hn` allows {maximum:?}"
    );
    let current = Some(descriptors);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

fn opened(core: &mut Core, path: &Path, descriptions: Descriptions) -> Result<Handle, Error> {
    let options = Open {
        descriptions,
        create: Create::IfMissing,
        ..Open::write()
    };
    core.open_file(path, &options)
}

fn content(nth: usize, round: u8) -> Vec<u8> {
    let tail = [round; 100];
    [&(nth as u64).to_le_bytes()[..], &tail[..1 + nth % 99]].concat()
}

fn asked(core: &Core, handle: Handle, op: SegmentOp, bytes: &[u8], mode: Mode) -> SegmentRequest {
    through_cache::request(core, handle, op, bytes, mode)
}

fn write(core: &mut Core, handle: Handle, bytes: &[u8]) -> Ticket {
    let request = asked(core, handle, SegmentOp::Write { offset: 0 }, bytes, Mode::Cached);
    start(core, request)
}

#[test]
fn two_thousand_files_on_one_core_and_one_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..FILES).map(|nth| dir.path().join(format!("{nth}"))).collect();
    // Where no more than 4096 are allowed, that is enough.
    allow(2 * FILES as u64 + 64);
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&cache_of(512)).unwrap();
    let before = descriptors();
    for round in 1..3 {
        let handles: Vec<Handle> = paths
            .iter()
            .map(|path| opened(&mut core, path, Descriptions::Both).unwrap())
            .collect();
        assert_eq!(descriptors(), before + 2 * FILES);
        // Side by side, and of four times as many files as there are pages.
        for some in (0..FILES).collect::<Vec<_>>().chunks(32) {
            let writes: Vec<Ticket> = (some.iter())
                .map(|&nth| write(&mut core, handles[nth], &content(nth, round)))
                .collect();
            for ticket in writes {
                end(&mut core, ticket).result.unwrap();
            }
        }
        for (nth, &handle) in handles.iter().enumerate() {
            let read = asked(&core, handle, SegmentOp::Read { offset: 0 }, &[0; 200], Mode::Cached);
            let read = start(&mut core, read);
            assert_eq!(got(end(&mut core, read)), content(nth, round));
        }
        assert_eq!(descriptors(), before + 2 * FILES, "the cache has none of its own");
        for handle in handles {
            core.close_handle(handle);
        }
        // What was changed is written first.
        let closed = Instant::now();
        while descriptors() > before {
            core.turn(Wait::No).unwrap();
            assert!(
                closed.elapsed() < Duration::from_secs(30),
                "{} are kept",
                descriptors() - before
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(descriptors(), before);
        assert_eq!(core.cache_stats().unwrap().frames_free, 512);
    }
    for (nth, path) in paths.iter().enumerate() {
        assert_eq!(std::fs::read(path).unwrap(), content(nth, 2));
    }
    what_nothing_was_written_to_goes_with_its_handle(&mut core, &paths, before);
    the_limit_is_met(&mut core, &paths, before);
    core.close().unwrap();
}

fn what_nothing_was_written_to_goes_with_its_handle(core: &mut Core, paths: &[PathBuf], before: usize) {
    for (descriptions, each) in [
        (Descriptions::Only(Caching::Kernel), 1),
        (Descriptions::Only(Caching::Direct), 1),
        (Descriptions::Both, 2),
    ] {
        let handles = [0, 1, 2].map(|nth: usize| opened(core, &paths[nth], descriptions).unwrap());
        assert_eq!(descriptors(), before + 3 * each, "{descriptions:?}");
        if each == 2 {
            let read = asked(core, handles[0], SegmentOp::Read { offset: 0 }, &[0; 200], Mode::Cached);
            run(core, read).result.unwrap();
        }
        for handle in handles {
            core.close_handle(handle);
        }
        assert_eq!(descriptors(), before, "{descriptions:?}");
    }
}

/// By the first description, and by the second one.
fn the_limit_is_met(core: &mut Core, paths: &[PathBuf], before: usize) {
    for free in [0, 1] {
        allow(1000);
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open(&paths[0]).ok()).collect();
        allow(1000 + free);
        let error = opened(core, &paths[1], Descriptions::Both).unwrap_err();
        assert_eq!(error.code(), "EMFILE", "{error}");
        let text = error.to_string();
        assert!(
            text.contains("ulimit -n") && text.contains("a free descriptor"),
            "{text}"
        );
        drop(all);
        assert_eq!(descriptors(), before);
        let handle = opened(core, &paths[1], Descriptions::Both).unwrap();
        let sync = SegmentRequest::new(handle, SegmentOp::Sync, Memory::None);
        run(core, sync).result.unwrap();
        core.close_handle(handle);
    }
}
