//! Whose a completion of the engine is: its tag says so. Two bits say what kind, the rest which one.

use crate::request::Ticket;

/// Who a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipient {
    /// An entry of the table of requests, which knows its owner.
    Request(Ticket),
    /// Its place, and which one in the order of beginning it is: what comes late for one that had an accident is not for the
    /// next one in its place.
    Operation { index: u32, number: u32 },
}

impl Recipient {
    const REQUEST: u64 = 1 << 62;
    const OPERATION: u64 = 2 << 62;
    const KIND: u64 = 3 << 62;
    /// Above an operation's place, and the part of it that made the request.
    const NUMBER_SHIFT: u32 = 40;
    pub(super) const NUMBER_MASK: u32 = (1 << 22) - 1;

    pub(super) fn tag(self) -> u64 {
        match self {
            Recipient::Request(ticket) => {
                Recipient::REQUEST | u64::from(ticket.generation) << 32 | u64::from(ticket.index)
            }
            Recipient::Operation { index, number } => {
                let number = u64::from(number & Recipient::NUMBER_MASK);
                Recipient::OPERATION | number << Recipient::NUMBER_SHIFT | u64::from(index)
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
            _ => None,
        }
    }
}
