//! Making a log: what may have been a header goes first, then all data are zeroes, and the new header comes last. Whatever happens
//! before that, there is no log.

use baio_engine::Errno;

use super::error::LogError;
use super::format::{COPIES_AT, Header};
use super::jobs::{AfterHeader, AfterZero, Ended, HeaderWrite, Next, Step};
use super::zero::Zeroing;
use super::{LogIoKind, LogPart};

impl LogPart {
    pub(super) fn create_by(&mut self, header: Header) -> Result<(), LogError> {
        self.header = Some(header);
        self.take_memory(&header)?;
        if self.shared.lock().record_max() == 0 {
            return Err(LogError::BadOptions(
                "with such short batches a log takes no record: three blocks are always enough, two in a larger area",
            ));
        }
        self.run_opening(Step::Clear { copy: 0 });
        Ok(())
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
