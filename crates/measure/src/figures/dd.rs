//! GNU dd and `baio dd`, copying the beginning of a file to nowhere: whole processes, as they are.

use std::path::PathBuf;

use baio_stress::Measurement;

use crate::figures::command_line::{CommandLine, Measures};
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
    fn program(&self) -> &'static str {
        if self.depth.is_some() { "baio dd" } else { "dd" }
    }

    /// Buffers are made by number and size, and direct ones in another way.
    fn kind(&self) -> String {
        format!("{} {} {:?} {}", self.program(), self.size, self.depth, self.direct)
    }
}

impl Measures for Copy {
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

    /// A request is a block.
    fn run(&self) -> Result<Measurement, String> {
        let finished = self.line().finish()?;
        // Behind it: before it, it would leave the beginning of a cold file in the kernel's cache.
        let first = Copy {
            blocks: 1,
            ..self.clone()
        };
        let start = start_up::cost(&self.kind(), || first.line().process());
        let mut measurement = Measurement {
            in_flight_max: self.depth.unwrap_or(1).into(),
            backend: self.program().into(),
            mode: if self.direct { "direct" } else { "kernel" }.into(),
            rss_bytes: Some(finished.ended.memory_bytes),
            ..Measurement::of(self.blocks, self.size, finished.ended.elapsed.as_secs_f64())
        };
        finished.charge(&mut measurement, Some(start));
        Ok(measurement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_command_that_is_shown() {
        let gnu = Copy {
            path: "/a file".into(),
            size: 512,
            blocks: 3,
            direct: false,
            depth: None,
        };
        assert_eq!(
            gnu.line().to_string(),
            "dd 'if=/a file' of=/dev/null bs=512 count=3 status=none"
        );
        let ours = Copy {
            direct: true,
            depth: Some(4),
            ..gnu
        };
        assert!(
            ours.line()
                .to_string()
                .ends_with(" dd 'if=/a file' of=/dev/null bs=512 count=3 iflag=direct iodepth=4 status=none")
        );
    }

    #[test]
    fn copies_that_start_in_different_ways_are_of_different_kinds() {
        let gnu = Copy {
            path: "f".into(),
            size: 512,
            blocks: 3,
            direct: false,
            depth: None,
        };
        let longer = Copy {
            blocks: 300,
            ..gnu.clone()
        };
        assert_eq!(gnu.kind(), longer.kind());
        let large = Copy {
            size: 1 << 20,
            ..gnu.clone()
        };
        let direct = Copy {
            direct: true,
            ..gnu.clone()
        };
        let ours = |depth| Copy {
            depth: Some(depth),
            ..gnu.clone()
        };
        let mut kinds: Vec<String> = [gnu.clone(), large, direct, ours(1), ours(8)]
            .iter()
            .map(Copy::kind)
            .collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 5, "{kinds:?}");
    }
}
