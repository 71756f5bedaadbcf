//! One contract, every backend (docs/inside/engine.md).
//!
//! Each case is a claim and runs over every row of `backends::BACKENDS`, and over the example of a device and a backend of
//! one's own (`examples/ram/device.rs`). What a backend cannot do stands in
//! [`NOT_SUPPORTED`], with the reason: a case that a backend refuses and that is not listed fails, and so does one that is
//! listed and runs. The counts are printed at the end.

/// The request is made before the engine is borrowed to run it: it may take its memory from the engine.
macro_rules! made_first {
    ($d:tt $($name:ident = $function:path;)*) => {$(
        macro_rules! $name {
            ($d engine:expr, $d request:expr $d (,)?) => {{
                let request = $d request;
                $function(&mut $d engine, request)
            }};
        }
    )*};
}

made_first! { $
    go = crate::streams::go;
    begin = crate::streams::begin;
    finish = crate::backends::finish;
}

#[path = "../backends/mod.rs"]
mod backends;
mod bad_environments;
mod cases;
mod counts;
mod device;
mod durability;
mod engines;
#[path = "../environment/mod.rs"]
mod environment;
mod events;
mod exchange;
#[path = "../environment/filter.rs"]
mod filter;
mod foreign;
mod gate;
mod lifetime;
mod lists;
mod modes;
mod network;
mod offsets;
mod order;
#[path = "../../../../tests/part.rs"]
mod part;
mod pipes;
mod polling;
#[path = "../../examples/ram/device.rs"]
mod ram;
mod refusals;
mod refused;
mod streams;
mod syncs;
mod timers;
mod transfer;
mod transfers;
mod waiting;
mod waits;
#[path = "../environment/young.rs"]
mod young;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use baio_engine::{Affinity, Choice, Doorbell, Engine, EngineOptions, File, SetupError};

use backends::{BACKENDS, Bench, Row, Stop, start, tell};
use cases::CASES;
use environment::{AioEvents, Environment};
use young::Refusal;

/// The example.
static RAM: Row = Row::foreign(
    "ram",
    |config| Engine::with_backend(ram_backend(Doorbell::new()?), config),
    in_memory,
);

/// The same beside a backend that sleeps for it.
static RAM_HELPS: Row = Row::foreign("ram", helped, in_memory)
    .variant("as a helper of uring")
    .helping("uring");

/// Files of both sorts in one engine.
static BOTH: Row = Row::real("uring", helped)
    .variant("and ram in turn")
    .mixed_with("ram both", in_memory);

fn ram_backend(doorbell: Doorbell) -> Box<ram::RamBackend> {
    let ended = Vec::new();
    Box::new(ram::RamBackend { doorbell, ended })
}

fn helped(config: &EngineOptions) -> Result<Engine, SetupError> {
    let mut engine = start(Choice::Uring, config)?;
    engine.add_helper(|doorbell| Ok(ram_backend(doorbell)))?;
    Ok(engine)
}

/// A file that no backend knows but the example's.
fn in_memory(bytes: &[u8]) -> File {
    File::on(ram::Ram::of(bytes.to_vec()), "memory")
}

/// An engine that any thread may use.
static MOVABLE: Row = Row::real("uring", movable).variant("for any thread");

fn movable(config: &EngineOptions) -> Result<Engine, SetupError> {
    let affinity = Affinity::AnyThread;
    start(Choice::Uring, &EngineOptions { affinity, ..*config })
}

fn rows() -> impl Iterator<Item = &'static Row> {
    BACKENDS.iter().chain([&RAM, &MOVABLE, &RAM_HELPS, &BOTH])
}

