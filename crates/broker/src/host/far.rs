//! The border to a client of another process: rings and memory in a sealed memfd, and the session's own table of handles.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baio_engine::Memory;
use baio_memory::Region;
use baio_ring::SessionMemory;
use baio_ring::ring::Ring;
use baio_storage::{Handle, SegmentInfo};
use baio_words::Access;
use baio_words::entry::{COMPLETION_WORDS, HandleWords, Place, SUBMISSION_WORDS, Submission, Violation};

use super::sockets;
use crate::seat::Border;

/// The border to one client.
pub(super) struct Far {
    memory: SessionMemory,
    pub(super) handles: Handles,
    socket: Arc<OwnedFd>,
}

impl Far {
    /// What both sides have.
    pub(super) fn region(&self) -> &Arc<Region> {
        self.memory.region()
    }

    pub(super) fn new(memory: SessionMemory, handles: Handles, socket: Arc<OwnedFd>) -> Far {
        Far {
            memory,
            handles,
            socket,
        }
    }
}

impl Border for Far {
    fn submissions(&self) -> Ring<'_, SUBMISSION_WORDS> {
        self.memory.submissions()
    }

    fn completions(&self) -> Ring<'_, COMPLETION_WORDS> {
        self.memory.completions()
    }

    /// The entry was checked to lie inside of the arena. Two requests may name the same bytes: that is the client's affair.
    fn memory(&self, submission: &Submission) -> Result<Memory, Violation> {
        match submission.place {
            Place::Nowhere => Ok(Memory::None),
            Place::Arena { at, len } => {
                let span = self.memory.span(at, len).ok_or(Violation::OutsideArena)?;
                Ok(Memory::Span(span))
            }
            Place::Exchange { .. } => Err(Violation::Exchange(submission.tag.index)),
        }
    }

    fn give_back(&self, _: u32, memory: Memory) -> Result<(), Violation> {
        drop(memory); // It was the client's all the time.
        Ok(())
    }

    fn handle(&self, words: HandleWords) -> Handle {
        self.handles.get(words)
    }

    fn forget(&mut self, words: HandleWords) -> Option<Handle> {
        self.handles.remove(words)
    }

    fn wake(&self) {
        sockets::ring(self.socket.as_fd());
    }
}

/// A session's handles. What it calls one is a place and which use of it, so that a stale name finds nothing, and a guessed
/// one nothing but its own.
#[derive(Debug)]
pub(super) struct Handles {
    places: Vec<Open>,
    free: Vec<u32>,
    max: usize,
    /// What stands for no handle at the core.
    none: Handle,
}

#[derive(Debug)]
struct Open {
    generation: u32,
    handle: Option<Opened>,
}

/// What a session has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The core's.
    pub(super) handle: Handle,
    pub(super) access: Access,
    /// As it was told when it was opened.
    pub(super) info: SegmentInfo,
}

impl Handles {
    /// At most `max`, of the core with that number.
    pub(super) fn new(max: usize, core: u32) -> Handles {
        Handles {
            places: Vec::new(),
            free: Vec::new(),
            max,
            none: Handle::from_parts(core, u32::MAX, u32::MAX),
        }
    }

