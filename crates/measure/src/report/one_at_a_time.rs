//! One direct read at a time, beside ioping, which is made for that question: what a request takes when nothing else is under way. The
//! device's own time is in both, so what is compared is what each adds to it.

use baio_console::failure::Failure;

use crate::figures::ioping;
use crate::figures::stress::Run;
use crate::report::Setting;
use crate::report::comparison::{Findings, Peer, Side};
use crate::report::marks::{Figure, Mark};
use crate::report::places::Site;

/// What is less than this cannot be told from the device's own drift.
const P50_AT_MOST: f64 = 1.03;

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring();
    let places = Site::to_read(setting, "one-at-a-time", setting.working_set)?;
    findings.lines.push(format!(
        "4 KiB random direct reads, the next when the one before has ended, of {} MiB; {rounds} rounds of {} ms a side, median of the ratios; \
         ioping runs twice, once for the rate and the processor time, once for the time of each request",
        setting.working_set >> 20,
        runtime.as_millis()
    ));
    for place in &places {
        let ours = Run::new(&place.target, "randread", 1, runtime).with(&place.words());
        let theirs = ioping::Job {
            path: place.path.clone(),
            offset: place.offset,
            len: place.bytes,
            runtime,
        };
        let theirs = Side {
            name: "ioping".into(),
            command: theirs.command_line(),
            run: Box::new(move || theirs.run()),
        };
        let peer = Peer {
            also: &[Figure::P99, Figure::ContextSwitches],
            ..Peer::new(theirs, [Mark::at_most(Figure::P50, P50_AT_MOST)])
        };
        findings.compare(rounds, Side::stress(place.said.into(), ours), vec![peer])?;
    }
    Ok(())
}
