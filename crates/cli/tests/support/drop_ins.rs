//! The drop-in library that stories run programs on.

use std::process::Command;
use std::sync::OnceLock;

/// Where libaio.so.1 is, built once.
pub(crate) fn libraries() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../libaio/build.sh");
        let told = Command::new(script).arg("dev").output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).unwrap().trim().to_owned()
    })
}
