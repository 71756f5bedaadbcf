//! The NBD protocol, as far as a server needs it: the fixed newstyle handshake, simple replies.
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>

use std::io::{self, Read, Write};

use super::disk::Refusal;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Fixed newstyle, and no 124 zeros behind an export's answer.
const HANDSHAKE_FLAGS: u16 = 0b11;
const NO_ZEROES: u32 = 0b10;
/// Has flags; takes flushes, FUA, trims and zeroes; many connections see one device.
const EXPORT_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;

const ACKNOWLEDGED: u32 = 1;
const AN_EXPORT: u32 = 2;
const AN_INFO: u32 = 3;
const UNSUPPORTED: u32 = 1 << 31 | 1;

/// What no client sends in an option.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The largest read or write; the protocol's default is 32 MiB.
const BYTES_MAX: u32 = 64 << 20;

/// What a client asks of the device.
#[derive(Debug)]
pub(super) enum Ask {
    Read {
        offset: u64,
        len: u64,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
        fua: bool,
    },
    Zero {
        offset: u64,
        len: u64,
        fua: bool,
    },
    Flush,
    /// Nothing that this server knows.
    Unknown,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn word<const LEN: usize>(peer: &mut impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    peer.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Greets a client and answers its options; true when it goes on to the device.
pub(super) fn greet(peer: &mut (impl Read + Write), size: u64) -> io::Result<bool> {
    peer.write_all(b"NBDMAGIC")?;
    peer.write_all(&OPTION_MAGIC.to_be_bytes())?;
    peer.write_all(&HANDSHAKE_FLAGS.to_be_bytes())?;
    let flags = u32::from_be_bytes(word(peer)?);
    loop {
        if u64::from_be_bytes(word(peer)?) != OPTION_MAGIC {
            return Err(wrong("an option that begins with other words"));
        }
        let option = u32::from_be_bytes(word(peer)?);
        let len = u32::from_be_bytes(word(peer)?);
        if len > OPTION_BYTES_MAX {
            return Err(wrong("an option that is too long"));
        }
        let mut data = vec![0; len as usize];
        peer.read_exact(&mut data)?;
        let export = [&size.to_be_bytes()[..], &EXPORT_FLAGS.to_be_bytes()].concat();
        match option {
            EXPORT_NAME => {
                peer.write_all(&export)?;
                if flags & NO_ZEROES == 0 {
                    peer.write_all(&[0; 124])?;
                }
                return Ok(true);
            }
            INFO | GO => {
                answer_option(peer, option, AN_INFO, &[&[0, 0], &export[..]].concat())?;
                answer_option(peer, option, ACKNOWLEDGED, &[])?;
                if option == GO {
                    return Ok(true);
                }
            }
            LIST => {
                answer_option(peer, option, AN_EXPORT, &[0; 4])?;
                answer_option(peer, option, ACKNOWLEDGED, &[])?;
            }
            ABORT => {
                answer_option(peer, option, ACKNOWLEDGED, &[])?;
                return Ok(false);
            }
            _ => answer_option(peer, option, UNSUPPORTED, &[])?,
        }
    }
}

fn answer_option(peer: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let head = [
        &OPTION_REPLY_MAGIC.to_be_bytes()[..],
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
        data,
    ];
    peer.write_all(&head.concat())
}

/// The next request and its cookie; `None` when the client leaves.
pub(super) fn next(peer: &mut impl Read) -> io::Result<Option<(u64, Ask)>> {
    if u32::from_be_bytes(word(peer)?) != REQUEST_MAGIC {
        return Err(wrong("a request that begins with other words"));
    }
    let flags = u16::from_be_bytes(word(peer)?);
    let kind = u16::from_be_bytes(word(peer)?);
    let cookie = u64::from_be_bytes(word(peer)?);
    let offset = u64::from_be_bytes(word(peer)?);
    let len = u32::from_be_bytes(word(peer)?);
    let fua = flags & 1 == 1;
    let ask = match kind {
        0 | 1 if len > BYTES_MAX => return Err(wrong("a request that is too long")),
        0 => Ask::Read {
            offset,
            len: len.into(),
        },
        1 => {
            let mut bytes = vec![0; len as usize];
            peer.read_exact(&mut bytes)?;
            Ask::Write { offset, bytes, fua }
        }
        2 => return Ok(None),
        3 => Ask::Flush,
        // nbdfuse sends a trim for a hole, and a hole reads as zeros.
        4 | 6 => Ask::Zero {
            offset,
            len: len.into(),
            fua,
        },
        _ => Ask::Unknown,
    };
    Ok(Some((cookie, ask)))
}

/// Answers a request; a read with its bytes.
pub(super) fn answer(peer: &mut impl Write, cookie: u64, answer: &Result<Vec<u8>, Refusal>) -> io::Result<()> {
    let (error, bytes) = match answer {
        Ok(bytes) => (0_u32, &bytes[..]),
        Err(Refusal::Io) => (5, &[][..]),
        Err(Refusal::Outside) => (22, &[][..]),
    };
    let head = [
        &REPLY_MAGIC.to_be_bytes()[..],
        &error.to_be_bytes(),
        &cookie.to_be_bytes(),
        bytes,
    ];
    peer.write_all(&head.concat())
}
