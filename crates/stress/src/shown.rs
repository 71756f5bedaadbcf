//! How far a stage is, for whoever looks at the terminal. A thread beside the lanes asks; the loop that measures only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baio_console::progress::{Progress, Unit};

use super::job::{Job, Stage};

/// Shows the stage that begins now, until it is dropped.
pub(super) fn stage(job: &Job, stage: &Stage, ended: &Arc<AtomicU64>) -> Progress {
    ended.store(0, Ordering::Relaxed);
    let what = format!("{} {}", job.command, stage.rw.name());
    match (requests(job, stage), stage.runtime) {
        (Some(requests), _) => {
            let (ended, each) = (Arc::clone(ended), job.request_size);
            Progress::asked(&what, Unit::Bytes, move |line| {
                let done = ended.load(Ordering::Relaxed);
                line.reach(done.saturating_mul(each), requests.saturating_mul(each));
            })
        }
        (None, Some(runtime)) => {
            let begun = Instant::now();
            let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Progress::asked(&what, Unit::Milliseconds, move |line| {
                line.reach(milliseconds(begun.elapsed()), milliseconds(runtime));
            })
        }
        (None, None) => Progress::waiting(&what),
    }
}

/// The requests that the stage will make, where their number ends it.
fn requests(job: &Job, stage: &Stage) -> Option<u64> {
    if let Some(each) = stage.requests {
        return Some(each.saturating_mul(job.lanes.len() as u64));
    }
    let streams = job.lanes.iter().flat_map(|lane| &lane.streams);
    let blocks = streams.map(|stream| (stream.end - stream.start) / job.request_size.max(1));
    (!stage.endless).then(|| blocks.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Lane, Stream};
    use crate::job::{Objects, Rw};

    #[test]
    fn what_ends_a_stage_is_what_is_counted() {
        let stream = Stream {
            object: 0,
            start: 0,
            end: 10 * 4096,
        };
        let lane = Lane {
            depth: 1,
            batch: 1,
            streams: vec![stream, stream],
        };
        let job = Job {
            lanes: vec![lane.clone(), lane],
            ..Job::new("stress", Objects::Files(Vec::new()), 4096)
        };
        let once = Stage::of(Rw::Read);
        assert_eq!(requests(&job, &once), Some(40));
        let endless = Stage { endless: true, ..once };
        assert_eq!(requests(&job, &endless), None);
        let counted = Stage {
            requests: Some(7),
            ..endless
        };
        assert_eq!(requests(&job, &counted), Some(14));
    }
}
