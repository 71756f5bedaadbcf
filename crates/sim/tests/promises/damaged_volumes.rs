//! The promise: whatever is on a device, listing, measuring, checking, repairing, opening and formatting it never panics; who only
//! looks writes nothing, and takes no more memory and reads than the volume's own tables ask for; and a volume that was
//! repaired is sound, also for a reader that shares no code with the library. (20,000 images: `baio-sim mutate`.)

use baio_sim::images;
use baio_sim::mangle::{self, Plan};

use crate::reader;

#[test]
fn are_looked_at_and_repaired_without_harm() {
    let folder = reader::folder("damaged");
    let plan = Plan {
        seed: 1,
        images: std::env::var("BAIO_IMAGES").map_or(320, |n| n.parse().unwrap()),
        folder: &folder,
        sample: 4,
    };
    let report = mangle::run(&plan, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    for seen in [
        "listed",
        "not_listed",
        "opened",
        "not_opened",
        "repaired",
        "not_repaired",
    ] {
        assert!(report.more(seen) > 20, "{seen}: {report:?}");
    }
    assert!(report.more("formats_refused") > 40, "{report:?}");
    let Some(read) = reader::read_all(&folder) else { return };
    assert!(read.len() > 100, "{} images", read.len());
    let mut wrong = Vec::new();
    for (name, said) in read {
        wrong.extend(reader::difference(&images::said_of_file(&folder.join(&name)), &said));
        let problems = said["problems"].as_array().map_or(0, Vec::len);
        if name.ends_with("-repaired.img") && problems > 0 {
            wrong.push(format!("{name}: the reader says {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    std::fs::remove_dir_all(&folder).unwrap();
}
