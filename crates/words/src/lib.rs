//! # baio-words: what a client and a service say to each other
//!
//! | module | what it is |
//! |---|---|
//! | [`entry`] | the entries of both rings, byte by byte, and their checks |
//! | `failure` | why a request failed, as it crosses a ring |
//! | `handle` | handles and tickets |
//! | `identity` | who asks, and what they may |
//! | `mode` | through which cache, how safe |
//! | `op` | what can be asked |
//! | `operation_name` | what tells a repeated operation from a new one |
//! | `request` | it asked of a handle, and its outcome |
//! | `command`, `answer` | what is asked besides requests, and what is answered; on every link the same |
//! | `segment`, `volume`, `account`, `hint`, `upkeep`, `usage`, `refusal` | what these carry, each with its bytes |
//! | [`session`] | the messages between two processes, beside the rings |
//! | `codec` | fields as bytes, both directions |
//! | `status` | the word that tells how a request stands |
//! | `fault` | why a request failed, and all that its caller is told |
//! | `lost` | why a handle is of no use with the next broker |
//! | `errno`, `io_error`, `cache_error` | what that is made of |
//! | `advice` | how it is shown: in a line, on lines, as an error of `std` |
//! | `time` | the clock of deadlines |
//!
//! Nothing here does anything: no I/O, no memory but the caller's. So a client needs neither the engine nor the volume to
//! speak to who has them.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod advice;
mod answer;
mod cache_error;
mod codec;
mod command;
pub mod entry;
mod errno;
mod failure;
mod fault;
mod handle;
mod hint;
mod identity;
mod io_error;
mod lost;
mod mode;
mod op;
mod operation_name;
mod refusal;
mod request;
mod segment;
pub mod session;
mod status;
mod time;
mod upkeep;
mod usage;
mod volume;

pub use account::{Account, Limits, Usage};
pub use advice::{IN_LINE, ON_LINES, into_std, write_advice};
pub use answer::{Answer, LogClaim};
pub use cache_error::CacheError;
pub use command::{Command, Right};
pub use errno::Errno;
pub use failure::{FEATURES, Failure, word_at, word_in};
pub use fault::{DEVICE_CURE, RequestError, RequestFault};
pub use handle::{Handle, Ticket, next_number};
pub use hint::{Hint, Pattern};
pub use identity::{Access, Groups, Identity, NO_GROUP, Ownership, OwnershipChange, Sight};
pub use io_error::{Argument, IoError, TOO_LARGE_CURE};
pub use lost::Lost;
pub use mode::{Caching, Durability, Mode};
pub use op::SegmentOp;
pub use operation_name::OperationName;
pub use request::{Outcome, Payload, SegmentRequest};
pub use segment::{CreateOptions, ResizeOptions, SegmentInfo, Zeroing};
pub use status::{Status, StatusWord};
pub use time::Time;
pub use upkeep::{CheckReport, DefragReport, Problem, ProblemPlace, Repair, Unmoved};
pub use volume::{InUse, VolumeInfo, VolumeView};
