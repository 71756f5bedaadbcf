//! The messages of a session between two processes: what goes through the socket beside the rings.
//!
//! | module | what it has |
//! |---|---|
//! | `greeting` | the first message of each side |
//! | [`Question`] | what a client asks: a [`Command`](crate::Command) as on every link, with the session's handles |
//! | [`Answer`] | what the broker answers: as on every link, with an error in words |
//!
//! A datagram of one byte is a doorbell: look at the rings. Every other one is a message of at most [`MESSAGE_MAX`] bytes,
//! little-endian:
//!
//! | byte | what | |
//! |---|---|---|
//! | 0..2 | kind | 0x0001 Hello, 0x0002 Welcome, 0x01xx a question, 0x02xx an answer |
//! | 2..4 | zero | |
//! | 4..8 | id | the client's word for its question; its answers carry it. Hello and Welcome carry 0 |
//! | 8.. | body | fields in order; nothing between them, nothing behind the last one |
//!
//! | field | bytes |
//! |---|---|
//! | u8, u16, u32, u64 | 1, 2, 4, 8 |
//! | bool | 1: 0 or 1 |
//! | option | 1: 0 or 1; with 1 the value |
//! | string | 2: its length; then that many of UTF-8. A name has at most 255, a text 4096 |
//! | 16 bytes | as they are |
//! | list | 4: how many; then the items |
//!
//! Decoding is pure and total: it looks at the bytes alone, checks every length, and takes one form of each message. What
//! cannot be decoded is sent by no correct peer, and ends that session only. `docs/inside/shm-protocol.md` has the whole protocol.

mod greeting;

pub use crate::answer::{Answer, pieces};
pub use crate::codec::{
    FINDING_TEXT_MAX, FINDINGS_MAX, LIST_MAX, MESSAGE_MAX, Malformed, NAME_MAX, OWNERS_MAX, RANGES_MAX, TEXT_MAX,
    TooLong, WARNINGS_MAX, cut,
};
pub use crate::command::{Command as Question, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, GOES_ON};
pub use crate::refusal::Failed;
pub use crate::usage::{BrokerStatus, OwnerStatus};
pub use greeting::{Hello, MAGIC, RingAt, Welcome};

use crate::codec::{Field, Reader, malformed};
use greeting::{HELLO, WELCOME};

/// The version of the protocol that this is.
pub const VERSION: u16 = 1;
/// The datagram that is a doorbell. The value does not matter to who gets it.
pub const DOORBELL: [u8; 1] = [1];

/// What a broker gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient {
    /// Look at the rings.
    Doorbell,
    /// The first message.
    Hello(Hello),
    /// A question.
    Question {
        /// The client's word for it.
        id: u32,
        /// What it asks.
        question: Question,
    },
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromBroker {
    /// Look at the rings.
    Doorbell,
    /// The answer to a Hello that was accepted.
    Welcome(Welcome),
    /// An answer.
    Answer {
        /// The question's id; 0 where it answers a Hello.
        id: u32,
        /// What it says.
        answer: Answer,
    },
}

impl FromClient {
    /// Reads a datagram.
    ///
    /// # Errors
    /// What no correct client sends.
    pub fn decode(datagram: &[u8]) -> Result<FromClient, Malformed> {
        let Some((kind, id, mut body)) = header(datagram)? else {
            return Ok(FromClient::Doorbell);
        };
        let message = match kind {
            HELLO => FromClient::Hello(without_id(id).and_then(|()| Hello::take(&mut body))?),
            kind => {
                let question = Question::take(kind, &mut body).ok_or(UNKNOWN)??;
                FromClient::Question { id, question }
            }
        };
        body.end()?;
        Ok(message)
    }
}

impl FromBroker {
    /// Reads a datagram.
    ///
    /// # Errors
    /// What no correct broker sends.
    pub fn decode(datagram: &[u8]) -> Result<FromBroker, Malformed> {
        let Some((kind, id, mut body)) = header(datagram)? else {
            return Ok(FromBroker::Doorbell);
        };
        let message = match kind {
            WELCOME => FromBroker::Welcome(without_id(id).and_then(|()| Welcome::take(&mut body))?),
            kind => {
                let answer = Answer::take(kind, &mut body).ok_or(UNKNOWN)??;
                FromBroker::Answer { id, answer }
            }
        };
        body.end()?;
        Ok(message)
    }
}

const UNKNOWN: Malformed = Malformed {
    at: 0,
    what: "a kind that this side does not take",
};

/// The kind, the id, and the body; `None` for a doorbell.
fn header(datagram: &[u8]) -> Result<Option<(u16, u32, Reader<'_>)>, Malformed> {
    if datagram.len() == DOORBELL.len() {
        return Ok(None);
    }
    if datagram.len() > MESSAGE_MAX {
        return Err(malformed(MESSAGE_MAX, "more than 65536 bytes"));
    }
    let mut reader = Reader::new(datagram);
    let kind = u16::take(&mut reader)?;
    if u16::take(&mut reader)? != 0 {
        return Err(malformed(2, "a reserved word that is not zero"));
    }
    let id = u32::take(&mut reader)?;
    Ok(Some((kind, id, reader)))
}

fn without_id(id: u32) -> Result<(), Malformed> {
    match id {
        0 => Ok(()),
        _ => Err(malformed(4, "an id where there is no question")),
    }
}
