//! The commands, one file each. A command takes its arguments and gives back an answer or a failure; it prints neither.
//!
//! | file | what it does |
//! |---|---|
//! | `format.rs` | makes a volume |
//! | `create.rs`, `delete.rs` | make and remove a segment |
//! | `list.rs`, `stat.rs` | look, and write nothing |
//! | `dd/` | copies, with many requests in flight |
//! | `stress/` | keeps something busy, and measures it |
//! | `aio_stress/` | the same with the letters and the output of aio-stress |
//! | `doctor.rs` | tells what works here |
//! | `report.rs` | measures |
//! | `named.rs` | the segment that a command line names |
//! | `shown.rs` | how volumes and segments are shown |

pub(crate) mod aio_stress;
pub(crate) mod create;
pub(crate) mod dd;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod format;
pub(crate) mod list;
mod named;
pub(crate) mod report;
mod shown;
pub(crate) mod stat;
pub(crate) mod stress;
