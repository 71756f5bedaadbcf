//! The contract of [`baio::File`]: one body of cases, over both links and every backend.
//!
//! Each case is a claim, a function over any link. It gets a directory of its own and makes its own links. One case alone:
//! `BAIO_CASE=NAME,NAME cargo test -p baio --test file_contract`. What this machine cannot show is told with its reason; so is what
//! [`NOT_YET`] names, until it is built.

mod closing;
mod ends;
mod growing;
mod handles;
mod lengths;
mod many;
mod memory;
mod messages;
mod opening;
mod rig;
mod safety;
mod sizes;
mod space;
mod transfers;
mod truncating;
mod vectored;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use baio::{Backend, Local, Remote};

use rig::{Bench, Case, Made, Stop};

/// (case, or group of cases by one `*` at its end; what is missing). Such a case is tried all the same, and told when it passes.
#[rustfmt::skip]
const NOT_YET: &[(&str, &str)] = &[
    ("messages::a_missing_file_is_named_once", "an error of opening names the file again"),
];

/// What every row says of a case.
type Run<L> = fn(&Bench<L>) -> Case;

macro_rules! cases {
    ($($module:ident: $($case:ident)*;)*) => {
        /// Every case, over this link.
        fn cases<L: Made>() -> Vec<(&'static str, Run<L>)> {
            vec![$($((
                concat!(stringify!($module), "::", stringify!($case)),
                $module::$case::<L> as Run<L>,
            ),)*)*]
        }
    };
}

