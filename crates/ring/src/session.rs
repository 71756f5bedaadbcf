//! The memory of a session between two processes: one sealed memfd with both rings and the client's arena.
//!
//! The service makes it and hands the descriptor over; the client maps it. Neither can take it from the other: it cannot shrink.
//! What either can do is scribble, or punch holes, which read as zeros, if the system has pages for them ([`Region`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio_memory::{Region, RegionError, Span};
use baio_words::Errno;
use baio_words::entry::{COMPLETION_WORDS, SUBMISSION_WORDS};

use crate::bell::Bell;
use crate::lane::Lane;
use crate::layout::{ARENA_BYTES_MAX, Layout, PLACES_MAX};
use crate::ring::Ring;
use crate::shared::Shared;

/// One side's mapping of it.
#[derive(Debug)]
pub struct SessionMemory {
    region: Arc<Region>,
    layout: Layout,
    submissions: Lane<SUBMISSION_WORDS>,
    completions: Lane<COMPLETION_WORDS>,
}

impl SessionMemory {
    /// Service: makes it, for so many requests at a time and an arena of so many bytes. It takes memory as [`Region::create`]
    /// does.
    ///
    /// # Errors
    /// `EINVAL` for sizes that no session has ([`Layout::new`]); what the system said.
    pub fn create(places: u32, arena_bytes: u64) -> Result<SessionMemory, RegionError> {
        let refused = || RegionError {
            operation: "make a session's memory",
            object: format!("{places} requests, {arena_bytes} bytes of buffers"),
            errno: Errno::EINVAL,
            need: Some(format!(
                "1 to {PLACES_MAX} requests and at most {ARENA_BYTES_MAX} bytes"
            )),
        };
        let layout = Layout::new(places, arena_bytes).ok_or_else(refused)?;
        let bytes = usize::try_from(layout.bytes).map_err(|_| refused())?;
        let region = Region::create_with_words(layout.words() as usize, bytes)?;
        SessionMemory::of(region, layout)
    }

    /// Client: maps what a service has made, if its seals and what is told of its layout are in order.
    ///
    /// # Errors
    /// `EPROTO` for a layout that cannot be; else as [`Region::map`].
    pub fn map(fd: OwnedFd, layout: Layout) -> Result<SessionMemory, RegionError> {
        // First by its own measure: the part for words must make sense before anything is mapped by it.
        layout.check(layout.bytes).map_err(|why| crooked(&why))?;
        let region = Region::map_with_words(fd, layout.words() as usize)?;
        layout.check(region.size() as u64).map_err(|why| crooked(&why))?;
        SessionMemory::of(region, layout)
    }

    fn of(region: Arc<Region>, layout: Layout) -> Result<SessionMemory, RegionError> {
        let lanes = Lane::of(&region, layout.submissions).zip(Lane::of(&region, layout.completions));
        let (submissions, completions) = lanes.ok_or_else(|| {
            // `check` has looked at all that could be missing.
            crooked(&"two rings in the memory")
        })?;
        Ok(SessionMemory {
            region,
            layout,
            submissions,
            completions,
        })
    }

    /// The memory; its descriptor is what a peer is handed.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// What a peer is told of it.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// From the client to the service.
    #[must_use]
    pub fn submissions(&self) -> Ring<'_, SUBMISSION_WORDS> {
        self.submissions.ring()
    }

    /// From the service to the client.
    #[must_use]
    pub fn completions(&self) -> Ring<'_, COMPLETION_WORDS> {
        self.completions.ring()
    }

    /// All of the arena.
    #[must_use]
    pub fn arena(&self) -> Option<Span> {
        self.span(0, u32::try_from(self.layout.arena_bytes).ok()?)
    }

    /// `len` bytes from byte `at` of the arena on: the memory of a request. `None` when they would leave the arena.
    #[must_use]
    pub fn span(&self, at: u64, len: u32) -> Option<Span> {
        let end = at.checked_add(u64::from(len))?;
        if end > self.layout.arena_bytes {
            return None;
        }
        self.region.span(self.layout.arena_at.checked_add(at)?, len)
    }
}

fn crooked(why: &dyn std::fmt::Display) -> RegionError {
    RegionError {
        operation: "map a session's memory",
        object: "as its service describes it".into(),
        errno: Errno::EPROTO,
        need: Some(why.to_string()),
    }
}

impl<T> Shared<T> {
    /// Client: the same between processes. The rings lie in the session's memory; the exchange, where the client's own memory
    /// waits for the end of its requests, is this side's alone; so are [`Shared::stop`] and [`Shared::end`]: whoever reads the socket tells the
    /// end. `None` when the rings have no room for so many requests.
    #[must_use]
    pub fn far(memory: &SessionMemory, places: u32, bell: Bell) -> Option<Shared<T>> {
        if !memory.layout.has_room_for(places) {
            return None;
        }
        let submissions = Lane::of(&memory.region, memory.layout.submissions)?;
        let completions = Lane::of(&memory.region, memory.layout.completions)?;
        Some(Shared::over(submissions, completions, places, bell))
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
