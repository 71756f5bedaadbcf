//! Every case by its name. A case not on this list is dead code, and the compiler says so.

use crate::backends::{Bench, Case};
use crate::lists::{a_cached_list, a_direct_list};
use crate::offsets::{a_cached_read, a_direct_read};
use crate::transfers::{a_direct_transfer, a_transfer};
use crate::waits::{
    a_cancel_before_the_start_ends, a_cancel_takes_nothing, a_deadline_ends, an_abandon_releases, an_event,
    cancel_ends, drop_ends, held, shutdown_ends,
};
use crate::{
    counts, durability, engines, events, exchange, foreign, lifetime, lists, modes, network, offsets, order, pipes,
    polling, refusals, syncs, timers, transfer, transfers, waiting, waits,
};

/// A case by its path, so that the name printed is the name to search for.
macro_rules! cases {
    ($($module:ident { $($case:ident)* })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($case)), $module::$case as fn(&Bench) -> Case),)*)*]
    };
}

/// A name and what it stands for.
pub(crate) type Named = (&'static str, fn(&Bench) -> Case);

pub(crate) const CASES: &[Named] = cases! {
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
        lists_of_registered_memory_change_nothing
        a_file_attached_twice_is_let_go_by_one_detach
        a_detached_file_is_closed_beside_a_read_that_waits
        uncached_requests_work_or_say_that_they_do_not
        a_full_device_tells_how_far_it_came
        many_requests_go_through_few_slots
    }
    foreign {
        pages_of_any_owner_make_the_round_trip
        vectors_and_boxes_lie_where_they_like
        a_list_mixes_them_with_other_memory
        a_misaligned_owner_is_named_by_its_address
        an_owner_that_only_shows_its_bytes_takes_none
        an_owner_stays_until_the_kernel_has_let_go
    }
    refusals {
        a_misaligned_offset_names_value_and_need
        a_misaligned_length_names_value_and_need
        a_misaligned_address_names_value_and_need
        a_misaligned_part_of_a_list_is_named
        a_read_only_file_takes_no_writes
        a_mode_that_was_not_opened_is_refused
        a_device_that_the_backend_does_not_know_is_ebadf
        frozen_memory_cannot_be_read_into
        a_request_without_its_file_is_refused
        a_range_beyond_every_file_is_refused
        more_bytes_than_a_result_can_tell_are_refused
        a_refusal_is_a_completion_with_tag_and_memory
    }
    durability {
        sync_makes_data_and_everything_durable
        a_durable_write_needs_no_sync
        a_durable_allocation_ends_behind_a_sync
        a_failed_sync_of_an_allocation_poisons
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
        reserve_zero_discard_and_fence_are_requests
        reserving_behind_the_end_grows_a_file
        an_impossible_range_is_not_allocated
        a_truncated_file_ends_there_and_grows_with_zeros
        what_is_no_file_is_not_truncated
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
    counts {
        every_mix_is_waited_for_as_a_whole
        the_same_with_a_doorbell_given_away
        the_same_beside_a_receive_that_stands
        the_same_beside_a_poll_that_stands
        the_same_beside_a_timer_far_away
        the_same_beside_an_event
    }
    order {
        a_fence_waits_for_writes_through_another_description
        a_fence_waits_for_an_allocation
        a_fence_waits_for_no_read
        a_failed_write_lets_its_fence_go
        a_fence_that_waits_is_cancelled_at_once
        a_fence_that_waits_is_released_at_once
        an_overdue_fence_that_never_ran_is_cancelled
        syncs_wait_for_the_one_that_runs_and_share_the_next
        a_failed_sync_proves_nothing_to_those_who_waited
        an_abandoned_sync_takes_no_other_with_it
        a_running_sync_that_is_cancelled_takes_no_other_with_it
        one_of_those_that_wait_may_be_cancelled_or_abandoned
        a_sync_that_is_overdue_takes_no_other_with_it
    }
    syncs {
        a_fence_with_nothing_before_it_is_a_sync
        fences_in_a_row_end_in_their_order_or_together
        many_syncs_and_writes_of_one_file_all_end
        shutdown_tells_every_sync_that_waits
    }
    modes {
        uncached_requests_end_where_the_file_does
        uncached_lists_make_the_round_trip
        uncached_and_cached_requests_see_one_file
        an_uncached_write_can_be_durable
        an_impatient_read_gets_what_is_in_the_cache
        an_impatient_request_is_whole_or_refused
        a_deadline_that_is_not_missed_changes_nothing
        a_deadline_long_past_is_told_once_and_the_memory_comes_back
        odd_ranges_are_zeroed_to_the_byte
        odd_ranges_are_discarded_to_the_byte
        reserving_changes_no_byte
        a_discard_gives_the_blocks_back
        a_read_only_file_takes_no_allocation
        a_new_file_is_empty_and_grows
        a_device_ends_where_it_ends
        a_device_without_bytes_is_gone
        ranges_of_a_device_are_zeroed_and_discarded
    }
    offsets {
        around_the_first_sector
        around_a_mebibyte
        around_two_gib
        around_four_gib
        around_a_tebibyte
        at_every_sector_edge_with_every_small_length
        one_byte_changes_and_its_neighbours_stay
        near_the_largest_offset_reads_are_empty
        near_the_largest_offset_writes_fail_and_change_nothing
        a_byte_behind_the_largest_offset_is_refused
        no_bytes_anywhere_are_no_bytes
        a_write_over_the_end_makes_the_file_longer
        a_write_behind_the_end_leaves_a_hole_of_zeros
        a_file_that_shrank_ends_earlier
        what_one_mode_wrote_the_other_reads
        a_synced_file_reads_the_same_through_another_description
        a_direct_read_goes_past_two_gib
        a_cached_read_goes_past_two_gib
        a_write_goes_past_two_gib
        a_range_is_synced_wherever_it_lies
    }
    a_cached_read {
        that_ends_before_the_end
        that_ends_at_the_end
        over_the_end
        from_the_last_sector_on
        far_over_the_end
        at_the_end
        behind_the_end
        far_behind_the_end
    }
    a_direct_read {
        that_ends_before_the_end
        that_ends_at_the_end
        over_the_end
        from_the_last_sector_on
        far_over_the_end
        at_the_end
        behind_the_end
        far_behind_the_end
    }
    lists {
        a_list_of_empty_parts_has_nothing_to_do
        a_list_over_the_end_is_filled_as_far_as_there_are_bytes
        a_list_of_thousands_over_the_end_tells_how_many_bytes_there_were
        parts_of_every_kind_make_one_list
        one_shared_part_may_stand_many_times_in_a_list
        a_list_comes_back_to_be_used_again
        a_list_in_a_list_is_handed_back
        lists_and_buffers_are_in_flight_together
    }
    a_cached_list {
        of_one_part
        of_1023_parts
        of_1024_parts
        of_1025_parts
        of_5000_parts
        with_empty_parts_everywhere
        with_a_thousand_empty_parts_before_the_bytes
        of_odd_lengths
        with_one_large_part
    }
    a_direct_list {
        of_one_part
        of_1023_parts
        of_1024_parts
        of_1025_parts
        of_5000_parts
        with_empty_parts_everywhere
        with_a_thousand_empty_parts_before_the_bytes
        of_odd_lengths
        with_one_large_part
    }
    pipes {
        a_stream_request_serves_a_socket_too
        a_read_returns_what_there_is
        a_read_of_less_leaves_the_rest
        a_closed_writer_is_the_end
        a_writer_that_closes_ends_every_read_that_waits
        reads_that_wait_together_share_the_bytes
        a_large_write_is_whole
        a_list_of_thousands_of_parts_is_written_whole
        a_list_is_read_into_in_order
        a_write_without_a_reader_is_epipe
        a_reader_that_closes_ends_a_write_that_waits
        the_wrong_end_is_ebadf
        an_offset_in_a_pipe_is_refused
        a_stream_request_on_a_file_is_refused
        syncs_and_ranges_of_a_pipe_are_refused
        a_pipe_has_no_direct_mode
        a_write_that_will_not_wait_tells_how_far_it_came
        an_empty_pipe_tells_the_impatient
        no_bytes_are_read_and_written_at_once
        character_devices_are_streams
    }
    polling {
        bytes_in_a_pipe_are_pollin
        room_in_a_pipe_is_pollout
        a_writer_that_has_gone_is_pollhup
        a_reader_that_has_gone_is_pollerr
        a_poll_waits_until_there_are_bytes
        a_poll_waits_until_there_is_room
        a_poll_that_waits_hears_the_hang_up
        a_poll_ends_once_and_takes_nothing
        polls_of_one_descriptor_all_end
        a_poll_of_an_event_fd_hears_its_write
        a_connection_that_waits_is_pollin
        a_socket_tells_both_directions
        a_half_closed_socket_is_pollrdhup
        a_regular_file_is_always_ready
        a_poll_without_a_file_is_refused
    }
    timers {
        a_moment_in_the_past_is_now
        no_timer_is_early
        moments_are_told_in_order_however_they_were_asked
        one_moment_may_be_asked_for_many_times
        thousands_of_timers_are_told_once_each
        the_largest_moment_is_waited_for_and_cancelled
        a_cancelled_timer_takes_no_other_away
        a_timer_holds_no_read_up
        a_read_holds_no_timer_up
        a_turn_that_may_not_sleep_tells_a_timer_that_has_fired
        a_turn_sleeps_until_its_deadline_beside_a_later_timer
    }
    events {
        a_signal_completes_with_its_value
        a_second_signal_finds_nothing
        a_stale_signal_never_reaches_a_later_event
        only_events_can_be_signalled
        a_signal_from_a_thread_ends_the_sleep
        a_signal_before_the_sleep_is_heard
        threads_signal_thousands_and_none_is_lost
        memory_comes_back_with_the_event
        an_event_holds_nothing_up
        an_event_takes_a_slot
    }
    network {
        a_connection_is_made_and_taken
        a_connection_is_made_and_taken_over_ipv6
        a_connection_is_made_and_taken_over_a_unix_socket
        connections_that_wait_are_taken_one_by_one
        accepts_that_wait_together_take_one_each
        a_non_blocking_listener_is_waited_for
        an_accepted_socket_is_closed_in_programs_that_are_started
        a_refused_connection_is_told
        a_unix_socket_that_is_not_there_is_told
        a_unix_socket_without_a_listener_refuses
        an_address_of_another_family_is_told
        a_connect_without_an_address_is_told
        a_second_connect_is_told
        a_non_blocking_socket_is_connected_all_the_same
        a_non_blocking_socket_that_is_refused_is_told
        an_accept_on_what_does_not_listen_is_told
        a_pipe_is_no_socket
        a_socket_that_is_not_connected_is_told
    }
    exchange {
        a_receive_returns_what_there_is
        a_receive_of_less_leaves_the_rest
        a_closed_peer_is_the_end_of_the_stream
        a_peer_that_closes_ends_a_receive_that_waits
        a_half_closed_connection_still_takes_bytes
        a_reset_connection_is_told
        a_send_to_a_closed_peer_is_epipe
        a_peer_that_closes_ends_a_send_that_waits
        a_large_send_is_whole
        a_large_send_on_a_non_blocking_socket_is_whole
        a_list_is_sent_whole_and_in_order
        a_list_is_sent_whole_on_a_non_blocking_socket
        a_list_is_received_into_in_order
        a_list_with_flags_is_refused
        a_peek_leaves_the_bytes
        a_receive_that_waits_for_all_gets_all
        a_receive_that_waits_for_all_ends_with_the_stream
        who_will_not_wait_is_told_eagain
        a_send_that_will_not_wait_tells_how_far_it_came
        frozen_bytes_are_sent_and_never_received_into
        both_directions_are_in_flight_at_once
        datagrams_keep_their_boundaries
        an_empty_datagram_is_sent_and_received
        a_datagram_too_long_for_its_memory_is_cut
        a_datagram_too_long_to_be_sent_is_told
        a_list_is_one_datagram
        a_datagram_to_nobody_is_told_afterwards
        a_sequence_of_packets_keeps_its_boundaries
        hundreds_of_connections_share_one_queue
        a_direct_mode_for_a_socket_is_refused
    }
    transfers {
        nothing_to_transfer_ends_at_once
        an_uncached_transfer_reaches_a_pipe
        a_transfer_reaches_a_socket
        an_impatient_transfer_ends_where_its_file_ends
        a_non_blocking_target_is_waited_for
        a_reader_that_goes_away_is_epipe
        what_was_transferred_before_a_cancel_has_arrived
        a_cancel_at_any_moment_ends_a_transfer
        two_transfers_of_one_file_run_side_by_side
        a_target_that_is_no_stream_is_refused
        a_transfer_without_target_or_source_is_refused
        a_window_that_cannot_be_one_is_refused
        a_transfer_of_more_than_a_result_can_tell_is_refused
        a_transfer_from_beyond_every_file_is_refused
        a_misaligned_direct_transfer_is_refused
        a_transfer_goes_past_two_gib
    }
    a_transfer {
        of_a_whole_file
        of_a_part
        of_one_byte
        in_windows_of_one_chunk
        in_odd_windows
        through_a_window_larger_than_the_range
        ends_with_the_file
        behind_the_end_is_empty
        of_a_range_that_fits_its_windows
    }
    a_direct_transfer {
        of_a_whole_file
        of_a_part
        of_one_byte
        in_windows_of_one_chunk
        in_odd_windows
        through_a_window_larger_than_the_range
        ends_with_the_file
        behind_the_end_is_empty
        of_a_range_that_fits_its_windows
    }
    engines {
        an_address_that_does_not_fit_is_told_at_once
        engines_share_a_file
        engines_have_requests_of_one_file_in_flight_together
        one_engine_goes_and_the_others_stay
        memory_of_one_engine_serves_another
        memory_outlives_its_engine
        memory_is_given_back_on_other_threads
        every_thread_may_have_an_engine
        a_doorbell_is_rung_from_many_threads
        a_doorbell_outlives_its_engine
        a_doorbell_wakes_no_other_engine
        thousands_of_reads_are_in_flight
        thousands_of_polls_hold_no_read_up
        an_engine_goes_with_thousands_in_flight
        untaken_completions_stop_new_requests_and_nothing_else
        a_poisoned_file_is_poisoned_in_every_engine
        a_shutdown_without_patience_forgets_nothing
        reserved_slots_stay_free_for_those_who_need_them
        an_engine_says_what_it_is
        random_bytes_differ
        the_counters_add_up
    }
    cancel_ends {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    a_cancel_before_the_start_ends {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    an_abandon_releases {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    a_deadline_ends {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    shutdown_ends {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    drop_ends {
        a_pipe_read
        a_write_to_a_full_pipe
        a_poll
        a_timer
        an_accept
        a_connect
        a_receive
        a_send_to_a_full_socket
        a_transfer_half_way
    }
    held {
        a_disk_read_completes_once_cancelled_or_not
        a_cancel_between_two_iterations_is_not_forgotten
        an_abandoned_disk_read_keeps_its_memory_until_the_device_lets_go
        a_shutdown_without_patience_returns_and_tells_how_many_are_stuck
        what_a_stuck_device_holds_is_leaked_and_not_freed
    }
    a_cancel_takes_nothing {
        from_a_pipe
        from_a_socket
        from_a_listener
    }
    an_event {
        is_ended_by_cancel
        is_released_by_abandon
        is_ended_by_its_deadline
        is_ended_by_shutdown
        ends_with_its_engine
    }
    waits {
        a_connection_that_nobody_takes_is_closed
    }
};
