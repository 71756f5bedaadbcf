//! `baio run`: starts a program on the drop-in libraries, and says at the end what it did with them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baio_console::drop_ins::DropIn;
use baio_console::failure::Failure;
use baio_console::output::{Align, Output, Table};
use baio_shim::counters::{self, Counts, Operation};
use baio_stress::{ResultFile, may_replace};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::child;

/// `baio run`
#[derive(Debug, Args)]
#[command(after_help = "\
Without --libaio and --posix-aio it is both. A program finds libaio.so.1 by LD_LIBRARY_PATH; POSIX AIO comes by LD_PRELOAD, behind what
is there already: for a program with AddressSanitizer, name its runtime there (LD_PRELOAD=libasan.so.8). A program
that is linked statically, makes the system calls itself, uses io_uring or runs with rights of others (setuid) runs as it would without.
BAIO_EXPLAIN=1 makes the libraries say how they do their I/O. Where they differ from the originals: docs/program/drop-ins.md.

PROGRAM finds the signals ignored, blocked or neither as baio found them. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 that are
sent to baio are handed on to it; Ctrl-C reaches it from the terminal.

At the end a table on standard error shows the requests by operation: how many had ended when the submitting call returned, how many
later, how many failed, and the time from the call to the result.

Exit status: PROGRAM's; 128+N if signal N has ended it; 126 if it cannot be run, 127 if there is none; 1 if a library is missing.

The libraries are looked for beside this program and in libaio, posix-aio, ../lib/baio and ../lib/KIND-linux-gnu/baio from there, then in
lib/baio of CARGO_HOME (~/.cargo), /usr/local/lib/baio, /usr/lib/baio, /usr/lib64/baio, /usr/lib/KIND-linux-gnu/baio.

Examples, with fio and stress-ng:
  baio run --libaio -- fio --name=reads --filename=file --size=64M --ioengine=libaio --rw=randread --iodepth=16
  baio run --posix-aio --counts counts.json -- stress-ng --aio 2 --timeout 5")]
pub(crate) struct RunArgs {
    /// Programs that call io_submit and io_getevents of libaio
    #[arg(long)]
    libaio: bool,
    /// Programs that call aio_read, aio_write and their like
    #[arg(long)]
    posix_aio: bool,
    /// Directory of a library, once for each; else BAIO_LIBRARIES, near this program, or where packages put them
    #[arg(long, value_name = "DIR")]
    libraries: Vec<PathBuf>,
    /// Write the counts to FILE, as a JSON object, in place of the table
    #[arg(long, value_name = "FILE")]
    counts: Option<PathBuf>,
    /// What to run
    #[arg(value_name = "PROGRAM", last = true, required = true)]
    program: Vec<OsString>,
}

/// Runs it.
pub(crate) fn run(args: &RunArgs, output: Output) -> ExitCode {
    let prepared = prepare(args);
    let (libraries, file, path, mut sheet) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return output.tell_failure(&failure).into(),
    };
    let ended = child::run(&args.program, |command| {
        for (library, directory) in &libraries {
            library.lend(directory, command);
        }
        command.env(counters::VARIABLE, path);
    });
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            // A new file goes with it.
            drop(sheet);
            return child::tell_not_run("run", &args.program, &error, output);
        }
    };
    let told = counters::read(&file).and_then(|read| tell(&libraries, &read, sheet.as_ref()));
    sheet.iter_mut().for_each(ResultFile::keep);
    if let Err(error) = told {
        let object = args
            .counts
            .as_ref()
            .map_or_else(|| "the counts".to_owned(), |path| path.display().to_string());
        let failure = Failure::from_io("run", &error)
            .on(object)
            .needing("room to write what was counted; the program has ended")
            .cured_by("name another file by --counts");
        output.tell_failure(&failure);
    }
    child::status_of(ended)
}

type Prepared = (Vec<(DropIn, PathBuf)>, File, PathBuf, Option<ResultFile>);

/// The file of `--counts`, which is no volume and no device.
fn counts_file(path: &Path) -> Result<ResultFile, Failure> {
    // A pipe or a terminal holds nothing that could be destroyed.
    let is_stream = path.metadata().is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    if !is_stream {
        may_replace("run", path)?;
    }
    ResultFile::open(path).map_err(|error| {
        Failure::from_io("run", &error)
            .on(path.display().to_string())
            .needing("a file that can be written")
            .cured_by("name another file by --counts; the program was not started")
    })
}

