//! `baio-sim`: explorations from the command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod command;

#[derive(Parser)]
#[command(name = "baio-sim", version, about = "Explores what survives on a simulated device")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Power cuts: opens crash states of recorded workloads and checks that nothing acknowledged is lost
    Crash(command::crash::Args),
    /// All short sequences of operations on a small volume, cut at every record
    Exhaustive(command::exhaustive::Args),
    /// One fault of the device under the metadata: every answer right or an error
    Faults(command::faults::Args),
    /// Every fault of the device at every request of short sessions: once, or from then on
    EachRequest(command::each_request::Args),
    /// Power cuts inside the making of a volume: never a mixture of two
    Format(command::format::Args),
    /// Writes images that crashes and workloads leave into a folder, and prints what the library says of each
    Images(command::images::Args),
    /// Damaged images: listing, checking, formatting, repairing and opening them never panics, and looking never writes
    Mutate(command::mutate::Args),
    /// Prints what the library says of the images in a folder
    Said(command::said::Args),
    /// The file of a volume is cut off, lengthened, or copied while it is in use
    Outside(command::outside::Args),
    /// Every bit of every metadata page of reference images turned over, one at a time
    Rot(command::rot::Args),
    /// A bucket whose newest image is gone from table and mirror: nobody else loses a byte
    Stale(command::stale::Args),
    /// As crash, with ever new seeds until the time is over
    Soak(command::soak::Args),
    /// The durable log: opens crash states of recorded workloads, and rotten ones
    Log(command::log::Args),
    /// Databases whose pages wait for their logs: no page is ahead of its log, and together they hold every durable change
    Wal(command::Asked),
    /// A network block device that loses power and fails requests, on a socket or mounted as a file
    Nbd(command::nbd::Args),
    /// The real program on a block device that loses power, or whose reads fail
    Powercut(command::powercut::Args),
    /// Logs and volumes that one kernel leaves, and another opens
    Kept(command::kept::Args),
    /// Stories on devices of device-mapper, scsi_debug, null_blk and nbd, to which something happens
    Devices(command::devices::Args),
    /// Who works on that device, and is killed
    #[command(hide = true)]
    PowercutWorker(command::powercut::WorkerArgs),
    /// The engine on slow, failing disks: every answer is compared with a model, and every seed told twice
    Engine(command::engine::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Crash(args) => command::crash::run(&args),
        Command::Exhaustive(args) => command::exhaustive::run(&args),
        Command::Faults(args) => command::faults::run(&args),
        Command::EachRequest(args) => command::each_request::run(&args),
        Command::Format(args) => command::format::run(&args),
        Command::Images(args) => command::images::run(&args),
        Command::Mutate(args) => command::mutate::run(&args),
        Command::Said(args) => command::said::run(&args),
        Command::Outside(args) => command::outside::run(&args),
        Command::Rot(args) => command::rot::run(&args),
        Command::Stale(args) => command::stale::run(&args),
        Command::Soak(args) => command::soak::run(&args),
        Command::Log(args) => command::log::run(&args),
        Command::Wal(args) => command::wal::run(&args),
        Command::Nbd(args) => command::nbd::run(&args),
        Command::Powercut(args) => command::powercut::run(&args),
        Command::Kept(args) => command::kept::run(&args),
        Command::Devices(args) => command::devices::run(&args),
        Command::PowercutWorker(args) => command::powercut::work(&args),
        Command::Engine(args) => command::engine::run(&args),
    }
}
