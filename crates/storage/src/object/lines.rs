//! Lines: all handles on one file or one segment share one, in which its writes and fences stand ([`crate::request`]). A file is
//! known by device and inode number, however often and by whatever name it was opened; a segment by the place of its inode.

use std::collections::BTreeMap;

use super::Target;
use crate::segment::probe::SlotAddress;

/// What handles can have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    File((u64, u64)),
    Segment(SlotAddress),
}

#[derive(Debug)]
struct Line {
    thing: Thing,
    handles: u32,
    /// A log is open on it.
    has_log: bool,
}

/// The lines of what is open. A number is used again when the last handle has gone, and with it the last request.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    free: Vec<u32>,
    of: BTreeMap<Thing, u32>,
    /// How many have a log: mostly none, and then nobody need look.
    with_log: u32,
}

impl Lines {
    /// The line of a new handle.
    pub(super) fn join(&mut self, target: &Target) -> u32 {
        let thing = match target {
            Target::Plain(file) => Thing::File(file.identity()),
            Target::Segment { address, .. } => Thing::Segment(*address),
        };
        let number = match self.of.get(&thing) {
            Some(number) => *number,
            None => self.begin(thing),
        };
        self.lines[number as usize].handles += 1;
        number
    }

    fn begin(&mut self, thing: Thing) -> u32 {
        let line = Line {
            thing,
            handles: 0,
            has_log: false,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.lines[number as usize] = line;
                number
            }
            None => {
                self.lines.push(line);
                self.lines.len() as u32 - 1
            }
        };
        self.of.insert(thing, number);
        number
    }

    /// A handle has gone.
    pub(super) fn leave(&mut self, number: u32) {
        let line = &mut self.lines[number as usize];
        line.handles -= 1;
        if line.handles == 0 {
            let thing = line.thing;
            self.set_log(number, false);
            self.free.push(number);
            self.forget(thing, number);
        }
    }

    /// Is a log open on it, or has somebody a claim for one elsewhere?
    pub(super) fn has_log(&self, number: u32) -> bool {
        self.lines[number as usize].has_log
    }

    #[inline]
    pub(super) fn have_logs(&self) -> bool {
        self.with_log > 0
    }

    pub(super) fn set_log(&mut self, number: u32, has_log: bool) {
        let had = std::mem::replace(&mut self.lines[number as usize].has_log, has_log);
        self.with_log = self.with_log + u32::from(has_log) - u32::from(had);
    }

    /// The same of a segment, by the place of its inode.
    pub(super) fn segment_has_log(&self, address: SlotAddress) -> bool {
        let number = self.of.get(&Thing::Segment(address));
        number.is_some_and(|number| self.has_log(*number))
    }

    /// The inode of a segment lives elsewhere now.
    pub(super) fn rename(&mut self, from: SlotAddress, to: SlotAddress) {
        let (from, to) = (Thing::Segment(from), Thing::Segment(to));
        if let Some(number) = self.of.remove(&from) {
            self.lines[number as usize].thing = to;
            self.of.insert(to, number);
        }
    }

    /// What came to the same place since has a line of its own.
    fn forget(&mut self, thing: Thing, number: u32) {
        if self.of.get(&thing) == Some(&number) {
            self.of.remove(&thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(slot: usize) -> Target {
        Target::Segment {
            address: at(slot),
            owner_uid: 0,
            start: 0,
            size: 0,
            moving: None,
        }
    }

    fn at(slot: usize) -> SlotAddress {
        SlotAddress { bucket: 0, slot }
    }

    #[test]
    fn handles_on_one_thing_share_a_line_and_a_rename_takes_it_along() {
        let mut lines = Lines::default();
        let (one, other) = (lines.join(&segment(1)), lines.join(&segment(2)));
        assert_ne!(one, other);
        assert_eq!(lines.join(&segment(1)), one);
        lines.rename(at(1), at(3));
        assert_eq!(lines.join(&segment(3)), one);
        // Who takes the old place is somebody else.
        let new = lines.join(&segment(1));
        assert!(new != one && new != other);
        for _ in 0..3 {
            lines.leave(one);
        }
        assert_eq!(lines.join(&segment(4)), one, "its number is free");
        assert_eq!(lines.of.len(), 3);
        for line in [one, other, new] {
            lines.leave(line);
        }
        assert!(lines.of.is_empty());
    }
}
