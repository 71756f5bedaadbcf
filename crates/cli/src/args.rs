//! The command line as typed: one definition feeds the parser, `--help` and the tests.
//!
//! Nothing here looks at the disk. Targets stay as typed until the command resolves them; the operands of `dd`, which
//! follow a grammar of their own, arrive parsed as [`DdOperands`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use baio_console::failure::Failure;
use baio_console::output::Output;
use baio_engine::Choice;
use baio_measure::{LatencyArgs, ReportArgs, TourArgs};
use baio_stress::StressArgs;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::command::freeze::FreezeArgs;
use crate::command::log::LogArgs;
use crate::command::metrics::MetricsArgs;
use crate::command::run::RunArgs;
use crate::command::serve::ServeArgs;
use crate::command::top::TopArgs;
use crate::command::volume_args::{
    CheckArgs, ChmodArgs, ChownArgs, CreateArgs, DefragArgs, DeleteArgs, FormatArgs, ListArgs, QuotaArgs, RenameArgs,
    ResizeArgs, StatArgs,
};
use crate::operands::DdOperands;
use crate::usage;

/// A command line that makes sense.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// How to tell what became of it.
    pub(crate) output: Output,
    /// What to do.
    pub(crate) command: Command,
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum Stop {
    /// `--help` or `--version`: a text to print, and success.
    Help(clap::Error),
    /// Nothing but the program's name: what it can do, and wrong usage.
    Bare(clap::Error),
    /// A command line that makes no sense.
    Refused {
        /// How to tell it.
        output: Output,
        /// What is wrong with it.
        failure: Box<Failure>,
    },
}

/// Parses all arguments of the process, the program's name first.
pub(crate) fn parse(typed: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let refused = |failure| Stop::Refused {
        output: Output::new(usage::asks_for_json(&typed)),
        failure: Box::new(failure),
    };
    let line = match CommandLine::parse_typed(&typed) {
        Ok(line) => line,
        Err(error) if is_help(&error) => return Err(Stop::Help(error)),
        // `baio --json` gets an object.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && typed.len() < 2 => {
            return Err(Stop::Bare(error));
        }
        Err(error) => return Err(refused(usage::failure(&typed, &error, is_command))),
    };
    line.check().map_err(refused)?;
    Ok(Invocation {
        output: Output::new(line.json),
        command: line.command,
    })
}

/// The definition that parses, for whatever else is made from it.
pub(crate) fn definition() -> clap::Command {
    CommandLine::command()
}

/// True if `name` is one of the commands.
fn is_command(name: &str) -> bool {
    definition().find_subcommand(name).is_some()
}

fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// Asynchronous block I/O: volumes, their segments, and copies to and from them
#[derive(Debug, Parser)]
#[command(name = "baio", version, long_version = VERSION.as_str(), after_help = MAIN_HELP)]
struct CommandLine {
    /// Print exactly one JSON object on standard output, also for a failure
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// What this program is, and by which interfaces of the kernel it can work; which of them work here, `baio doctor` tells.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let named = Choice::ALL.into_iter().rev().filter_map(|choice| match choice {
        Choice::Auto => None,
        Choice::Uring => Some("uring (io_uring)"),
        Choice::Aio => Some("aio (Linux native AIO)"),
        Choice::Threads => Some("threads (system calls by a pool of threads)"),
        Choice::Sync => Some("sync (system calls)"),
    });
    let backends: Vec<_> = named.collect();
    format!("{}\nbackends: {}", env!("CARGO_PKG_VERSION"), backends.join(", "))
});

const MAIN_HELP: &str = "\
Targets:
  PATH              a file, a device or a whole volume
  PATH#NAME         my segment of the volume at PATH
  PATH#UID/NAME     the segment of the user UID
  unix:SOCKET       a volume that a broker serves there (baio serve); with #NAME its segments, as above
Sizes are IEC: 4K = 4KiB = 4096. Only the operands of dd follow GNU dd.

Exit status: 0 done, 1 failed, 2 wrong usage (dd: 1), 3 data did not verify, 4 a threshold was missed

Examples:
  baio format vol --size 64M
  baio create vol#log --size 16M
  baio dd if=/dev/zero of=vol#log bs=1M count=16
  baio list vol --json";

impl CommandLine {
    /// As `try_parse_from`, but an error about the operands of dd keeps its own words.
    fn parse_typed(typed: &[OsString]) -> Result<CommandLine, clap::Error> {
        let matches = CommandLine::command().try_get_matches_from(typed)?;
        CommandLine::from_arg_matches(&matches)
    }

