//! The broker and clients of it that are written from `docs/inside/shm-protocol.md`: with the words, the rings and the system's calls,
//! and with nothing of the library's own client.
//!
//! | file | which story |
//! |---|---|
//! | `house.rs`, `raw.rs` | a broker in a thread; a client that may do everything wrong |
//! | `greeting.rs` | who is let in |
//! | `days_work.rs` | what a client does all day |
//! | `handles.rs` | what names a segment, and what does not any more |
//! | `questions.rs` | how much may be asked at a time |
//! | `accounts.rs` | what a user holds, and that it comes back |
//! | `turns.rs` | one user's flood beside another's work |
//! | `gone.rs` | clients that die at every step, and leave nothing |
//! | `unread.rs` | clients that do not read what they are told |
//! | `handed_on.rs` | handles that are handed on and taken back |
//! | `logs.rs` | segments for logs that clients keep |
//! | `stillness.rs` | a volume that is kept still |
//! | `upkeep.rs` | a volume that is checked and packed meanwhile |
//! | `tenants.rs`, `strangers.rs` | users that must not see each other, nor what the other has left |
//! | `rings.rs`, `entries.rs`, `memory.rs`, `messages.rs`, `floods.rs` | what hostile clients do, each beside one that goes on working |

mod accounts;
mod days_work;
mod entries;
mod floods;
mod gone;
mod greeting;
mod handed_on;
mod handles;
mod house;
mod logs;
mod memory;
mod messages;
mod questions;
mod raw;
mod rings;
mod stillness;
mod strangers;
mod tenants;
mod turns;
mod unread;
mod upkeep;
