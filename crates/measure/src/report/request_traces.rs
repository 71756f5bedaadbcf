//! What single requests do, iteration by iteration, beside what seed 001 reports of the retry-based kernel: the program of
//! that name under `examples/`, each of its counts held to a mark.

use baio_console::failure::Failure;
use serde_json::json;

use crate::figures::worker::request_traces::{self, BYTES, READAHEAD};
use crate::report::Setting;
use crate::report::comparison::Findings;
use crate::report::marks::Bound;
use crate::report::places::Site;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let file = Site::file(setting, "request-traces", BYTES)?;
    findings.lines.push(format!(
        "on a file of {} MiB past the kernel's cache; one line a step; at most {} KiB are read ahead",
        BYTES >> 20,
        READAHEAD >> 10
    ));
    let played = request_traces::run(&file.path).map_err(|error| {
        Failure::new("report", "EIO", error)
            .on(file.target.as_str())
            .needing("requests that can be carried out")
            .cured_by("`baio doctor` tells what works here")
    })?;
    for scene in played {
        findings
            .lines
            .push(format!("{}: in the document {}", scene.what, scene.theirs));
        let part = json!({ "part": scene.what, "theirs": scene.theirs, "steps": scene.steps });
        findings.parts.push(part);
        for count in scene.counts {
            findings.count(count.said, count.key, count.value, Some(Bound::AtMost(count.most)));
        }
        findings.errors += scene.wrong;
    }
    Ok(())
}
