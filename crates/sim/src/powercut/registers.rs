//! What a worker has reported about sectors and keys, and which values may be there after a crash.
//!
//! A register is a sector of a segment, or a key. The worker prints a line for each write that it is about to make, and for each that was
//! acknowledged. Writes to one register come one after the other.
//!
//! | line | |
//! |---|---|
//! | `w PLACE FIRST COUNT VERSION` | these registers are about to get this version |
//! | `x PLACE FIRST COUNT VERSION` | the same; the version reads as nothing |
//! | `p VERSION` | the write was acknowledged, and nothing was said of durability |
//! | `d VERSION` | it was acknowledged as durable |
//! | `S PLACE NUMBER`, `s NUMBER` | a sync of the place begins, and has ended |

use std::collections::HashMap;
use std::ops::Range;

/// A write. 0 is what is there before any.
pub type Version = u64;

/// A segment or a table, by number.
pub type Place = u64;

/// One register: the versions that it may hold, the oldest first.
#[derive(Clone, Debug)]
struct Register {
    past: Vec<(Version, Version)>,
    /// The last version that was acknowledged at all.
    plain: Version,
}

impl Default for Register {
    fn default() -> Register {
        Register {
            past: vec![(0, 0)],
            plain: 0,
        }
    }
}

/// What a register turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What it should.
    Right,
    /// What it may hold; but a later write had been acknowledged, and not as durable.
    PlainLost,
    /// What it may not hold.
    Wrong,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Registers {
    all: HashMap<(Place, u64), Register>,
    writes: HashMap<Version, (Place, Range<u64>)>,
    /// Acknowledged, and not known to be safe.
    plain: Vec<Version>,
    syncs: HashMap<u64, Vec<Version>>,
    /// The highest number that was ever used.
    pub last: Version,
}

impl Registers {
    /// Takes a line; `None` if it is none of these.
    pub fn hear(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let numbers: Vec<u64> = rest.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        match (kind, numbers.as_slice()) {
            ("w" | "x", &[place, first, count, version]) => {
                let value = if kind == "w" { version } else { 0 };
                for position in first..first + count {
                    let register = self.all.entry((place, position)).or_default();
                    register.past.push((version, value));
                }
                self.writes.insert(version, (place, first..first + count));
                self.last = self.last.max(version);
            }
            ("p", &[version]) => {
                self.plain.push(version);
                self.each_of(version, |register| register.plain = version);
            }
            ("d", &[version]) => self.is_safe(version),
            ("S", &[place, number]) => {
                let of_place = |version: &&Version| self.writes.get(version).is_some_and(|(of, _)| *of == place);
                let covered = self.plain.iter().filter(of_place).copied().collect();
                self.syncs.insert(number, covered);
                self.last = self.last.max(number);
            }
            ("s", &[number]) => {
                for version in self.syncs.remove(&number).unwrap_or_default() {
                    self.is_safe(version);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn each_of(&mut self, version: Version, mut change: impl FnMut(&mut Register)) {
        let Some((place, range)) = self.writes.get(&version).cloned() else {
            return;
        };
        for position in range {
            change(self.all.entry((place, position)).or_default());
        }
    }

    fn is_safe(&mut self, version: Version) {
        self.each_of(version, |register| {
            // Before it in the past is what can no longer be there.
            if let Some(at) = register.past.iter().position(|(known, _)| *known == version) {
                register.past.drain(..at);
            }
            register.plain = register.plain.max(version);
        });
        self.plain.retain(|known| *known != version);
    }

    /// Judges what a register holds after a power cut. From now on it holds that.
    pub fn judge(&mut self, place: Place, position: u64, value: Version) -> Found {
        let Some(register) = self.all.get_mut(&(place, position)) else {
            return if value == 0 { Found::Right } else { Found::Wrong };
        };
        // The latest that reads so.
        let found = register.past.iter().rev().find(|(_, reads)| *reads == value);
        let Some(&(version, _)) = found else {
            return Found::Wrong;
        };
        let is_late = version >= register.plain;
        *register = Register {
            past: vec![(version, value)],
            plain: version,
        };
        if is_late { Found::Right } else { Found::PlainLost }
    }

    /// What a register may hold, for a message.
    #[must_use]
    pub fn told(&self, place: Place, position: u64) -> String {
        match self.all.get(&(place, position)) {
            Some(register) => format!("one of the versions {:?}", register.past),
            None => "nothing".into(),
        }
    }

    /// Forgets these registers: what is there next is nothing.
    pub fn forget(&mut self, place: Place, positions: Range<u64>) {
        self.all
            .retain(|(of, position), _| *of != place || !positions.contains(position));
    }

    /// The round is over: what was neither read nor acknowledged is no matter any more.
    pub fn settle(&mut self) {
        self.writes.clear();
        self.plain.clear();
        self.syncs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &[&str]) -> Registers {
        let mut registers = Registers::default();
        for line in lines {
            registers.hear(line).unwrap();
        }
        registers
    }

    fn judged<const LEN: usize>(lines: &[&str], values: [Version; LEN]) -> [Found; LEN] {
        values.map(|value| after(lines).judge(1, 5, value))
    }

    #[test]
    fn what_is_durable_must_be_there_and_what_came_later_may() {
        let lines = ["w 1 4 2 1", "d 1", "w 1 5 1 2", "p 2", "w 1 5 1 3"];
        assert_eq!(
            judged(&lines, [0, 1, 2, 3, 4]),
            [Found::Wrong, Found::PlainLost, Found::Right, Found::Right, Found::Wrong]
        );
    }

    #[test]
    fn a_sync_makes_safe_what_was_acknowledged_before_it_began() {
        let lines = ["w 1 5 1 1", "p 1", "S 1 9", "w 1 5 1 2", "p 2", "s 9"];
        assert_eq!(
            judged(&lines, [0, 1, 2]),
            [Found::Wrong, Found::PlainLost, Found::Right]
        );
        let another = ["w 1 5 1 1", "p 1", "S 2 9", "s 9"];
        assert_eq!(judged(&another, [0, 1]), [Found::PlainLost, Found::Right]);
    }

    #[test]
    fn what_was_deleted_reads_as_nothing() {
        let lines = ["w 1 5 1 1", "d 1", "x 1 5 1 2"];
        assert_eq!(judged(&lines, [0, 1]), [Found::Right, Found::Right]);
        let durable = ["w 1 5 1 1", "d 1", "x 1 5 1 2", "d 2"];
        assert_eq!(judged(&durable, [0, 1]), [Found::Right, Found::Wrong]);
    }

    #[test]
    fn what_was_found_stays() {
        let mut registers = after(&["w 1 5 1 1", "p 1"]);
        assert_eq!(registers.judge(1, 5, 0), Found::PlainLost);
        registers.settle();
        assert_eq!(registers.judge(1, 5, 1), Found::Wrong);
        assert_eq!(registers.judge(1, 5, 0), Found::Right);
        assert_eq!(registers.judge(1, 6, 7), Found::Wrong);
    }
}
