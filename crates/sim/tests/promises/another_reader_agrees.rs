//! The promise: `docs/inside/disk-format.md` says enough. A reader in another language, written from it alone, sees what the library
//! sees: of images that power cuts leave, that were opened and killed, or closed; and finds nothing wrong with them but
//! what a crash alone can leave.

use baio_sim::images::{self, Origin};
use serde_json::Value;

use crate::reader;

const IMAGES: u64 = 320;

#[test]
fn with_the_library_about_every_image() {
    let folder = reader::folder("read-by-another");
    let library = images::write_all(&folder, 1, IMAGES).unwrap();
    let Some(read) = reader::read_all(&folder) else { return };
    let mut wrong = Vec::new();
    let (mut moving, mut half_renamed, mut segments) = (0, 0, 0);
    for said in &library {
        let other = &read[&said.image];
        wrong.extend(reader::difference(said, other));
        let problems: Vec<&Value> = other["problems"].as_array().into_iter().flatten().collect();
        let is_allowed = |problem: &Value| match said.origin {
            Some(Origin::Crash) => problem["crash"] == true,
            Some(Origin::Rotten) => true,
            Some(Origin::Opened | Origin::Closed) | None => false,
        };
        if problems.iter().any(|problem| !is_allowed(problem)) {
            wrong.push(format!(
                "{} ({:?}): the reader finds {problems:?}",
                said.image, said.origin
            ));
        }
        segments += said.segments.len();
        moving += said.segments.iter().filter(|segment| segment.2 == "moving").count();
        half_renamed += problems.iter().filter(|problem| problem["kind"] == "rename").count();
    }
    assert!(wrong.is_empty(), "{} of {IMAGES}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        segments > 400 && moving > 3 && half_renamed > 0,
        "{segments} segments, {moving} moving, {half_renamed} half renames"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
