//! `baio top`: who uses a broker, with rates, each second.
//!
//! | file | what it does |
//! |---|---|
//! | `rates.rs` | what two looks tell |
//! | `live.rs` | the table on a terminal |
//!
//! Without a terminal a table is printed each second.

mod live;
mod rates;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio::{Link, Remote};
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::named::Volume;
use baio_console::output::{Answer, Output, write_out};
use baio_console::printable::readable;
use baio_console::target::TypedTarget;
use clap::Args;

use rates::{Look, View};

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// `baio top`
#[derive(Debug, Args)]
#[command(after_help = "\
Rates and the times of requests are of the last second; errors and violations since the broker started. Uid 0 and the user that the
broker runs as see everybody, others see themselves. On a terminal: q or Ctrl-C ends it. Elsewhere: a table each second.

Examples:
  baio format vol --size 64M
  baio serve vol --socket vol.sock &
  baio top unix:vol.sock --once
  baio top unix:vol.sock --once --json
  kill $!")]
pub(crate) struct TopArgs {
    /// The broker
    #[arg(
        value_name = "unix:SOCKET",
        required_unless_present = "socket",
        conflicts_with = "socket"
    )]
    broker: Option<TypedTarget>,
    /// The same by its socket's path
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one table, of one second, and end
    #[arg(long)]
    once: bool,
}

impl TopArgs {
    /// What only the whole command line can tell.
    pub(crate) fn check(&self, is_json: bool) -> Result<(), Failure> {
        match is_json && !self.once {
            true => Err(Failure::usage("top", "--json is one object, and this never ends").cured_by("pass --once too")),
            false => Ok(()),
        }
    }

    /// The broker's socket.
    fn socket(&self) -> Result<PathBuf, Failure> {
        let typed = match (&self.broker, &self.socket) {
            (Some(typed), _) => typed,
            (None, Some(path)) => return Ok(path.clone()),
            (None, None) => return Err(Failure::usage("top", "a broker is missing")),
        };
        match typed.volume("top")? {
            Volume::Served(socket) => Ok(socket),
            Volume::Here(_) => Err(Failure::usage("top", "this is not a broker")
                .on(typed.to_string())
                .needing("unix:SOCKET, where one serves")
                .cured_by("write unix: before its socket, or start one (`baio serve`)")),
        }
    }
}

/// A broker that is looked at.
struct Watched {
    link: Remote,
    socket: String,
}

impl Watched {
    fn connect(path: &Path) -> Result<Watched, Failure> {
        let socket = readable(path);
        let link = Remote::connect(path).map_err(|error| Failure::from_storage("top", socket.clone(), &error))?;
        Ok(Watched { link, socket })
    }

    fn look(&self) -> Result<Look, Failure> {
        let status = self.link.status().wait();
        let status = status.map_err(|error| Failure::from_storage("top", self.socket.clone(), &error))?;
        Ok(Look {
            at: Instant::now(),
            status,
        })
    }
}

/// Looks, until it is told to end.
pub(crate) fn run(args: &TopArgs, output: Output) -> ExitStatus {
    let watched = match args.socket().and_then(|socket| Watched::connect(&socket)) {
        Ok(watched) => watched,
        Err(failure) => return output.tell_failure(&failure),
    };
    if args.once {
        return output.tell(once(&watched));
    }
    let done = match io::stdout().is_terminal() && io::stdin().is_terminal() {
        true => live::run(watched),
        false => print_each(&watched),
    };
    match done {
        Ok(()) => ExitStatus::Success,
        Err(failure) => output.tell_failure(&failure),
    }
}

fn once(watched: &Watched) -> Result<View, Failure> {
    let before = watched.look()?;
    std::thread::sleep(INTERVAL);
    let after = watched.look()?;
    Ok(View::of(watched.link.name(), Some(&before), &after))
}

/// Prints until nobody reads any more.
fn print_each(watched: &Watched) -> Result<(), Failure> {
    let mut before = watched.look()?;
    loop {
        std::thread::sleep(INTERVAL);
        let after = watched.look()?;
        let mut page = Vec::new();
        let view = View::of(watched.link.name(), Some(&before), &after);
        let written = view
            .write_text(&mut page)
            .and_then(|()| writeln!(page))
            .and_then(|()| write_out(|| io::stdout().write_all(&page)));
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::from_io("top", &error).on("standard output")),
        }
        before = after;
    }
}
