//! What is refused is refused before anything is changed.

use crate::support::{Place, Unchanged, is_root};

/// Beside a volume `vol` with a segment `a` of 1 MiB, a file `f` of 64 KiB and one that is `empty`, each line ends with this
/// status and this code and names a cure; neither `vol` nor `f` changes, and there is no `new`.
#[track_caller]
pub(crate) fn refuses(lines: &[(&str, i32, &str)]) {
    let place = Place::new();
    place.volume("16M", "1M");
    place.write("empty", b"");
    place.write("f", &[1; 64 << 10]);
    let volume = Unchanged::watch(&place.path("vol"));
    let file = Unchanged::watch(&place.path("f"));
    for &(line, status, code) in lines {
        let told = place.baio(&format!("{line} --json")).fails_with(status).json();
        let error = &told["error"];
        assert_eq!(error["code"], code, "{line}: {error}");
        assert!(error["cure"].is_string(), "{line}: {error}");
        volume.check(line);
        file.check(line);
        assert!(!place.path("new").exists(), "{line}");
    }
}

/// Each of `writes` would write over the volume `vol`, and is told how to insist; `reads` changes nothing and may.
pub(crate) fn refuses_to_overwrite_a_volume(writes: &[&str], reads: &str) -> Place {
    let place = Place::new();
    place.volume("16M", "1M");
    let watched = Unchanged::watch(&place.path("vol"));
    for line in writes {
        let error = place.error(line, 1);
        assert_eq!(error["code"], "EEXIST", "{line}");
        assert!(error["cure"].as_str().unwrap().contains("--force"), "{line}");
        watched.check(line);
    }
    place.baio(reads).succeeds();
    watched.check("reading it");
    place
}

/// `vol#12345/b` is somebody else's: root `reads` it as it likes, and `writes` it with force alone.
pub(crate) fn asks_before_writing_a_segment_of_somebody_else(writes: &str, reads: &str) {
    if !is_root() {
        return; // Only root may make segments for others.
    }
    let place = Place::new();
    place.volume("16M", "1M");
    place.baio("create vol#12345/b --size 64K").succeeds();
    let error = place.error(writes, 1);
    assert_eq!(error["code"], "EPERM");
    place.baio(reads).succeeds();
    place.baio(&format!("{writes} --force")).succeeds();
}