    /// Open handles.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Is there room for so many more?
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.len() + more <= self.max
    }

    pub(super) fn add(&mut self, opened: Opened) -> HandleWords {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Open {
                generation: 0,
                handle: None,
            });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.handle = Some(opened);
        HandleWords {
            index,
            generation: place.generation,
        }
    }

    /// What that names.
    pub(super) fn find(&self, words: HandleWords) -> Option<&Opened> {
        let place = self.places.get(words.index as usize)?;
        place.handle.as_ref().filter(|_| place.generation == words.generation)
    }

    /// The core's handle; one that it never gave, if there is none.
    pub(super) fn get(&self, words: HandleWords) -> Handle {
        self.find(words).map_or(self.none, |opened| opened.handle)
    }

    pub(super) fn remove(&mut self, words: HandleWords) -> Option<Handle> {
        let handle = self.find(words)?.handle;
        let place = &mut self.places[words.index as usize];
        place.handle = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(words.index);
        Some(handle)
    }

    /// All that are open, which none is any more.
    pub(super) fn take_all(&mut self) -> Vec<Handle> {
        let taken = self.places.iter_mut().filter_map(|place| {
            place.generation = place.generation.wrapping_add(1);
            place.handle.take()
        });
        let taken = taken.map(|opened| opened.handle).collect();
        self.free = (0..self.places.len() as u32).collect();
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Add,
        Remove(usize),
        RemoveWord(u32, u32),
        TakeAll,
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            8 => Just(Deed::Add),
            6 => any::<usize>().prop_map(Deed::Remove),
            2 => (0..9_u32, 0..9_u32).prop_map(|(index, generation)| Deed::RemoveWord(index, generation)),
            1 => Just(Deed::TakeAll),
        ];
        proptest::collection::vec(deed, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever words an entry has, they name what is open under just these words, or nothing; no words are used again.
        #[test]
        fn no_words_name_what_is_not_open_under_them(deeds in deeds()) {
            const MAX: usize = 8;
            let mut handles = Handles::new(MAX, 9);
            let (mut open, mut used) = (Vec::new(), std::collections::BTreeSet::new());
            for (number, deed) in deeds.into_iter().enumerate() {
                match deed {
                    Deed::Add if handles.has_room(1) => {
                        let handle = Handle::from_parts(9, number as u32, 0);
                        let opened = Opened { handle, access: Access::Read, info: SegmentInfo::default() };
                        let words = handles.add(opened);
                        prop_assert!(used.insert((words.index, words.generation)), "used again: {words:?}");
                        open.push((words, handle));
                    }
                    Deed::Add => prop_assert_eq!(open.len(), MAX),
                    Deed::Remove(at) if !open.is_empty() => {
                        let (words, handle) = open.swap_remove(at % open.len());
                        prop_assert_eq!(handles.remove(words), Some(handle));
                    }
                    Deed::Remove(_) => {}
                    Deed::RemoveWord(index, generation) => {
                        let words = HandleWords { index, generation };
                        let at = open.iter().position(|(known, _)| *known == words);
                        prop_assert_eq!(handles.remove(words), at.map(|at| open.swap_remove(at).1));
                    }
                    Deed::TakeAll => {
                        let taken = handles.take_all().len();
                        prop_assert_eq!(taken, std::mem::take(&mut open).len());
                    }
                }
                prop_assert_eq!(handles.len(), open.len());
                for index in (0..10).chain([u32::MAX]) {
                    for generation in (0..10).chain([u32::MAX]) {
                        let words = HandleWords { index, generation };
                        let known = open.iter().find(|(known, _)| *known == words);
                        prop_assert_eq!(handles.get(words), known.map_or(handles.none, |known| known.1));
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_finds_its_own_handle_only_while_it_is_open() {
        let mut handles = Handles::new(2, 9);
        let core = |index| Handle::from_parts(9, index, 0);
        let opened = |index| Opened {
            handle: core(index),
            access: Access::Read,
            info: SegmentInfo::default(),
        };
        let first = handles.add(opened(1));
        let second = handles.add(opened(2));
        assert!(!handles.has_room(1) && handles.len() == 2);
        assert_eq!((handles.get(first), handles.get(second)), (core(1), core(2)));
        assert_eq!(handles.remove(first), Some(core(1)));
        assert_eq!((handles.remove(first), handles.get(first)), (None, handles.none));
        let third = handles.add(opened(3));
        assert_eq!((third.index, handles.get(first)), (first.index, handles.none));
        assert_eq!(handles.find(third), Some(&opened(3)));
        for wrong in [(7, 0), (u32::MAX, 0), (third.index, third.generation + 1)] {
            let words = HandleWords {
                index: wrong.0,
                generation: wrong.1,
            };
            assert_eq!(handles.get(words), handles.none);
        }
        let mut all = handles.take_all();
        all.sort_by_key(|handle| handle.index);
        assert_eq!(all, [core(2), core(3)]);
        assert!(handles.len() == 0 && handles.get(third) == handles.none && handles.get(second) == handles.none);
    }
}
