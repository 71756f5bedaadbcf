//! The promise: `Local` and `Remote` differ in being `Send` and `Sync`, and in nothing else. Each case is a story about any link, and is
//! told of both: the same answers, the same failures, the same ends.

mod ends;
mod freezes;
mod inside;
mod lower;
mod opened;
mod pages;
mod pool;
mod rig;
mod room;
mod segments;
#[path = "../common/story.rs"]
#[allow(unreachable_pub, reason = "the other tests have it in a module of their own")]
mod story;

use baio::{Local, Remote};

macro_rules! of_both {
    ($($module:ident: $($case:ident)*;)*) => {$(
        mod $module {
            mod local {
                $(#[test] fn $case() { crate::rig::tell_of(crate::$module::$case::<crate::Local>); })*
            }
            mod remote {
                $(#[test] fn $case() { crate::rig::tell_of(crate::$module::$case::<crate::Remote>); })*
            }
        }
    )*};
}

mod of_both {
    of_both! {
        segments:
            made_listed_and_deleted
            what_cannot_be_made_is_refused
            opened_and_refused
            resized_under_open_handles
            resized_by_two_at_once
            resized_while_it_is_used
            renamed_under_open_handles
            deleted_under_open_handles
            quotas_are_set_and_kept
            others_see_their_own
            the_volume_tells_of_itself
            counters_count
            what_was_written_is_there_after_a_close
            an_operation_runs_beside_requests;
        opened:
            requests_on_a_segment
            refused_requests_say_the_same
            modes_of_a_segment
            files_beside_a_volume
            a_link_without_a_volume_has_no_segments;
        pages:
            pinned_read_and_changed
            a_new_page_is_zero
            a_pin_that_is_dropped_lets_its_frame_go
            every_frame_pinned_is_told
            a_pin_keeps_what_it_pins
            a_pin_of_what_was_deleted_is_stale
            a_change_waits_for_the_log
            flushed_to_an_lsn
            a_flush_that_nobody_awaits_is_over
            hints_are_taken
            without_a_cache_all_is_refused
            pages_are_lent
            a_policy_of_ones_own_is_asked;
        pool:
            pages_are_read_and_changed_at_once
            what_comes_of_it_comes_back
            a_panic_is_its_callers
            a_panic_over_a_page_lets_it_go
            the_log_as_the_pool_sees_it;
        inside:
            the_link_is_refused_inside
            handles_are_let_go_inside;
        lower:
            tickets_are_waited_for
            outcomes_come_in_turn
            a_ticket_is_polled
            a_ticket_is_cancelled_and_abandoned
            a_stranger_is_nobody;
        room:
            futures_wait_for_room
            pins_wait_for_room
            more_pins_than_slots
            more_watched_pins_than_slots
            a_deadline_counts_while_it_waits
            who_is_called_and_not_polled_keeps_nobody_waiting;
        freezes:
            a_frozen_link_is_dropped_with_writes_that_wait
            a_frozen_link_is_closed_with_operations_that_wait;
        ends:
            a_request_is_cancelled
            a_deadline_passes
            operations_are_dropped_halfway
            pins_are_dropped_halfway
            a_closed_link_refuses_everything
            futures_of_a_closed_link_end
            a_close_does_not_wait_for_the_log
            a_dropped_link_gives_its_volume_back;
    }
}

/// Auto traits are what they differ in.
#[test]
fn remote_goes_anywhere() {
    fn anywhere<T: Send + Sync>() {}
    anywhere::<Remote>();
    anywhere::<baio::Segment<Remote>>();
    anywhere::<baio::File<Remote>>();
    anywhere::<baio::Opened<Remote>>();
    anywhere::<baio::Pin<Remote>>();
    anywhere::<baio::Request<Remote, baio::Buffer>>();
    anywhere::<baio::Operation<Remote, baio::SegmentInfo>>();
    let _ = std::marker::PhantomData::<Local>;
}

/// A pin comes from one thread and goes on another, and its frame is free then.
#[test]
fn a_pin_is_dropped_on_another_thread() {
    rig::tell_of(pages::a_pin_is_dropped_on_another_thread);
}

/// Lent pages are given back wherever they are dropped: also those of a local link.
#[test]
fn lent_pages_are_dropped_on_another_thread() {
    rig::tell_of(pages::lent_pages_are_dropped_on_another_thread::<Local>);
    rig::tell_of(pages::lent_pages_are_dropped_on_another_thread::<Remote>);
}

/// On the core's own thread: over a service a cancel is a message, which the request may outrun.
#[test]
fn a_cancel_inside_is_done_when_it_is_over() {
    rig::tell_of(inside::a_cancel_inside_is_done_when_it_is_over);
}

/// What needs no slot of the core answers also when nobody takes outcomes. Over a service a command needs a place as a request does.
#[test]
fn operations_wait_for_no_outcome_here() {
    rig::tell_of(room::operations_wait_for_no_outcome::<Local>);
}

/// Many threads on one link.
#[test]
fn operations_of_many_threads() {
    rig::tell_of(segments::operations_of_many_threads);
}
