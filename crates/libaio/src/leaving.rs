//! What happens when the program exits with requests in flight.
//!
//! The kernel's AIO has done a buffered write when `io_submit` returns, and finishes a direct one when the process is gone. io_uring drops
//! what its workers have not begun. So exit(3) waits here for the writes and syncs of files that are under way when it is called. `_exit`, a signal and exec do not pass by here:
//! `docs/program/drop-ins.md` says what is lost then. The library is never unloaded (`-z nodelete`), so dlclose(3) does not either.

#![allow(unsafe_code)]

use std::time::Instant;

use crate::on_ring::PATIENCE;
use crate::registry;

extern "C" fn wait_for_all() {
    let until = Instant::now() + PATIENCE;
    for context in registry::all() {
        if let Some(ring) = context.on_ring() {
            ring.drain(until);
        }
    }
}

// SAFETY: the linker gathers what lies in this section, and exit(3) calls each as a function of this type.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = wait_for_all;
