//! One contract, every backend (docs/engine.md; DESIGN §4).
//!
//! Each case is a claim and runs over every row of `backends::BACKENDS`. What a backend cannot do stands in
//! [`NOT_SUPPORTED`], with the reason: a case that a backend refuses and that is not listed fails, and so does one that is
//! listed and runs. The counts are printed at the end.

mod backends;
#[path = "contract/device.rs"]
mod device;
#[path = "contract/durability.rs"]
mod durability;
#[path = "contract/gate.rs"]
mod gate;
#[path = "contract/lifetime.rs"]
mod lifetime;
#[path = "contract/refusals.rs"]
mod refusals;
#[path = "contract/transfer.rs"]
mod transfer;
#[path = "contract/waiting.rs"]
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use backends::{BACKENDS, Bench, Case, Row, Stop, tell};

/// (backend, case, why not). The list of docs/engine.md, "What each backend refuses".
#[rustfmt::skip]
const NOT_SUPPORTED: &[(&str, &str, &str)] = &[
    ("sync", "registered_memory_and_files_change_nothing", REGISTERS_NOTHING),
    ("sync", "a_file_attached_twice_is_let_go_by_one_detach", REGISTERS_NOTHING),
    ("sync", "a_held_device_holds_the_fence", ONLY_SIMULATED),
    ("sync", "a_sync_given_up_on_poisons_when_it_fails", ONLY_SIMULATED),
    ("sync", "a_cancelled_wait_completes_once", ENDS_IN_ITS_TURN),
    ("sync", "abandoned_while_it_runs_its_memory_comes_back_later", ENDS_IN_ITS_TURN),
    ("sync", "a_write_waits_for_an_abandoned_one_to_the_same_bytes", ONLY_SIMULATED),
    ("sync", "a_write_never_passes_an_abandoned_one_on_a_real_disk", ENDS_IN_ITS_TURN),
    ("sync", "a_deadline_completes_early_and_releases_later", ENDS_IN_ITS_TURN),
    ("sync", "a_deadline_ends_a_timer", NO_TIMERS),
    ("sync", "a_deadline_in_the_queue_cancels", ONLY_SIMULATED),
    ("sync", "a_refused_request_takes_no_other_deadline_away", NO_TIMERS),
    ("sync", "shutdown_ends_what_waits", ENDS_IN_ITS_TURN),
    ("sync", "after_min_wait_one_completion_is_enough", NO_TIMERS),
    ("sync", "a_doorbell_wakes_a_turn_that_waits_for_requests", ENDS_IN_ITS_TURN),
    ("sync", "the_ready_descriptor_sees_every_completion", NO_READY_FD),
    ("sync", "the_ready_descriptor_hears_every_ring", NO_READY_FD),
    ("sync", "the_ready_descriptor_sees_event_fds_that_are_polled", NO_READY_FD),
    ("sync", "a_ring_heard_outside_ends_the_next_sleep", NO_READY_FD),
    ("sync", "a_timer_fires_and_time_goes_on", NO_TIMERS),
    ("sync", "polling_tells_what_is_ready", "it has no poll"),
    ("threads", "registered_memory_and_files_change_nothing", REGISTERS_NOTHING),
    ("threads", "a_file_attached_twice_is_let_go_by_one_detach", REGISTERS_NOTHING),
    ("threads", "a_held_device_holds_the_fence", ONLY_SIMULATED),
    ("threads", "a_sync_given_up_on_poisons_when_it_fails", ONLY_SIMULATED),
    ("threads", "a_write_waits_for_an_abandoned_one_to_the_same_bytes", ONLY_SIMULATED),
    ("threads", "a_deadline_in_the_queue_cancels", ONLY_SIMULATED),
    ("aio", "registered_memory_and_files_change_nothing", REGISTERS_NOTHING),
    ("aio", "a_file_attached_twice_is_let_go_by_one_detach", REGISTERS_NOTHING),
    ("aio", "a_held_device_holds_the_fence", ONLY_SIMULATED),
    ("aio", "a_sync_given_up_on_poisons_when_it_fails", ONLY_SIMULATED),
    ("aio", "a_write_waits_for_an_abandoned_one_to_the_same_bytes", ONLY_SIMULATED),
    ("aio", "a_deadline_in_the_queue_cancels", ONLY_SIMULATED),
    ("uring", "a_held_device_holds_the_fence", ONLY_SIMULATED),
    ("uring", "a_sync_given_up_on_poisons_when_it_fails", ONLY_SIMULATED),
    ("uring", "a_write_waits_for_an_abandoned_one_to_the_same_bytes", ONLY_SIMULATED),
    ("uring", "a_deadline_in_the_queue_cancels", ONLY_SIMULATED),
    ("sim", "registered_memory_and_files_change_nothing", REGISTERS_NOTHING),
    ("sim", "a_file_attached_twice_is_let_go_by_one_detach", REGISTERS_NOTHING),
    ("sim", "a_read_only_file_takes_no_writes", ONLY_DISKS),
    ("sim", "a_mode_that_was_not_opened_is_refused", ONLY_DISKS),
    ("sim", "reserving_behind_the_end_grows_a_file", ONLY_DISKS),
    ("sim", "a_write_never_passes_an_abandoned_one_on_a_real_disk", "shown with a device that is held"),
    ("sim", "a_doorbell_wakes_a_turn_that_waits_for_requests", ONLY_DISKS),
    ("sim", "the_ready_descriptor_sees_every_completion", NO_READY_FD),
    ("sim", "the_ready_descriptor_hears_every_ring", NO_READY_FD),
    ("sim", "the_ready_descriptor_sees_event_fds_that_are_polled", NO_READY_FD),
    ("sim", "a_ring_heard_outside_ends_the_next_sleep", NO_READY_FD),
    ("sim", "polling_tells_what_is_ready", "it has no poll"),
    ("sim", "a_stream_read_returns_what_there_is", ONLY_DISKS),
    ("sim", "a_stream_write_is_whole", ONLY_DISKS),
    ("sim", "a_non_blocking_stream_is_waited_for", ONLY_DISKS),
    ("sim", "only_who_asks_for_it_sees_eagain", ONLY_DISKS),
];

