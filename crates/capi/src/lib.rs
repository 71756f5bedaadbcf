//! # baio-capi: `libbaio.so.0` and `baio.h`
//!
//! The C interface of the crate `baio`, and nothing but a shell around it: what a function does is what the Rust function behind it does.
//! `baio.h` is made from this source by cbindgen; `build.sh` links the shared library. How it is used stands in `docs/program/c-interface.md`.
//!
//! | file | what it holds |
//! |---|---|
//! | `abi.rs` | the structures and constants of baio.h |
//! | `border.rs` | what every function does at the border: panics, null pointers, texts, structures that grow |
//! | `failure.rs` | errors: a negative number, and the thread's last text |
//! | `handles.rs` | which handles there are: tables, not addresses |
//! | `things.rs` | what is behind the handles |
//! | `links.rs`, `files.rs`, `segments.rs`, `buffers.rs` | opening and closing |
//! | `requests.rs`, `reaping.rs` | submitting, and taking outcomes |
//! | `statuses.rs` | status words |
//! | `logs.rs` | the durable log |
//! | `pins.rs` | pages of the page cache, held and lent |

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![allow(non_camel_case_types, reason = "they are C's names")]
#![allow(clippy::missing_safety_doc, reason = "baio.h says what each argument has to be")]

pub mod abi;
mod border;
pub mod buffers;
mod failure;
pub mod files;
mod handles;
pub mod links;
pub mod logs;
pub mod pins;
pub mod reaping;
pub mod requests;
pub mod segments;
pub mod statuses;
mod table;
mod things;
