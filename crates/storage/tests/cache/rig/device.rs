//! A device in memory with a volatile cache, as unpleasant as real ones.
//!
//! What a plain write left is volatile until a flush that began after the write ended. A flush that fails loses any part of
//! what was volatile, also of writes that run meanwhile and will be told as good. A write that fails may have been done for
//! some pages. A power cut keeps, page by page, any of the states since the last that was safe.

use super::{PAGE, Random};

/// A write that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) first: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) durable: bool,
    /// Lost by a flush that failed meanwhile.
    doomed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Device {
    /// What a power cut cannot take away.
    safe: Vec<u8>,
    /// What a read gives.
    pub(crate) current: Vec<u8>,
    /// Volatile page writes in order, each with its number.
    log: Vec<(u64, usize, Vec<u8>)>,
    /// Numbers of page writes that ended so far.
    ended: u64,
}

fn put(to: &mut [u8], page: usize, bytes: &[u8]) {
    to[page * PAGE..page * PAGE + bytes.len()].copy_from_slice(bytes);
}

impl Device {
    pub(crate) fn new(bytes: Vec<u8>) -> Device {
        Device {
            current: bytes.clone(),
            safe: bytes,
            ..Device::default()
        }
    }

    pub(crate) fn begin_write(&self, offset: u64, bytes: Vec<u8>, durable: bool) -> Running {
        assert_eq!(offset as usize % PAGE, 0);
        assert!(
            offset as usize + bytes.len() <= self.current.len(),
            "a write past the end"
        );
        Running {
            first: offset as usize / PAGE,
            bytes,
            durable,
            doomed: false,
        }
    }

    fn page_ended(&mut self, page: usize, bytes: &[u8], durable: bool) {
        self.ended += 1;
        put(&mut self.current, page, bytes);
        if durable {
            self.log.retain(|(_, logged, _)| *logged != page);
            put(&mut self.safe, page, bytes);
        } else {
            self.log.push((self.ended, page, bytes.to_vec()));
        }
    }

    pub(crate) fn end_write(&mut self, write: Running) {
        if !write.doomed || write.durable {
            for (nth, bytes) in write.bytes.chunks(PAGE).enumerate() {
                self.page_ended(write.first + nth, bytes, write.durable);
            }
        }
    }

    /// Some pages of it were written, none of them safely.
    pub(crate) fn fail_write(&mut self, write: Running, random: &mut Random) {
        for (nth, bytes) in write.bytes.chunks(PAGE).enumerate() {
            if random.one_in(2) {
                self.page_ended(write.first + nth, bytes, false);
            }
        }
    }

    /// To be given to `end_flush`.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.ended
    }

    pub(crate) fn end_flush(&mut self, began: u64) {
        let (covered, rest) = std::mem::take(&mut self.log)
            .into_iter()
            .partition(|(number, _, _)| *number <= began);
        self.log = rest;
        let covered: Vec<(u64, usize, Vec<u8>)> = covered;
        for (_, page, bytes) in covered {
            put(&mut self.safe, page, &bytes);
        }
    }

    pub(crate) fn fail_flush<'a>(&mut self, running: impl Iterator<Item = &'a mut Running>, random: &mut Random) {
        self.log.retain(|_| random.one_in(2));
        // What was lost is not even read any more.
        self.current.clone_from(&self.safe);
        for (_, page, bytes) in &self.log {
            put(&mut self.current, *page, bytes);
        }
        for write in running {
            write.doomed = random.one_in(2);
        }
    }

    /// What is found after a power cut with these writes under way.
    pub(crate) fn cut<'a>(&self, running: impl Iterator<Item = &'a Running>, random: &mut Random) -> Vec<u8> {
        let mut found = self.safe.clone();
        for (_, page, bytes) in &self.log {
            if random.one_in(2) {
                put(&mut found, *page, bytes);
            }
        }
        for write in running {
            for (nth, bytes) in write.bytes.chunks(PAGE).enumerate() {
                if random.one_in(2) {
                    put(&mut found, write.first + nth, bytes);
                }
            }
        }
        found
    }
}
