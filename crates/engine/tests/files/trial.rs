//! What the page cache can answer is answered at once; what it cannot goes to the backend, and never waits in the caller.

use std::io::Write;
use std::time::Duration;

use baio_engine::{Choice, Engine, EngineOptions, File, Op, Open, Policy, Request, Wait};
use rustix::fs::{Advice, fadvise};

const BLOCKS: usize = 256;

struct Fixture {
    engine: Engine,
    file: File,
    kept: tempfile::NamedTempFile,
}

fn fixture() -> Option<Fixture> {
    let config = EngineOptions {
        backend: Choice::Uring,
        ..EngineOptions::default()
    };
    let engine = Engine::new(&config).map_err(|why| eprintln!("skipped: {why}")).ok()?;
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(&[7; BLOCKS * 4096]).unwrap();
    kept.as_file().sync_all().unwrap();
    let file = File::open(kept.path(), &Open::read()).unwrap();
    Some(Fixture { engine, file, kept })
}

impl Fixture {
    fn read(&mut self, block: usize, len: usize, policy: Policy) -> u16 {
        let buffer = self.engine.buffer(len).unwrap();
        let request = Request::read(&self.file, block as u64 * 4096, buffer, policy);
        self.engine.submit(request).unwrap();
        loop {
            if let Some(completion) = self.engine.next_completion() {
                assert_eq!(completion.result, Ok(len as u32));
                let bytes = completion.memory.into_buffer().unwrap();
                assert!(bytes.iter().all(|&byte| byte == 7));
                return completion.iterations;
            }
            self.engine.turn(Wait::one()).unwrap();
        }
    }

    /// Drops the file from the page cache.
    fn chill(&self) {
        fadvise(self.kept.as_file(), 0, None, Advice::DontNeed).unwrap();
        fadvise(self.kept.as_file(), 0, None, Advice::Random).unwrap();
    }
}

#[test]
fn a_cached_read_needs_no_backend() {
    let Some(mut fixture) = fixture() else { return };
    fixture.engine.turn(Wait::No).unwrap();
    let before = fixture.engine.stats();
    for block in 0..100 {
        assert_eq!(fixture.read(block, 4096, Policy::kernel()), 1);
    }
    let after = fixture.engine.stats();
    assert_eq!(after.trial_hits - before.trial_hits, 100);
    assert_eq!(after.batches, before.batches, "nothing reached the backend");
    assert_eq!(after.system_calls, before.system_calls);
}

/// One turn in sixteen looks at the backend in any case; these are among the others.
#[test]
fn a_hit_hides_nothing_that_is_under_way() {
    let Some(mut fixture) = fixture() else { return };
    let engine = &mut fixture.engine;
    let hit = |engine: &mut Engine| {
        let buffer = engine.buffer(4096).unwrap();
        let request = Request::read(&fixture.file, 0, buffer, Policy::kernel());
        engine.submit(request).unwrap();
    };

    let mut event = Request::event();
    event.policy.deadline = Some(engine.now());
    engine.submit(event).unwrap();
    hit(engine);
    assert_eq!(engine.turn(Wait::No), Ok(2), "an overdue event beside it");
    while engine.next_completion().is_some() {}

    let at = engine.now().after(Duration::from_secs(1000));
    engine
        .submit(Request::bare(Op::Timer { at }, None, Policy::kernel()))
        .unwrap();
    hit(engine);
    let before = engine.stats();
    assert_eq!(engine.turn(Wait::No), Ok(1));
    let after = engine.stats();
    assert_eq!(after.batches - before.batches, 1);
    assert!(
        after.system_calls > before.system_calls,
        "the kernel does not have the timer"
    );
    assert_eq!(after.trial_hits, 2);
}

#[test]
fn a_cold_read_continues_in_the_backend_and_trying_rests() {
    let Some(mut fixture) = fixture() else { return };
    fixture.chill();
    for block in 0..BLOCKS {
        let buffer = fixture.engine.buffer(4096).unwrap();
        // Every other block, so that no readahead makes hits.
        let at = (block * 2 % BLOCKS) as u64 * 4096;
        let request = Request::read(&fixture.file, at, buffer, Policy::kernel());
        fixture.engine.submit(request).unwrap();
        if block % 16 == 15 {
            fixture.chill();
        }
    }
    let mut ended = 0;
    while ended < BLOCKS {
        fixture.engine.turn(Wait::one()).unwrap();
        while let Some(completion) = fixture.engine.next_completion() {
            assert_eq!(completion.result, Ok(4096));
            ended += 1;
        }
    }
    let stats = fixture.engine.stats();
    assert!(stats.trials > 0 && stats.batches > 0, "{stats:?}");
    assert!(stats.trials < BLOCKS as u64, "trying never rested: {stats:?}");
}

#[test]
fn direct_and_long_reads_are_not_tried() {
    let Some(mut fixture) = fixture() else { return };
    fixture.read(0, 512 << 10, Policy::kernel());
    if fixture.file.gives(baio_engine::Caching::Direct) {
        fixture.read(0, 4096, Policy::direct());
    }
    assert_eq!(fixture.engine.stats().trials, 0);
}

#[test]
fn nothing_read_is_not_taken_for_the_end_of_the_file() {
    let Some(mut fixture) = fixture() else { return };
    let before = fixture.engine.stats();
    let buffer = fixture.engine.buffer(4096).unwrap();
    let at_the_end = Request::read(&fixture.file, BLOCKS as u64 * 4096, buffer, Policy::kernel());
    fixture.engine.submit(at_the_end).unwrap();
    fixture.engine.turn(Wait::one()).unwrap();
    let completion = fixture.engine.next_completion().unwrap();
    // Tried in vain, and then asked of a backend.
    assert_eq!((completion.result, completion.iterations), (Ok(0), 2));
    assert_eq!(fixture.engine.stats().trial_hits, before.trial_hits);
}

/// tmpfs does not know `RWF_NOWAIT`, and keeps nothing that could be waited for but what was swapped out.
#[test]
fn a_read_of_a_file_in_memory_needs_no_backend() {
    const TMPFS: i64 = 0x0102_1994;
    let Some(mut fixture) = fixture() else { return };
    let Ok(mut kept) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    if rustix::fs::fstatfs(&kept).unwrap().f_type != TMPFS {
        eprintln!("skipped: /dev/shm is no tmpfs");
        return;
    }
    kept.write_all(&[7; BLOCKS * 4096]).unwrap();
    fixture.file = File::open(kept.path(), &Open::read()).unwrap();
    fixture.kept = kept;
    let before = fixture.engine.stats();
    for block in 0..BLOCKS {
        assert_eq!(fixture.read(block, 4096, Policy::kernel()), 1);
    }
    let after = fixture.engine.stats();
    let tried = after.trials - before.trials;
    // A read that the machine interrupted looks like one that has waited, and then the file rests.
    assert!(tried > 0, "{after:?}");
    assert_eq!(
        (after.memory_reads, after.trial_hits - before.trial_hits),
        (tried, tried)
    );
    assert_eq!(after.batches - before.batches, BLOCKS as u64 - tried);
    // The end of such a file is no question either.
    let buffer = fixture.engine.buffer(4096).unwrap();
    let at_the_end = Request::read(&fixture.file, BLOCKS as u64 * 4096, buffer, Policy::kernel());
    fixture.engine.submit(at_the_end).unwrap();
    fixture.engine.turn(Wait::one()).unwrap();
    let completion = fixture.engine.next_completion().unwrap();
    assert_eq!((completion.result, completion.iterations), (Ok(0), 1));
}