/// (backends, case or group of cases, why not). The list of docs/inside/engine.md, "What each backend refuses".
#[rustfmt::skip]
const NOT_SUPPORTED: &[(&str, &str, &str)] = &[
    ("sim ram", "exchange::*", ONLY_DISKS),
    ("sim ram", "a_cached_read_goes_past_two_gib", "its modes are all one"),
    ("sim ram", "network::*", ONLY_DISKS),
    ("sim ram", "polling::*", ONLY_DISKS),
    ("sim ram", "pipes::*", ONLY_DISKS),
    ("sim ram", "transfers::*", ONLY_DISKS),
    ("sim ram", "a_transfer::*", ONLY_DISKS),
    ("sim ram", "a_direct_transfer::*", ONLY_DISKS),
    ("sim ram", "a_cancel_takes_nothing::*", ONLY_DISKS),
    ("sim ram", "*::a_pipe_read", ONLY_DISKS),
    ("sim ram", "*::a_write_to_a_full_pipe", ONLY_DISKS),
    ("sim ram", "*::a_poll", ONLY_DISKS),
    ("sim ram", "*::an_accept", ONLY_DISKS),
    ("sim ram", "*::a_connect", ONLY_DISKS),
    ("sim ram", "*::a_receive", ONLY_DISKS),
    ("sim ram", "*::a_send_to_a_full_socket", ONLY_DISKS),
    ("sim ram", "*::a_transfer_half_way", ONLY_DISKS),
    ("sim ram", "*::a_write_over_the_end_makes_the_file_longer", ONLY_DISKS),
    ("sim ram", "*::a_write_behind_the_end_leaves_a_hole_of_zeros", ONLY_DISKS),
    ("sim ram", "*::a_file_that_shrank_ends_earlier", ONLY_DISKS),
    ("sim ram", "*::a_synced_file_reads_the_same_through_another_description", ONLY_DISKS),
    ("sim ram", "*::a_write_goes_past_two_gib", ONLY_DISKS),
    ("sim ram", "*::thousands_of_polls_hold_no_read_up", ONLY_DISKS),
    ("sim ram", "*::an_engine_goes_with_thousands_in_flight", ONLY_DISKS),
    ("sim ram", "*::a_connection_that_nobody_takes_is_closed", ONLY_DISKS),
    ("sim ram", "a_read_only_file_takes_no_writes", ONLY_DISKS),
    ("sim ram", "a_mode_that_was_not_opened_is_refused", ONLY_DISKS),
    ("sim ram", "reserving_behind_the_end_grows_a_file", ONLY_DISKS),
    ("sim ram", "a_write_never_passes_an_abandoned_one_on_a_real_disk", "shown with a device that is held"),
    ("sim ram", "a_doorbell_wakes_a_turn_that_waits_for_requests", ONLY_DISKS),
    ("sim ram", "a_stream_read_returns_what_there_is", ONLY_DISKS),
    ("sim ram", "a_stream_write_is_whole", ONLY_DISKS),
    ("sim ram", "a_non_blocking_stream_is_waited_for", ONLY_DISKS),
    ("sim ram", "only_who_asks_for_it_sees_eagain", ONLY_DISKS),
    ("sync ram", "a_cancelled_wait_completes_once", ENDS_IN_ITS_TURN),
    ("sync ram", "abandoned_while_it_runs_its_memory_comes_back_later", ENDS_IN_ITS_TURN),
    ("sync ram", "a_write_never_passes_an_abandoned_one_on_a_real_disk", ENDS_IN_ITS_TURN),
    ("sync ram", "a_deadline_completes_early_and_releases_later", ENDS_IN_ITS_TURN),
    ("sync ram", "an_owner_stays_until_the_kernel_has_let_go", ENDS_IN_ITS_TURN),
    ("sync ram", "a_deadline_ends_a_timer", NO_TIMERS),
    ("sync ram", "a_refused_request_takes_no_other_deadline_away", NO_TIMERS),
    ("sync ram", "shutdown_ends_what_waits", ENDS_IN_ITS_TURN),
    ("sync ram", "after_min_wait_one_completion_is_enough", NO_TIMERS),
    ("sync ram", "a_doorbell_wakes_a_turn_that_waits_for_requests", ENDS_IN_ITS_TURN),
    ("sync ram", "a_timer_fires_and_time_goes_on", NO_TIMERS),
    ("sim ram", "the_same_beside_a_receive_that_stands", ONLY_DISKS),
    ("sim ram", "the_same_beside_a_poll_that_stands", ONLY_DISKS),
    ("sync ram", "the_same_beside_a_receive_that_stands", ENDS_IN_ITS_TURN),
    ("sync ram", "the_same_beside_a_poll_that_stands", ENDS_IN_ITS_TURN),
    ("sync ram", "the_same_beside_a_timer_far_away", NO_TIMERS),
    ("sync ram", "exchange::*", NO_NETWORK),
    ("sync ram", "network::*", NO_NETWORK),
    ("sync ram", "polling::*", "it has no poll"),
    ("sync ram", "timers::*", NO_TIMERS),
    ("sync ram", "cancel_ends::*", ENDS_IN_ITS_TURN),
    ("sync ram", "a_cancel_before_the_start_ends::*", ENDS_IN_ITS_TURN),
    ("sync ram", "an_abandon_releases::*", ENDS_IN_ITS_TURN),
    ("sync ram", "a_deadline_ends::*", ENDS_IN_ITS_TURN),
    ("sync ram", "shutdown_ends::*", ENDS_IN_ITS_TURN),
    ("sync ram", "drop_ends::*", ENDS_IN_ITS_TURN),
    ("sync ram", "a_cancel_takes_nothing::*", ENDS_IN_ITS_TURN),
    ("sync ram", "a_writer_that_closes_ends_every_read_that_waits", ENDS_IN_ITS_TURN),
    ("sync ram", "reads_that_wait_together_share_the_bytes", ENDS_IN_ITS_TURN),
    ("sync ram", "what_was_transferred_before_a_cancel_has_arrived", ENDS_IN_ITS_TURN),
    ("sync ram", "a_cancel_at_any_moment_ends_a_transfer", ENDS_IN_ITS_TURN),
    ("sync ram", "thousands_of_polls_hold_no_read_up", ENDS_IN_ITS_TURN),
    ("sync ram", "an_engine_goes_with_thousands_in_flight", ENDS_IN_ITS_TURN),
    ("sync ram", "a_connection_that_nobody_takes_is_closed", ENDS_IN_ITS_TURN),
    ("sync sim ram", "the_ready_descriptor_sees_every_completion", NO_READY_FD),
    ("sync sim ram", "the_ready_descriptor_hears_every_ring", NO_READY_FD),
    ("sync sim ram", "the_ready_descriptor_sees_event_fds_that_are_polled", NO_READY_FD),
    ("sync sim ram", "a_ring_heard_outside_ends_the_next_sleep", NO_READY_FD),
    ("sync sim ram", "polling_tells_what_is_ready", "it has no poll"),
    ("sync threads aio sim ram", "registered_memory_and_files_change_nothing", REGISTERS_NOTHING),
    ("sync threads aio sim ram", "a_file_attached_twice_is_let_go_by_one_detach", REGISTERS_NOTHING),
    ("sync threads aio sim ram", "a_detached_file_is_closed_beside_a_read_that_waits", REGISTERS_NOTHING),
    ("sync threads aio uring ram", "a_held_device_holds_the_fence", ONLY_SIMULATED),
    ("sync threads aio uring ram", "a_sync_given_up_on_poisons_when_it_fails", ONLY_SIMULATED),
    ("sync threads aio uring ram", "a_write_waits_for_an_abandoned_one_to_the_same_bytes", ONLY_SIMULATED),
    ("sync threads aio uring ram", "a_deadline_in_the_queue_cancels", ONLY_SIMULATED),
    ("sync threads aio uring ram", "held::*", ONLY_SIMULATED),
    ("sync threads aio uring ram", "order::*", ONLY_SIMULATED),
    ("ram both", "a_truncated_file_ends_there_and_grows_with_zeros", "its memory has a fixed size"),
    ("sim ram", "what_is_no_file_is_not_truncated", ONLY_DISKS),
    ("sim ram", "a_discard_gives_the_blocks_back", ONLY_DISKS),
    ("sim ram", "a_read_only_file_takes_no_allocation", ONLY_DISKS),
    ("sim ram", "a_new_file_is_empty_and_grows", ONLY_DISKS),
    ("sim ram", "a_device_ends_where_it_ends", ONLY_DISKS),
    ("sim ram", "a_device_without_bytes_is_gone", ONLY_DISKS),
    ("sim ram", "ranges_of_a_device_are_zeroed_and_discarded", ONLY_DISKS),
    ("ram", "a_failed_sync_poisons_until_acknowledged", ONLY_SIMULATED),
    ("ram", "of_two_syncs_none_hides_the_failure", ONLY_SIMULATED),
    ("ram", "a_failed_range_sync_poisons_too", ONLY_SIMULATED),
    ("ram", "a_durable_cached_write_cannot_swallow_anothers_failure", ONLY_SIMULATED),
    ("ram", "around_two_gib", NOT_SPARSE),
    ("ram", "around_four_gib", NOT_SPARSE),
    ("ram", "around_a_tebibyte", NOT_SPARSE),
    ("ram", "a_direct_read_goes_past_two_gib", NOT_SPARSE),
    ("both", "a_list_of_more_than_1024_parts_goes_on", OF_THE_KERNEL),
    ("both", "a_device_that_the_backend_does_not_know_is_ebadf", "it knows it"),
    ("both", "counts::*", OF_THE_KERNEL),
    ("both", "a_write_over_the_end_makes_the_file_longer", OF_THE_KERNEL),
    ("both", "a_write_behind_the_end_leaves_a_hole_of_zeros", OF_THE_KERNEL),
    ("both", "a_cancel_at_any_moment_ends_a_transfer", OF_THE_KERNEL),
    ("both", "reserving_behind_the_end_grows_a_file", OF_THE_KERNEL),
    ("both", "a_file_that_shrank_ends_earlier", OF_THE_KERNEL),
    ("sync threads aio uring ram", "a_failed_sync_of_an_allocation_poisons", ONLY_SIMULATED),
    ("sync threads aio uring ram", "a_poisoned_file_is_poisoned_in_every_engine", ONLY_SIMULATED),
];

