//! # baio-stress: keeping a device busy in a known way, and measuring it
//!
//! The job behind `baio stress`. The report runs it as a process,
//! and shares the shape of its result ([`Measurement`]) and its random numbers.
//!
//! A `Job` says everything and nothing twice: which objects, which lanes (a lane is a thread with an engine of its own),
//! which streams a lane rotates through, which stages follow one another. There is one loop that keeps requests in flight
//! (`drive.rs`), whoever typed the job and whatever it runs on.
//!
//! ```text
//! job --> lanes (threads, meetings, stages) --> drive (one lane, one stage)
//!                                                 |-- schedule --> pattern   which request is next
//!                                                 |-- verify                 what its bytes must be
//!                                                 `-- target                 a file or a segment, over a link of the library
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `job.rs` | what to do, with nothing left to resolve |
//! | `place.rs` | what a path is, and whether it may be written over |
//! | `fill.rs` | making files, really written |
//! | `cold.rs` | files out of the kernel's page cache |
//! | `subject.rs` | the same targets, request by request, for other commands that measure |
//! | `deal.rs` | streams, and the lanes that get them |
//! | `pattern.rs` | the offsets of one stream: in order, at random, each exactly once |
//! | `schedule.rs` | the rotation through a lane's streams |
//! | `verify.rs` | stamps in every block, and who may touch a block now |
//! | `target.rs` | how requests reach a file or a segment: over a link of the library |
//! | `drive.rs`, `round.rs` | the loop, and what it notes down |
//! | `lanes.rs` | threads that begin and end each stage together |
//! | `shown.rs` | how far a stage is, on a terminal |
//! | `result.rs` | what came out |
//! | `cache_counts.rs` | what our own cache has done |
//! | `measurement.rs`, `costs.rs` | the shape of a result that every side of a comparison has; what a process has cost |
//! | `command/` | what is typed, what it means, how it is shown |
//!
//! Sources: seed 001 §3.6 and §7.3 (aio-stress). `docs/use/stress.md` is for users.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

use baio_console::failure::Failure;
use baio_console::output::Answer;

pub use cache_counts::CacheCounts;
pub use cold::drop_pages_of;
pub use command::args::StressArgs;
pub use job::{Backend, Rw, warm_bytes};
pub use measurement::{Latency, Measurement, Recorder};
pub use pattern::{Permutation, Random, mix};
pub use result_file::ResultFile;
pub use subject::{Ground, Manner, Reply, Subject, Wish, may_replace};

mod cache_counts;
mod cold;
mod command;
pub mod costs;
mod deal;
mod drive;
mod fill;
mod job;
mod lanes;
mod measurement;
mod pattern;
mod place;
mod result;
mod result_file;
mod round;
mod schedule;
mod shown;
mod subject;
mod target;
mod verify;

pub(crate) use deal::{contexts, deal, shares};
pub(crate) use fill::{Want, make};
pub(crate) use job::{Job, Objects, Stage, Stream};
pub(crate) use lanes::run;
pub(crate) use place::{Claim, Kind, Place};
pub(crate) use verify::{BLOCKS_MAX as STAMPED_BLOCKS_MAX, HEADER as STAMP_MIN};

/// Keeps a file, a device or a segment busy, and measures it.
///
/// # Errors
/// What was typed makes no sense, something could not be set up, or a block did not verify. Requests that fail one by one
/// are counted in the answer.
pub fn stress(args: StressArgs) -> Result<impl Answer, Failure> {
    command::run(args)
}
