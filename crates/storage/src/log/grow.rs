//! Growing: the area has more bytes now.
//!
//! The new bytes are written with zeroes while appends go on. Then appends wait until all batches are durable, and what has wrapped
//! to the beginning of the old area is copied behind its old end: with the new size the batches follow one another there. The
//! header with the new size comes last, into both copies. Until then an older header finds all as it was.

use baio_engine::Errno;

use super::error::LogError;
use super::format::{DATA_AT, Header};
use super::front::Life;
use super::steps::{AfterDrain, AfterHeader, AfterZero, Ended, Growth, HeaderWrite, Next, Step, Zeroing};
use super::{LogAnswer, LogIoKind, LogPart};

impl LogPart {
    pub(super) fn begin_grow(&mut self, size_bytes: u64) -> Next {
        let Some(header) = self.header else {
            return Next::End(Err(LogError::Closed));
        };
        let block = u64::from(header.block_bytes);
        let new = size_bytes.saturating_sub(DATA_AT) / block * block;
        if new <= header.capacity || size_bytes > u64::MAX / 8 {
            return Next::End(Err(LogError::BadSize {
                size_bytes,
                need: DATA_AT + header.capacity + block,
            }));
        }
        let growth = Growth {
            size_bytes,
            old: header.capacity,
            new,
            wrapped: 0,
            copied: 0,
            is_read: false,
        };
        let zeroing = Zeroing::new(header.capacity..new, AfterZero::Grow(growth));
        Next::Go(Step::Zero(zeroing))
    }

    pub(super) fn drain_for(&mut self, growth: Growth) -> Next {
        let mut front = self.shared.lock();
        if front.life == Life::Open {
            front.life = Life::Paused;
        }
        Next::Go(Step::Drain(AfterDrain::Grow(growth)))
    }

    /// Appends wait no more for a growth that has ended, well or not.
    pub(super) fn resume(&mut self) {
        let mut front = self.shared.lock();
        if front.life == Life::Paused {
            front.life = Life::Open;
            front.tell_room();
        }
    }

    /// Everything is durable: copies what has wrapped, part by part.
    pub(super) fn move_wrapped(&mut self, mut growth: Growth, ended: Option<Ended>) -> Next {
        let mut buffer = None;
        match ended {
            None => {
                let front = self.shared.lock();
                let (used, place, head) = (front.used, front.tail.place, self.head.place);
                drop(front);
                let has_wrapped = used > 0 && place <= head;
                growth.wrapped = if has_wrapped { place } else { 0 };
                if growth.wrapped > growth.new - growth.old {
                    return Next::End(Err(LogError::BadSize {
                        size_bytes: growth.size_bytes,
                        need: DATA_AT + growth.old + growth.wrapped,
                    }));
                }
            }
            Some(ended) => {
                let len = ended.buffer.as_ref().map(|buffer| buffer.len() as u32);
                if len.is_none() || ended.result.ok() != len {
                    let errno = ended.result.err().unwrap_or(Errno::EIO);
                    if growth.is_read {
                        let offset = DATA_AT + growth.copied;
                        return Next::End(Err(LogError::Read { errno, offset }));
                    }
                    return Next::End(Err(self.header_failed(errno)));
                }
                buffer = ended.buffer;
            }
        }
        let part = self.header.map_or(4096, |header| u64::from(header.batch_bytes_max));
        if growth.is_read {
            // What was read goes behind the old end.
            let len = part.min(growth.wrapped - growth.copied) as u32;
            let offset = DATA_AT + growth.old + growth.copied;
            growth.is_read = false;
            growth.copied += u64::from(len);
            return Next::Io(Step::Move(growth), LogIoKind::Write { offset, len }, buffer);
        }
        if growth.copied < growth.wrapped {
            let len = part.min(growth.wrapped - growth.copied) as u32;
            let Some(mut buffer) = buffer.or_else(|| self.arena.buffer(part as usize)) else {
                return Next::End(Err(LogError::NoMemory));
            };
            buffer.set_len(len as usize);
            growth.is_read = true;
            let offset = DATA_AT + growth.copied;
            return Next::Io(Step::Move(growth), LogIoKind::Read { offset, len }, Some(buffer));
        }
        match self.headers.next() {
            Ok(header) => Next::Go(Step::Header(HeaderWrite {
                header: Header {
                    capacity: growth.new,
                    watermark: self.flights.durable_end,
                    head: header.head,
                    ..header
                },
                left: 2,
                then: AfterHeader::Grow(growth),
            })),
            Err(error) => Next::End(Err(error)),
        }
    }

    /// Both copies have the new size.
    pub(super) fn grown(&mut self, growth: Growth) -> Next {
        self.size_bytes = growth.size_bytes;
        let mut front = self.shared.lock();
        front.shape.capacity = growth.new;
        let has_wrapped = front.used > 0 && front.tail.place <= self.head.place;
        if has_wrapped {
            front.tail.place += growth.old;
            let place = front.tail.place;
            let place = if place == growth.new { 0 } else { place };
            front.tail.place = place;
            self.flights.move_to(place);
            self.index.shift(growth.wrapped, growth.old);
            for hole in &mut self.recovered.holes {
                if hole.offset < DATA_AT + growth.wrapped {
                    hole.offset += growth.old;
                }
            }
        }
        drop(front);
        self.reads.forget_places();
        self.resume();
        Next::End(Ok(LogAnswer::Done))
    }
}