    /// What only the whole command line can tell.
    fn check(&self) -> Result<(), Failure> {
        match &self.command {
            Command::Dd(operands) if self.json && operands.output.is_none() => {
                Err(Failure::usage("dd", "--json and the copy would share standard output")
                    .cured_by("name the output with of="))
            }
            Command::Freeze(_) if self.json => Err(Failure::usage(
                "freeze",
                "--json and the command would share standard output",
            )
            .cured_by("leave --json out: the answer is the command's own")),
            Command::Run(_) if self.json => Err(Failure::usage(
                "run",
                "--json and the program would share standard output",
            )
            .cured_by("let the counts be written to a file, by --counts FILE")),
            Command::Serve(args) => args.check(),
            Command::Top(args) => args.check(self.json),
            _ => Ok(()),
        }
    }
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show in half a minute what works here, how fast this disk is, and that a killed log loses nothing
    Tour(TourArgs),
    /// Make a volume of a file or a device
    Format(FormatArgs),
    /// Create a segment
    Create(CreateArgs),
    /// List the segments of a volume
    List(ListArgs),
    /// Show one segment, or the volume itself
    Stat(StatArgs),
    /// Delete a segment
    Delete(DeleteArgs),
    /// Rename a segment
    Rename(RenameArgs),
    /// Change the permissions of a segment
    Chmod(ChmodArgs),
    /// Change the owner or the group of a segment
    Chown(ChownArgs),
    /// Make a segment, or a whole volume, larger or smaller
    Resize(ResizeArgs),
    /// Show or set what a user may hold
    Quota(QuotaArgs),
    /// Read all metadata of a volume, name every problem, and repair on request
    Check(CheckArgs),
    /// Move segments together, so that the free space is one piece
    Defrag(DefragArgs),
    /// Freeze a volume while a command runs, for a consistent copy
    Freeze(FreezeArgs),
    /// Run a program built for libaio or POSIX AIO on baio's engine, and show what it did
    Run(RunArgs),
    /// Copy like GNU dd, with many requests in flight
    Dd(DdOperands),
    /// Keep a file, a device or a segment busy, and measure it
    Stress(StressArgs),
    /// Measure many writes that are submitted at once, and durable appends
    Latency(LatencyArgs),
    /// Measure baio and other programs in turn, and show the figures as text, page and JSON
    Report(ReportArgs),
    /// Show what a durable log holds, and its records
    Log(LogArgs),
    /// Serve a volume to other processes
    Serve(ServeArgs),
    /// Show who uses a broker, with rates, each second
    Top(TopArgs),
    /// Show the counters of a process that has opened a metrics socket
    Metrics(MetricsArgs),
    /// Say which backend works here, why not a better one, and the cure
    Doctor(DoctorArgs),
    /// Write man pages and shell completions
    InstallDocs(InstallDocsArgs),
}

/// `baio install-docs`
#[derive(Debug, Args)]
#[command(after_help = "\
Below DIR it writes
  share/man/man1/baio*.1
  share/bash-completion/completions/baio
  share/zsh/site-functions/_baio
  share/fish/vendor_completions.d/baio.fish
They are made when this runs, from the definition that parses the command line: run it again after an update.

Examples:
  baio install-docs prefix

Elsewhere:
  baio install-docs ~/.local
  sudo baio install-docs /usr/local")]
