//! # baio-console: how the program's commands read their arguments and print their results
//!
//! All commands (`baio-cli`, `baio-stress`, `baio-measure`) read a size, a duration and a target in the same way, and print an answer
//! and a failure in the same way. Nothing here knows a command.
//!
//! | module | what it is |
//! |---|---|
//! | [`size`], [`duration`] | numbers with units, as typed and as shown |
//! | [`date`] | when something was |
//! | [`target`] | a file, a device, a volume or a segment, as typed and as meant |
//! | [`named`] | a volume and its segment, as named |
//! | [`memory_limit`] | how much a command may take for its buffers |
//! | [`device`], [`mount`] | the block device below a path, and the file system between |
//! | [`drop_ins`] | the drop-in libraries, and a program on them |
//! | [`failure`] | what went wrong, where, what would be needed, what to do |
//! | [`output`] | an answer as a table for people or an object for programs |
//! | `json` | the one object that `--json` prints |
//! | [`printable`] | text that is safe to show |
//! | [`diagnostics`] | the one way to standard error |
//! | [`interrupt`], `came` | SIGINT and SIGTERM of a command that measures |
//! | [`end_by`] | the end by a signal that was heard, and when one asks again |
//! | [`terminal`] | whether somebody looks at standard error, and in colour |
//! | [`progress`] | how far a long command has come, and the time left |
//! | [`exit_status`] | what the parent process is told |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

mod came;
pub mod date;
pub mod device;
pub mod diagnostics;
pub mod drop_ins;
pub mod duration;
pub mod end_by;
pub mod exit_status;
pub mod failure;
pub mod interrupt;
mod json;
pub mod memory_limit;
pub mod mount;
pub mod named;
pub mod output;
pub mod printable;
pub mod progress;
pub mod size;
pub mod target;
pub mod terminal;
