//! Which piece of the input is copied next.
//!
//! A *position* counts bytes from the beginning of the copy: the input is read at `skip + position`, the output written
//! at `seek + position`. Pieces are cut where the **output** reaches a multiple of the unit, so that only the first and
//! the last one are partial there, and no two pieces ever share a block of the output:
//!
//! ```text
//! output blocks   |        |        |        |        |
//! pieces               [ 0 ][      1        ][  2  ]
//!                      ^ seek                      ^ end of the input
//! ```
//!
//! The end of the input is where a read comes back short. Its size, where it has one, is only a hint (files in `/proc`
//! claim to be empty, and files grow): up to it pieces are read ahead, beyond it one at a time.

/// A run of bytes to be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first byte, counted from the beginning of the copy.
    pub(super) position: u64,
    /// How many bytes.
    pub(super) len: u64,
    /// There is no room for it on the output: if the input has it, the copy has failed.
    pub(super) has_no_room: bool,
}

/// How a copy is cut into pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    /// Bytes of a piece.
    pub(super) piece: u64,
    /// Pieces end where the output offset is a multiple of this; 1 where any byte will do.
    pub(super) unit: u64,
    /// The output offset of position 0.
    pub(super) seek: u64,
}

impl Cuts {
    /// Where the piece that begins at `position` ends.
    pub(super) fn end_of(&self, position: u64) -> u64 {
        let into_unit = self.seek.saturating_add(position) % self.unit.max(1);
        let len = self.piece.saturating_sub(into_unit).max(1);
        position.saturating_add(len)
    }
}

/// How far a copy may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// What `count=` allows, in bytes.
    pub(super) count: u64,
    /// What the output has room for, in bytes.
    pub(super) room: u64,
}

impl Bounds {
    /// Bytes that may be written.
    pub(super) fn limit(&self) -> u64 {
        self.count.min(self.room)
    }
}

/// The pieces of an input that can be read at any offset.
#[derive(Debug)]
pub(super) struct Plan {
    cuts: Cuts,
    bounds: Bounds,
    /// Bytes that the input seems to have.
    hint: u64,
    /// Bytes of a record: as much is read to find out whether the input goes on beyond the room.
    record: u64,
    next: u64,
    ended: bool,
}

impl Plan {
    pub(super) fn new(cuts: Cuts, bounds: Bounds, hint: u64, record: u64) -> Plan {
        Plan {
            cuts,
            bounds,
            hint,
            record,
            next: 0,
            ended: false,
        }
    }

    /// The next piece to read while `reading` others are being read; `None` for now, or for good.
    pub(super) fn next_piece(&mut self, reading: usize) -> Option<Piece> {
        let must_wait = self.next >= self.hint && reading > 0;
        if self.ended || must_wait {
            return None;
        }
        let position = self.next;
        let limit = self.bounds.limit();
        if position >= limit {
            self.ended = true;
            return self.probe(position);
        }
        self.next = self.cuts.end_of(position).min(limit);
        Some(Piece {
            position,
            len: self.next - position,
            has_no_room: false,
        })
    }

    /// A full output fails only if there is more to be written.
    fn probe(&self, position: u64) -> Option<Piece> {
        let more = self.bounds.count.saturating_sub(position).min(self.record);
        (more > 0).then_some(Piece {
            position,
            len: more,
            has_no_room: true,
        })
    }

    /// The input has ended, or the copy has failed.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: Bounds = Bounds {
        count: u64::MAX,
        room: u64::MAX,
    };

    fn cuts(piece: u64, seek: u64) -> Cuts {
        Cuts {
            piece,
            unit: 4096,
            seek,
        }
    }

    fn pieces(mut plan: Plan) -> Vec<(u64, u64, bool)> {
        let next = std::iter::from_fn(|| plan.next_piece(0));
        next.take(5)
            .map(|piece| (piece.position, piece.len, piece.has_no_room))
            .collect()
    }

    #[test]
    fn only_the_first_and_the_last_piece_are_partial() {
        let bounds = Bounds {
            count: 20000,
            ..ENDLESS
        };
        let plan = Plan::new(cuts(8192, 100), bounds, 20000, 512);
        assert_eq!(
            pieces(plan),
            [(0, 8092, false), (8092, 8192, false), (16284, 3716, false)]
        );
    }

    #[test]
    fn a_full_output_is_probed_for_more() {
        let bounds = Bounds { room: 8192, ..ENDLESS };
        let plan = Plan::new(cuts(8192, 0), bounds, u64::MAX, 512);
        assert_eq!(pieces(plan), [(0, 8192, false), (8192, 512, true)]);
        let exactly = Bounds {
            count: 8192,
            room: 8192,
        };
        assert_eq!(
            pieces(Plan::new(cuts(8192, 0), exactly, u64::MAX, 512)),
            [(0, 8192, false)]
        );
    }

    #[test]
    fn beyond_the_hint_pieces_come_one_at_a_time() {
        let mut plan = Plan::new(cuts(4096, 0), ENDLESS, 4097, 512);
        assert!(plan.next_piece(0).is_some());
        assert!(plan.next_piece(1).is_some());
        assert!(plan.next_piece(2).is_none());
        assert!(plan.next_piece(0).is_some());
        plan.end();
        assert!(plan.next_piece(0).is_none());
    }

    #[test]
    fn pieces_need_not_be_cut() {
        let uncut = Cuts {
            piece: 7,
            unit: 1,
            seek: 3,
        };
        assert_eq!(uncut.end_of(5), 12);
        assert_eq!(uncut.end_of(u64::MAX), u64::MAX);
    }
}
