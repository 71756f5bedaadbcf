//! The disk alone, as `baio tour` measures it: what a report begins with.

use std::time::Duration;

use baio_console::failure::Failure;

use crate::disk;
use crate::report::findings::{Findings, our_side};
use crate::report::places::Site;
use crate::report::setting::Setting;

const NAME: &str = "disk";

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let site = Site::file_to_read(setting, NAME, setting.working_set.min(disk::SIZE))?;
    let (each, rounds) = setting.either((Duration::from_millis(250), 3), (Duration::from_millis(650), 3));
    let work = disk::Work {
        path: &site.path,
        size: site.bytes,
        only_reads: setting.target.is_some(),
        rounds,
        each,
    };
    findings.disk = disk::take(&work, |what| findings.progress.at(what)).map_err(|error| our_side(error, NAME))?;
    Ok(())
}
