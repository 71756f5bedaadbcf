//! Keeping a device busy in a known way, and measuring it: the job behind `baio stress`, `baio aio-stress` and the report.
//!
//! A [`Job`] says everything and nothing twice: which objects, which lanes (a lane is a thread with an engine of its own),
//! which streams a lane rotates through, which stages follow one another. There is one loop that keeps requests in flight
//! ([`drive`]), whoever typed the job and whatever it runs on.
//!
//! ```text
//! job --> lanes (threads, meetings, stages) --> drive (one lane, one stage)
//!                                                 |-- schedule --> pattern   which request is next
//!                                                 |-- verify                 what its bytes must be
//!                                                 `-- target                 a file, a segment, a segment through a service
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `job.rs` | what to do, with nothing left to resolve |
//! | `place.rs` | what a path is, and whether it may be written over |
//! | `fill.rs` | making files, really written |
//! | `cold.rs` | files out of the kernel's page cache |
//! | `deal.rs` | streams, and the lanes that get them |
//! | `pattern.rs` | the offsets of one stream: in order, at random, each exactly once |
//! | `schedule.rs` | the rotation through a lane's streams |
//! | `verify.rs` | stamps in every block, and who may touch a block now |
//! | `target.rs`, `target/` | how requests reach a file or a segment; a new kind of link is a new file here |
//! | `drive.rs`, `round.rs` | the loop, and what it notes down |
//! | `lanes.rs` | threads that begin and end each stage together |
//! | `result.rs` | what came out |
//!
//! Sources: seed 001 §3.6 and §7.3 (aio-stress).

mod cold;
mod deal;
mod drive;
mod fill;
pub(crate) mod job;
mod lanes;
pub(crate) mod pattern;
mod place;
pub(crate) mod result;
mod round;
mod schedule;
mod target;
mod verify;

pub(crate) use cold::drop_pages_of;
pub(crate) use deal::{contexts, deal, shares};
pub(crate) use fill::{Want, make};
pub(crate) use job::{Job, Lane, Objects, Stage, Stream};
pub(crate) use lanes::run;
pub(crate) use place::{Claim, Kind, Place};
pub(crate) use verify::{BLOCKS_MAX as STAMPED_BLOCKS_MAX, HEADER as STAMP_MIN};
