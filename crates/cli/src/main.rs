//! The `baio` program: tour, volumes, segments, freeze, dd, stress, latency, report, serve, doctor.
//!
//! This file is the table of contents. The command line becomes an [`args::Invocation`], its command runs in a module of its
//! own under `command/`, or in `baio-stress` or `baio-measure`, and what comes back, an answer or a failure, is printed once by
//! [`Output`](baio_console::output::Output).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

use std::io::ErrorKind;
use std::process::ExitCode;

use baio_console::diagnostics;
use baio_console::exit_status::ExitStatus;
use baio_console::output::{self, Output};

use args::{Command, Invocation, Stop};

mod args;
mod closed;
mod command;
mod operands;
mod trial;
mod usage;

fn main() -> ExitCode {
    // Before anything: whatever is written beyond `ulimit -f` fails, and does not end the program.
    baio_process::signals::ignore_file_limit();
    if let Some(status) = trial::trial() {
        return status;
    }
    if let Err(failure) = trial::settle() {
        return Output::Text.tell_failure(&failure).into();
    }
    // The report runs each measured side in a process of its own, which is this program again.
    if let Some(status) = baio_measure::worker() {
        return status;
    }
    if closed::was_closed(1) {
        output::standard_output_is_closed();
    }
    if closed::was_closed(2) {
        diagnostics::are_closed();
    }
    match args::parse(std::env::args_os()) {
        Ok(invocation) => run(invocation),
        Err(stop) => explain(stop).into(),
    }
}

fn run(Invocation { output, command }: Invocation) -> ExitCode {
    let status = match command {
        Command::Tour(args) => output.tell(baio_measure::tour(&args)),
        Command::Format(args) => output.tell(command::format::run(args)),
        Command::Create(args) => output.tell(command::create::run(args)),
        Command::List(args) => output.tell(command::list::run(args)),
        Command::Stat(args) => output.tell(command::stat::run(args)),
        Command::Delete(args) => output.tell(command::delete::run(args)),
        Command::Rename(args) => output.tell(command::rename::run(args)),
        Command::Chmod(args) => output.tell(command::ownership::chmod(args)),
        Command::Chown(args) => output.tell(command::ownership::chown(args)),
        Command::Resize(args) => output.tell(command::resize::run(args)),
        Command::Quota(args) => output.tell(command::quota::run(args)),
        Command::Check(args) => output.tell(command::check::run(args)),
        Command::Defrag(args) => output.tell(command::defrag::run(args)),
        // It ends as the command that it has run.
        Command::Freeze(args) => return command::freeze::run(&args, output),
        // It ends as the program that it has run.
        Command::Run(args) => return command::run::run(&args, output),
        Command::Dd(operands) => output.tell(command::dd::run(operands)),
        Command::Stress(args) => output.tell(baio_stress::stress(args)),
        Command::Latency(args) => output.tell(baio_measure::latency(args)),
        Command::Report(args) => output.tell(baio_measure::report(args)),
        Command::Log(args) => output.tell(command::log::run(args)),
        Command::Metrics(args) => output.tell(command::metrics::run(args)),
        // It answers before it ends.
        Command::Serve(args) => command::serve::run(&args, output),
        // It may never end.
        Command::Top(args) => command::top::run(&args, output),
        Command::Doctor(args) => output.tell(command::doctor::run(args)),
        Command::InstallDocs(args) => output.tell(command::install_docs::run(args)),
    };
    status.into()
}

fn explain(stop: Stop) -> ExitStatus {
    match stop {
        Stop::Help(text) => {
            match output::write_out(|| text.print()) {
                // A reader that closes the pipe early has read enough of a help text.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    Output::Text.tell_failure(&output::unwritten(&error))
                }
                _ => ExitStatus::Success,
            }
        }
        Stop::Bare(text) => {
            // It goes to standard error: nothing was asked that it would be the answer to.
            let _ = text.print();
            ExitStatus::Usage
        }
        Stop::Refused { output, failure } => output.tell_failure(&failure),
    }
}