/// Lines of these rows name cases that are not even tried there.
const NOT_TRIED: &str = "both";

const REGISTERS_NOTHING: &str = "it registers neither files nor memory";
const ENDS_IN_ITS_TURN: &str = "a request has ended when its turn returns";
const ONLY_SIMULATED: &str = "its device cannot be held; shown on sim";
const OF_THE_KERNEL: &str = "its file must be the kernel's";
const NO_NETWORK: &str = "it has no network operations";
const NO_TIMERS: &str = "it has no timers";
const NO_READY_FD: &str = "it has no ready descriptor";
const NOT_SPARSE: &str = "it has memory for every byte";
const ONLY_DISKS: &str = "it has disks of a fixed size: no files, no pipes";

/// Does a line of [`NOT_SUPPORTED`] speak of this case? It names the case, with or without its module, or a group of cases
/// by one `*`: `network::*`, `*::a_timer`.
fn names(line: &str, case: &str) -> bool {
    match line.split_once('*') {
        Some((start, end)) => case.starts_with(start) && case.ends_with(end),
        None => line == case || case.split_once("::").is_some_and(|(_, name)| name == line),
    }
}

/// Does a line say that `row` cannot do it?
fn is_listed(row: &str, case: &str) -> bool {
    NOT_SUPPORTED
        .iter()
        .any(|(rows, line, _)| rows.split(' ').any(|name| name == row) && names(line, case))
}

