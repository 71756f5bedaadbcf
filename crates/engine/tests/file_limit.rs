//! The claim: a write, a truncation or an allocation beyond the limit of file sizes (`ulimit -f`) fails with `EFBIG` on every backend, and
//! ends no program, though it may be made in the program's own thread.

use baio_engine::{Choice, Durability, Engine, EngineOptions, Errno, Error, File, Open, Policy, Request};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT: u64 = 64 << 10;

#[test]
fn what_is_beyond_the_limit_fails_and_ends_nothing() {
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some(LIMIT),
        maximum: before.maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for backend in [Choice::Uring, Choice::Aio, Choice::Threads, Choice::Sync] {
        let config = EngineOptions {
            backend,
            ..EngineOptions::default()
        };
        let Ok(mut engine) = Engine::new(&config) else {
            eprintln!("skipped: {backend:?} does not start here");
            continue;
        };
        let path = dir.path().join(format!("{backend:?}"));
        std::fs::write(&path, []).unwrap();
        let file = File::open(&path, &Open::write()).unwrap();
        let buffer = engine.buffer(4096).unwrap();
        let within = engine.run(Request::write(&file, LIMIT - 4096, buffer, Policy::kernel()));
        assert_eq!(within.result, Ok(4096), "{backend:?}");
        let buffer = engine.buffer(4096).unwrap();
        let beyond = engine.run(Request::write(&file, LIMIT, buffer, Policy::kernel()));
        assert_eq!(beyond.result, Err(Error::System(Errno::EFBIG)), "{backend:?}");
        assert!(beyond.result.unwrap_err().cure().unwrap().contains("ulimit -f"));
        let longer = engine.run(Request::truncate(&file, LIMIT + 1, Durability::None));
        assert_eq!(longer.result, Err(Error::System(Errno::EFBIG)), "{backend:?}");
        file.set_size(LIMIT + 1).unwrap_err();
        assert_eq!(file.size().unwrap(), LIMIT, "{backend:?}");
    }
    // The harness may print into a file, that of `cargo test >told`.
    setrlimit(Resource::Fsize, before).unwrap();
}