const REGISTERS_NOTHING: &str = "it registers neither files nor memory";
const ENDS_IN_ITS_TURN: &str = "a request has ended when its turn returns";
const ONLY_SIMULATED: &str = "its device cannot be held; shown on sim";
const NO_TIMERS: &str = "it has no timers";
const NO_READY_FD: &str = "it has no ready descriptor";
const ONLY_DISKS: &str = "it has disks of a fixed size: no files, no pipes";

/// A case by its path, so that the name printed is the name to search for.
macro_rules! cases {
    ($($module:ident { $($case:ident)* })*) => {
        &[$($((stringify!($case), $module::$case as fn(&Bench) -> Case),)*)*]
    };
}

/// A name and what it stands for.
type Named = (&'static str, fn(&Bench) -> Case);

const CASES: &[Named] = cases! {
    transfer {
        what_is_written_is_read_at_every_offset
        end_of_file_inside_a_read_ends_it_there
        a_read_past_the_end_is_zero_bytes
        zero_bytes_complete_at_once
        a_list_is_written_and_read_in_order
        a_list_of_more_than_1024_parts_goes_on
        shared_memory_makes_the_round_trip
        frozen_bytes_are_written_by_several_requests_at_once
        registered_memory_and_files_change_nothing
        a_file_attached_twice_is_let_go_by_one_detach
        uncached_requests_work_or_say_that_they_do_not
        a_full_device_tells_how_far_it_came
        many_requests_go_through_few_slots
    }
    refusals {
        a_misaligned_offset_names_value_and_need
        a_misaligned_length_names_value_and_need
        a_misaligned_address_names_value_and_need
        a_misaligned_part_of_a_list_is_named
        a_read_only_file_takes_no_writes
        a_mode_that_was_not_opened_is_refused
        frozen_memory_cannot_be_read_into
        a_request_without_its_file_is_refused
        a_range_beyond_every_file_is_refused
        more_bytes_than_a_result_can_tell_are_refused
        a_refusal_is_a_completion_with_tag_and_memory
    }
    durability {
        sync_makes_data_and_everything_durable
        a_durable_write_needs_no_sync
        a_fence_comes_after_the_writes_before_it
        a_held_device_holds_the_fence
        a_cancelled_write_lets_its_fence_go
        a_failed_sync_poisons_until_acknowledged
        of_two_syncs_none_hides_the_failure
        syncs_that_wait_together_share_one
        a_cancelled_sync_takes_no_other_with_it
        a_sync_given_up_on_poisons_when_it_fails
        a_failed_range_sync_poisons_too
        a_durable_cached_write_cannot_swallow_anothers_failure
        a_request_that_was_never_tried_poisons_nothing
        ranges_are_reserved_zeroed_and_discarded
        reserving_behind_the_end_grows_a_file
        an_impossible_range_is_not_allocated
    }
    lifetime {
        cancelled_before_the_start_it_never_runs
        a_cancel_after_the_end_is_harmless
        a_cancelled_wait_completes_once
        a_stale_id_never_names_another_request
        abandoned_before_the_start_its_memory_comes_back
        abandoned_while_it_runs_its_memory_comes_back_later
        a_write_waits_for_an_abandoned_one_to_the_same_bytes
        a_write_never_passes_an_abandoned_one_on_a_real_disk
        a_deadline_completes_early_and_releases_later
        a_deadline_between_two_iterations_releases_too
        a_deadline_ends_a_timer
        a_deadline_in_the_queue_cancels
        a_refused_request_takes_no_other_deadline_away
        a_full_table_hands_the_request_back
        a_straight_line_request_runs_beside_untaken_completions
        an_engine_dropped_in_flight_corrupts_nothing
        shutdown_ends_what_waits
    }
    waiting {
        a_turn_with_nothing_in_flight_does_not_sleep
        a_whole_batch_goes_off_without_a_turn
        polling_without_sleep_sees_every_completion
        a_turn_waits_for_as_many_as_asked
        after_min_wait_one_completion_is_enough
        a_doorbell_ends_a_sleeping_turn
        a_doorbell_rung_before_the_turn_is_heard
        a_doorbell_wakes_a_turn_that_waits_for_requests
        the_ready_descriptor_sees_every_completion
        the_ready_descriptor_hears_every_ring
        the_ready_descriptor_sees_event_fds_that_are_polled
        a_ring_heard_outside_ends_the_next_sleep
        a_timer_fires_and_time_goes_on
        polling_tells_what_is_ready
        a_stream_read_returns_what_there_is
        a_stream_write_is_whole
        a_non_blocking_stream_is_waited_for
        only_who_asks_for_it_sees_eagain
    }
};

enum Report {
    Began(&'static str, &'static str),
    Ended(&'static str, &'static str, Outcome),
    Absent(&'static str, String),
}

enum Outcome {
    Ran,
    Refused(String),
    Skipped(String),
    Failed(String),
}

#[test]
fn every_backend_keeps_the_contract() {
    // A case that hangs is named, instead of leaving the reader with a silent terminal.
    const STUCK: Duration = Duration::from_secs(120);
    let only = std::env::var("BAIO_CASE").unwrap_or_default();
    let (reports, incoming) = mpsc::channel();
    let start = |row: &'static Row| {
        let (reports, only) = (reports.clone(), only.clone());
        std::thread::spawn(move || run_all(row, &only, &reports))
    };
    let threads: Vec<_> = BACKENDS.iter().map(start).collect();
    drop(reports);
    let mut running = Vec::new();
    let mut tallies: Vec<_> = BACKENDS.iter().map(|row| Tally::new(row.name)).collect();
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
            Report::Began(backend, case) => running.push((backend, case)),
            Report::Ended(backend, case, outcome) => {
                running.retain(|entry| *entry != (backend, case));
                tally_of(&mut tallies, backend).count(case, outcome);
            }
            Report::Absent(backend, why) => tally_of(&mut tallies, backend).absent = Some(why),
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
        "one case alone: BAIO_CASE=NAME cargo test -p baio-engine --test contract"
    );
    let chosen = CASES.iter().filter(|(name, _)| name.contains(&only)).count();
    assert_ne!(chosen, 0, "no case is named {only}");
    for tally in tallies.iter().filter(|tally| tally.absent.is_none()) {
        assert_eq!(tally.counted(), chosen, "{}: cases are missing", tally.backend);
    }
    if only.is_empty() {
        let stale = |(backend, case, _): &&(&str, &str, &str)| {
            !BACKENDS.iter().any(|row| row.name == *backend) || !CASES.iter().any(|(name, _)| name == case)
        };
        assert_eq!(
            NOT_SUPPORTED.iter().find(stale),
            None,
            "a line of NOT_SUPPORTED names nothing"
        );
    }
}

