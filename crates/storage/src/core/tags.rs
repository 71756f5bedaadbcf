//! The tag of a completion, of the engine or of the cache, names its owner: two bits its kind, the rest which one.
//!
//! | top bits | whose | the rest |
//! |---|---|---|
//! | 00 | nobody's (0: straight-line code that waits itself), or of whoever drives the core ([`Core::FOREIGN_TAGS`]) | the driver's own |
//! | 01 | a request in the table, whose entry knows its owner | generation, index |
//! | 10 | an operation's | number, part, index |
//! | 11 | nobody's so far, but for what the cache does for nobody | |

use std::ops::Range;

use baio_engine::Completion;

use super::Core;
use crate::request::Ticket;
use crate::slot_map::SlotKey;

/// The owner in the cache of what nobody waits for. Others are the tags of their recipients.
pub(super) const NOBODY: u64 = u64::MAX;

/// Who is told an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipient {
    /// An entry of the table of requests, which knows its owner.
    Request(Ticket),
    /// Its place, and which one in that place it is: what comes late for one that had an accident is not for the next.
    Operation { index: u32, number: u32 },
    /// Whoever drives the core.
    Driver,
}

impl Core {
    /// Tags of requests that whoever drives a core submits to its engine ([`Core::engine_mut`]): their completions come out by
    /// [`Core::next_foreign`]. The others are the core's own, and what comes back under one that it does not know is dropped.
    pub const FOREIGN_TAGS: Range<u64> = 1..1 << 62;

    /// Takes the next completion of the driver's own requests, in the order in which they arrived: its sockets, timers, polls, events and
    /// whatever else an engine does can so be in one loop with segments and files. They are counted by [`Core::in_flight`] and
    /// [`Core::turn`] as all others, and [`Core::close`] waits for them: end first what does not end by itself.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use baio_engine::{EngineOptions, Op, Policy, Request, Wait};
    /// use baio_storage::Core;
    ///
    /// let mut core = Core::new(&EngineOptions::default())?;
    /// let at = core.engine().clock().after(Duration::from_millis(1));
    /// let timer = Request::bare(Op::Timer { at }, None, Policy::kernel()).tagged(7);
    /// core.engine_mut().submit(timer).map_err(|_| "every slot is taken")?;
    /// while core.in_flight() > 0 {
    ///     core.turn(Wait::one())?;
    /// }
    /// assert_eq!(core.next_foreign().map(|completion| completion.tag), Some(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_foreign(&mut self) -> Option<Completion> {
        self.lane.foreign.pop_front()
    }
}

impl Recipient {
    const REQUEST: u64 = 1 << 62;
    const OPERATION: u64 = 2 << 62;
    const KIND: u64 = 3 << 62;
    /// Above an operation's place, and the part of it that made the request.
    const NUMBER_SHIFT: u32 = 40;
    const NUMBER_MASK: u32 = (1 << 22) - 1;

    pub(super) fn operation(key: SlotKey) -> Recipient {
        Recipient::Operation {
            index: key.index,
            // As much of it as a tag has room for.
            number: key.generation & Recipient::NUMBER_MASK,
        }
    }

    /// Of a request of the core's own; the driver names its own itself.
    pub(super) fn tag(self) -> u64 {
        match self {
            Recipient::Driver => 0,
            Recipient::Request(ticket) => {
                Recipient::REQUEST | u64::from(ticket.generation) << 32 | u64::from(ticket.index)
            }
            Recipient::Operation { index, number } => {
                Recipient::OPERATION | u64::from(number) << Recipient::NUMBER_SHIFT | u64::from(index)
            }
        }
    }

    pub(super) fn of(tag: u64) -> Option<Recipient> {
        match tag & Recipient::KIND {
            Recipient::REQUEST => Some(Recipient::Request(Ticket {
                index: tag as u32,
                generation: (tag >> 32) as u32 & 0x3fff_ffff,
            })),
            Recipient::OPERATION => Some(Recipient::Operation {
                index: tag as u32,
                number: (tag >> Recipient::NUMBER_SHIFT) as u32 & Recipient::NUMBER_MASK,
            }),
            _ if Core::FOREIGN_TAGS.contains(&tag) => Some(Recipient::Driver),
            _ => None,
        }
    }
}
