//! The promise: `docs/disk-format.md` says enough. A reader in another language, written from it alone, sees what the library
//! sees: of images that power cuts leave, that were opened and killed, or closed; and finds nothing wrong with them but
//! what a crash alone can leave.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use baio_sim::images::{self, Origin};
use serde_json::Value;

const IMAGES: u64 = 320;

/// What the reader says of each image in a folder, by its name; nothing where there is no Python.
fn read_all(folder: &Path) -> Option<BTreeMap<String, Value>> {
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

#[test]
fn with_the_library_about_every_image() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("read-by-another");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let library = images::write_all(&folder, 1, IMAGES).unwrap();
    let Some(reader) = read_all(&folder) else { return };
    let mut wrong = Vec::new();
    let (mut moving, mut half_renamed, mut segments) = (0, 0, 0);
    for said in &library {
        let other = &reader[&said.image];
        let is_volume = other["verdict"] == "volume";
        if is_volume != said.refused.is_none() {
            wrong.push(format!("{said:?}: the reader says {other}"));
            continue;
        }
        let theirs: Vec<_> = other["segments"].as_array().into_iter().flatten().map(row).collect();
        let ours: Vec<_> = said
            .segments
            .iter()
            .map(|s| (s.0, s.1.clone(), s.2.to_owned(), s.3, s.4, s.5))
            .collect();
        if is_volume && (theirs != ours || other["free"].as_u64() != Some(said.free)) {
            wrong.push(format!("{said:?}: the reader says {other}"));
        }
        let problems: Vec<&Value> = other["problems"].as_array().into_iter().flatten().collect();
        let is_allowed = |problem: &Value| match said.origin {
            Origin::Crash => problem["crash"] == true,
            Origin::Opened | Origin::Closed => false,
            Origin::Rotten => true,
        };
        if problems.iter().any(|problem| !is_allowed(problem)) {
            wrong.push(format!(
                "{} ({:?}): the reader finds {problems:?}",
                said.image, said.origin
            ));
        }
        segments += ours.len();
        moving += ours.iter().filter(|segment| segment.2 == "moving").count();
        half_renamed += problems.iter().filter(|problem| problem["kind"] == "rename").count();
    }
    assert!(wrong.is_empty(), "{} of {IMAGES}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        segments > 400 && moving > 3 && half_renamed > 0,
        "{segments} {moving} {half_renamed}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

fn row(segment: &Value) -> (u32, String, String, u64, u64, u64) {
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
}
