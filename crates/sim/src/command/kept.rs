//! `kept`: devices that one kernel leaves, and another opens.

use std::path::PathBuf;
use std::process::ExitCode;

use baio_sim::powercut::kept;
use baio_sim::powercut::stories::Seen;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Makes one of each kind in a folder
    Make {
        /// From which all choices follow, but what threads do beside each other
        #[arg(long, default_value_t = 1)]
        seed: u64,
        folder: PathBuf,
    },
    /// Opens all that lie in folders, each on a copy: what was acknowledged is there, and they can be worked on
    Open {
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.what {
        What::Make { seed, folder } => kept::make(folder, *seed, |name| println!("{name} is made")),
        What::Open { folders } => folders
            .iter()
            .try_for_each(|folder| kept::open(folder, |name, seen| tell(&folder.display().to_string(), name, seen))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baio-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(folder: &str, name: &str, seen: &Seen) {
    let seen: Vec<String> = seen
        .iter()
        .map(|(what, times)| format!("{} {times}", what.replace('_', " ")))
        .collect();
    println!("{folder}: {name}: {}", seen.join(", "));
}
