//! ioping as a peer: one request at a time, direct, at random places.
//!
//! It tells either the mean of all requests or each of them, and the second takes time between them. So it runs twice: once for what
//! requests a second and processor time are taken from, and once with a line for each request, from which the points of the
//! distribution are.

use std::path::PathBuf;
use std::time::Duration;

use baio_stress::{Measurement, Recorder};

use crate::figures::command_line::CommandLine;
use crate::figures::start_up;

/// Numbers of a line: of earlier versions it has others, in other units.
const COLUMNS: usize = 10;

/// Reads of 4 KiB for a while.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    /// Where the bytes begin of which it reads, and how many there are.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) runtime: Duration,
}

/// What is told at the end.
const IN_SUM: &str = "-B";
/// What is told of each request.
const EACH: &str = "-p1";

/// A line that it prints.
struct Line {
    /// Requests that it counted, and how long they took, in nanoseconds: the mean.
    mean_ns: f64,
    /// All requests, and all the time.
    requests: u64,
    seconds: f64,
}

impl Line {
    fn read(line: &str) -> Option<Line> {
        let numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        if numbers.len() != COLUMNS {
            return None;
        }
        Some(Line {
            mean_ns: numbers[5] as f64,
            requests: numbers[8],
            seconds: numbers[9] as f64 / 1e9,
        })
    }
}

impl Job {
    fn line(&self, told: &str, runtime: Duration) -> CommandLine {
        let mut words = ["ioping", "-D", "-q", told, "-i0", "-s4k"].map(str::to_owned).to_vec();
        words.push(format!("-o{}", self.offset));
        words.push(format!("-S{}", self.len));
        words.push(format!("-w{}ms", runtime.as_millis()));
        words.push(self.path.display().to_string());
        CommandLine::of(words)
    }

    /// Both commands, as a shell would be given them.
    pub(crate) fn command_line(&self) -> String {
        let line = |told| self.line(told, self.runtime);
        format!("{} && {}", line(IN_SUM), line(EACH))
    }

    /// Runs it both ways.
    pub(crate) fn run(&self) -> Result<Measurement, String> {
        let whole = self.line(IN_SUM, self.runtime).finish()?;
        let each = self.line(EACH, self.runtime).finish()?;
        let mut measured = parse(&whole.stdout, &each.stdout)?;
        let start = start_up::cost("ioping", || self.line(IN_SUM, start_up::RUNTIME).process());
        whole.charge(&mut measured, Some(start));
        measured.rss_bytes = whole.rss_bytes;
        Ok(measured)
    }
}

/// What it printed in sum, and of each request.
fn parse(in_sum: &str, each: &str) -> Result<Measurement, String> {
    let strange = |line: &str| format!("ioping printed {line:?}, and not the {COLUMNS} numbers of version 1");
    let read = |line: &str| Line::read(line).ok_or_else(|| strange(line));
    let sum = read(in_sum.trim())?;
    let mut recorder = Recorder::new();
    for line in each.lines().filter(|line| !line.trim().is_empty()) {
        recorder.record(Duration::from_nanos(read(line)?.mean_ns as u64));
    }
    if sum.requests == 0 || recorder.count() == 0 {
        return Err("ioping made no request".into());
    }
    let mut latency = recorder.latency();
    latency.mean = Some(sum.mean_ns / 1e3);
    Ok(Measurement {
        latency_us: latency,
        in_flight_max: 1,
        threads_max: Some(1),
        backend: "ioping".into(),
        mode: "direct".into(),
        ..Measurement::of(sum.requests, 4096, sum.seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_sum_and_the_points_are_of_each() {
        let sum = "99 15494833 6389 26170272 44131 156513 8147414 814051 100 200000000\n";
        let line = |ns: u32| format!("1 {ns} 9906 40573738 {ns} {ns} {ns} 0 1 119278\n");
        let each: String = [50_000, 60_000, 900_000].map(line).concat();
        let measured = parse(sum, &each).unwrap();
        assert_eq!((measured.requests, measured.iops), (100, 500.0));
        assert_eq!(measured.latency_us.mean, Some(156.513));
        let p50 = measured.latency_us.p50.unwrap();
        assert!((59.0..=61.0).contains(&p50), "{p50}");
    }

    #[test]
    fn another_versions_output_is_no_measurement() {
        let old = "99 15494 6389 26170272 44 156 8147 814\n";
        assert!(parse(old, "").unwrap_err().contains("numbers"));
        assert!(parse("", "").is_err());
        let none = "0 0 0 0 0 0 0 0 0 0\n";
        assert!(parse(none, "").unwrap_err().contains("no request"));
    }

    #[test]
    fn it_only_reads_and_no_more_than_it_is_told() {
        let job = Job {
            path: "/a file".into(),
            offset: 4096,
            len: 1 << 20,
            runtime: Duration::from_millis(400),
        };
        assert_eq!(
            job.command_line(),
            "ioping -D -q -B -i0 -s4k -o4096 -S1048576 -w400ms '/a file' && \
             ioping -D -q -p1 -i0 -s4k -o4096 -S1048576 -w400ms '/a file'"
        );
    }
}