fn run_all(row: &'static Row, only: &str, reports: &mpsc::Sender<Report>) {
    let bench = Bench::new(row);
    if let Err(why) = bench.starts() {
        let _ = reports.send(Report::Absent(row.name, why));
        return;
    }
    for &(name, case) in CASES {
        if !name.contains(only) {
            continue;
        }
        let _ = reports.send(Report::Began(row.name, name));
        let outcome = match catch_unwind(AssertUnwindSafe(|| case(&bench))) {
            Ok(Ok(())) => Outcome::Ran,
            Ok(Err(Stop::Refused(why))) => Outcome::Refused(why),
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Err(panic) => Outcome::Failed(message_of(&*panic)),
        };
        let _ = reports.send(Report::Ended(row.name, name, outcome));
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

fn tally_of<'a>(tallies: &'a mut [Tally], backend: &str) -> &'a mut Tally {
    tallies
        .iter_mut()
        .find(|t| t.backend == backend)
        .expect("a known backend")
}

struct Tally {
    backend: &'static str,
    ran: usize,
    refused: usize,
    skipped: Vec<String>,
    absent: Option<String>,
    broken: Vec<String>,
}

impl Tally {
    fn new(backend: &'static str) -> Tally {
        Tally {
            backend,
            ran: 0,
            refused: 0,
            skipped: Vec::new(),
            absent: None,
            broken: Vec::new(),
        }
    }

    fn count(&mut self, case: &'static str, outcome: Outcome) {
        let backend = self.backend;
        let listed = NOT_SUPPORTED.iter().any(|(b, c, _)| (*b, *c) == (backend, case));
        match outcome {
            Outcome::Ran if listed => self
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
        if let Some(why) = &self.absent {
            tell(&format!("contract {}: does not start here: {why}", self.backend));
            return;
        }
        let (ran, refused, failed) = (self.ran, self.refused, self.broken.len());
        let skipped = self.skipped.len();
        tell(&format!(
            "contract {}: {ran} cases ran, {refused} not supported, {skipped} skipped, {failed} failed",
            self.backend
        ));
        for line in &self.skipped {
            tell(&format!("contract {}: skipped {line}", self.backend));
        }
        for line in &self.broken {
            tell(&format!("contract: FAILED {line}"));
        }
    }
}
