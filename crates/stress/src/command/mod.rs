//! The command lines over the loop: each has what is typed, what it means, and how it is shown.

use baio_console::failure::Failure;
use serde_json::Value;

use crate::result::{Report, StageReport};
use crate::{Claim, Job, Want};

pub(crate) mod aio_stress;
pub(crate) mod stress;

/// Makes the files that are missing, and runs; `watch` sees each stage that has ended. Beside the report stands what
/// ended it or the first request that failed, which is told, as an error object.
fn carry_out(
    job: &mut Job,
    wants: &[Want],
    claims: Vec<Claim>,
    watch: &mut dyn FnMut(&Job, &StageReport),
) -> Result<(Report, Option<Value>), Failure> {
    crate::make(job, wants)?;
    let report = crate::run(job, &mut |stage| watch(job, stage))?;
    drop(claims);
    let first_error = report.first_error().map(|failure| {
        failure.tell();
        failure.to_json()["error"].take()
    });
    Ok((report, first_error))
}
