//! What happens when the program exits with requests in flight.
//!
//! glibc's threads end with the process wherever they are, but a write that one has begun is done by then. io_uring drops what its
//! workers have not begun. So exit(3) waits here for writes and syncs of files; not for pipes and sockets, where nobody may ever read.
//! `_exit`, a signal and exec do not pass by here: `docs/program/drop-ins.md` says what is lost then.

#![allow(unsafe_code)]

use std::time::Duration;

use crate::process::{Carrier, known};

/// A healthy device ends its requests within milliseconds; after this long it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(30);

extern "C" fn wait_for_writes() {
    if let Some(Carrier::Ours(context)) = known() {
        context.drain(PATIENCE);
    }
}

// SAFETY: the linker gathers what lies in this section, and exit(3) calls each as a function of this type.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = wait_for_writes;