pub(crate) struct InstallDocsArgs {
    /// The prefix, such as /usr/local or ~/.local
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// `baio doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
The first line is the verdict. What to do, if anything, follows. Exit status 1: every request would block its caller.

Examples:
  baio doctor
  baio doctor . --verbose
  baio doctor . --json")]
pub(crate) struct DoctorArgs {
    /// Show also every backend with its features, the limits of this process, and all that is known of the path
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// A file, a directory or a device on which to try what works
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
}

/// `baio dd` as clap sees it: words of which it knows nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Operands (numbers as in GNU dd: 2x512, b=512, K=1024, kB=1000; a B makes count, skip, seek bytes):
  if=TARGET of=TARGET        a file, a device or a segment [default: standard input and output]
  bs=N  ibs=N  obs=N         bytes of a record, on both sides or on one [default: 512]
  count=N                    copy N blocks
  skip=N  iseek=N            pass over N blocks of the input
  seek=N  oseek=N            pass over N blocks of the output
  iflag=LIST                 append, count_bytes, direct, directory, dsync, fullblock, noatime, nocache, noctty, nofollow,
                             nonblock, skip_bytes, sync
  oflag=LIST                 append, direct, directory, dsync, noatime, nocache, noctty, nofollow, nonblock, seek_bytes, sync
  conv=LIST                  excl, fdatasync, fsync, lcase, nocreat, noerror, notrunc, sparse, swab, sync, ucase
                             (ascii, block, ebcdic, ibm, unblock and cbs= are left to GNU dd)
  status=LEVEL               none, noxfer, progress
  iodepth=N                  requests in flight, 1 to 1024 [default: 16]
  backend=NAME               auto, sync, threads, aio, uring [default: auto]
  mode=NAME                  files: kernel, uncached, direct; segments: direct, cached
  verify=blake3              hash what is written, and read it again
SIGUSR1 prints the figures; SIGINT too, and ends the copy.
A segment never changes its size: what does not fit fails with ENOSPC, as on a full device.
Usage errors exit with 1, as those of GNU dd do.

Examples:
  baio format vol --size 64M
  baio create vol#root --size 16M
  head -c 16M /dev/urandom > image.raw
  baio dd if=image.raw of=vol#root bs=1M conv=fsync
  baio dd if=vol#root of=copy.raw bs=64K iodepth=32 verify=blake3
  baio dd if=vol#root bs=4K skip=2 count=1 status=none | cksum

Elsewhere:
  baio dd if=/dev/sda of=disk.img bs=64K conv=noerror,sync
  baio dd if=unix:/run/baio/volume.sock#root of=copy.raw bs=64K")]
struct DdArgs {
    /// Operands of the form NAME=VALUE
    #[arg(value_name = "OPERAND")]
    operands: Vec<OsString>,
}

impl FromArgMatches for DdOperands {
    fn from_arg_matches(matches: &ArgMatches) -> Result<DdOperands, clap::Error> {
        let typed = DdArgs::from_arg_matches(matches)?;
        DdOperands::parse(&typed.operands).map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = DdOperands::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for DdOperands {
    fn augment_args(command: clap::Command) -> clap::Command {
        DdArgs::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        DdArgs::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::Amount;
    use baio_console::exit_status::ExitStatus;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parsed(line: &str) -> Invocation {
        parse(words(line)).unwrap()
    }

    fn refused(line: &str) -> (Output, Failure) {
        match parse(words(line)) {
            Err(Stop::Refused { output, failure }) => (output, *failure),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn json_stands_anywhere() {
        for line in ["baio --json list v", "baio list --json v", "baio list v --json"] {
            assert_eq!(parsed(line).output, Output::Json, "{line}");
        }
        assert_eq!(parsed("baio list v").output, Output::Text);
    }

    #[test]
    fn json_stands_before_and_behind_the_operands_of_dd() {
        for line in [
            "baio --json dd of=x count=2",
            "baio dd --json of=x count=2",
            "baio dd of=x --json count=2",
            "baio dd of=x count=2 --json",
        ] {
            let invocation = parsed(line);
            assert_eq!(invocation.output, Output::Json, "{line}");
            let Command::Dd(operands) = invocation.command else {
                panic!("not dd");
            };
            assert_eq!(operands.count, Some(Amount::Blocks(2)));
        }
    }

    #[test]
    fn help_and_version_are_no_failures() {
        for line in ["baio --help", "baio --version", "baio dd --help", "baio help list"] {
            assert!(matches!(parse(words(line)), Err(Stop::Help(_))), "{line}");
        }
    }

    #[test]
    fn usage_errors_exit_with_2_and_name_the_command() {
        let (output, failure) = refused("baio create v#a");
        assert_eq!(output, Output::Text);
        assert_eq!(failure.exit_status(), ExitStatus::Usage);
        let said = failure.to_string();
        assert!(said.starts_with("baio: create: the following required"), "{said}");
        assert!(said.contains("needed: baio create --size <SIZE>"), "{said}");
        assert!(said.ends_with("see 'baio create --help'"), "{said}");
    }

    #[test]
    fn a_slip_of_the_pen_gets_a_hint() {
        let (_, failure) = refused("baio format v --sise 4K");
        assert!(failure.to_string().contains("'--size'"), "{failure}");
        let (_, failure) = refused("baio fromat v");
        assert!(failure.to_string().contains("'format'"), "{failure}");
        let (_, failure) = refused("baio format v --size 4kB");
        assert!(failure.to_string().contains("write 4K or 4KiB"), "{failure}");
    }
}
