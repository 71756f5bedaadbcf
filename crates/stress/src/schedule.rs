//! Which request comes next: a lane rotates through its streams, some requests on each (aio-stress's loop, seed 001 §3.6).

use std::sync::Arc;

use super::job::{Job, Lane, Rw, Stage};
use super::pattern::{Pattern, Random, Range, mix};
use super::verify::Ledger;

/// One request to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Of the lane.
    pub(super) stream: usize,
    pub(super) object: usize,
    pub(super) offset: u64,
    pub(super) write: bool,
    /// What is stamped, or must be found; 0 for unknown.
    pub(super) generation: u32,
}

/// What the next request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Piece(Piece),
    /// Every stream waits for a block that is in use.
    Busy,
    /// Every stream has made its requests.
    End,
}

/// Offsets that are tried at random before a stream waits for a block in use.
const TRIES: usize = 16;

/// One stream in one stage.
#[derive(Debug)]
struct Cursor {
    object: usize,
    pattern: Pattern,
    /// Drawn, but its block is in use.
    kept: Option<(u64, bool)>,
    ended: bool,
}

/// The streams of a lane in one stage.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    rw: Rw,
    read_percent: u64,
    cursors: Vec<Cursor>,
    current: usize,
    made_in_run: u32,
    run_length: u32,
    coin: Random,
    ledgers: &'a [Arc<Ledger>],
}

