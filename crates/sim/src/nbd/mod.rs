//! A network block device that loses power: a server of the NBD protocol, and what mounts it as a file.
//!
//! Its writes lie in a volatile cache until a flush, or a write with FUA, makes them safe. When the power is cut, what lies there is
//! gone: all of it, some of it, or parts of it, torn at sectors of 512 bytes ([`Manner`]). It fails reads, writes and flushes by
//! place, by time and by chance ([`Fault`]). nbdfuse makes a plain file of it ([`Mount`]), so that the program, its engine and the
//! kernel run over it as they are.
//!
//! | file | what it has |
//! |---|---|
//! | [`disk`] | the device: medium, cache, power |
//! | [`cache`] | what has not been flushed, and what a flush and a cut leave of it |
//! | [`faults`] | which requests fail |
//! | [`wire`] | the protocol's words: the handshake, requests, replies |
//! | [`server`] | threads that answer on a socket |
//! | [`mount`] | nbdfuse, and a loop device over it |
//! | [`words`] | commands in words, for whoever drives it from outside |

pub mod cache;
pub mod disk;
pub mod faults;
pub mod mount;
pub mod server;
pub mod wire;
pub mod words;

pub use cache::Manner;
pub use disk::{Counts, Cut, Disk};
pub use faults::{Fault, What};
pub use mount::{LoopDevice, Mount};
pub use server::Server;
