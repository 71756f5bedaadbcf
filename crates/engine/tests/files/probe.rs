//! The mode that a file really gives is found by doing, and told by completions.

use std::io::Write;

use baio_engine::{Caching, Engine, EngineOptions, Errno, File, Open, Policy, Request, Wait};

fn file_in(dir: &str) -> Option<(tempfile::NamedTempFile, File)> {
    let mut kept = tempfile::NamedTempFile::new_in(dir).ok()?;
    kept.write_all(&[7; 1 << 20]).unwrap();
    kept.as_file().sync_all().unwrap();
    rustix::fs::fadvise(kept.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let file = File::open(kept.path(), &Open::read()).unwrap();
    Some((kept, file))
}

#[test]
fn direct_on_a_file_in_memory_is_the_page_cache() {
    let Some((_kept, file)) = file_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    assert_eq!(file.probe(Caching::Kernel), Ok(Caching::Kernel));
    if !file.gives(Caching::Direct) {
        assert_eq!(file.probe(Caching::Direct), Err(Errno::EINVAL));
        eprintln!("skipped: this tmpfs takes no O_DIRECT");
        return;
    }
    assert_eq!(file.probe(Caching::Direct), Ok(Caching::Kernel));
    let mut engine = Engine::new(&EngineOptions::default()).unwrap();
    let buffer = engine.buffer(4096).unwrap();
    engine
        .submit(Request::read(&file, 0, buffer, Policy::direct()))
        .unwrap();
    engine.turn(Wait::one()).unwrap();
    assert_eq!(engine.next_completion().unwrap().took, Caching::Kernel);
}

#[test]
fn direct_on_a_disk_is_direct_or_is_said_not_to_be() {
    let (_kept, file) = file_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !file.gives(Caching::Direct) {
        eprintln!("skipped: the file system has no direct I/O");
        return;
    }
    let found = file.probe(Caching::Direct).unwrap();
    let mut engine = Engine::new(&EngineOptions::default()).unwrap();
    let buffer = engine.buffer(4096).unwrap();
    engine
        .submit(Request::read(&file, 0, buffer, Policy::direct()))
        .unwrap();
    engine.turn(Wait::one()).unwrap();
    assert_eq!(engine.next_completion().unwrap().took, found);
    // Either answer is one; a refusal must be the typed one.
    let uncached = file.probe(Caching::Uncached);
    assert!(
        matches!(uncached, Ok(Caching::Uncached) | Err(Errno::EOPNOTSUPP)),
        "{uncached:?}"
    );
}

/// Linux file systems of which it is known that a direct read goes past their cache.
const DIRECT: [i64; 2] = [0xef53, 0x5846_5342];

/// A read that does not wait begins to read ahead: a probe that asked by one would find its own doing, and call every cold
/// file cached.
#[test]
fn a_cold_file_on_ext4_or_xfs_is_direct() {
    let (kept, file) = file_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = rustix::fs::fstatfs(kept.as_file()).unwrap().f_type;
    if !DIRECT.contains(&(kind as i64)) || !file.gives(Caching::Direct) {
        eprintln!("skipped: neither ext4 nor xfs");
        return;
    }
    assert_eq!(file.probe(Caching::Direct), Ok(Caching::Direct));
    // And it leaves nothing behind that would change the next answer.
    assert_eq!(file.probe(Caching::Direct), Ok(Caching::Direct));
}
