//! Making a log: the file is made long enough, if that is asked for. A mark takes the place of what may have been a header, then all data are zeroes, and the new header comes last. Whatever
//! happens before that, there is no log, and the mark says so: nothing was appended to what is there, so it can be made anew.
//!
//! A making that is asked for only where there is no log ([`LogPart::open_or_create`]) begins where both copies of the header are zeroes only if
//! all other bytes are zeroes too: then none was ever made, or the making was cut off before its mark.

use super::error::LogError;
use super::format::{COPIES_AT, DATA_AT, Header, making_mark};
use super::seen::{Heard, Reading};
use super::steps::{AfterHeader, AfterZero, Blank, Ended, HeaderWrite, Lengthening, Next, Step, Zeroing};
use super::{LogIoKind, LogPart, Maker};
use baio_engine::{Buffer, Errno};

/// Bytes that are looked through at once, if the arena has them.
const LOOK_BYTES: u64 = 1 << 20;

impl LogPart {
    /// The first step of a making.
    pub(super) fn first_step(&mut self, maker: Maker) -> Result<Step, LogError> {
        let to = self.size_bytes.max(self.options.file_bytes);
        let header = self.options.header(to, maker.uuid, maker.salt)?;
        self.prepare(header)?;
        Ok(match to > self.size_bytes {
            true => Step::Lengthen(Lengthening::Allocating { to }),
            false => Step::Clear { copy: 0 },
        })
    }

    fn prepare(&mut self, header: Header) -> Result<(), LogError> {
        self.header = Some(header);
        self.take_memory(&header)?;
        if self.shared.lock().record_max() == 0 {
            return Err(LogError::BadOptions(
                "with such short batches a log takes no record: three blocks are always enough, two in a larger area",
            ));
        }
        Ok(())
    }

    /// An opening has found that none was ever made.
    pub(super) fn make(&mut self, maker: Maker) -> Next {
        match self.first_step(maker) {
            Ok(step) => Next::Go(step),
            Err(error) => Next::End(Err(error)),
        }
    }

    /// A file that is shorter than the log is to be: there is nothing in it, so what is added is no hole in a log.
    pub(super) fn lengthen(&mut self, how: Lengthening, ended: Option<Ended>) -> Next {
        let Some(header) = self.header else {
            return Next::End(Err(LogError::NotLog));
        };
        match (how, ended.map(|ended| ended.result)) {
            (Lengthening::Allocating { to }, None) => Next::Io(Step::Lengthen(how), LogIoKind::Allocate { to }, None),
            (Lengthening::Allocating { .. }, Some(Err(Errno::EOPNOTSUPP | Errno::ENOSYS))) => {
                Next::Go(Step::Lengthen(Lengthening::Writing))
            }
            (Lengthening::Writing, None) => {
                let Some(mut buffer) = self.take_block(header.block_bytes) else {
                    return Next::End(Err(LogError::NoMemory));
                };
                buffer.fill(0);
                let kind = LogIoKind::Write {
                    offset: DATA_AT + header.capacity - u64::from(header.block_bytes),
                    len: header.block_bytes,
                };
                Next::Io(Step::Lengthen(how), kind, Some(buffer))
            }
            (_, Some(Ok(_))) => {
                self.size_bytes = DATA_AT + header.capacity;
                Next::Go(Step::Clear { copy: 0 })
            }
            (_, Some(Err(errno))) => Next::End(Err(self.header_failed(errno))),
        }
    }

    /// There is no header. Is there anything else, from this byte on?
    pub(super) fn look_for_bytes(&mut self, from: u64, buffer: Option<Buffer>) -> Next {
        let block = self.options.block();
        let whole = self.size_bytes / u64::from(block) * u64::from(block);
        // The last bytes of a file may be fewer than a block. What is made longer may have been cut off there while it was made.
        let end = match self.size_bytes < self.options.file_bytes {
            true => self.size_bytes,
            false => whole,
        };
        if from >= end {
            return match self.maker {
                Some(maker) => self.make(maker),
                None => Next::End(Err(LogError::NotLog)),
            };
        }
        let len = match from < whole {
            true => LOOK_BYTES.min(whole - from) as u32,
            false => block,
        };
        let buffer = buffer.or_else(|| self.arena.buffer(len as usize));
        let Some(mut buffer) = buffer.or_else(|| self.arena.buffer(block as usize)) else {
            return Next::End(Err(LogError::NoMemory));
        };
        let len = len.min(buffer.capacity() as u32);
        buffer.set_len(len as usize);
        // As one: a block that cannot be read ends it anyway.
        let reading = Reading::new(from, len, len);
        let (kind, to) = (reading.kind(), end.min(from + u64::from(len)));
        Next::Io(Step::Blank(Blank { reading, from, to }), kind, Some(buffer))
    }

    pub(super) fn blank(&mut self, blank: Blank, ended: Option<Ended>) -> Next {
        let Blank { reading, from, to } = blank;
        let Some(ended) = ended else {
            return self.look_for_bytes(from, None);
        };
        // The read stops where the file ends.
        let has_all = |read: &u32| u64::from(*read) >= to - from;
        let result = ended
            .result
            .map(|read| if has_all(&read) { reading.len() } else { read });
        let Heard::Seen(seen, _) = reading.ended(result, ended.buffer) else {
            return Next::End(Err(LogError::NoMemory));
        };
        match seen.from(from) {
            Err(unread) => Next::End(Err(unread.into())),
            Ok(bytes) => match bytes.iter().take((to - from) as usize).position(|byte| *byte != 0) {
                Some(at) => Next::End(Err(LogError::Foreign {
                    offset: from + at as u64,
                })),
                None => self.look_for_bytes(to, seen.into_buffer()),
            },
        }
    }

    pub(super) fn clear(&mut self, copy: usize, ended: Option<Ended>) -> Next {
        let (Some(header), copy) = (self.header, copy + usize::from(ended.is_some())) else {
            return Next::End(Err(LogError::NotLog));
        };
        if let Some(ended) = ended {
            self.block_buffer = ended.buffer;
            if ended.result != Ok(header.block_bytes) {
                let errno = ended.result.err().unwrap_or(Errno::EIO);
                return Next::End(Err(self.header_failed(errno)));
            }
        }
        if copy == COPIES_AT.len() {
            let zeroing = Zeroing::new(0..header.capacity, AfterZero::Create);
            return Next::Go(Step::Zero(zeroing));
        }
        let Some(mut buffer) = self.take_block(header.block_bytes) else {
            return Next::End(Err(LogError::NoMemory));
        };
        buffer.fill(0);
        let mark = making_mark();
        buffer[..mark.len()].copy_from_slice(&mark);
        let kind = LogIoKind::Write {
            offset: COPIES_AT[copy],
            len: header.block_bytes,
        };
        Next::Io(Step::Clear { copy }, kind, Some(buffer))
    }

    pub(super) fn created(&mut self) -> Next {
        let Some(header) = self.header else {
            return Next::End(Err(LogError::NotLog));
        };
        self.recovered.was_clean = true;
        Next::Go(Step::Header(HeaderWrite {
            header,
            left: 2,
            then: AfterHeader::Open {
                end: header.epoch_first,
                place: 0,
            },
        }))
    }
}
