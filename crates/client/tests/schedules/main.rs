//! The client's side of a connection in thousands of schedules: who sleeps where, who reaps for whom, who is woken, and what
//! becomes of it all when the service ends. Promises: nobody sleeps through what he waits for, each request ends once, its
//! memory comes back, and when all is over nobody and nothing is left.
//!
//! The files of the client and of the ring are included as they are; what they share and sleep on is the model's
//! (`sync.rs`, `atomic.rs`, `bell.rs`), and so is the service at the other end (`service.rs`). The model runs one thread at a time
//! and chooses at random who goes on wherever threads can meet; a thread that nobody wakes is a deadlock, and an error.
//! It knows no weak orderings: `ring_loom.rs` of the ring and `parker_loom.rs` check those. `docs/inside/testing.md` says why there are two.
//!
//! | variable | what it says | if not set |
//! |---|---|---|
//! | `BAIO_SCHEDULES` | schedules of each story | 1,000 |
//! | `BAIO_SEED` | the first seed | 1 |
//! | `BAIO_REPLAY` | a file that a failure has left: this schedule alone | |
//!
//! `planted_faults.rs` takes out one rule after the other, and a story must fail each time.

// The client's files name the ring's crate: here it is this one.
extern crate self as baio_ring;

macro_rules! included {
    ($($path:literal $name:ident)*) => { $(
        #[path = $path]
        #[allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
        pub mod $name;
    )* };
}

included! {
    "../../../ring/src/exchange.rs" exchange
    "../../../ring/src/heap.rs" heap
    "../../../ring/src/ring.rs" ring
    "../../../ring/src/shared.rs" shared
    "../../src/again.rs" again
    "../../src/carrier.rs" carrier
    "../../src/child.rs" child
    "../../src/client.rs" client
    "../../src/closing.rs" closing
    "../../src/event.rs" event
    "../../src/fired.rs" fired
    "../../src/helper.rs" helper
    "../../src/inside.rs" inside
    "../../src/memory.rs" memory
    "../../src/names.rs" names
    "../../src/not_taken.rs" not_taken
    "../../src/parker.rs" parker
    "../../src/reap.rs" reap
    "../../src/room.rs" room
    "../../src/state.rs" state
    "../../src/table.rs" table
    "../../src/unsynced.rs" unsynced
    "../../src/waiters.rs" waiters
    "../../src/waits.rs" waits
}

pub use shared::Shared;

/// Within one process a ring lies on the heap.
pub mod lane {
    pub use crate::heap::Heap as Lane;
}

mod atomic;
pub mod bell;
mod explore;
mod futures;
mod service;
mod stories;
mod sync;

/// Is this rule out? Only in the build of `planted_faults.rs`.
#[allow(dead_code)]
pub(crate) fn planted(rule: &str) -> bool {
    static OUT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    OUT.get_or_init(|| std::env::var("BAIO_PLANTED").ok()).as_deref() == Some(rule)
}