/// What must be there before the program starts.
fn prepare(args: &RunArgs) -> Result<Prepared, Failure> {
    let both = !args.libaio && !args.posix_aio;
    let wanted = [
        (args.libaio || both, DropIn::Libaio),
        (args.posix_aio || both, DropIn::PosixAio),
    ];
    let mut libraries = Vec::new();
    for (_, library) in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted) {
        libraries.push((library, library.find("run", &args.libraries)?));
    }
    let (file, path) = counters::create().map_err(|error| {
        Failure::from_io("run", &error)
            .on("the memory to count in")
            .needing("16 KiB of memory and a descriptor")
            .cured_by("raise the limit that is hit, ulimit -n or the cgroup's memory")
    })?;
    let counts = args.counts.as_deref().map(counts_file).transpose()?;
    Ok((libraries, file, path, counts))
}

fn tell(libraries: &[(DropIn, PathBuf)], read: &[Counts; 2], sheet: Option<&ResultFile>) -> io::Result<()> {
    let used = libraries.iter().map(|(library, _)| match library {
        DropIn::Libaio => (DropIn::Libaio, "libaio", &read[0]),
        DropIn::PosixAio => (DropIn::PosixAio, "posix_aio", &read[1]),
    });
    match sheet {
        Some(sheet) => {
            let mut file = sheet.file();
            let mut object: Map<String, Value> =
                used.map(|(_, key, counts)| (key.to_owned(), as_json(counts))).collect();
            object.insert("schema_version".to_owned(), 1.into());
            let text = format!("{}\n", Value::Object(object));
            file.write_all(text.as_bytes())?;
            // Not so for a pipe, which has no length.
            let _ = file.set_len(text.len() as u64);
            Ok(())
        }
        None => {
            let mut text = Vec::new();
            for (library, key, counts) in used {
                write_text(&mut text, library, key, counts)?;
            }
            io::stderr().write_all(&text)
        }
    }
}

fn as_json(counts: &Counts) -> Value {
    let line = |operation: Operation| {
        let line = &counts.operations[operation as usize];
        let latency = |thousandths| line.latency(thousandths);
        let object = json!({
            "requests": line.requests(), "at_once": line.at_once, "later": line.later, "failed": line.failed,
            "latency_ns": {"p50": latency(500), "p99": latency(990), "p99.9": latency(999), "max": latency(1000)},
        });
        (operation.name().to_owned(), object)
    };
    let operations: Map<String, Value> = Operation::ALL.into_iter().map(line).collect();
    json!({
        "processes": counts.loaded, "on_io_uring": counts.contexts, "without_io_uring": counts.refused,
        "operations": operations,
    })
}

fn write_text(out: &mut dyn Write, library: DropIn, key: &str, counts: &Counts) -> io::Result<()> {
    let name = key.replace('_', " ");
    if counts.loaded == 0 {
        return writeln!(
            out,
            "baio: run: {name}: no process has loaded it: the program does not use that library, or is linked statically, or runs with other rights"
        );
    }
    let carried = match library {
        DropIn::Libaio => format!(
            "contexts: {}, of which {} went over to io_uring",
            counts.contexts + counts.refused,
            counts.contexts
        ),
        DropIn::PosixAio => format!(
            "processes that used it: {} on io_uring, {} on the C library's threads",
            counts.contexts, counts.refused
        ),
    };
    writeln!(
        out,
        "baio: run: {name}: processes that have loaded it: {}; {carried}",
        counts.loaded
    )?;
    let mut table = Table::with_headings(&[
        ("  OPERATION", Align::Left),
        ("REQUESTS", Align::Right),
        ("AT ONCE", Align::Right),
        ("LATER", Align::Right),
        ("FAILED", Align::Right),
        ("P50 US", Align::Right),
        ("P99 US", Align::Right),
        ("P99.9 US", Align::Right),
        ("MAX US", Align::Right),
    ]);
    let mut any = false;
    for operation in Operation::ALL {
        let line = &counts.operations[operation as usize];
        if line.requests() == 0 {
            continue;
        }
        any = true;
        let mut cells = vec![format!("  {}", operation.name())];
        let numbers = [line.requests(), line.at_once, line.later, line.failed];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.extend([500, 990, 999, 1000].map(|part| microseconds(line.latency(part))));
        table.row(cells);
    }
    if any { table.write(out) } else { Ok(()) }
}

fn microseconds(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time as f64 / 1000.0))
}
