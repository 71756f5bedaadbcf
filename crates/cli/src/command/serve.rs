//! `baio serve`: a broker, which serves one volume to other processes until it is told to end.
//!
//! | file | what it does |
//! |---|---|
//! | `handed.rs` | the socket that a service manager has bound |
//! | `notify.rs` | what the service manager is told |
//! | `ending.rs` | signals |
//! | `grants.rs` | the file of rules |
//! | `metrics.rs` | the socket for its figures |
//! | `status.rs` | who uses a broker that runs |
//!
//! The socket is made before the volume is opened. So an error of the socket is found before anything is written, and a client that connects
//! while a crash is healed waits instead of being refused.

mod ending;
mod grants;
mod handed;
mod metrics;
mod notify;
pub(crate) mod status;

use std::io::{self, Write};
use std::path::PathBuf;

use baio::{CacheOptions, Core, EngineOptions, Error, SetupError};
use baio_broker::host::{Broker, Listener, Options};
use baio_console::diagnostics;
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::memory_limit::{self, Room};
use baio_console::output::{Answer, Output};
use baio_console::printable::{Printable, readable};
use baio_console::size::Size;
use baio_console::target::TypedTarget;
use baio_engine::Choice;
use baio_process::memory_limit::counts_strictly;
use baio_words::session::NAME_MAX;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::command::exposed::exposed;
use crate::command::volume_args::parse_mode;
use handed::Handed;
use notify::Manager;

/// Memory of the page cache that nobody asked for; less where the memory cgroup has less room.
const CACHE_BYTES: u64 = 64 << 20;
const CACHE_MIN: u64 = 64 << 10;
const CACHE_MAX: u64 = 1 << 40;
/// A granule of arenas, and what an entry of a ring can name.
const ARENA_MIN: u64 = 256 << 10;
const ARENA_MAX: u64 = (1 << 32) - ARENA_MIN;
/// All sessions together have one of so many parts of what the memory cgroup allows.
const SESSIONS_PART: u64 = 2;
/// Descriptors of a client: its socket, and its memory while that is handed over twice.
const FDS_OF_ONE: u64 = 3;
/// Of the process itself: volume, rings, sets, standard streams, and some.
const FDS_OF_OURS: u64 = 64;
/// What it cannot prevent: no seal keeps a client who may write to its memory from punching holes into it.
const STRICTLY_COUNTED: &str = "vm.overcommit_memory is 2: a client that gives memory of its session back (fallocate) while memory is short can end the \
    broker by SIGBUS: let only users connect whom you trust with the whole service, or set it to 0 or 1 if nothing else here needs 2";

/// `baio serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Serves until SIGTERM or SIGINT: what is under way ends, what is cached is written, the volume is closed. A second one, half
a second later, ends it at once, and the next open heals the volume. A socket that a service manager hands over is used in place of --socket.
Whoever may write to the socket may connect; the broker knows each client's user, groups and quota (docs/use/serving.md).
Rules of --grants only narrow that. SIGHUP rereads them: uid 34 may read; gid 120 may read write manage; everybody may nothing.

Examples:
  baio format vol --size 64M
  baio serve vol --socket vol.sock &
  baio serve --status --socket vol.sock
  kill $!

Elsewhere:
  baio serve /srv/vol --socket /run/baio/vol.sock --mode 0666 --cache 1G
  baio serve /dev/vdb --name scratch --socket /run/baio/scratch.sock --cache 0 --json")]
