//! # baio-libaio: `libaio.so.1` on baio's engine
//!
//! Programs that use libaio 0.3.113 run with this library in its place. What it promises and where it differs stands in
//! `docs/program/drop-ins.md`; why it stands on the engine's ring and not on its `Engine`, in `docs/inside/decisions/0030-the-floor-of-a-shim.md`.
//!
//! | file | what it holds |
//! |---|---|
//! | `exports.rs` | the functions that programs call |
//! | `abi.rs` | requests, events and the live ring, as libaio.h and the kernel lay them out |
//! | `wait.rs` | what `io_getevents` is asked for |
//! | `registry.rs`, `users.rs` | which contexts there are, by the address that the program holds; how many threads are in a call on one |
//! | `context.rs` | a context: the kernel's own, until its reads wait |
//! | `cold.rs` | do its reads wait? |
//! | `sleepers.rs` | threads that sleep while it goes over |
//! | `on_ring.rs`, `on_ring/submitting.rs` | one that has gone over to a ring: moving results, taking events; submitting |
//! | `check.rs` | what `io_submit` refuses at once |
//! | `requests.rs` | the requests in flight |
//! | `live.rs` | the live ring, which programs read without a call |
//! | `event_fd.rs`, `descriptor.rs` | event fds of requests; what is asked of a descriptor |
//! | `helper.rs` | the thread that moves results when nobody calls |
//! | `calls.rs`, `patience.rs` | the kernel's own calls; waiting for a moment |
//! | `counted.rs` | what `baio run` is told |
//! | `leaving.rs` | what happens when the program exits |
//! | `c/exports.c`, `c/libaio.map` | older forms of three functions; versions of all |
//!
//! # Safety
//! As with libaio, all of it rests on the program's word: that a request, its bytes and its list are there and its own from `io_submit`
//! until its event (a list until `io_submit` returns), that arrays have room. A program that breaks it corrupts its own memory, here as there.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod calls;
mod check;
mod cold;
mod context;
mod counted;
mod descriptor;
mod event_fd;
mod exports;
mod helper;
mod leaving;
mod live;
mod on_ring;
mod patience;
mod registry;
mod requests;
mod sleepers;
mod users;
mod wait;

pub use abi::{FLAG_EVENT_FD, FLAG_PRIORITY, IoEvent, Iocb, RING_MAGIC, RingHeader, command};
pub use exports::{
    io_cancel, io_destroy, io_getevents, io_pgetevents, io_queue_init, io_queue_release, io_queue_run, io_queue_wait,
    io_setup, io_submit,
};
