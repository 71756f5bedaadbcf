//! Records gathered into batches: what every peer has in memory. Whoever writes takes the oldest batch whole; a record goes into the
//! youngest while that is not taken and has room.
//!
//! A record has a header of 8 bytes, its length, and is padded to 8. There is no checksum: it would only slow a peer down.

use std::collections::VecDeque;
use std::sync::Arc;

use baio_engine::{Arena, Buffer};

/// Bytes of all batches together.
const POOL_BYTES: usize = 32 << 20;

/// Bytes of a batch, at least.
const BATCH_BYTES: usize = 1 << 20;

/// Before each record: its length.
pub(super) const HEADER: usize = 8;

/// Batches that are gathered, and buffers for more.
pub(super) struct Stream {
    pool: Vec<Buffer>,
    gathered: VecDeque<Batch>,
    /// Where the last record ends.
    pub(super) end: u64,
    taken: Batches,
}

/// Records that are written as one.
pub(super) struct Batch {
    buffer: Buffer,
    len: usize,
    records: u32,
    /// Counted from 0.
    pub(super) number: u64,
    /// Where its last record ends in the stream.
    pub(super) end: u64,
}

/// What batches there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batches {
    pub(super) count: u64,
    pub(super) records: u64,
    /// Of the largest; `None` where nobody has counted.
    pub(super) records_max: Option<u32>,
    /// As they were written, with headers.
    pub(super) bytes: u64,
}

/// Bytes of a batch for records of this size.
pub(super) fn batch_bytes(record: usize) -> usize {
    BATCH_BYTES.max((record + 2 * HEADER).next_multiple_of(4096))
}

impl Stream {
    pub(super) fn new(record: usize) -> Result<Stream, String> {
        let each = batch_bytes(record);
        let count = (POOL_BYTES / each).max(4);
        // Buffers are given out in words of 256 KiB.
        let arena = Arena::new(count * each.next_multiple_of(256 << 10)).map_err(|error| error.to_string())?;
        let buffer = |_| Arc::clone(&arena).buffer(each);
        let pool = (0..count).map(buffer).collect::<Option<Vec<_>>>();
        let mut pool = pool.ok_or("no memory for batches")?;
        // All sides write to memory that is there.
        pool.iter_mut().for_each(|buffer| buffer.fill(0));
        Ok(Stream {
            pool,
            gathered: VecDeque::new(),
            end: 0,
            taken: Batches::default(),
        })
    }

    /// Where it ends; `None` where there is no room.
    pub(super) fn append(&mut self, record: &[u8]) -> Option<u64> {
        let len = HEADER + record.len().next_multiple_of(8);
        let has_room = |batch: &Batch| batch.buffer.len() - batch.len >= len;
        if !self.gathered.back().is_some_and(has_room) {
            let buffer = self.pool.pop()?;
            let number = self.taken.count + self.gathered.len() as u64;
            self.gathered.push_back(Batch {
                buffer,
                len: 0,
                records: 0,
                number,
                end: self.end,
            });
        }
        let batch = self.gathered.back_mut()?;
        let (header, payload) = batch.buffer[batch.len..batch.len + len].split_at_mut(HEADER);
        header.copy_from_slice(&(record.len() as u64).to_le_bytes());
        payload[..record.len()].copy_from_slice(record);
        batch.len += len;
        batch.records += 1;
        self.end += len as u64;
        batch.end = self.end;
        Some(self.end)
    }

    /// The oldest batch; nothing is added to it any more.
    pub(super) fn take(&mut self) -> Option<Batch> {
        let batch = self.gathered.pop_front()?;
        self.taken.count += 1;
        self.taken.records += u64::from(batch.records);
        self.taken.records_max = self.taken.records_max.max(Some(batch.records));
        self.taken.bytes += batch.len as u64;
        Some(batch)
    }

    /// The number of the batch that this position belongs to, if it is not taken.
    pub(super) fn batch_of(&self, end: u64) -> Option<u64> {
        self.gathered
            .iter()
            .find(|batch| batch.end >= end)
            .map(|batch| batch.number)
    }

    pub(super) fn give_back(&mut self, batch: Batch) {
        self.pool.push(batch.buffer);
    }

    pub(super) fn batches(&self) -> Batches {
        self.taken
    }
}

impl Batch {
    /// What is to be written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The same in whole blocks, with zeros behind it.
    pub(super) fn blocks(&mut self, block: u64) -> &[u8] {
        // A buffer has whole blocks of any device.
        let len = self.len.next_multiple_of(block as usize).min(self.buffer.len());
        self.buffer[self.len..len].fill(0);
        &self.buffer[..len]
    }
}

/// Where the next write of `len` bytes goes: behind the last, or at the beginning when it does not fit any more.
pub(super) fn place_of(next: &mut u64, len: usize, size: u64) -> u64 {
    if *next + len as u64 > size {
        *next = 0;
    }
    let place = *next;
    *next += len as u64;
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_gather_until_they_are_taken() {
        let mut stream = Stream::new(100).unwrap();
        let first = stream.append(&[1; 100]).unwrap();
        let second = stream.append(&[2; 3]).unwrap();
        assert_eq!((first, second), (8 + 104, 8 + 104 + 8 + 8));
        assert_eq!(stream.batch_of(first), Some(0));
        let mut batch = stream.take().unwrap();
        assert_eq!(
            (batch.number, batch.end, batch.bytes().len() as u64),
            (0, second, second)
        );
        assert_eq!(batch.bytes()[8..108], [1; 100]);
        assert_eq!(batch.blocks(512).len(), 512);
        assert!(batch.blocks(512)[second as usize..].iter().all(|byte| *byte == 0));
        let third = stream.append(b"x").unwrap();
        assert_eq!((stream.batch_of(second), stream.batch_of(third)), (Some(1), Some(1)));
        assert_eq!(stream.take().unwrap().number, 1);
        assert_eq!(stream.batches().records, 3);
    }

    #[test]
    fn without_room_nothing_is_taken() {
        let mut stream = Stream::new(1 << 20).unwrap();
        let record = vec![0; 1 << 20];
        let taken = (0..100).take_while(|_| stream.append(&record).is_some()).count();
        assert!((4..100).contains(&taken), "{taken}");
        let batch = stream.take().unwrap();
        stream.give_back(batch);
        assert!(stream.append(&record).is_some());
    }

    #[test]
    fn the_area_is_gone_through_again_and_again() {
        let mut next = 0;
        let places: Vec<u64> = (0..4).map(|_| place_of(&mut next, 400, 1000)).collect();
        assert_eq!(places, [0, 400, 0, 400]);
    }
}
