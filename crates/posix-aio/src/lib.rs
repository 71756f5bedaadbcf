//! # baio-posix-aio: glibc's POSIX AIO on baio's engine
//!
//! Programs that use `aio_read` and its like run with this library preloaded. What it promises and where it differs stands in
//! `docs/program/drop-ins.md`; why it stands on the engine's ring and not on its `Engine`, in `docs/inside/decisions/0030-the-floor-of-a-shim.md`.
//!
//! | file | what it holds |
//! |---|---|
//! | `exports.rs` | the functions that programs call |
//! | `abi.rs` | a request, as aio.h lays it out |
//! | `process.rs`, `next.rs` | who carries the requests: a ring of ours, or glibc |
//! | `calls.rs` | what each call does: taking a request in, waiting, cancelling |
//! | `context.rs` | one ring for all: who moves results, and who sleeps where |
//! | `check.rs` | what is asked of a request and its descriptor |
//! | `requests.rs` | the requests in flight, and which wait for which |
//! | `notice.rs` | signals and threads that say that a request has ended |
//! | `helper.rs` | the thread that moves results when nobody calls |
//! | `inside.rs` | what a signal handler must not do |
//! | `counted.rs` | what `baio run` shows |
//! | `by_number.rs` | a hash of descriptors |
//! | `long.rs` | long reads and writes, and syncs: what needs its file later |
//! | `leaving.rs` | what happens when the program exits |
//! | `c/exports.c`, `c/posix-aio.map` | functions where a thread may be cancelled; what is exported |
//!
//! # Safety
//! As with glibc, all of it rests on the program's word: that a request and its bytes are there and its own from the call until
//! `aio_error` says something else than `EINPROGRESS`. A program that breaks it corrupts its own memory, here as there.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod by_number;
mod calls;
mod check;
mod context;
mod counted;
mod exports;
mod helper;
mod inside;
mod leaving;
mod long;
mod next;
mod notice;
mod process;
mod requests;

pub use abi::{Aiocb, SigEvent};
pub use exports::{
    aio_cancel, aio_error, aio_fsync, aio_init, aio_read, aio_return, aio_suspend, aio_write, lio_listio,
};
