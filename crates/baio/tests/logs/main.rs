//! The promise: a log keeps what it acknowledged, in order and without a gap; over all links, on segments and plain files, with every
//! backend, in blocks of 512 bytes and of 4 KiB. Each case is a story about any of these.

mod appends;
#[path = "../common/child.rs"]
mod child;
mod contract;
mod driven;
mod ends;
mod gates;
mod killed;
mod rig;
mod thread;
mod threads;
mod told;

use baio::{Local, Remote};

macro_rules! of_both {
    ($($case:ident)*) => {
        mod local {
            $(#[test] fn $case() { crate::rig::everywhere::<crate::Local>(crate::contract::$case::<crate::Local>); })*
        }
        mod far {
            $(#[test] fn $case() { crate::rig::far(crate::contract::$case::<crate::Remote>); })*
        }
        mod remote {
            $(#[test] fn $case() { crate::rig::everywhere::<crate::Remote>(crate::contract::$case::<crate::Remote>); })*
        }
    };
}

of_both! {
    what_was_appended_is_read_again
    a_group_is_recovered_whole
    records_of_all_sizes
    a_follower_hears_of_more
    truncated_space_is_used_again
    what_is_retained_is_kept
    a_log_that_is_full_says_so
    a_log_that_was_dropped_is_recovered
    a_log_grows
    two_logs_beside_each_other
    callbacks_and_events_tell_of_progress
    who_else_would_write_is_refused
    a_closed_log_is_closed
    a_log_is_made_where_none_was_ever_made
    nobody_waits_for_a_record_that_is_nobodys
}

/// Auto traits are what the links differ in.
#[test]
fn a_remote_log_goes_anywhere() {
    fn anywhere<T: Send + Sync>() {}
    anywhere::<baio::Log<Remote>>();
    anywhere::<baio::Durable<Remote>>();
    anywhere::<baio::Room<Remote>>();
    anywhere::<baio::Records<Remote>>();
    anywhere::<baio::LogEvents>();
    let _ = std::marker::PhantomData::<Local>;
}
