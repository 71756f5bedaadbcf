//! S3-FIFO: three queues, of which a scan passes through the smallest only.
//!
//! Most pages of most workloads are used once within their time in a cache. So a new page goes into a **small** queue, a
//! tenth of the frames, and leaves from there soon, unless it was used more than once meanwhile: then it moves to the
//! **main** queue. Whoever left the small queue is remembered by its key in the **ghost** queue, of as many keys as there
//! are frames; if it comes back in time, it goes straight to the main queue. There a page is put back to the end while its
//! count of uses (3 at most) is not 0, one less each time. No page moves when it is used: a hit is one saturating addition.
//!
//! ```text
//!   new ──► small ──used twice──► main ──not used──► out
//!             │                   ▲  └──used: back to its end, count - 1
//!             └──► out, ghost ────┘ when it comes back
//! ```
//!
//! A victim comes from the small queue while that holds a tenth of the frames, else from the main queue; and from the other
//! one if none there may go. A frame that may not go is set aside and keeps its count; it comes back to the head of its queue
//! when the cache says that it may ([`Eviction::eased`]), so that a cache full of dirty pages is not looked through for each
//! victim. Pages of [`Hint::Once`] wait in a fourth queue, which is emptied first and leaves no ghosts; those that may not go are
//! set aside like any others.
//!
//! A page that was read ahead waits for its first use in the small queue, whatever its hint, and is spared there a few times: it
//! would be read twice. That first use does not count. If it never comes, the page leaves without a ghost.
//!
//! Source: Yang, Zhang, Qiu, Yue, Vinayak: FIFO queues are all you need for cache eviction, SOSP 2023, algorithm 1.

mod ghost;

use std::collections::TryReserveError;

use super::queue::{Links, Queue};
use super::{Eviction, Hint, filled};
use ghost::Ghost;

/// The count of uses ends here: two bits say enough.
const USES_MAX: u8 = 3;
/// More uses than this in the small queue lead to the main queue.
const USES_OF_A_SMALL: u8 = 1;
/// So often the small queue goes round before a page that was read ahead leaves it unused.
const ROUNDS_AHEAD: u8 = 3;
/// The part of the frames that is the small queue's.
const SMALL_PART: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queued {
    /// Holds no page.
    Nowhere,
    Once,
    Small,
    Main,
    /// Set aside from there, because it could not go.
    OnceAside,
    SmallAside,
    MainAside,
}

/// A page that nobody has asked for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// It was asked for.
    No,
    /// It is spared so many times more.
    Normal(u8),
    /// The same for one of [`Hint::Once`].
    Once(u8),
}

/// Four bytes, so that many frames are looked at for one miss of the processor's cache.
#[derive(Clone, Copy, Debug)]
struct Frame {
    place: Queued,
    uses: u8,
    ahead: Ahead,
}

/// The S3-FIFO policy.
#[derive(Debug)]
pub struct S3Fifo {
    frames: Box<[Frame]>,
    keys: Box<[u64]>,
    links: Links,
    once: Queue,
    small: Queue,
    main: Queue,
    aside: Queue,
    /// Of those set aside, how many are the small queue's.
    small_aside: usize,
    /// Of those in the small queue, how many have earned their place in the main queue.
    earned: usize,
    ghost: Ghost,
    /// From so many frames on the small queue gives the victims.
    small_max: usize,
}

impl S3Fifo {
    /// For so many frames, all without a page.
    pub fn new(frames: u32) -> Result<Self, TryReserveError> {
        let length = frames as usize;
        let empty = Frame {
            place: Queued::Nowhere,
            uses: 0,
            ahead: Ahead::No,
        };
        Ok(Self {
            frames: filled(length, empty)?,
            keys: filled(length, 0)?,
            links: Links::new(length)?,
            once: Queue::new(),
            small: Queue::new(),
            main: Queue::new(),
            aside: Queue::new(),
            small_aside: 0,
            earned: 0,
            ghost: Ghost::new(frames)?,
            small_max: (length / SMALL_PART).max(1),
        })
    }

