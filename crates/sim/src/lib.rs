//! # baio-sim: what survives a power cut
//!
//! A workload runs on a simulated disk that records every write, every flush and every acknowledgement. From that record
//! the crash states are cut: moments at which the power fails, with a write lost or torn where the device promised nothing.
//! Each is opened as a user would open it, and an oracle that knows what was acknowledged says whether a promise is broken.
//!
//! | module | what it does |
//! |---|---|
//! | [`stamp`] | what a sector bears, so that its writer is known wherever it turns up |
//! | [`world`] | a small volume on a disk full of stale bytes; opening it |
//! | [`workload`] | sessions: an opening and the operations after it, on the record |
//! | [`model`] | what the user was told, and what the acknowledgement of each operation does to it |
//! | [`oracle`] | what must be there, what may be there, and what is wrong |
//! | [`observe`] | what is there, asked through the public interface |
//! | [`violation`] | a promise that was broken |
//! | [`order`] | which writes must come before which, read from the record and from the superblock's pairs |
//! | [`rot`] | one damaged image of a bucket, or one damaged superblock copy |
//! | [`mutate`] | a device or a volume that keeps one promise less: the explorer must notice |
//! | [`images`] | volumes in files, for readers that share no code with the library |
//! | [`mangle`] | damaged volumes, and everything that looks at them or repairs them |
//! | [`memory`] | how much memory a thread has taken at most |
//! | [`outside`] | the file of a volume is cut off, lengthened, or copied while it is in use |
//! | [`nbd`] | a network block device that loses power, for the real program on the real kernel |
//! | `powercut` | the real program on that device |
//! | [`engine`] | the engine itself on slow, failing disks: every answer against a model, every seed twice |
//! | [`log`] | the durable log: crash after crash on one medium, and rot |
//! | [`wal`] | databases in a volume: pages that wait for their log |
//! | [`trials`] | numbered trials of workloads, run until told to stop, or one alone |
//! | [`explore`] | trials of a volume, by chance |
//! | [`every_bit`] | every bit of the metadata of reference images, one at a time |
//! | [`faults`] | one fault of the device under the metadata, during a session |
//! | [`each_request`] | every fault of the device at every request of short sessions |
//! | [`formatting`] | crashes inside the making of a volume |
//! | [`stale`] | a bucket falls back to the image before its newest: nobody else loses a byte |
//! | [`exhaustive`] | all short sequences of operations, cut at every record |
//! | [`cores`] | shares numbered pieces of work out among the cores |
//! | [`report`] | what an exploration came to |
//!
//! What each flush and each durable write in the volume is for, and which test shows it, stands in this crate's README.

pub mod cores;
pub mod each_request;
pub mod engine;
pub mod every_bit;
pub mod exhaustive;
pub mod explore;
pub mod faults;
pub mod formatting;
pub mod images;
pub mod log;
pub mod mangle;
pub mod memory;
pub mod model;
pub mod mutate;
pub mod nbd;
pub mod observe;
pub mod oracle;
pub mod order;
pub mod outside;
#[cfg(feature = "powercut")]
pub mod powercut;
pub mod report;
pub mod rot;
pub mod stale;
pub mod stamp;
pub mod trials;
pub mod violation;
pub mod wal;
pub mod workload;
pub mod world;
