//! Our library, built once, and C programs that run on it and on glibc's.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

pub const NAME: &str = "libbaio-posix-aio.so";

/// `build.sh`, once for a test program; our library.
pub fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/build.sh");
        let told = Command::new(script).arg("dev").output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        PathBuf::from(String::from_utf8(told.stdout).unwrap().trim()).join(NAME)
    })
}

/// Builds a program of this directory.
pub fn build(source: &str, to: &Path, more: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let told = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(to)
        .arg(source)
        .args(more)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

/// A program of this directory, built once for a test program: its directory is kept as long as the tests run.
pub fn program(source: &'static str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, (tempfile::TempDir, PathBuf)>> = Mutex::new(BTreeMap::new());
    // One that does not build fails each test by itself.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, path) = built.entry(source).or_insert_with(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        build(source, &path, &["-lrt"]);
        (dir, path)
    });
    path.clone()
}
