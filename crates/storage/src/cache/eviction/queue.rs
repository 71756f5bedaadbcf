//! FIFO queues of frames, linked through arrays: a frame is in one queue at most, so one pair of links per frame serves
//! all queues of a policy, and taking a frame out of the middle costs the same as at an end.

use std::collections::TryReserveError;

use super::filled;

const NONE: u32 = u32::MAX;

/// The neighbours of every frame in the queue that it is in.
#[derive(Debug)]
pub(super) struct Links {
    links: Box<[Link]>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

impl Links {
    pub(super) fn new(frames: usize) -> Result<Self, TryReserveError> {
        let alone = Link {
            older: NONE,
            newer: NONE,
        };
        Ok(Self {
            links: filled(frames, alone)?,
        })
    }
}

/// One queue, from the oldest frame to the newest.
#[derive(Debug)]
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
    frames: usize,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            oldest: NONE,
            newest: NONE,
            frames: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.frames
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Puts in a frame that is in no queue.
    pub(super) fn push(&mut self, links: &mut Links, frame: u32) {
        links.links[frame as usize] = Link {
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = frame,
            newest => links.links[newest as usize].newer = frame,
        }
        self.newest = frame;
        self.frames += 1;
    }

    /// Puts in a frame that is in no queue, as the oldest.
    pub(super) fn push_first(&mut self, links: &mut Links, frame: u32) {
        links.links[frame as usize] = Link {
            older: NONE,
            newer: self.oldest,
        };
        match self.oldest {
            NONE => self.newest = frame,
            oldest => links.links[oldest as usize].older = frame,
        }
        self.oldest = frame;
        self.frames += 1;
    }

    /// Takes out a frame that is in this queue.
    pub(super) fn remove(&mut self, links: &mut Links, frame: u32) {
        let Link { older, newer } = links.links[frame as usize];
        match older {
            NONE => self.oldest = newer,
            older => links.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => links.links[newer as usize].older = older,
        }
        self.frames -= 1;
    }

    /// Makes a frame of this queue its newest.
    pub(super) fn renew(&mut self, links: &mut Links, frame: u32) {
        self.remove(links, frame);
        self.push(links, frame);
    }
}
