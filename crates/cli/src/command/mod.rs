//! The commands, one file each. A command takes its arguments and gives back an answer or a failure; it prints neither.
//!
//! | file | what it does |
//! |---|---|
//! | `format.rs` | makes a volume |
//! | `create.rs`, `delete.rs` | make and remove a segment |
//! | `rename.rs`, `resize.rs` | change one; `resize.rs` also grows a volume |
//! | `ownership.rs` | who may do what with a segment, and whose it is |
//! | `quota.rs` | what a user holds and may hold |
//! | `freeze.rs` | keeps a volume still while another program copies it |
//! | `check.rs`, `defrag.rs` | read or tidy a whole volume |
//! | `list.rs`, `stat.rs` | look, and write nothing |
//! | `log/` | looks at a durable log, and writes nothing |
//! | `serve.rs`, `top.rs` | a broker, and who uses one |
//! | `metrics.rs` | the counters of a process that runs |
//! | `dd/` | copies, with many requests in flight |
//! | `run.rs` | a program on the drop-in libraries |
//! | `child.rs`, `inherited.rs` | how a program is run to its end, with its signals as they were |
//! | `doctor.rs` | tells what works here |
//! | `install_docs.rs` | man pages and completions |
//! | `volume_args.rs` | the arguments of those on volumes and segments |
//! | `reach.rs` | how commands reach a volume, and how far a change of it has come |
//! | `shown.rs` | how volumes and segments are shown |
//! | `exposed.rs` | who else may open a volume's file |
//!
//! Those that measure are in `baio-stress` (`stress`) and `baio-measure` (`latency`, `report`).

pub(crate) mod check;
mod child;
pub(crate) mod create;
pub(crate) mod dd;
pub(crate) mod defrag;
pub(crate) mod delete;
pub(crate) mod doctor;
mod exposed;
pub(crate) mod format;
pub(crate) mod freeze;
mod inherited;
pub(crate) mod install_docs;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod ownership;
pub(crate) mod quota;
mod reach;
pub(crate) mod rename;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod serve;
mod shown;
pub(crate) mod stat;
pub(crate) mod top;
pub(crate) mod volume_args;
