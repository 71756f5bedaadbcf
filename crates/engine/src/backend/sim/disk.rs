//! A disk in memory. Pages are shared by reference count, so that a copy of a disk, and so a crash state, costs what
//! differs and not what the disk holds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::sim::log::Record;

/// Granularity of sharing between copies of a disk, in bytes.
const PAGE: usize = 4096;

/// A handle on one simulated disk; clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Rc<RefCell<Inner>>);

#[derive(Debug)]
struct Inner {
    id: u64,
    size: u64,
    pages: HashMap<u64, Rc<[u8; PAGE]>>,
    recording: Option<Vec<Record>>,
}

impl Disk {
    /// A disk of `size` bytes, all zero.
    #[must_use]
    pub fn new(size: u64) -> Disk {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Disk(Rc::new(RefCell::new(Inner {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            size,
            pages: HashMap::new(),
            recording: None,
        })))
    }

    /// Another disk with the same bytes and no record.
    #[must_use]
    pub fn copy(&self) -> Disk {
        let copy = Disk::new(self.size());
        copy.0.borrow_mut().pages.clone_from(&self.0.borrow().pages);
        copy
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.borrow().size
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.borrow().id
    }

    /// Starts a new record.
    pub fn record(&self) {
        self.0.borrow_mut().recording = Some(Vec::new());
    }

    /// Ends the record and returns it.
    #[must_use]
    pub fn take_record(&self) -> Vec<Record> {
        self.0.borrow_mut().recording.take().unwrap_or_default()
    }

    /// Notes in the record that the workload's owner has just been told `what`.
    pub fn mark(&self, what: u64) {
        self.note(|| Record::Mark(what));
    }

    /// How many records there are so far.
    #[must_use]
    pub fn recorded(&self) -> usize {
        self.0.borrow().recording.as_ref().map_or(0, Vec::len)
    }

    fn note(&self, record: impl FnOnce() -> Record) {
        if let Some(recording) = &mut self.0.borrow_mut().recording {
            recording.push(record());
        }
    }

    /// Fills `bytes` from `offset`; returns how many there were before the end of the disk.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let inner = self.0.borrow();
        let len = clip(inner.size, offset, bytes.len());
        let mut at = 0;
        while at < len {
            let (page, within, take) = piece(offset + at as u64, len - at);
            let target = &mut bytes[at..at + take];
            match inner.pages.get(&page) {
                Some(page) => target.copy_from_slice(&page[within..within + take]),
                None => target.fill(0),
            }
            at += take;
        }
        len
    }

    /// Changes bytes without leaving a trace in the record: for building states and for damaging them.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut inner = self.0.borrow_mut();
        let len = clip(inner.size, offset, bytes.len());
        let mut at = 0;
        while at < len {
            let (page, within, take) = piece(offset + at as u64, len - at);
            let page = inner.pages.entry(page).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(page)[within..within + take].copy_from_slice(&bytes[at..at + take]);
            at += take;
        }
    }

    /// Writes what fits, as a block device does: the rest fails when it is tried (block/fops.c, blkdev_write_iter).
    pub(crate) fn write(&self, offset: u64, mut bytes: Vec<u8>, durable: bool) -> i32 {
        let len = clip(self.size(), offset, bytes.len());
        if len == 0 {
            return -libc::ENOSPC;
        }
        bytes.truncate(len);
        self.poke(offset, &bytes);
        self.note(|| Record::Write {
            offset,
            bytes: bytes.into(),
            durable,
        });
        len as i32
    }

    pub(crate) fn sync(&self) {
        self.note(|| Record::Sync);
    }

    /// A number that differs for disks with different bytes (FNV-1a over the pages that are not zero).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let inner = self.0.borrow();
        let mut pages: Vec<_> = inner
            .pages
            .iter()
            .filter(|(_, page)| page.iter().any(|&byte| byte != 0))
            .collect();
        pages.sort_unstable_by_key(|(number, _)| **number);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut eat = |word: u64| hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        for (number, page) in pages {
            eat(*number);
            for word in page.chunks_exact(8) {
                eat(u64::from_le_bytes(word.try_into().unwrap_or_default()));
            }
        }
        hash
    }
}

fn clip(size: u64, offset: u64, len: usize) -> usize {
    (size.saturating_sub(offset)).min(len as u64) as usize
}

/// The page that `offset` lies in, where in it, and how many of `len` bytes are in it.
fn piece(offset: u64, len: usize) -> (u64, usize, usize) {
    let within = (offset % PAGE as u64) as usize;
    (offset / PAGE as u64, within, len.min(PAGE - within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_follow_its_original() {
        let disk = Disk::new(1 << 20);
        disk.poke(4000, b"hello, simulated world");
        let copy = disk.copy();
        disk.poke(4000, b"HELLO");
        let mut seen = [0; 5];
        copy.read(4000, &mut seen);
        assert_eq!(&seen, b"hello");
        assert_ne!(disk.fingerprint(), copy.fingerprint());
        disk.poke(4000, b"hello");
        assert_eq!(disk.fingerprint(), copy.fingerprint());
    }

    #[test]
    fn nothing_is_read_or_written_past_the_end() {
        let disk = Disk::new(8192);
        let mut bytes = [7; 100];
        assert_eq!(disk.read(8190, &mut bytes), 2);
        assert_eq!(disk.read(u64::MAX, &mut bytes), 0);
        assert_eq!(disk.write(8190, vec![1; 3], false), 2);
        assert_eq!(disk.write(8192, vec![1; 3], false), -libc::ENOSPC);
    }
}