pub(crate) struct ServeArgs {
    /// The volume
    #[arg(value_name = "VOLUME", required_unless_present = "status")]
    volumes: Vec<TypedTarget>,
    /// Show who uses the broker at --socket, and how much, instead of serving
    #[arg(long, conflicts_with_all = ["volumes", "mode", "name", "cache", "grants", "metrics"])]
    status: bool,
    /// Where clients connect
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Permissions of the socket, in octal: who may connect [default: 0660]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    /// What clients call the volume [default: its file's name without its extension]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
    /// Memory of the page cache, 0 for none [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_cache)]
    cache: Option<Size>,
    /// File of rules, one a line: what clients may do at most; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// Unix socket, for this user only, that gives its figures as Prometheus' text (`baio metrics`)
    #[arg(long, value_name = "PATH")]
    metrics: Option<PathBuf>,
    /// Most clients at a time; one user may have half of them
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4095))]
    clients: u32,
    /// Most requests in flight at a time, of all clients
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=32768))]
    slots: u32,
    /// Most requests in flight of one client
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    places: u32,
    /// Most buffer memory of one client
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = parse_arena)]
    arena: Size,
    /// Which backend executes the requests: auto, sync, threads, aio, uring
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    backend: Choice,
}

impl ServeArgs {
    /// What only the whole command line can tell.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.status && self.socket.is_none() {
            return Err(Failure::usage("serve", "--status of which broker?")
                .needing("--socket PATH, where it serves")
                .cured_by("pass --socket"));
        }
        match self.volumes.get(1) {
            None => Ok(()),
            Some(second) => Err(Failure::usage("serve", "a second volume")
                .on(second.to_string())
                .needing("one volume: one process drives one")
                .cured_by("start one more `baio serve` for it, with a socket of its own")),
        }
    }
}

/// What `serve` shows when it is ready.
#[derive(Debug, Serialize)]
struct Ready {
    volume: String,
    name: String,
    socket: String,
    /// Where its figures are.
    metrics: Option<String>,
    pid: u32,
    backend: &'static str,
    cache_bytes: u64,
    clients_max: u32,
    slots: u32,
    places_max: u32,
    arena_bytes_max: u64,
    /// What whoever runs it should know.
    notes: Vec<String>,
}

impl Answer for Ready {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for note in &self.notes {
            writeln!(out, "baio: serve: {}", Printable(note))?;
        }
        let [volume, name, socket] = [&self.volume, &self.name, &self.socket].map(|text| Printable(text));
        writeln!(out, "serving {volume} as {name} on {socket}")
    }
}

/// Serves, to the end.
pub(crate) fn run(args: &ServeArgs, output: Output) -> ExitStatus {
    if let Some(socket) = args.socket.as_deref().filter(|_| args.status) {
        return output.tell(status::run(socket));
    }
    // First: no other thread may look at the environment meanwhile.
    let (handed, manager) = (handed::take(), Manager::of_environment());
    let signals = |error: io::Error| Failure::from_io("serve", &error).needing("handlers of signals");
    let begun = || -> Result<Begun, Failure> {
        let heard = ending::begin().map_err(signals)?;
        let begun = begin(args, handed?)?;
        let broker = &begun.broker;
        let rules = args.grants.clone().map(|path| (path, broker.ruler()));
        ending::on_signals(heard, broker.stopper(), manager.clone(), rules).map_err(signals)?;
        Ok(begun)
    };
    // The metrics socket ends behind the broker.
    let Begun {
        broker,
        ready,
        shown: _shown,
    } = match begun() {
        Ok(begun) => begun,
        Err(failure) => return output.tell_failure(&failure),
    };
    let typed = ready.volume.clone();
    match output {
        // It is no answer: nothing is done yet.
        Output::Text => {
            let mut line = Vec::new();
            let _ = ready.write_text(&mut line);
            diagnostics::write_bytes(&line);
        }
        Output::Json => {
            output.tell(Ok(ready));
        }
    }
    if let Err(error) = manager.tell("READY=1") {
        say(&format!("the service manager was not told that it is ready: {error}"));
    }
    match broker.run() {
        Ok(()) => ExitStatus::Success,
        // The one object is printed.
        Err(error) => Output::Text.tell_failure(&Failure::from_storage("serve", typed, &error)),
    }
}

/// A line for whoever runs it.
fn say(text: &str) {
    diagnostics::say(format_args!("baio: serve: {text}"));
}

