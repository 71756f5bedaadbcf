//! GNU dd and `baio dd`, copying the beginning of a file to nowhere: whole processes, as they are.

use std::path::PathBuf;
use std::time::Duration;

use baio_stress::Measurement;

use crate::figures::child::Finished;
use crate::figures::command_line::CommandLine;
use crate::figures::start_up;

/// One copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) path: PathBuf,
    /// Bytes of a block, and how many are read.
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) direct: bool,
    /// Of ours, in flight; `None` is GNU dd.
    pub(crate) depth: Option<u32>,
}

impl Copy {
    fn line(&self) -> CommandLine {
        let mut words = vec!["dd".to_owned()];
        words.push(format!("if={}", self.path.display()));
        words.push("of=/dev/null".to_owned());
        words.push(format!("bs={}", self.size));
        words.push(format!("count={}", self.blocks));
        words.extend(self.direct.then(|| "iflag=direct".to_owned()));
        words.extend(self.depth.map(|depth| format!("iodepth={depth}")));
        words.push("status=none".to_owned());
        match self.depth {
            None => CommandLine::of(words),
            Some(_) => CommandLine::own(words),
        }
    }

    pub(crate) fn command_line(&self) -> String {
        self.line().to_string()
    }

    /// A request is a block.
    pub(crate) fn run(&self) -> Result<Measurement, String> {
        let kind = if self.depth.is_some() { "baio dd" } else { "dd" };
        let first = Copy {
            blocks: 1,
            ..self.clone()
        };
        let start = start_up::cost(kind, || first.line().process());
        Ok(self.measured(kind, &self.line().finish()?, start))
    }

    fn measured(&self, kind: &str, finished: &Finished, start: Duration) -> Measurement {
        let seconds = finished.elapsed.as_secs_f64();
        let mut measurement = Measurement {
            in_flight_max: self.depth.unwrap_or(1).into(),
            backend: kind.into(),
            mode: if self.direct { "direct" } else { "kernel" }.into(),
            rss_bytes: finished.rss_bytes,
            ..Measurement::of(self.blocks, self.size, seconds)
        };
        finished.charge(&mut measurement, Some(start));
        measurement
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baio_stress::costs::Costs;

    fn copy(path: PathBuf) -> Copy {
        Copy {
            path,
            size: 512,
            blocks: 3,
            direct: false,
            depth: None,
        }
    }

    #[test]
    fn a_copy_is_the_command_that_is_shown() {
        let gnu = copy("/a file".into());
        assert_eq!(
            gnu.command_line(),
            "dd 'if=/a file' of=/dev/null bs=512 count=3 status=none"
        );
        let ours = Copy {
            direct: true,
            depth: Some(4),
            ..gnu
        };
        assert!(
            ours.command_line()
                .ends_with(" dd 'if=/a file' of=/dev/null bs=512 count=3 iflag=direct iodepth=4 status=none")
        );
    }

    #[test]
    fn a_request_is_a_block() {
        let finished = Finished {
            success: true,
            stdout: String::new(),
            stderr: String::new(),
            costs: Costs::default(),
            elapsed: Duration::from_millis(3),
            rss_bytes: Some(1 << 20),
        };
        let run = copy("/a file".into()).measured("dd", &finished, Duration::ZERO);
        assert_eq!((run.requests, run.errors, run.rss_bytes), (3, 0, Some(1 << 20)));
        assert_eq!(run.bytes_per_second, 512_000.0);
    }
}