cases! {
    sizes:
        kernel_of_0 kernel_of_1 kernel_of_511 kernel_of_4095 kernel_of_4097 kernel_of_a_mebibyte_and_3
        direct_of_0 direct_of_1 direct_of_511 direct_of_4095 direct_of_4097 direct_of_a_mebibyte_and_3
        cached_of_0 cached_of_1 cached_of_511 cached_of_4095 cached_of_4097 cached_of_a_mebibyte_and_3
        uncached_of_0 uncached_of_1 uncached_of_511 uncached_of_4095 uncached_of_4097 uncached_of_a_mebibyte_and_3
        cached_of_whole_pages;
    transfers:
        what_was_written_is_read
        a_read_across_the_end_is_short
        a_read_at_the_end_is_empty
        a_read_behind_the_end_is_empty
        no_bytes_are_no_failure
        an_exact_read_across_the_end_fails_with_the_buffer
        an_exact_read_behind_the_end_fails
        an_exact_read_up_to_the_end_is_done
        a_hole_reads_as_zeros
        an_offset_that_cannot_be_is_refused
        a_part_of_a_page_is_written
        the_result_tells_what_carried_it
        a_mode_of_one_request_does_not_stay;
    growing:
        kernel_writes_grow_it
        kernel_writes_behind_the_end_leave_zeros
        direct_writes_grow_it
        uncached_writes_grow_it
        cached_writes_grow_it
        cached_readers_see_what_a_kernel_write_adds
        cached_readers_go_on_while_it_grows
        growth_from_outside_is_read;
    truncating:
        an_open_cuts_it
        an_open_without_it_keeps_the_bytes
        a_reader_sees_a_cut_from_outside
        a_direct_reader_sees_a_cut_from_outside
        a_cached_reader_lives_through_a_cut_from_outside
        joined_reads_live_through_cuts
        a_write_after_a_cut_grows_it_again;
    lengths:
        a_truncate_makes_it_shorter
        a_truncate_makes_it_longer
        a_cut_is_seen_by_every_handle
        readers_live_through_truncates
        a_cancelled_truncate_cuts_nothing
        an_allocation_makes_it_longer
        both_are_refused_where_nothing_may_change
        both_are_refused_of_a_pipe
        a_durable_truncate
        an_open_that_cuts_a_cached_file_is_seen;
    handles:
        a_kernel_and_a_cached_handle_agree
        a_direct_and_a_cached_handle_agree
        two_cached_handles_share_pages
        a_cached_handle_for_reading_does_not_keep_a_writer_out
        a_file_replaced_by_rename_is_another
        a_cached_file_replaced_by_rename_is_another
        a_removed_file_is_read_on
        clones_are_one_file
        a_mode_for_a_clone_is_its_own
        the_last_clone_closes_it
        a_request_keeps_it_open
        a_forgotten_file_is_read_anew;
    opening:
        what_is_missing_is_not_made
        create_makes_it
        create_keeps_what_is_there
        create_new_makes_it
        create_new_refuses_what_is_there
        a_directory_is_refused
        a_path_through_a_file_is_refused
        an_open_without_permission_is_refused
        a_handle_to_read_refuses_changes
        a_kernel_handle_refuses_direct_requests
        a_direct_handle_refuses_kernel_requests
        every_mode_gives_every_mode
        cached_needs_a_cache
        a_file_system_without_direct_says_so
        a_pipe_is_written_and_read
        a_pipe_that_nobody_writes_holds_nobody_up
        a_block_device_is_a_file
        many_at_once;
    safety:
        a_sync_after_kernel_writes
        a_sync_after_cached_writes
        a_sync_of_nothing
        a_sync_through_a_handle_to_read
        a_fence_ends_behind_the_writes_before_it
        a_durable_kernel_write
        a_durable_direct_write
        a_durable_cached_write
        a_fully_durable_write;
    space:
        a_discarded_range_is_zeros
        a_zeroed_range_is_zeros
        a_cached_range_is_zeroed
        a_discard_keeps_the_size
        an_empty_range_is_no_failure
        a_range_askew_is_refused_of_a_direct_file
        a_handle_to_read_refuses_both;
    vectored:
        buffers_lie_one_behind_the_other
        buffers_of_several_lengths
        a_list_across_the_end_is_short
        a_cached_list
        an_empty_list
        the_buffers_come_back_in_order;
    ends:
        a_deadline_in_the_past_ends_it
        a_deadline_in_the_past_of_a_cached_request
        a_deadline_far_off_changes_nothing
        cancelled_before_it_began_it_has_no_effect
        cancelled_under_way_it_has_an_end
        a_future_dropped_before_it_began_has_no_effect
        a_future_dropped_under_way_gives_its_memory_back
        futures_dropped_in_any_order
        a_status_word_moves
        a_status_word_tells_of_a_failure
        an_operation_dropped_halfway_opens_nothing
        an_ended_request_is_not_polled_again;
    memory:
        the_buffer_comes_back_when_alignment_is_refused
        the_buffer_comes_back_when_writing_is_refused
        the_buffer_comes_back_when_the_mode_is_refused
        shared_memory_is_written_and_not_read_into
        all_memory_comes_back
        misplaced_memory_is_refused_and_comes_back
        misplaced_memory_is_bounced_when_asked
        a_bounced_write_is_counted
        what_need_not_bounce_is_not_counted
        a_bounce_without_room_fails_with_the_memory;
    closing:
        a_file_of_a_closed_link_is_stale
        futures_end_when_the_link_is_closed
        an_operation_ends_when_the_link_is_closed
        cached_writes_are_kept_by_a_close
        a_file_outlives_its_link
        a_close_waits_for_no_opening;
    many:
        joined_reads_with_fewer_slots
        joined_writes_with_fewer_slots
        joined_cached_reads_with_fewer_slots
        a_file_is_read_and_written_at_once
        tickets_and_futures_share_a_link
        many_files_on_one_core;
    messages:
        a_missing_file_is_named
        a_missing_file_is_named_once
        a_refused_request_names_file_and_place
        a_failure_becomes_an_error_of_the_standard_library
        a_file_shows_its_name
        a_request_shows_what_it_is;
}

/// How long one case may take.
const STUCK: Duration = Duration::from_secs(60);

