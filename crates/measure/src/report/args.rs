//! `baio report` as typed.

use std::path::PathBuf;

use baio_console::size::Size;
use baio_console::target::TypedTarget;
use clap::{Args, ValueEnum};

/// `baio report`
#[derive(Debug, Args)]
#[command(after_help = "\
It shows this disk in figures, with advice, and how often baio was faster, the same or slower than fio, blocking calls and dd, which
run in turn with it. What the rounds cannot tell apart counts as the same. After each experiment everything measured so far is in
report.json. ^C ends the report and shows what there is; --resume goes on from there. Working files are removed when the report
ends; those of a killed one are removed when the next begins in the same directory.

Exit status: 0 done, 1 an experiment failed, 3 something did not verify, 130 or 143 ended by SIGINT or SIGTERM

Examples:
  baio report --list
  baio report --quick --only mixed-paths
  baio report --show report.json --as page > shown.html

Elsewhere:
  baio report --quick --out /tmp/report
  baio report --dir /mnt/disk --only random-read --working-set 4G
  baio report --quick --target /dev/sdb")]
pub struct ReportArgs {
    /// Where to make the working files [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// What the report is about: a directory (as --dir), or a device or a file that is only read
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<TypedTarget>,
    /// The file to copy [default: this program's own file, repeated]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Shorter runs: good for a look, not for a verdict
    #[arg(long)]
    pub(crate) quick: bool,
    /// Bytes that each experiment works on [default: 1G, with --quick 256M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) working_set: Option<Size>,
    /// Segments that `volume-scale` makes, which runs only when --only names it [default: 20000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) segments: Option<u64>,
    /// Run this experiment alone; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Where report.json and report.html go [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the report that is there, of the same options: what was measured stays
    #[arg(long)]
    pub(crate) resume: bool,
    /// Show what is for the project too: its goals (marks), and what the documents that it began with ask for
    #[arg(long)]
    pub(crate) marks: bool,
    /// Show the command of each side too
    #[arg(long)]
    pub(crate) commands: bool,
    /// Leave the working files, so that these commands can be run again; it takes room for all experiments
    #[arg(long)]
    pub(crate) keep: bool,
    /// Name the experiments and what they show, and run none
    #[arg(long, conflicts_with_all = ["only", "resume"])]
    pub(crate) list: bool,
    /// Show a report that was kept, and run nothing
    #[arg(long, value_name = "REPORT", conflicts_with_all = NOT_BESIDE_SHOW)]
    pub(crate) show: Option<PathBuf>,
    /// The kept report as text or as its page (HTML), on standard output
    #[arg(
        long = "as",
        value_name = "FORM",
        requires = "show",
        default_value = "text",
        hide_possible_values = true
    )]
    pub(crate) form: Form,
}

/// What is about taking a report, so it has no meaning where one is shown.
const NOT_BESIDE_SHOW: [&str; 11] = [
    "only",
    "resume",
    "list",
    "quick",
    "keep",
    "dir",
    "target",
    "input",
    "working_set",
    "segments",
    "out",
];

/// How a kept report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Page,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    #[test]
    fn a_report_that_is_shown_is_not_taken_too() {
        let parsed = |line: &str| {
            let command = ReportArgs::augment_args(clap::Command::new("report"));
            command.try_get_matches_from(line.split(' ')).map(drop)
        };
        assert!(parsed("report --show r --marks --commands --as page").is_ok());
        for word in [
            "--quick",
            "--keep",
            "--resume",
            "--list",
            "--only a",
            "--dir d",
            "--target d",
            "--input f",
            "--working-set 1M",
            "--segments 5",
            "--out d",
        ] {
            assert!(parsed(&format!("report --show r {word}")).is_err(), "{word}");
        }
    }
}
