//! What was promised of the databases on a disk.

use baio_engine::sim::Disk;

use super::pages::Pages;
use crate::log::model::{self, Group, Model};

/// What was promised of a database.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// Of its log.
    pub log: Model,
    /// Of its pages.
    pub pages: Pages,
}

/// Bytes as a crash left them, and what was promised of them.
#[derive(Debug)]
pub struct State {
    /// The device.
    pub disk: Disk,
    /// What must hold.
    pub databases: Vec<Database>,
}

/// What somebody was told, or asked, of one database.
#[derive(Clone, Debug)]
pub enum Told {
    /// Of its log.
    Log(model::Told),
    /// A group has its LSN, and each of its records changes a page.
    Appended(Group, Vec<u64>),
    /// All changes up to this number are safe in their pages.
    Synced(u32),
}

impl Database {
    pub(super) fn told(&mut self, told: &Told) {
        match told {
            Told::Log(told) => {
                self.log.told(told);
                if let model::Told::Opened { recovered, .. } = told {
                    self.pages.opened(recovered, &self.log);
                }
            }
            Told::Appended(group, pages) => {
                self.log.told(&model::Told::Given(group.clone()));
                self.pages.appended(group, pages);
            }
            Told::Synced(number) => self.pages.synced(*number),
        }
    }
}
