//! Which writes a fence comes after.
//!
//! The writes of a line (of one file or segment, by whatever handle: [`crate::object`]) are counted in epochs. A fence closes the
//! one that is open, and is free when all that are closed up to there have no writes left. So a write costs the counting up and
//! down of one number, and a fence does not look through the table of requests.
//!
//! ```text
//!      closed, the oldest first                       open
//!   [ 2 writes | fence A ] [ 0 writes | fence B ]  [ 5 writes ]     A waits for two, B for the same two
//! ```
//!
//! A fence that is called off leaves its writes to the next epoch: who comes behind them waits for them all the same. So there are
//! never more closed epochs than fences that wait.

use std::collections::VecDeque;

use super::Ticket;

/// In which epoch of which line a write was counted, or which one a fence closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) line: u32,
    number: u64,
}

#[derive(Debug)]
struct Closed {
    /// The last epoch that counts here: those of fences that were called off lie before it.
    number: u64,
    writes: u32,
    fence: Ticket,
}

#[derive(Debug, Default)]
struct Line {
    closed: VecDeque<Closed>,
    /// The epoch that is open, and its writes.
    number: u64,
    writes: u32,
}

impl Line {
    /// The place among the closed ones that counts the writes of an epoch; none if that is still open.
    fn place(&self, number: u64) -> Option<usize> {
        let last = self.closed.back()?.number;
        (number <= last).then(|| self.closed.partition_point(|closed| closed.number < number))
    }

    fn writes_of(&mut self, number: u64) -> &mut u32 {
        match self.place(number) {
            Some(at) => &mut self.closed[at].writes,
            None => &mut self.writes,
        }
    }
}

/// The lines, by number.
#[derive(Debug, Default)]
pub(super) struct Fences {
    lines: Vec<Line>,
}

impl Fences {
    /// A write has come.
    pub(super) fn write(&mut self, line: u32) -> Epoch {
        if self.lines.len() <= line as usize {
            self.lines.resize_with(line as usize + 1, Line::default);
        }
        let at = &mut self.lines[line as usize];
        at.writes += 1;
        let number = at.number;
        Epoch { line, number }
    }

    /// It has ended, however. [`Fences::next_free`] says for whom it was the last.
    pub(super) fn ended(&mut self, epoch: Epoch) {
        let line = &mut self.lines[epoch.line as usize];
        *line.writes_of(epoch.number) -= 1;
    }

    /// The next fence of a line that has no write before it any more; once.
    pub(super) fn next_free(&mut self, line: u32) -> Option<Ticket> {
        let closed = &mut self.lines[line as usize].closed;
        closed.front().filter(|first| first.writes == 0)?;
        closed.pop_front().map(|first| first.fence)
    }

    /// A fence has come. None if no write is before it.
    pub(super) fn fence(&mut self, line: u32, fence: Ticket) -> Option<Epoch> {
        let at = self.lines.get_mut(line as usize)?;
        if at.writes == 0 && at.closed.is_empty() {
            return None;
        }
        let number = at.number;
        at.number += 1;
        at.closed.push_back(Closed {
            number,
            writes: std::mem::take(&mut at.writes),
            fence,
        });
        Some(Epoch { line, number })
    }

    /// It was called off.
    pub(super) fn forget(&mut self, epoch: Epoch) {
        let line = &mut self.lines[epoch.line as usize];
        let Some(left) = line.place(epoch.number).and_then(|at| line.closed.remove(at)) else {
            return; // It was closed, and is no more free than those before it.
        };
        *line.writes_of(epoch.number) += left.writes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(index: u32) -> Ticket {
        Ticket { index, generation: 1 }
    }

    fn free(fences: &mut Fences, line: u32) -> Vec<u32> {
        std::iter::from_fn(|| fences.next_free(line))
            .map(|fence| fence.index)
            .collect()
    }

    /// Every order of ends, against a list of who waits for whom, with fences that are called off in between.
    #[test]
    fn a_fence_is_free_when_the_last_write_before_it_has_ended() {
        let mut seed = 9_u64;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut fences = Fences::default();
        let mut writes: Vec<(u32, Epoch, u32)> = Vec::new(); // Line, epoch, number.
        let mut waiting: Vec<(u32, Epoch, Ticket, Vec<u32>)> = Vec::new(); // And the writes before it.
        let (mut freed, mut called_off, mut number) = (0, 0, 0);
        for _ in 0..20_000 {
            let line = random(2) as u32;
            match random(8) {
                0..=2 => {
                    number += 1;
                    writes.push((line, fences.write(line), number));
                }
                3 => {
                    number += 1;
                    let before: Vec<u32> = writes.iter().filter(|at| at.0 == line).map(|at| at.2).collect();
                    let epoch = fences.fence(line, ticket(number));
                    assert_eq!(epoch.is_none(), before.is_empty());
                    waiting.extend(epoch.map(|epoch| (line, epoch, ticket(number), before)));
                }
                4 if !waiting.is_empty() => {
                    let (line, epoch, ..) = waiting.swap_remove(random(waiting.len()));
                    fences.forget(epoch);
                    assert_eq!(free(&mut fences, line), [], "nobody waited for it");
                    called_off += 1;
                }
                _ if !writes.is_empty() => {
                    let (line, epoch, ended) = writes.swap_remove(random(writes.len()));
                    fences.ended(epoch);
                    waiting
                        .iter_mut()
                        .for_each(|(.., before)| before.retain(|write| *write != ended));
                    let (over, still): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|(.., before)| before.is_empty());
                    waiting = still;
                    let mut expected: Vec<u32> = over.iter().map(|(_, _, fence, _)| fence.index).collect();
                    expected.sort_unstable();
                    assert_eq!(free(&mut fences, line), expected, "in the order of coming");
                    freed += expected.len();
                }
                _ => {}
            }
            for line in 0..2 {
                let closed = fences.lines.get(line as usize).map_or(0, |line| line.closed.len());
                assert_eq!(closed, waiting.iter().filter(|at| at.0 == line).count());
            }
        }
        assert!(freed > 100 && called_off > 100, "{freed} {called_off}");
    }
}