enum Report {
    Began(&'static Row, &'static str),
    Ended(&'static Row, &'static str, Outcome),
    Absent(&'static Row, String),
}

enum Outcome {
    Ran,
    Refused(String),
    Skipped(String),
    Failed(String),
}

/// The rows of one run have the machine to themselves: a holder of every AIO event is in everybody's way.
static ALONE: Mutex<()> = Mutex::new(());

const SUITE: &str = "every_backend_keeps_the_contract";

#[test]
fn every_backend_keeps_the_contract() {
    let environment = environment::begin();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A child's parent has seen to that.
    let _events = environment.is_none().then(|| AioEvents::reserve(false));
    let ran = run_suite(environment.map_or(World::Usual, World::Bad));
    if let Some(environment) = environment {
        bad_environments::check(environment, &ran);
    }
}

/// docs/inside/engine.md rule 7: nothing dies where io_uring is blocked, locked memory is short, or the AIO events are used up.
#[test]
fn the_contract_is_kept_in_bad_environments() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for environment in part::ours(&environment::ALL) {
        tell(&format!("in a bad environment: {}", environment.name()));
        if environment.is_this_kernels() {
            tell("in a bad environment: skipped: this kernel is no younger, so nothing would be taken away");
            continue;
        }
        match environment.run_again(SUITE) {
            Ok(passed) => assert!(passed, "failed where: {}", environment.name()),
            Err(why) => tell(&format!("in a bad environment: skipped {}: {why}", environment.name())),
        }
    }
}

