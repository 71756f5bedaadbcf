//! The handles of a link that goes on with the next broker: each stays what it is here, whatever each broker calls it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use baio_client::Unsynced;
use baio_storage::Access;
use baio_words::entry::HandleWords;
use baio_words::{Handle, Lost, RequestFault};

/// What is known of an open segment: enough to open it again, and no other.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) words: HandleWords,
    pub(super) owner_uid: u32,
    /// The name that it had when it was opened last.
    pub(super) name: String,
    pub(super) access: Access,
    pub(super) uuid: [u8; 16],
    lost: Option<Lost>,
    unsynced: Arc<Unsynced>,
}

/// What became of one with the next broker.
pub(super) type Opened = std::result::Result<(HandleWords, String), Lost>;

/// Those of one link.
#[derive(Debug, Default)]
pub(super) struct Handles {
    core: u32,
    next: u32,
    open: HashMap<u32, Known>,
    /// By segment, also of those that were closed with writes that are in no sync.
    unsynced: HashMap<[u8; 16], Arc<Unsynced>>,
}

impl Handles {
    pub(super) fn new(core: u32) -> Handles {
        Handles {
            core,
            ..Handles::default()
        }
    }

    pub(super) fn add(
        &mut self,
        words: HandleWords,
        owner_uid: u32,
        name: &str,
        access: Access,
        uuid: [u8; 16],
    ) -> Handle {
        // No number is used again while anybody may remember it.
        self.next = self.next.wrapping_add(1);
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let known = Known {
            words,
            owner_uid,
            name: name.to_owned(),
            access,
            uuid,
            lost: None,
            unsynced: Arc::clone(self.unsynced.entry(uuid).or_default()),
        };
        self.open.insert(self.next, known);
        Handle::from_parts(self.core, self.next, 0)
    }

    fn find(&self, handle: Handle) -> Option<&Known> {
        let (core, index, generation) = handle.parts();
        self.open.get(&index).filter(|_| (core, generation) == (self.core, 0))
    }

    pub(super) fn words(&self, handle: Handle) -> std::result::Result<HandleWords, RequestFault> {
        match self.find(handle) {
            Some(Known { lost: Some(lost), .. }) => Err(RequestFault::Lost(*lost)),
            Some(known) => Ok(known.words),
            None => Err(RequestFault::Stale),
        }
    }

    pub(super) fn unsynced(&self, handle: Handle) -> Option<Arc<Unsynced>> {
        self.find(handle).map(|known| Arc::clone(&known.unsynced))
    }

    /// What the broker calls it, if it has it.
    pub(super) fn close(&mut self, handle: Handle) -> Option<HandleWords> {
        self.find(handle)?;
        let known = self.open.remove(&handle.parts().1)?;
        let (words, lost, uuid) = (known.words, known.lost, known.uuid);
        drop(known);
        // A request by it may still be under way: that has its own reference.
        let is_idle = |unsynced: &Arc<Unsynced>| Arc::strong_count(unsynced) == 1 && !unsynced.is_any();
        if self.unsynced.get(&uuid).is_some_and(is_idle) {
            self.unsynced.remove(&uuid);
        }
        lost.is_none().then_some(words)
    }

    /// Those that the next broker is to open.
    pub(super) fn to_open(&self) -> Vec<(u32, Known)> {
        let well = self.open.iter().filter(|(_, known)| known.lost.is_none());
        well.map(|(index, known)| (*index, known.clone())).collect()
    }

    /// The next broker's, in the place of the former's. Gives those that nobody wants any more.
    pub(super) fn install(&mut self, opened: Vec<(u32, Opened)>) -> Vec<HandleWords> {
        let mut unwanted = Vec::new();
        for (index, opened) in opened {
            let Some(known) = self.open.get_mut(&index) else {
                // It was closed meanwhile.
                unwanted.extend(opened.ok().map(|(words, _)| words));
                continue;
            };
            match opened {
                Err(lost) => known.lost = Some(lost),
                Ok((words, _)) if known.unsynced.is_any() => {
                    unwanted.push(words);
                    known.lost = Some(Lost::CachedWrites);
                }
                Ok((words, name)) => (known.words, known.name) = (words, name),
            }
        }
        // What is opened from now on begins anew; what is well has nothing that is not synced.
        let well = self.open.values().filter(|known| known.lost.is_none());
        let well: HashSet<_> = well.map(|known| known.uuid).collect();
        self.unsynced.retain(|uuid, _| well.contains(uuid));
        unwanted
    }
}
