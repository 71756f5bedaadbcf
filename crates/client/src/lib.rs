//! # baio-client: the client's half of a connection
//!
//! A [`Client`] sends requests to a service and gives back their outcomes, to any thread, as tickets or as futures. It knows
//! words and rings, and neither files nor memory. Its [`Carrier`] knows the memory that requests carry, the other questions that the service
//! takes, and how the service is woken.
//!
//! | file | what it does |
//! |---|---|
//! | `state.rs` | what lies behind the one lock |
//! | `client.rs` | sending, and the role of collecting completions |
//! | `closing.rs` | how a client, or a handle of it, is closed |
//! | `waits.rs` | what blocks: a turn, a wait, a question, a future run to its end |
//! | `reap.rs` | completions into outcomes; what the end of the service means for each |
//! | `table.rs` | the requests under way |
//! | `room.rs`, `memory.rs`, `waiters.rs` | who waits for a place, or for memory, woken one for one |
//! | `again.rs` | the end of one service and the next one in its place |
//! | `unsynced.rs` | cached writes that go with a service |
//! | `carrier.rs` | what differs from service to service |
//! | `session.rs`, `wire.rs` | a session with a broker of another process: how it is opened, its socket |
//! | `helper.rs`, `event.rs` | the thread that collects completions for futures polled elsewhere and for event loops; the descriptor for these |
//! | `fired.rs` | waking tasks and threads whose request has ended |
//! | `names.rs` | what handles are called in messages |
//! | `not_taken.rs` | a request that comes back |
//! | `inside.rs`, `parker.rs` | which thread collects for the others, and where these sleep |
//! | `sync.rs` | locks, atomics, threads and clocks: the system's, or a model's |
//!
//! `docs/inside/broker.md` tells who wakes whom.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod again;
mod carrier;
mod child;
mod client;
mod closing;
mod event;
mod fired;
mod helper;
mod inside;
mod memory;
mod names;
mod not_taken;
mod parker;
mod reap;
mod room;
mod session;
mod state;
mod sync;
mod table;
mod unsynced;
mod waiters;
mod waits;
mod wire;

pub use carrier::{Between, Carrier};
pub use client::Client;
pub use event::Event;
pub use not_taken::NotTaken;
pub use session::{ConnectError, PATIENCE, Session, Wishes};
pub use sync::{locked, locks_taken};
pub use table::{Ended, Places};
pub use unsynced::Unsynced;
pub use waiters::{WaitPlace, Waiters};
pub use waits::Unasked;
pub use wire::Wire;
