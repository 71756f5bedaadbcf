//! `baio stress` in a process of its own: the side of ours that a reader can run again by its command.

use std::path::Path;
use std::time::Duration;

use baio_stress::Measurement;

use crate::figures::command_line::{CommandLine, Measures};
use crate::figures::start_up;

/// A run of `baio stress` with `--json`: requests of 4 KiB for a while, or to each block once.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    target: String,
    rw: String,
    depth: u32,
    /// How long at most.
    runtime: Option<Duration>,
    /// Submit and wait in one turn, else each submission by a call that is timed.
    one_turn: bool,
    /// Its processor time is told with what the command takes to start and to end alone.
    whole: bool,
    further: Vec<String>,
}

impl Run {
    /// On `target`, a file or a segment as it would be typed.
    pub(crate) fn new(target: &str, rw: &str, depth: u32, runtime: Duration) -> Run {
        Run {
            target: target.to_owned(),
            rw: rw.to_owned(),
            depth,
            runtime: Some(runtime),
            one_turn: true,
            whole: false,
            further: Vec::new(),
        }
    }

    /// Each block once, however long that takes.
    pub(crate) fn once(target: &str, rw: &str, depth: u32) -> Run {
        Run::untimed(target, rw, depth).with("--once")
    }

    /// As many requests as further options say.
    pub(crate) fn untimed(target: &str, rw: &str, depth: u32) -> Run {
        Run {
            runtime: None,
            ..Run::new(target, rw, depth, Duration::ZERO)
        }
    }

    /// With further options, none of which has a blank in it.
    pub(crate) fn with(mut self, words: &str) -> Run {
        self.further.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// The same with each submission by a call of its own, which is timed.
    pub(crate) fn posting(self) -> Run {
        Run {
            one_turn: false,
            ..self
        }
    }

    /// The same without a look at what its start takes: where that would take as long as the run.
    pub(crate) fn whole(self) -> Run {
        Run { whole: true, ..self }
    }

    /// No longer than this.
    pub(crate) fn at_most(mut self, runtime: Duration) -> Run {
        self.runtime = Some(runtime);
        self
    }

    /// Buffers and threads are made by number, and filled by who writes; everything else that starts does so at any depth.
    fn kind(&self) -> String {
        format!(
            "stress {} {} {} {}",
            self.target,
            self.rw,
            self.depth,
            self.further.join(" ")
        )
    }
}

impl Measures for Run {
    fn line(&self) -> CommandLine {
        let mut words: Vec<String> = ["stress", &self.target, "--rw", &self.rw].map(str::to_owned).into();
        words.extend(["--depth".to_owned(), self.depth.to_string()]);
        if let Some(runtime) = self.runtime {
            words.extend(["--runtime".to_owned(), format!("{}ms", runtime.as_millis())]);
        }
        words.extend(self.one_turn.then(|| "--one-turn".to_owned()));
        words.push("--json".to_owned());
        words.extend(self.further.iter().cloned());
        CommandLine::own(words)
    }

    /// Its costs are the whole process's, as on the other side.
    fn run(&self) -> Result<Measurement, String> {
        let finished = self.line().finish()?;
        let mut measured: Measurement =
            serde_json::from_str(&finished.stdout).map_err(|error| format!("the output of stress: {error}"))?;
        let start = (!self.whole).then(|| {
            start_up::cost(&self.kind(), || {
                let short = Run {
                    runtime: Some(start_up::RUNTIME),
                    ..self.clone()
                };
                short.line().process()
            })
        });
        finished.charge(&mut measured, start);
        Ok(measured)
    }
}

/// A target that names a segment of the caller's own.
pub(crate) fn segment_target(volume: &Path, name: &str) -> String {
    format!("{}#{name}", volume.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_and_who_writes_start_in_different_ways() {
        let run = |rw| Run::new("f", rw, 8, Duration::from_millis(1));
        assert_eq!(run("randread").kind(), run("randread").posting().kind());
        assert_ne!(run("randread").kind(), run("randwrite").kind());
    }
}
