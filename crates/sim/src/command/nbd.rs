//! `nbd`: the block device that loses power, for whoever wants to run something over it by hand.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use baio_sim::nbd::{Disk, Mount, Server, words};

#[derive(clap::Args)]
#[command(after_help = format!("Commands on standard input, one a line:\n{}", words::HELP))]
pub(crate) struct Args {
    /// The socket it listens on
    #[arg(long)]
    socket: PathBuf,
    /// Its size in MiB
    #[arg(long, default_value_t = 64)]
    size_mib: u64,
    /// Mount it as this file, with nbdfuse
    #[arg(long)]
    file: Option<PathBuf>,
    /// From which all choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baio-sim: nbd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Until its standard input ends.
fn serve(args: &Args) -> Result<(), String> {
    let disk = Arc::new(Disk::new(args.size_mib << 20, args.seed));
    let _server = Server::start(&disk, &args.socket).map_err(|error| format!("{}: {error}", args.socket.display()))?;
    let mount = |file| Mount::new(&args.socket, file, disk.size());
    let _mount = args.file.as_deref().map(mount).transpose()?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        match words::obey(&disk, &line.map_err(|error| error.to_string())?) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error: {error}"),
        }
    }
    Ok(())
}
