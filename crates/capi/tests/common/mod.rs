//! C programs against the library as it is installed: built once for each test binary, by `build.sh`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where `build.sh` lays the library out.
pub(crate) fn installed() -> &'static Path {
    static AT: OnceLock<PathBuf> = OnceLock::new();
    AT.get_or_init(|| {
        let built = Command::new(in_crate("build.sh")).arg("dev").output().unwrap();
        assert!(built.status.success(), "build.sh: {}", text(&built.stderr));
        PathBuf::from(text(&built.stdout).trim())
    })
}

pub(crate) fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a source of this package, with every warning an error, into `dir`.
pub(crate) fn compiled(source: &str, compiler: &str, standard: &str, dir: &Path) -> PathBuf {
    let program = dir.join("program");
    let at = installed();
    let made = Command::new(compiler)
        .args([
            standard,
            "-D_GNU_SOURCE",
            "-g",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
        ])
        .arg(in_crate(source))
        .arg("-I")
        .arg(at.join("include"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(at.join("lib"))
        .arg(format!("-Wl,-rpath,{}", at.join("lib").display()))
        .args(["-lbaio", "-lpthread"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{compiler} {source}: {}", text(&made.stderr));
    program
}

/// It ended well.
pub(crate) fn ended_well(output: &Output, what: &str) {
    assert!(
        output.status.success(),
        "{what}: {}: {}",
        output.status,
        text(&output.stderr)
    );
}

/// Compiles a test program and runs it with a directory of its own.
#[allow(dead_code, reason = "not every test binary does")]
pub(crate) fn holds(source: &str) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("files");
    std::fs::create_dir(&place).unwrap();
    let output = test_program(source, dir.path()).arg(place).output().unwrap();
    ended_well(&output, source);
}

/// A test program, to be run.
#[allow(dead_code, reason = "not every test binary does")]
pub(crate) fn test_program(source: &str, dir: &Path) -> Command {
    Command::new(compiled(source, "gcc", "-std=c99", dir))
}

/// In one write, so that lines of tests do not mix.
#[allow(dead_code, reason = "not every test binary does")]
pub(crate) fn skipped(test: &str, needs: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(format!("SKIPPED: {test}: needs {needs}\n").as_bytes());
}