/// A broker that is about to serve.
struct Begun {
    broker: Broker,
    ready: Ready,
    shown: Option<metrics::Shown>,
}

/// Binds and opens.
fn begin(args: &ServeArgs, handed: Option<Handed>) -> Result<Begun, Failure> {
    let typed = args.volumes.first();
    let typed = typed.ok_or_else(|| Failure::usage("serve", "a volume is missing"))?;
    let path = typed.path("serve")?;
    let name = match (&args.name, path.file_stem()) {
        (Some(name), _) => name.clone(),
        (None, stem) => parse_name(&stem.unwrap_or_default().to_string_lossy()).map_err(|why| {
            Failure::usage("serve", "the name of its file cannot be the name for clients")
                .on(typed.to_string())
                .needing(why)
                .cured_by("pass --name")
        })?,
    };
    let mut notes = notes(args);
    notes.extend(exposed(&path, &typed.to_string()).map(|exposed| format!("{typed}: {}", exposed.line())));
    let grants = args.grants.as_deref().map(grants::read).transpose()?;
    if let (Some(grants), Some(path)) = (&grants, &args.grants) {
        notes.extend(grants.note(path));
    }
    let (listener, socket) = listener(args, handed)?;
    let shown = args.metrics.as_deref().map(metrics::open).transpose()?;
    let cache_bytes = args
        .cache
        .map_or_else(|| CACHE_BYTES.min(Room::here().bytes), Size::bytes);
    let failed = |error: Error| Failure::from_storage("serve", typed.to_string(), &error);
    let core = open(args, &path, cache_bytes).map_err(failed)?;
    let ready = Ready {
        volume: typed.to_string(),
        name: name.clone(),
        socket,
        metrics: args.metrics.as_ref().map(readable),
        pid: std::process::id(),
        backend: core.engine().explain().backend,
        cache_bytes,
        clients_max: args.clients,
        slots: args.slots,
        places_max: args.places,
        arena_bytes_max: args.arena.bytes(),
        notes,
    };
    let block_size = core.volume_info().map_err(failed)?.block_size;
    let quota = grants.as_ref().and_then(|grants| grants.quota);
    let options = Options {
        name,
        clients_max: args.clients,
        clients_of_one_max: args.clients.div_ceil(2),
        places_max: args.places,
        arena_bytes_max: args.arena.bytes(),
        memory_bytes_max: memory_limit::limit().map(|limit| limit / SESSIONS_PART),
        rules: grants.map(|grants| grants.rules).unwrap_or_default(),
        quota: quota.map(|quota| quota.limits(block_size)),
        ..Options::default()
    };
    let broker = Broker::new(core, listener, options).map_err(failed)?;
    if let Some(shown) = &shown {
        shown.show(broker.figures());
    }
    Ok(Begun { broker, ready, shown })
}

/// The socket, and what it is called.
fn listener(args: &ServeArgs, handed: Option<Handed>) -> Result<(Listener, String), Failure> {
    let failed = |socket: &str, error: SetupError| {
        let error = Error::new("listen", socket, error);
        Failure::from_storage("serve", socket, &error)
    };
    match (handed, &args.socket) {
        (Some(Handed { fd, path }), wanted) => {
            let said = || Failure::usage("serve", "a socket was handed over too").needing("one socket");
            if let Some(wanted) = wanted.as_ref().filter(|wanted| path.as_ref() != Some(wanted)) {
                let failure = said().on(readable(wanted));
                return Err(failure.cured_by("leave out --socket, or let nobody hand one over (LISTEN_FDS)"));
            }
            if args.mode.is_some() {
                return Err(said().cured_by("leave out --mode, and say SocketMode= in the unit"));
            }
            let name = path.map_or_else(|| "descriptor 3".to_owned(), readable);
            let listener = Listener::adopt(fd).map_err(|error| failed(&name, error))?;
            Ok((listener, name))
        }
        (None, Some(path)) => {
            let name = readable(path);
            let listener = Listener::bind(path, args.mode.unwrap_or(0o660));
            Ok((listener.map_err(|error| failed(&name, error))?, name))
        }
        (None, None) => Err(Failure::usage("serve", "no socket")
            .needing("--socket PATH, or a socket that a service manager hands over")
            .cured_by("pass --socket; in a unit: Sockets= and ListenSequentialPacket=")),
    }
}

