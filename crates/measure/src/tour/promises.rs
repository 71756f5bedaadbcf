//! That nothing is lost: bytes that go through a segment, and records of a writer that is killed.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use baio::{Durability, File, Link, LinkOptions, LogOptions, Remote};
use serde::Serialize;

use crate::figures::job;
use crate::figures::runner::ends_with_this;
use crate::figures::worker::Job;
use crate::figures::worker::appender::{Appender, record_of};
use crate::report::files::{Way, carry, new_segment};

const BYTES: usize = 64 << 20;
const PIECE: usize = 1 << 20;
/// How long the writer lives, and how much it may write.
const LIFE: Duration = Duration::from_secs(1);
const RECORDS_MAX: u64 = 10_000;

/// A file that went into a segment and came back.
#[derive(Debug, Serialize)]
pub(super) struct Carried {
    bytes: usize,
    pub(super) same: bool,
    seconds: f64,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let back = if self.same {
            "came back the same"
        } else {
            "came back CHANGED"
        };
        let (mib, seconds) = (self.bytes >> 20, self.seconds);
        write!(
            f,
            "{mib} MiB went into a segment of a new volume, durably, and {back}, in {seconds:.1} s."
        )
    }
}

/// # Errors
/// What could not be done, and why.
pub(super) fn there_and_back(volume: &Path) -> Result<Carried, String> {
    let begun = Instant::now();
    let carried = through_a_segment(volume).map_err(|error| error.to_string())?;
    Ok(Carried {
        bytes: BYTES,
        same: carried,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn through_a_segment(path: &Path) -> baio::Result<bool> {
    let (volume, segment) = new_segment(path, "carried", BYTES as u64, &LinkOptions::default())?;
    let carried = (&volume, &segment);
    let pieces = || (0..BYTES).step_by(PIECE).map(|at| (at as u64, PIECE));
    carry(carried, Way::In, pieces(), 1, |at, piece| {
        piece.copy_from_slice(&bytes_of(at))
    })?;
    segment.sync(Durability::Data).wait()?;
    let mut same = true;
    carry(carried, Way::Out, pieces().rev(), 1, |at, piece| {
        same &= *piece == bytes_of(at)[..]
    })?;
    drop(segment);
    volume.close()?;
    Ok(same)
}

/// No two pieces are alike, nor two words of one.
fn bytes_of(at: u64) -> Vec<u8> {
    let words = (0..PIECE as u64 / 8).map(|word| baio_stress::mix(at + word));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A log whose writer was killed.
#[derive(Debug, Serialize)]
pub(super) struct Killed {
    /// Records of which the writer was told that they are safe.
    acknowledged: u64,
    /// Records that are there.
    found: u64,
    /// Of the acknowledged ones, those that are not, or not in their place.
    pub(super) lost: u64,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A program that wrote a log was killed. {} records were acknowledged: ",
            self.acknowledged
        )?;
        match (self.lost, self.found - self.acknowledged.min(self.found)) {
            (0, 0) => f.write_str("all are there."),
            (0, more) => write!(f, "all are there, and {more} more."),
            (lost, _) => write!(f, "{lost} are LOST."),
        }
    }
}

/// Starts a writer, kills it, and looks at what it has left.
///
/// # Errors
/// What could not be done, and why.
pub(super) fn kill(log: &Path) -> Result<Killed, String> {
    let job = Job::Appender(Appender { log: log.to_owned() });
    let mut command = job::command_of(&job)?;
    ends_with_this(&mut command).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("start a writer: {error}"))?;
    let said = child.stdout.take().ok_or("the writer has no output")?;
    let mut lines = BufReader::new(said).split(b'\n');
    let (mut acknowledged, mut begun) = (0, None);
    for line in &mut lines {
        let line = line.map_err(|error| format!("hear the writer: {error}"))?;
        let text = String::from_utf8_lossy(&line);
        // The last line may be cut off; then the one before it counts.
        let Ok(number) = text.parse::<u64>() else { break };
        acknowledged = acknowledged.max(number);
        if begun.get_or_insert_with(Instant::now).elapsed() >= LIFE || acknowledged >= RECORDS_MAX {
            let _ = child.kill();
        }
    }
    let _ = child.kill();
    let ended = child.wait().map_err(|error| format!("wait for the writer: {error}"))?;
    if acknowledged == 0 {
        return Err(format!("the writer of a log has written nothing: {ended}"));
    }
    let found = found_in(log).map_err(|error| error.to_string())?;
    Ok(Killed {
        acknowledged,
        found,
        lost: acknowledged.saturating_sub(found),
    })
}

/// Records in their places, up to the first that is none.
fn found_in(path: &Path) -> baio::Result<u64> {
    let link = Remote::new()?;
    let file = File::options().write().open(&link, path).wait()?;
    let log = file.open_log(&LogOptions::default()).wait()?;
    let mut records = log.records(log.head_lsn());
    let mut found = 0;
    while let Some(record) = records.next_record().wait()? {
        if record.payload() != record_of(found + 1) {
            break;
        }
        found += 1;
    }
    log.close().wait()?;
    drop((records, log, file));
    link.close()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_a_segment_as_they_went_in() {
        let place = tempfile::tempdir().unwrap();
        let carried = there_and_back(&place.path().join("volume")).unwrap();
        assert!(carried.same);
        assert!(
            carried
                .to_string()
                .starts_with("64 MiB went into a segment of a new volume, durably, and came back the same")
        );
    }

    #[test]
    fn what_is_lost_is_loud() {
        let killed = |acknowledged: u64, found: u64| Killed {
            acknowledged,
            found,
            lost: acknowledged.saturating_sub(found),
        };
        assert!(
            killed(9, 9)
                .to_string()
                .ends_with("9 records were acknowledged: all are there.")
        );
        assert!(killed(9, 10).to_string().ends_with("all are there, and 1 more."));
        assert!(killed(9, 7).to_string().ends_with("2 are LOST."));
    }
}