    fn put(&mut self, frame: u32, place: Queued) {
        match place {
            Queued::Nowhere => {}
            Queued::Once => self.once.push(&mut self.links, frame),
            Queued::Small => {
                self.small.push(&mut self.links, frame);
                self.earned += usize::from(self.has_earned(frame));
            }
            Queued::Main => self.main.push(&mut self.links, frame),
            Queued::OnceAside | Queued::SmallAside | Queued::MainAside => {
                self.aside.push(&mut self.links, frame);
                self.small_aside += usize::from(place == Queued::SmallAside);
            }
        }
        self.frames[frame as usize].place = place;
    }

    /// Has it been used often enough for the main queue?
    fn has_earned(&self, frame: u32) -> bool {
        self.frames[frame as usize].uses > USES_OF_A_SMALL
    }

    fn set_aside(&mut self, frame: u32, place: Queued) -> Step {
        self.removed(frame);
        self.put(frame, place);
        Step::Refused
    }

    /// A victim of the pages that are used once. Who refuses is set aside.
    fn among_once(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        while let Some(frame) = self.once.oldest() {
            if may_go(frame) {
                self.removed(frame);
                return Some(frame);
            }
            self.set_aside(frame, Queued::OnceAside);
        }
        None
    }

    /// A victim from the small or the main queue, of those that are not set aside. Whoever refuses is, and who is spared is so
    /// a few times at most: so this ends.
    fn among_others(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        loop {
            let (small, main) = (self.small.len(), self.main.len());
            let step = match (small > 0, main > 0) {
                (false, false) => return None,
                (true, false) => self.step_small(may_go),
                (true, true) if small + self.small_aside >= self.small_max => self.step_small(may_go),
                _ => self.step_main(may_go),
            };
            if let Step::Victim(frame) = step {
                return Some(frame);
            }
        }
    }

