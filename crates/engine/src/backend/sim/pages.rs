//! The bytes of a disk, in pages that are shared by reference count: a copy costs what differs later, not what there is.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Granularity of sharing, and of what a thin disk gives out, in bytes.
pub(crate) const PAGE: usize = 4096;

/// A sparse array of bytes; what was never written is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages(HashMap<u64, Arc<[u8; PAGE]>>);

impl Pages {
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let (page, within, take) = piece(offset + at as u64, bytes.len() - at);
            let target = &mut bytes[at..at + take];
            match self.0.get(&page) {
                Some(page) => target.copy_from_slice(&page[within..within + take]),
                None => target.fill(0),
            }
            at += take;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let (page, within, take) = piece(offset + at as u64, bytes.len() - at);
            let page = self.0.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + take].copy_from_slice(&bytes[at..at + take]);
            at += take;
        }
    }

    /// Makes the range read as zero; whole pages of it are given back.
    pub(crate) fn zero(&mut self, range: &Range<u64>) {
        self.0.retain(|page, bytes| {
            let first = page * PAGE as u64;
            let from = range.start.clamp(first, first + PAGE as u64) - first;
            let to = range.end.clamp(first, first + PAGE as u64) - first;
            if from < to && to - from < PAGE as u64 {
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
            to - from.min(to) < PAGE as u64
        });
    }

    /// Gives the range pages of its own.
    pub(crate) fn reserve(&mut self, range: &Range<u64>) {
        for page in range.start / PAGE as u64..range.end.div_ceil(PAGE as u64) {
            self.0.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
        }
    }

    /// How many of `len` bytes at `offset` can be stored when all pages together may hold `most` bytes.
    pub(crate) fn room(&self, offset: u64, len: u64, most: u64) -> u64 {
        let mut free = (most / PAGE as u64).saturating_sub(self.0.len() as u64);
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let page = at / PAGE as u64;
            if !self.0.contains_key(&page) {
                if free == 0 {
                    break;
                }
                free -= 1;
            }
            at = ((page + 1) * PAGE as u64).min(end);
        }
        at - offset
    }

    /// Every page with its number, in order.
    pub(crate) fn sorted(&self) -> Vec<(u64, &[u8; PAGE])> {
        let mut pages: Vec<_> = self.0.iter().map(|(number, page)| (*number, &**page)).collect();
        pages.sort_unstable_by_key(|(number, _)| *number);
        pages
    }
}

/// The page that `offset` lies in, where in it, and how many of `len` bytes are in it.
fn piece(offset: u64, len: usize) -> (u64, usize, usize) {
    let within = (offset % PAGE as u64) as usize;
    (offset / PAGE as u64, within, len.min(PAGE - within))
}
