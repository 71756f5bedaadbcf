//! What the pages of a database may hold, when its log serves what it serves.

use std::collections::BTreeMap;

use baio_storage::log::Recovered;

use crate::log::model::{Group, Model, Seen};
use crate::stamp::{self, Content};
use crate::violation::{Kind, Violation};

/// Sectors of a page.
pub const PAGE_SECTORS: usize = PAGE_BYTES / stamp::SECTOR;
/// Bytes of a page of the cache.
pub const PAGE_BYTES: usize = 4096;
/// Pages of a database.
pub const PAGES: u64 = 20;

/// A change of a page, as a record of the log says.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which page it gives its new bytes.
    pub page: u64,
    /// Under which it waits: the LSN of the last record of its group.
    pub lsn: u64,
}

/// The pages of a database.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// By the number of the record, which the sectors of the page bear.
    changes: BTreeMap<u32, Change>,
    /// All changes up to this number were told to be safe in their pages.
    synced: u32,
}

impl Pages {
    /// A group was appended: a record for each of these pages.
    pub fn appended(&mut self, group: &Group, pages: &[u64]) {
        let numbers = group.first as u32..;
        let changes = pages.iter().map(|&page| Change { page, lsn: group.lsn });
        self.changes.extend(numbers.zip(changes));
    }

    /// A sync said so of all changes up to this one.
    pub fn synced(&mut self, number: u32) {
        self.synced = self.synced.max(number);
    }

    /// An opening served this: what it did not find is no change any more.
    pub fn opened(&mut self, recovered: &Recovered, log: &Model) {
        self.changes.retain(|_, change| {
            let groups = &log.groups;
            let is_there = || groups.binary_search_by_key(&change.lsn, |group| group.lsn).is_ok();
            change.lsn < recovered.head.0 || is_there()
        });
    }

    /// The change that a record is about, and its number.
    #[must_use]
    pub fn last(&self, page: u64) -> Option<u32> {
        let mut changes = self.changes.iter().rev();
        changes
            .find(|(_, change)| change.page == page)
            .map(|(number, _)| *number)
    }

    /// Is what lies on the device right, sector by sector, beside what the log serves?
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(
        &self,
        database: usize,
        sectors: &[Content],
        recovered: &Recovered,
        seen: &[Seen],
    ) -> Result<(), Violation> {
        let mut needed = vec![0; sectors.len() / PAGE_SECTORS];
        for (&number, change) in &self.changes {
            // What is behind the head needs no page: its record says it all.
            if number <= self.synced || change.lsn < recovered.head.0 {
                needed[change.page as usize] = number;
            }
        }
        for (position, content) in sectors.iter().enumerate() {
            let page = position / PAGE_SECTORS;
            let wrong = |kind, story: String| {
                let story = format!("database {database}, page {page}, sector {position}: {story}");
                Err(Violation::new(kind, story))
            };
            let number = match *content {
                Content::Zero => 0,
                Content::Written {
                    instance,
                    position: at,
                    version,
                } if usize::from(instance) == database + 1 && usize::from(at) == position => version,
                other => return wrong(Kind::Leak, format!("{other:?}")),
            };
            let Some(change) = self.changes.get(&number).filter(|change| change.page == page as u64) else {
                if number == 0 && needed[page] == 0 {
                    continue;
                }
                let kind = if number == 0 { Kind::Lost } else { Kind::Order };
                return wrong(
                    kind,
                    format!(
                        "has change {number}, which the log lost, or none; {} is there",
                        needed[page]
                    ),
                );
            };
            let is_in_log = |lsn: u64| seen.binary_search_by_key(&lsn, |record| record.lsn).is_ok();
            if change.lsn >= recovered.head.0 && !is_in_log(change.lsn) {
                let story = format!(
                    "has change {number}, and no record says so: LSN {}, {recovered:?}",
                    change.lsn
                );
                return wrong(Kind::Order, story);
            }
            if number < needed[page] {
                let story = format!(
                    "has change {number}, and {} is neither there nor in the log",
                    needed[page]
                );
                return wrong(Kind::Lost, story);
            }
        }
        Ok(())
    }
}