    /// Looks at the oldest of the small queue; it is the victim, or goes to the main queue, or aside.
    fn step_small(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Step {
        let Some(frame) = self.small.oldest() else {
            return Step::Refused;
        };
        if self.has_earned(frame) {
            self.removed(frame);
            self.frames[frame as usize].uses = 0;
            self.put(frame, Queued::Main);
            return Step::Spared;
        }
        if !may_go(frame) {
            return self.set_aside(frame, Queued::SmallAside);
        }
        if let Ahead::Normal(left) | Ahead::Once(left) = &mut self.frames[frame as usize].ahead {
            if *left > 0 {
                *left -= 1;
                self.small.renew(&mut self.links, frame);
                return Step::Spared;
            }
        } else {
            self.ghost.insert(self.keys[frame as usize]);
        }
        self.removed(frame);
        Step::Victim(frame)
    }

    /// Looks at the oldest of the main queue; it is the victim, or goes to the end, or aside.
    fn step_main(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Step {
        let Some(frame) = self.main.oldest() else {
            return Step::Refused;
        };
        if !may_go(frame) {
            return self.set_aside(frame, Queued::MainAside);
        }
        let uses = &mut self.frames[frame as usize].uses;
        if *uses == 0 {
            self.removed(frame);
            return Step::Victim(frame);
        }
        *uses -= 1;
        self.main.renew(&mut self.links, frame);
        Step::Spared
    }
}

/// What came of a look at a queue's oldest frame.
enum Step {
    Victim(u32),
    /// It had been used, or its use is still to come: it is at the end of a queue now, and counts for less.
    Spared,
    /// It may not go.
    Refused,
}

impl Eviction for S3Fifo {
    fn inserted(&mut self, frame: u32, key: u64, hint: Hint) {
        self.removed(frame);
        self.keys[frame as usize] = key;
        self.frames[frame as usize].uses = 0;
        self.frames[frame as usize].ahead = Ahead::No;
        let place = match hint {
            Hint::Once => Queued::Once,
            Hint::Normal if self.ghost.remove(key) => Queued::Main,
            Hint::Normal => Queued::Small,
        };
        self.put(frame, place);
    }

    fn inserted_ahead(&mut self, frame: u32, key: u64, hint: Hint) {
        self.inserted(frame, key, Hint::Normal);
        self.frames[frame as usize].ahead = match hint {
            Hint::Normal => Ahead::Normal(ROUNDS_AHEAD),
            Hint::Once => Ahead::Once(ROUNDS_AHEAD),
        };
    }

    fn hit(&mut self, frame: u32) {
        let entry = &mut self.frames[frame as usize];
        match std::mem::replace(&mut entry.ahead, Ahead::No) {
            Ahead::No => {
                let earns = entry.place == Queued::Small && entry.uses == USES_OF_A_SMALL;
                entry.uses = (entry.uses + 1).min(USES_MAX);
                self.earned += usize::from(earns);
            }
            Ahead::Normal(_) => {}
            Ahead::Once(_) if entry.place == Queued::Nowhere => {}
            Ahead::Once(_) => {
                self.removed(frame);
                self.put(frame, Queued::Once);
            }
        }
    }

    fn removed(&mut self, frame: u32) {
        match self.frames[frame as usize].place {
            Queued::Nowhere => {}
            Queued::Once => self.once.remove(&mut self.links, frame),
            Queued::Small => {
                self.small.remove(&mut self.links, frame);
                self.earned -= usize::from(self.has_earned(frame));
            }
            Queued::Main => self.main.remove(&mut self.links, frame),
            place @ (Queued::OnceAside | Queued::SmallAside | Queued::MainAside) => {
                self.aside.remove(&mut self.links, frame);
                self.small_aside -= usize::from(place == Queued::SmallAside);
            }
        }
        self.frames[frame as usize].place = Queued::Nowhere;
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if let Some(frame) = self.among_once(may_go) {
            return Some(frame);
        }
        // A small queue above its share is looked at first, then the main queue, then the rest of the small one.
        if let Some(frame) = self.among_others(may_go) {
            return Some(frame);
        }
        // Perhaps somebody set aside may go, and nobody said so.
        while let Some(frame) = self.aside.oldest() {
            let place = match self.frames[frame as usize].place {
                Queued::OnceAside => Queued::Once,
                Queued::SmallAside => Queued::Small,
                _ => Queued::Main,
            };
            self.removed(frame);
            self.put(frame, place);
        }
        if let Some(frame) = self.among_once(may_go) {
            return Some(frame);
        }
        self.among_others(may_go)
    }

    fn eased(&mut self, frame: u32) {
        let (queue, place) = match self.frames[frame as usize].place {
            Queued::OnceAside => (&mut self.once, Queued::Once),
            Queued::SmallAside => (&mut self.small, Queued::Small),
            Queued::MainAside => (&mut self.main, Queued::Main),
            _ => return,
        };
        self.aside.remove(&mut self.links, frame);
        self.small_aside -= usize::from(place == Queued::Small);
        queue.push_first(&mut self.links, frame);
        self.frames[frame as usize].place = place;
        self.earned += usize::from(place == Queued::Small && self.has_earned(frame));
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghost.holds(key)
    }

    fn remembers_any(&self, run: u64, pages: u16) -> bool {
        self.ghost.holds_any(run, pages)
    }

    fn passed(&mut self, key: u64) {
        self.ghost.insert(key);
    }

    fn passed_all(&mut self, run: u64, pages: u16) {
        self.ghost.insert_all(run, pages);
    }

    fn room(&self) -> usize {
        // The main queue gives room until the small one has its share; who cannot go takes some of either.
        let others = self.main.len() + self.earned + self.aside.len();
        let share = self.small_max.saturating_sub(self.small_aside);
        (self.frames.len() - others).max(share)
    }

    fn name(&self) -> &'static str {
        "s3-fifo"
    }
}
