//! Seed 004 §4: many requests in one call. 4 KiB random direct reads, 64 in flight, handed over 1 to 64 at a time and awaited as many at a time:
//! what a submission costs, and what is saved when requests share it.

use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::Rw;

use crate::figures::fio::{self, Engine};
use crate::figures::middle;
use crate::figures::stress::Run;
use crate::report::Setting;
use crate::report::comparison::{Findings, Peer, Side};
use crate::report::marks::rate;
use crate::report::places::Site;

const DEPTH: u32 = 64;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.either((Duration::from_millis(200), 1), (Duration::from_millis(400), 3));
    let bytes = setting
        .either(setting.working_set / 4, setting.working_set)
        .max(1 << 20);
    let file = Site::file_to_read(setting, "batches", bytes)?;
    let bytes = file.bytes;
    findings.lines.push(format!(
        "4 KiB random direct reads of {} MiB, {DEPTH} in flight, handed over and awaited N at a time; {rounds} rounds of {} ms a side, \
         median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    let swept: &[u32] = setting.either(&[1, 16, DEPTH], &[1, 2, 4, 8, 16, 32, DEPTH]);
    for &batch in swept {
        let ours = |batch| {
            let run = Run::new(&file.target, "randread", DEPTH, runtime);
            run.posting().with(&format!("--batch {batch}")).with(&file.words())
        };
        let words = format!("--bs=4096 --iodepth_batch_submit={batch} --iodepth_batch_complete_min={batch}");
        let job = fio::Job::new(Engine::IoUring, Rw::RandomRead, vec![file.path.clone()], bytes, DEPTH);
        let theirs = Side::fio(job.with(&words).with(file.fios_words()).timed(runtime));
        let mut peers = vec![Peer::new(theirs, [rate(0.97)])];
        if batch > 1 {
            let single = Side::stress("ours, one at a time".into(), ours(1));
            peers.push(Peer::new(single, []));
        }
        let turns = findings.compare(rounds, Side::stress(format!("{batch} at a time"), ours(batch)), peers)?;
        let calls = middle(&turns.ours, |run| run.system_calls_per_request.unwrap_or(f64::NAN));
        findings.count("system calls a request", "system_calls", calls, None);
    }
    Ok(())
}