/// Which backends have run their cases, and which could not be started, and why.
struct Ran {
    backends: Vec<&'static str>,
    absent: Vec<(&'static str, String)>,
}

/// What surrounds a suite.
#[derive(Clone, Copy)]
enum World {
    Usual,
    Bad(Environment),
    Refusing(Refusal),
}

impl World {
    fn is_usual(self) -> bool {
        matches!(self, World::Usual)
    }

    /// The backends that may not start in it.
    fn refuses(self) -> &'static [&'static str] {
        match self {
            World::Bad(environment) => environment.refuses(),
            World::Refusing(refusal) if refusal.may_cost_the_ring() => &["uring"],
            World::Usual | World::Refusing(_) => &[],
        }
    }
}

/// Is the case among those whose names have one of these parts?
fn is_chosen(parts: &str, case: &str) -> bool {
    parts.split(',').any(|part| case.contains(part))
}

/// A disk in memory is the same everywhere, so it runs in the usual world only.
fn run_suite(world: World) -> Ran {
    // A case that hangs is named, instead of leaving the reader with a silent terminal.
    const STUCK: Duration = Duration::from_secs(120);
    let only = std::env::var("BAIO_CASE").unwrap_or_default();
    let (reports, incoming) = mpsc::channel();
    let start = |row: &'static Row| {
        let (reports, only) = (reports.clone(), only.clone());
        std::thread::spawn(move || run_all(row, world, &only, &reports))
    };
    let rows = || rows().filter(|row| world.is_usual() || row.has_files() && row.variant.is_empty());
    let threads: Vec<_> = rows().map(start).collect();
    drop(reports);
    let mut running = Vec::new();
    let mut tallies: Vec<_> = rows().map(Tally::new).collect();
    loop {
        let report = match incoming.recv_timeout(STUCK) {
            Ok(report) => report,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // Its thread cannot be ended, so the process is.
                tallies.iter().for_each(Tally::print);
                tell(&format!("stuck in {running:?}"));
                std::process::exit(101);
            }
        };
        match report {
            Report::Began(row, case) => running.push((row.title(), case)),
            Report::Ended(row, case, outcome) => {
                running.retain(|entry| *entry != (row.title(), case));
                tally_of(&mut tallies, row).count(case, outcome);
            }
            Report::Absent(row, why) => tally_of(&mut tallies, row).absent = Some(why),
        }
    }
    tallies.iter().for_each(Tally::print);
    for thread in threads {
        // A panic outside of the cases ends the reports of its row, too.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    let whole = tallies.iter().all(|tally| tally.broken.is_empty());
    assert!(
        whole,
        "some cases alone: BAIO_CASE=NAME,NAME cargo test -p baio-engine --test contract"
    );
    let chosen = CASES.iter().filter(|(name, _)| is_chosen(&only, name)).count();
    assert_ne!(chosen, 0, "no case is named {only}");
    for tally in tallies.iter().filter(|tally| tally.absent.is_none()) {
        assert_eq!(tally.counted(), chosen, "{}: cases are missing", tally.row.title());
    }
    if only.is_empty() {
        let stale = |(backends, case, _): &&(&str, &str, &str)| {
            !backends
                .split(' ')
                .all(|name| self::rows().any(|row| row.has_limits_of(name)))
                || !CASES.iter().any(|(name, _)| names(case, name))
        };
        assert_eq!(
            NOT_SUPPORTED.iter().find(stale),
            None,
            "a line of NOT_SUPPORTED names nothing"
        );
    }
    let (absent, present): (Vec<_>, Vec<_>) = tallies.into_iter().partition(|tally| tally.absent.is_some());
    Ran {
        backends: present.iter().map(|tally| tally.row.name).collect(),
        absent: absent
            .into_iter()
            .map(|tally| (tally.row.name, tally.absent.unwrap_or_default()))
            .collect(),
    }
}