/// Writes where the test's output capture does not reach, so that counts and skips are always seen.
fn tell(line: &str) {
    // In one piece: others write there too, and `.ci/run` reads the line.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[test]
fn local_uring() {
    keeps_the_contract::<Local>(Backend::Uring);
}

#[test]
fn local_aio() {
    keeps_the_contract::<Local>(Backend::Aio);
}

#[test]
fn local_threads() {
    keeps_the_contract::<Local>(Backend::Threads);
}

#[test]
fn local_sync() {
    keeps_the_contract::<Local>(Backend::Sync);
}

#[test]
fn remote_uring() {
    keeps_the_contract::<Remote>(Backend::Uring);
}

#[test]
fn remote_aio() {
    keeps_the_contract::<Remote>(Backend::Aio);
}

#[test]
fn remote_threads() {
    keeps_the_contract::<Remote>(Backend::Threads);
}

#[test]
fn remote_sync() {
    keeps_the_contract::<Remote>(Backend::Sync);
}

/// How a case came out.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

#[derive(Default)]
struct Tally {
    ran: usize,
    /// With the reason.
    skipped: Vec<(&'static str, String)>,
    not_yet: usize,
    failed: Vec<String>,
}

fn keeps_the_contract<L: Made>(backend: Backend) {
    let row = format!("{} over {backend}", L::NAME);
    if let Err(why) = Bench::<L>::new(backend, "").starts() {
        tell(&format!("file contract, {row}: skipped, it does not start here: {why}"));
        return;
    }
    let only = std::env::var("BAIO_CASE").unwrap_or_default();
    // Parts of names, as `.ci/run` names what has to be run as root.
    let is_chosen = |name: &str| only.split(',').any(|part| name.contains(part));
    let chosen = cases::<L>().into_iter().filter(|(name, _)| is_chosen(name));
    let mut tally = Tally::default();
    for (name, case) in chosen {
        match run(&row, backend, name, case) {
            Outcome::Passed => {
                tally.ran += 1;
                if let Some(missing) = missing(name) {
                    tell(&format!(
                        "file contract, {row}: {name} passes: NOT_YET need not say that {missing}"
                    ));
                }
            }
            Outcome::Skipped(why) => tally.skipped.push((name, why)),
            Outcome::Failed(_) if missing(name).is_some() => tally.not_yet += 1,
            Outcome::Failed(why) => tally.failed.push(format!("{row}: {name}: {why}")),
        }
    }
    let Tally {
        ran,
        skipped,
        not_yet,
        failed,
    } = tally;
    for (name, why) in &skipped {
        tell(&format!("file contract, {row}: skipped {name}: {why}"));
        if why.contains("needs root") {
            // `.ci/run` looks for these words, and runs the test again as root.
            tell(&format!("SKIPPED: {}_{backend}: {name} needs root", L::NAME));
        }
    }
    let (left, broken) = (skipped.len(), failed.len());
    tell(&format!(
        "file contract, {row}: {ran} ran, {left} skipped, {not_yet} not yet, {broken} failed"
    ));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_ne!(ran + left + not_yet, 0, "no case is named {only}");
}

/// On a thread of its own, so that one that hangs is named.
fn run<L: Made>(row: &str, backend: Backend, name: &'static str, case: Run<L>) -> Outcome {
    let (done, told) = mpsc::channel();
    let tried = move || {
        let outcome = match catch_unwind(AssertUnwindSafe(|| case(&Bench::new(backend, name)))) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Err(panic) => Outcome::Failed(message_of(&*panic)),
        };
        let _ = done.send(outcome);
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(tried).unwrap();
    match told.recv_timeout(STUCK) {
        Ok(outcome) => {
            thread.join().unwrap();
            outcome
        }
        Err(_) => {
            // Its thread cannot be ended, so the process is.
            tell(&format!("file contract: FAILED {row}: stuck in {name}"));
            std::process::exit(101);
        }
    }
}

fn missing(case: &str) -> Option<&'static str> {
    let names = |line: &str| match line.strip_suffix('*') {
        Some(start) => case.starts_with(start),
        None => line == case,
    };
    NOT_YET
        .iter()
        .find(|(line, _)| names(line))
        .map(|(_, missing)| *missing)
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    // A comparison of whole files is told by its beginning.
    text.unwrap_or("a panic without words").chars().take(400).collect()
}

/// A line of [`NOT_YET`] that names nothing would hide the next failure of that name.
#[test]
fn what_is_not_yet_is_a_case() {
    let cases = cases::<Local>();
    for (line, _) in NOT_YET {
        let named = cases.iter().any(|(case, _)| match line.strip_suffix('*') {
            Some(start) => case.starts_with(start),
            None => line == case,
        });
        assert!(named, "{line}");
    }
    assert!(cases.len() >= 80, "{}", cases.len());
}