/// The volume, with its cache. It is closed properly where there can be none.
fn open(args: &ServeArgs, path: &std::path::Path, cache_bytes: u64) -> Result<Core, Error> {
    let cache_bytes = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
    let config = EngineOptions::default();
    let config = EngineOptions {
        backend: args.backend,
        slots: args.slots,
        arena_bytes: config.arena_bytes.saturating_add(cache_bytes),
        ..config
    };
    let mut core = Core::open(path, &config)?;
    if cache_bytes > 0 {
        let cache = CacheOptions {
            bytes: cache_bytes,
            ..CacheOptions::default()
        };
        if let Err(error) = core.use_cache(&cache) {
            let _ = core.close(); // The first failure is the one to tell.
            return Err(error);
        }
    }
    Ok(core)
}

/// Takes as many descriptors as there may be; says what is worth to know.
fn notes(args: &ServeArgs) -> Vec<String> {
    let mut notes = Vec::new();
    if rustix::process::geteuid().is_root() {
        let cure = "a user of its own that may write the volume is enough (packaging/baio.service)";
        notes.push(format!("it runs as root: {cure}"));
    }
    if counts_strictly() {
        notes.push(STRICTLY_COUNTED.to_owned());
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    let needed = u64::from(args.clients) * FDS_OF_ONE + FDS_OF_OURS;
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        let clients = args.clients;
        let cure = format!("raise it (`ulimit -Hn {needed}`, LimitNOFILE={needed}), or lower --clients");
        notes.push(format!(
            "{clients} clients need {needed} open files, and the limit is {allowed}: {cure}"
        ));
    }
    let needed = u64::from(args.clients) * Options::least_session_bytes(args.places);
    if let Some(limit) = memory_limit::limit().filter(|limit| limit / SESSIONS_PART < needed) {
        let clients = args.clients;
        let cure = format!("raise it to {}, or lower --clients", needed * SESSIONS_PART);
        notes.push(format!(
            "{clients} clients need {needed} bytes at least, half of what the memory cgroup allows, and that is {limit}: {cure}"
        ));
    }
    notes
}

/// A name that tells nothing of the host: no path.
fn parse_name(text: &str) -> Result<String, String> {
    let is_good = !text.is_empty() && text.len() <= NAME_MAX;
    match is_good && !text.contains(|character: char| character == '/' || character.is_control()) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name of 1 to {NAME_MAX} bytes, without `/`")),
    }
}

fn parse_cache(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        0 | CACHE_MIN..=CACHE_MAX => Ok(size),
        _ => Err("a cache has 64K to 1T, or 0 for none".to_owned()),
    }
}

fn parse_arena(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.bytes() {
        ARENA_MIN..=ARENA_MAX => Ok(size),
        _ => Err(format!("the buffers of a client take {ARENA_MIN} to {ARENA_MAX} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        let longest = "n".repeat(NAME_MAX);
        for good in ["vol", "a b", ".vol", longest.as_str()] {
            assert_eq!(parse_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a/b", "/", "a\nb", &"n".repeat(NAME_MAX + 1)] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(parse_cache("0").map(Size::bytes), Ok(0));
        assert!(parse_cache("4K").is_err());
        assert!(parse_cache("64K").is_ok());
        assert!(parse_arena("128K").is_err());
        assert!(parse_arena("4G").is_err());
        assert_eq!(parse_arena("256K").map(Size::bytes), Ok(256 << 10));
    }
}