fn run_all(row: &'static Row, world: World, only: &str, reports: &mpsc::Sender<Report>) {
    let bench = Bench::new(row);
    let starts = if world.refuses().contains(&row.name) {
        bench.starts()
    } else {
        bench.starts_in_time()
    };
    if let Err(why) = starts {
        let _ = reports.send(Report::Absent(row, why));
        return;
    }
    for &(name, case) in CASES {
        if !is_chosen(only, name) {
            continue;
        }
        let _ = reports.send(Report::Began(row, name));
        let began = std::time::Instant::now();
        bench.begin(name);
        let tried = || match row.has_limits_of(NOT_TRIED) && is_listed(NOT_TRIED, name) {
            true => Err(Stop::Refused("not tried".into())),
            false => case(&bench),
        };
        let outcome = match catch_unwind(AssertUnwindSafe(tried)) {
            Ok(Ok(())) => Outcome::Ran,
            Ok(Err(Stop::Refused(why))) => Outcome::Refused(why),
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Err(panic) => Outcome::Failed(message_of(&*panic)),
        };
        let _ = reports.send(Report::Ended(row, name, outcome));
        if std::env::var_os("BAIO_SLOW").is_some() && began.elapsed() > Duration::from_millis(300) {
            tell(&format!("contract {}: {name} took {:?}", row.name, began.elapsed()));
        }
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

fn tally_of<'a>(tallies: &'a mut [Tally], row: &Row) -> &'a mut Tally {
    tallies
        .iter_mut()
        .find(|tally| std::ptr::eq(tally.row, row))
        .expect("a known backend")
}

struct Tally {
    row: &'static Row,
    ran: usize,
    refused: usize,
    skipped: Vec<String>,
    absent: Option<String>,
    broken: Vec<String>,
}

impl Tally {
    fn new(row: &'static Row) -> Tally {
        Tally {
            row,
            ran: 0,
            refused: 0,
            skipped: Vec::new(),
            absent: None,
            broken: Vec::new(),
        }
    }

    fn count(&mut self, case: &'static str, outcome: Outcome) {
        let listed = NOT_SUPPORTED.iter().any(|(backends, line, _)| {
            backends.split(' ').any(|name| self.row.has_limits_of(name)) && names(line, case)
        });
        let backend = self.row.title();
        match outcome {
            // In a variant another backend may do what this one cannot.
            Outcome::Ran if listed && self.row.variant.is_empty() => self
                .broken
                .push(format!("{backend}: {case} runs: strike it off NOT_SUPPORTED")),
            Outcome::Ran => self.ran += 1,
            Outcome::Refused(_) if listed => self.refused += 1,
            Outcome::Refused(why) => self
                .broken
                .push(format!("{backend}: {case} is refused ({why}) and not listed")),
            Outcome::Skipped(why) => self.skipped.push(format!("{case}: {why}")),
            Outcome::Failed(why) => self.broken.push(format!("{backend}: {case}: {why}")),
        }
    }

    /// Cases that came to a good end.
    fn counted(&self) -> usize {
        self.ran + self.refused + self.skipped.len()
    }

    fn print(&self) {
        let backend = self.row.title();
        if let Some(why) = &self.absent {
            tell(&format!("contract {backend}: does not start here: {why}"));
            return;
        }
        let (ran, refused, failed) = (self.ran, self.refused, self.broken.len());
        let skipped = self.skipped.len();
        tell(&format!(
            "contract {backend}: {ran} cases ran, {refused} not supported, {skipped} skipped, {failed} failed"
        ));
        for line in &self.skipped {
            tell(&format!("contract {backend}: skipped {line}"));
        }
        if self.skipped.iter().any(|line| line.contains("needs root")) {
            // `.ci/run` looks for these words, and runs the test again as root.
            tell(&format!("SKIPPED: {SUITE}: {backend} needs root for some cases"));
        }
        for line in &self.broken {
            tell(&format!("contract: FAILED {line}"));
        }
    }
}
