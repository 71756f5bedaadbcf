//! The messages of a session between two processes: what goes through the socket beside the rings.
//!
//! | module | what it has |
//! |---|---|
//! | `codec` | fields as bytes, both directions |
//! | `greeting` | the first message of each side |
//! | `question` | what a client asks |
//! | `answer` | what the broker answers |
//! | `upkeep` | of these, what a defragmentation and a check have come to |
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
//! cannot be decoded is sent by no correct peer, and ends that session only. `docs/shm-protocol.md` has the whole protocol.

mod answer;
mod codec;
mod greeting;
mod question;
mod upkeep;

pub use answer::{
    AccountWords, Answer, Failed, OwnerWords, SegmentWords, StatusWords, VolumeWords, WholeWords, pieces,
};
pub use codec::{Malformed, TooLong, cut};
pub use greeting::{Hello, RingAt, Welcome};
pub use question::{HintWords, PatternWords, Question, ZeroWords};
pub use upkeep::{CheckWords, DefragWords, ProblemWords, RepairWords, UnmovedWords};

use codec::{Field, Reader, malformed};

/// The longest message in bytes.
pub const MESSAGE_MAX: usize = 65536;
/// The version of the protocol that this is.
pub const VERSION: u16 = 1;
/// The feature of a session whose client goes on with the next broker: it may ask [`Question::Opening`] and [`Question::OpenKnown`].
pub const GOES_ON: u64 = 1;
/// The first bytes of a Hello's body.
pub const MAGIC: [u8; 4] = *b"baio";
/// The feature of logs: `ClaimLog`, `ReleaseLog` and `LogClaimed` exist.
pub const FEATURE_LOGS: u64 = 1 << 8;
/// The feature of ownership: `ChangeOwnership` exists.
pub const FEATURE_OWNERSHIP: u64 = 1 << 9;
/// The feature of growing: `Grow` exists.
pub const FEATURE_GROW: u64 = 1 << 10;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest text in bytes.
pub const TEXT_MAX: usize = 4096;
/// The most ranges that one hint names.
pub const RANGES_MAX: usize = 1024;
/// The most warnings that one answer carries.
pub const WARNINGS_MAX: usize = 8;
/// The most users of which one answer tells.
pub const OWNERS_MAX: usize = 960;
/// The most segments that could not be moved, and problems, of which one answer tells.
pub const FINDINGS_MAX: usize = 64;
/// The longest text of one of these in bytes: all of them fit into a message.
pub const FINDING_TEXT_MAX: usize = 256;
/// The datagram that is a doorbell. The value does not matter to who gets it.
pub const DOORBELL: [u8; 1] = [1];

const HEADER_BYTES: usize = 8;
const HELLO: u16 = 0x0001;
const WELCOME: u16 = 0x0002;

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
