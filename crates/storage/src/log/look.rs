//! Looking at a log that another may have open: nothing is written, and whoever looks reads the bytes.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use baio_engine::{Arena, Errno, Memory};

use super::{
    LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest, LogUsage, Lsn, Record, RecordReader, Recovered,
};

/// Records that cannot be read as one are read in pieces of so many bytes.
const PIECE: usize = 512;

/// Fills bytes from an offset on.
type Read<'a> = dyn FnMut(&mut [u8], u64) -> Result<(), Errno> + 'a;

/// A log that is looked at.
pub struct LogLook<'a> {
    part: LogPart,
    read: Box<Read<'a>>,
}

impl<'a> LogLook<'a> {
    /// Finds the log in an area of so many bytes, and what an opening of it would find, with [`LogOptions::salvage`] or without. `read`
    /// fills bytes from an offset on.
    ///
    /// # Errors
    /// As an opening.
    pub fn open(
        arena: &Arc<Arena>,
        size_bytes: u64,
        salvage: bool,
        read: impl FnMut(&mut [u8], u64) -> Result<(), Errno> + 'a,
    ) -> Result<(LogLook<'a>, Recovered), LogError> {
        let options = LogOptions {
            salvage,
            ..LogOptions::default()
        };
        let part = LogPart::look(arena, size_bytes, &options)?;
        let mut look = LogLook {
            part,
            read: Box::new(read),
        };
        match look.ask(LogRequest::Open)? {
            LogAnswer::Opened(recovered) => Ok((look, recovered)),
            _ => Err(LogError::Closed),
        }
    }

    /// How large it is, and how full.
    #[must_use]
    pub fn usage(&self) -> LogUsage {
        self.part.usage()
    }

    /// Gives the records from this LSN on, each with so many bytes of its payload at most, until there are none or `each` wants no more.
    ///
    /// # Errors
    /// [`LogError::Truncated`] below the oldest record that is kept, and what keeps the log from being read.
    pub fn records(
        &mut self,
        from: Lsn,
        payload_max: usize,
        mut each: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let mut reader = RecordReader::new(from).keeping(payload_max);
        loop {
            let from = reader.next_batch();
            let LogAnswer::Batches(Some(batches)) = self.ask(LogRequest::Read { from })? else {
                return Ok(());
            };
            reader.push(&batches);
            while let Some(record) = reader.next_record() {
                if each(record).is_break() {
                    return Ok(());
                }
            }
            if reader.next_batch() == from {
                return Ok(());
            }
        }
    }

    fn ask(&mut self, request: LogRequest) -> Result<LogAnswer, LogError> {
        // A recovery reads in pieces by itself, and knows then what it could not read.
        let in_pieces = matches!(request, LogRequest::Read { .. });
        self.part.start(0, request);
        while let Some((id, kind, memory)) = self.part.next_io() {
            let (result, memory) = self.carry_out(kind, memory, in_pieces);
            self.part.io_ended(id, result, memory);
        }
        self.part.next_done().map_or(Err(LogError::Closed), |done| done.result)
    }

    fn carry_out(&mut self, kind: LogIoKind, memory: Memory, in_pieces: bool) -> (Result<u32, Errno>, Memory) {
        let LogIoKind::Read { offset, len } = kind else {
            return (Err(Errno::EROFS), memory);
        };
        let Some(mut buffer) = memory.into_buffer() else {
            return (Err(Errno::EINVAL), Memory::None);
        };
        let mut read = (self.read)(&mut buffer, offset);
        if read.is_err() && in_pieces {
            // What cannot be read is not there, as for the recovery before.
            for (at, piece) in (offset..).step_by(PIECE).zip(buffer.chunks_mut(PIECE)) {
                if (self.read)(piece, at).is_err() {
                    piece.fill(0);
                }
            }
            read = Ok(());
        }
        (read.map(|()| len), Memory::Own(buffer))
    }
}

impl fmt::Debug for LogLook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLook")
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}
