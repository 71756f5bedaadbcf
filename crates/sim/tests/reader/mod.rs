//! Lets `reader/reader.py` read the images in a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use baio_sim::images::Said;
use serde_json::Value;

/// An empty folder of this name, among the temporary files of the tests.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the reader says of each image in a folder, by its name; nothing where there is no Python.
pub(crate) fn read_all(folder: &Path) -> Option<BTreeMap<String, Value>> {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("reader/reader.py");
    let output = match Command::new("python3")
        .arg(&reader)
        .arg("--folder")
        .arg(folder)
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED: python3 cannot be run: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let parse = |line: &str| {
        let said: Value = serde_json::from_str(line).unwrap();
        (said["image"].as_str().unwrap().to_owned(), said)
    };
    Some(text.lines().map(parse).collect())
}

/// What the reader says otherwise than the library: whether it is a volume, its segments, its free blocks.
pub(crate) fn difference(library: &Said, reader: &Value) -> Option<String> {
    let differ = || Some(format!("the library says {library:?}, the reader {reader}"));
    let is_volume = reader["verdict"] == "volume";
    if library.refused.is_some() {
        return if is_volume { differ() } else { None };
    }
    let row = |segment: &Value| {
        let number = |key: &str| segment[key].as_u64().unwrap();
        let text = |key: &str| segment[key].as_str().unwrap().to_owned();
        (
            number("uid") as u32,
            text("name"),
            text("state"),
            number("start_block"),
            number("size_bytes"),
            number("reserve_bytes"),
        )
    };
    let theirs: Vec<_> = reader["segments"].as_array().into_iter().flatten().map(row).collect();
    let agree = is_volume && theirs == library.segments && reader["free"].as_u64() == Some(library.free);
    if agree { None } else { differ() }
}