impl<'a> Schedule<'a> {
    /// `place` names the lane and the stage, so that no two draw the same offsets. Without ledgers, blocks are not claimed.
    pub(super) fn new(
        job: &Job,
        lane: &Lane,
        stage: &Stage,
        place: [usize; 2],
        ledgers: &'a [Arc<Ledger>],
    ) -> Schedule<'a> {
        let seed = |stream: usize| {
            let [lane, stage] = place.map(|index| index as u64 + 1);
            mix(job.seed ^ mix(lane << 40 ^ stage << 20 ^ stream as u64))
        };
        let cursor = |(index, stream): (usize, &super::Stream)| {
            let range = Range {
                start: stream.start,
                end: stream.end,
                request_size: job.request_size,
            };
            Cursor {
                object: stream.object,
                pattern: match (stage.rw.is_random(), stage.once) {
                    (true, true) => Pattern::once(range, seed(index)),
                    (true, false) => Pattern::random(range, seed(index), stage.endless),
                    (false, _) => Pattern::sequential(range, stage.endless),
                },
                kept: None,
                ended: false,
            }
        };
        Schedule {
            rw: stage.rw,
            read_percent: job.read_percent.into(),
            cursors: lane.streams.iter().enumerate().map(cursor).collect(),
            current: 0,
            made_in_run: 0,
            run_length: job.run_length.max(1),
            coin: Random::new(seed(usize::MAX)),
            ledgers,
        }
    }

    /// Takes the next request, and with it its block.
    pub(super) fn next(&mut self) -> Next {
        let mut busy = false;
        for _ in 0..=self.cursors.len() {
            if self.made_in_run >= self.run_length {
                self.turn_on();
            }
            match self.next_of(self.current) {
                Next::Piece(piece) => {
                    self.made_in_run += 1;
                    return Next::Piece(piece);
                }
                Next::Busy => busy = true,
                Next::End => {}
            }
            self.turn_on();
        }
        if busy { Next::Busy } else { Next::End }
    }

    fn turn_on(&mut self) {
        self.made_in_run = 0;
        self.current = (self.current + 1) % self.cursors.len().max(1);
    }

    fn next_of(&mut self, stream: usize) -> Next {
        let write = match self.rw {
            Rw::Write | Rw::RandomWrite => true,
            Rw::Read | Rw::RandomRead => false,
            Rw::RandomMixed => self.coin.word() % 100 >= self.read_percent,
        };
        let Some(cursor) = self.cursors.get_mut(stream) else {
            return Next::End;
        };
        let drawn = match cursor.kept.take() {
            Some(kept) => Some(kept),
            None if cursor.ended => None,
            None => cursor.pattern.next_offset().map(|offset| (offset, write)),
        };
        let Some((mut offset, write)) = drawn else {
            cursor.ended = true;
            return Next::End;
        };
        let object = cursor.object;
        for _ in 0..TRIES {
            let generation = match self.ledgers.get(object) {
                None => Some(0),
                Some(ledger) if write => ledger.begin_write(offset),
                Some(ledger) => ledger.begin_read(offset),
            };
            if let Some(generation) = generation {
                return Next::Piece(Piece {
                    stream,
                    object,
                    offset,
                    write,
                    generation,
                });
            }
            match cursor.pattern.another() {
                Some(another) => offset = another,
                None => break,
            }
        }
        cursor.kept = Some((offset, write));
        Next::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Objects;
    use crate::job::{Lane, Stream};

    fn job(run_length: u32) -> Job {
        let objects = Objects::Files(vec!["a".into(), "b".into()]);
        Job {
            run_length,
            ..Job::new("stress", objects, 4096)
        }
    }

    fn lane(blocks: &[u64]) -> Lane {
        let stream = |(object, &blocks): (usize, &u64)| Stream {
            object,
            start: 0,
            end: blocks * 4096,
        };
        Lane {
            depth: 4,
            batch: 1,
            streams: blocks.iter().enumerate().map(stream).collect(),
        }
    }

    fn drain(schedule: &mut Schedule<'_>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Next::Piece(piece) = schedule.next() {
            pieces.push(piece);
        }
        pieces
    }

    #[test]
    fn some_requests_on_each_file_and_then_the_next() {
        let (job, lane) = (job(3), lane(&[7, 4]));
        let mut schedule = Schedule::new(&job, &lane, &Stage::of(Rw::Write), [0, 0], &[]);
        let order: Vec<(usize, u64)> = drain(&mut schedule)
            .iter()
            .map(|piece| (piece.object, piece.offset / 4096))
            .collect();
        let expected = [
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
            (1, 2),
            (0, 3),
            (0, 4),
            (0, 5),
            (1, 3),
            (0, 6),
        ];
        assert_eq!(order, expected);
        assert_eq!(schedule.next(), Next::End);
    }

    #[test]
    fn a_mix_has_as_many_reads_as_asked_for() {
        for (read_percent, expected) in [(0, 4000..4001), (20, 3000..3400), (50, 1800..2200), (100, 0..1)] {
            let job = Job { read_percent, ..job(8) };
            let lane = lane(&[4000]);
            let mut schedule = Schedule::new(&job, &lane, &Stage::of(Rw::RandomMixed), [0, 0], &[]);
            let writes = drain(&mut schedule).iter().filter(|piece| piece.write).count();
            assert!(expected.contains(&writes), "{read_percent}: {writes}");
        }
    }

    #[test]
    fn lanes_and_stages_draw_other_offsets() {
        let (job, lane) = (job(8), lane(&[1000]));
        let drawn = |place| drain(&mut Schedule::new(&job, &lane, &Stage::of(Rw::RandomRead), place, &[]));
        assert_eq!(drawn([0, 0]), drawn([0, 0]));
        assert_ne!(drawn([0, 0]), drawn([1, 0]));
        assert_ne!(drawn([0, 0]), drawn([0, 1]));
    }

    #[test]
    fn no_two_writes_of_one_block_are_under_way() {
        let ledgers = [Arc::new(Ledger::new(4 * 4096, 4096, 0))];
        let (job, lane) = (job(8), lane(&[4]));
        let endless = Stage {
            endless: true,
            ..Stage::of(Rw::RandomWrite)
        };
        let mut schedule = Schedule::new(&job, &lane, &endless, [0, 0], &ledgers);
        let mut under_way: Vec<Piece> = Vec::new();
        for _ in 0..1000 {
            match schedule.next() {
                Next::Piece(piece) => {
                    assert!(under_way.iter().all(|other| other.offset != piece.offset), "{piece:?}");
                    under_way.push(piece);
                }
                Next::Busy => {
                    let done = under_way.remove(0);
                    ledgers[0].end_write(done.offset, true);
                }
                Next::End => panic!("an endless stage ended"),
            }
        }
    }

    #[test]
    fn once_with_blocks_in_use_skips_none() {
        let ledgers = [Arc::new(Ledger::new(16 * 4096, 4096, 0))];
        let (job, lane) = (job(8), lane(&[16]));
        let once = Stage {
            once: true,
            ..Stage::of(Rw::RandomWrite)
        };
        // Somebody else reads block 5 for a while.
        assert_eq!(ledgers[0].begin_read(5 * 4096), Some(0));
        let mut schedule = Schedule::new(&job, &lane, &once, [0, 0], &ledgers);
        let mut pieces = drain(&mut schedule);
        assert!(pieces.iter().all(|piece| piece.offset != 5 * 4096));
        assert_eq!(schedule.next(), Next::Busy);
        ledgers[0].end_read(5 * 4096);
        pieces.extend(drain(&mut schedule));
        let mut blocks: Vec<u64> = pieces.iter().map(|piece| piece.offset / 4096).collect();
        blocks.sort_unstable();
        assert_eq!(blocks, (0..16).collect::<Vec<_>>());
    }
}
